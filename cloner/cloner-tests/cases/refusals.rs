//! Processes that cannot be copied are refused by name, before anything is touched.

use cloner_tests::{Host, Push, Source, compile, workshop};
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;

const PREPARE: i32 = 10;
const CUT: i32 = 12;

#[test]
fn what_cannot_be_carried_is_named() {
    // SAFETY: - `geteuid` takes no arguments and touches no memory.
    let is_root = unsafe { libc::geteuid() } == 0;
    let program = compile("stubborn.c", &[]);
    let host = Host::start();
    for (what, named) in [
        ("socket", "network socket 127.0.0.1:"),
        ("unix", "unix socket"),
        ("child", " an apprentice"),
        ("inotify", "inotify"),
        ("deleted", "deleted file"),
        ("pipe", "pipe whose other end"),
        ("file", "shared mapping of"),
        ("first", "first thread has ended"),
        ("pty", "the device /dev/ptmx"),
        ("device", "the device /dev/kmsg"),
        ("fifo", "is the "),
        ("io_uring", "anon_inode:"),
        ("seccomp", "seccomp filter"),
        ("sysv", "/SYSV"),
        ("lease", "on which there is a lease"),
        ("signalling", "which sends signals"),
        ("queue", "that is another file by now"),
        ("root", "/proc is hidden"),
        ("namespace", "has made a namespace of its own (ns/uts)"),
        ("user", "runs as another user"),
    ] {
        if ["root", "namespace", "user"].contains(&what) && !is_root {
            eprintln!("skipped: {what} takes root");
            continue;
        }
        let source = Source::start(&program, &[what]);
        let push = Push::run(source.pid, &host.address, &[]);
        assert_eq!(push.code, PREPARE, "{what}: {}", push.message);
        assert!(push.message.contains("refused") && push.message.contains(named), "{what}: {}", push.message);
        assert_eq!(source.finish().lines, ["running", "done"], "{what}");
    }
}

#[test]
fn more_timers_than_are_carried_are_a_failed_cut() {
    let program = compile("stubborn.c", &[]);
    let host = Host::start();
    let source = Source::start(&program, &["timers"]);
    let push = Push::run(source.pid, &host.address, &[]);
    assert_eq!(push.code, CUT, "{}", push.message);
    assert!(push.message.contains("more POSIX timers"), "{}", push.message);
    host.wait_until_empty();
    assert_eq!(source.finish().lines, ["running", "done"]);
}

/// Reasons that are visible only in a stopped process.
#[test]
fn what_cannot_be_carried_is_named_at_the_cut() {
    let program = compile("stubborn.c", &[]);
    let host = Host::start();
    for (what, named) in [
        ("sealed", "of the memfd \"sealed\", which is sealed against writing"),
        ("segments", "has segments of its own"),
        ("gone", "of which the process has no descriptor any more"),
    ] {
        let source = Source::start(&program, &[what]);
        let push = Push::run(source.pid, &host.address, &[]);
        assert_eq!(push.code, CUT, "{what}: {}", push.message);
        assert!(push.message.contains("refused") && push.message.contains(named), "{what}: {}", push.message);
        host.wait_until_empty();
        assert_eq!(source.finish().lines, ["running", "done"], "{what}");
    }
}

#[test]
fn descriptors_that_cannot_be_carried_can_be_left_out() {
    let program = compile("stubborn.c", &[]);
    let host = Host::start();
    let source = Source::start(&program, &["socket"]);
    let push = Push::run(source.pid, &host.address, &["--close-unsupported"]);
    assert_eq!(push.code, 0, "{}", push.message);
    assert_eq!(host.output_of_copy(), ["running", "done"]);
    assert_eq!(source.finish().lines, ["running", "done"]);
}

#[test]
fn programs_that_cannot_be_cloned_are_not_started() {
    let program = compile("stubborn.c", &["-static"]);
    let run = Push::redclone(&[OsStr::new("run"), OsStr::new("--"), program.as_os_str()]);
    assert_eq!(run.code, 126);
    assert!(run.message.contains("statically linked"), "{}", run.message);
    let program = compile("stubborn.c", &[]);
    let others = tempfile::tempdir_in(workshop()).expect("the disk has room");
    let privileged = others.path().join("privileged");
    std::fs::copy(&program, &privileged).expect("the disk has room");
    std::fs::set_permissions(&privileged, std::fs::Permissions::from_mode(0o4755)).expect("it is ours");
    let foreign = others.path().join("foreign");
    let mut bytes = std::fs::read(&program).expect("it was compiled");
    // The machine field of the ELF header: 183 is AArch64.
    bytes[18] = 183;
    std::fs::write(&foreign, bytes).expect("the disk has room");
    for (program, named) in [(&privileged, "setuid"), (&foreign, "not a program for x86-64")] {
        let run = Push::redclone(&[OsStr::new("run"), OsStr::new("--"), program.as_os_str()]);
        assert_eq!(run.code, 126, "{}", run.message);
        assert!(run.message.contains(named), "{}", run.message);
    }
    let run = Push::redclone(&["run", "--", "no-such-program"].map(OsStr::new));
    assert_eq!(run.code, 127);
}

/// A program may have ended before anything has looked at it.
#[test]
fn programs_that_end_at_once_have_run() {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let run = Push::redclone(&["run", "--", "sh", "-c", "exit 3"].map(OsStr::new));
                    assert_eq!(run.code, 3, "{}", run.message);
                }
            });
        }
    });
}

#[test]
fn a_process_without_an_agent_is_refused() {
    let push = Push::run(std::process::id(), "127.0.0.1:1", &[]);
    assert_eq!(push.code, PREPARE);
    assert!(push.message.contains("was not started by redclone run"), "{}", push.message);
}
