//! The one file that answers to all names.

use super::program;
use std::process::{Command, Output};

fn redrt(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_redrt")).args(arguments).output().expect("it can be run")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it is text")
}

#[test]
fn a_word_does_what_the_name_does() {
    let words =
        [("run", "redrun"), ("ctl", "redctl"), ("report", "redreport"), ("plan", "redplan"), ("clone", "redclone")];
    for (word, name) in words {
        let by_name = Command::new(program(name)).arg("--help").output().expect("it can be run");
        assert!(by_name.status.success(), "{name}");
        for called in [word, name] {
            assert_eq!(redrt(&[called, "--help"]).stdout, by_name.stdout, "{called}");
        }
    }
    let failed = redrt(&["run", "-n", "0", "true"]);
    let by_name = Command::new(program("redrun")).args(["-n", "0", "true"]).output().expect("it can be run");
    assert_eq!((failed.status, failed.stderr), (by_name.status, by_name.stderr));
}

#[test]
fn what_is_no_program_is_refused_in_one_line() {
    let output = redrt(&["fly"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("fly"), "{output:?}");
    let help = redrt(&[]);
    assert_eq!(help.status.code(), Some(2));
    assert!(text(&help.stderr).contains("redrun"), "{help:?}");
    assert!(text(&redrt(&["--help"]).stdout).contains("Run an MPI program"));
}

#[test]
fn simulators_are_a_file_beside_redrt() {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let redrt = directory.path().join("redrt");
    std::fs::copy(env!("CARGO_BIN_EXE_redrt"), &redrt).expect("it can be copied");
    let sim = || Command::new(&redrt).args(["sim", "library", "7"]).output().expect("it can be run");
    let missing = sim();
    assert_eq!(missing.status.code(), Some(1));
    assert_eq!(text(&missing.stderr), "redrt: redrt-sim is not installed beside redrt\n");
    script_file::write(directory.path().join("redrt-sim"), "#!/bin/sh\necho \"$@\"\n");
    assert_eq!(text(&sim().stdout), "library 7\n");
}

#[test]
fn a_job_runs_by_the_word() {
    let output = redrt(&["run", "-n", "2", "sh", "-c", "cat /proc/$PPID/comm"]);
    assert!(output.status.success(), "{output:?}");
    // The parent of a rank has the program's name, although the file has another.
    assert_eq!(text(&output.stdout), "redrtd\nredrtd\n");
}
