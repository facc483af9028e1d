#!/usr/bin/env python3
"""Runs the test programs of the workspace, one after another: run-tests.py [--except NAME]... [-- ARGUMENT...]

That is what `cargo test --workspace` does but for its documentation tests, without the programs that are named. `cargo
test --lib` would build more: also the libraries that say that they have no tests, and cannot be linked as programs.
All programs are run, also after one that fails; the exit code is then 1.
"""
import json
import os
import subprocess
import sys


def programs():
    """The name, file and directory of each test program, built if need be."""
    command = ["cargo", "test", "--workspace", "--locked", "--no-run", "--message-format=json"]
    built = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True)
    if built.returncode != 0:
        sys.exit(built.returncode)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            yield message["target"]["name"], message["executable"], os.path.dirname(message["manifest_path"])


def main():
    words = sys.argv[1:]
    arguments = words[words.index("--") + 1 :] if "--" in words else []
    options = words[: words.index("--")] if "--" in words else words
    if len(options) % 2 or any(option != "--except" for option in options[::2]):
        sys.exit(f"usage: {sys.argv[0]} [--except NAME]... [-- ARGUMENT...]")
    failed = []
    for name, program, directory in programs():
        if name in options[1::2]:
            continue
        print(f"     Running {name} ({os.path.basename(program)})", flush=True)
        environment = {**os.environ, "CARGO_MANIFEST_DIR": directory}
        if subprocess.run([program, *arguments], cwd=directory, env=environment, check=False).returncode != 0:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


main()
