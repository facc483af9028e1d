//! Programs that run like replicas: below a process named `redrtd`, with the library preloaded.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The library. Cargo does not build it for its tests, as nothing links it.
pub fn library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "redrt-preload"]);
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success());
        let test = std::env::current_exe().expect("a test knows its own file");
        // target/PROFILE/deps/agreement-HASH
        test.parent().unwrap().with_file_name("libredrt_preload.so")
    };
    BUILT.get_or_init(build).clone()
}

/// Runs a program as a child of a process named `redrtd`, like a replica, and returns its output.
pub fn run_as_replica(seed: &str, rank: &str, program: &str, arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let daemon = directory.path().join("redrtd");
    std::os::unix::fs::symlink("/bin/sh", &daemon).unwrap();
    let output = Command::new(&daemon)
        // The second command keeps the shell from replacing itself by the first.
        .args(["-c", "LD_PRELOAD=$PRELOAD \"$@\"; exit $?", "sh", program])
        .args(arguments)
        .env("PRELOAD", library())
        .env("REDRT_SEED", seed)
        .env("REDRT_RANK", rank)
        .env("REDRT_START_NS", "1700000000000000000")
        .env("REDRT_START_MONOTONIC_NS", "5000000000")
        .env("REDRT_HOST", "some-host")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{program} {arguments:?}: {}\n{errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Compiles a program in C. The binary exists as long as the directory.
pub fn compile(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (directory.path().join("program.c"), directory.path().join("program"));
    std::fs::write(&source, text).unwrap();
    let compiled = Command::new("cc").arg("-o").args([&program, &source]).args(["-pthread", "-ldl"]).status().unwrap();
    assert!(compiled.success());
    (directory, program)
}
