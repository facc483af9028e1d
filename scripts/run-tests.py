#!/usr/bin/env python3
"""Builds the test programs of the workspace, and runs some of them, one after another.

    run-tests.py build LIST [OPTION of cargo test]...
    run-tests.py run LIST [--only NAME]... [--except NAME]... [-- ARGUMENT...]

`build` writes to LIST what it has built. `run` does not ask cargo again, so it runs beside what else cargo builds.
Documentation tests are not among them. All programs are run, also after one that fails; the exit code is then 1.
"""
import argparse
import json
import os
import subprocess
import sys


def build(listed, options):
    """Writes the name, file and directory of each test program that cargo builds with these options."""
    command = ["cargo", "test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics"]
    built = subprocess.run([*command, *options], stdout=subprocess.PIPE, check=False, text=True)
    if built.returncode != 0:
        sys.exit(built.returncode)
    messages = (json.loads(line) for line in built.stdout.splitlines() if line.startswith("{"))
    programs = [
        {"name": it["target"]["name"], "program": it["executable"], "directory": os.path.dirname(it["manifest_path"])}
        for it in messages
        if it.get("executable") and it["profile"]["test"]
    ]
    with open(listed, "w", encoding="utf-8") as file:
        json.dump(programs, file, indent=1)


def run(listed, only, without, arguments):
    """Runs the listed programs, from their packages' directories as cargo does."""
    with open(listed, encoding="utf-8") as file:
        programs = json.load(file)
    known = {program["name"] for program in programs}
    if missing := [name for name in only + without if name not in known]:
        sys.exit(f"{sys.argv[0]}: not in {listed}: {', '.join(missing)}")
    failed = []
    for program in programs:
        name = program["name"]
        if (only and name not in only) or name in without:
            continue
        print(f"     Running {name} ({os.path.basename(program['program'])})", flush=True)
        environment = {**os.environ, "CARGO_MANIFEST_DIR": program["directory"]}
        command = [program["program"], *arguments]
        if subprocess.run(command, cwd=program["directory"], env=environment, check=False).returncode != 0:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def main():
    """Reads the command line."""
    words = sys.argv[1:]
    arguments = words[words.index("--") + 1 :] if "--" in words else []
    words = words[: words.index("--")] if "--" in words else words
    if words[:1] == ["build"] and len(words) > 1:
        return build(words[1], words[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["build", "run"])
    parser.add_argument("list")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--except", action="append", default=[], dest="without")
    options = parser.parse_args(words)
    return run(options.list, options.only, options.without, arguments)


main()
