//! What cannot be copied is refused before anything is touched, by name.

use cloner_tests::{Host, Push, Source, compile};
use std::ffi::OsStr;

const PREPARE: i32 = 10;

#[test]
fn what_cannot_be_carried_is_named() {
    let program = compile("stubborn.c", &[]);
    let host = Host::start();
    for (what, named) in [
        ("socket", "network socket 127.0.0.1:"),
        ("unix", "unix socket"),
        ("child", "child process"),
        ("inotify", "inotify"),
        ("deleted", "deleted file"),
        ("pipe", "pipe whose other end"),
        ("file", "shared mapping of"),
        ("first", "first thread has ended"),
    ] {
        let source = Source::start(&program, &[what]);
        let push = Push::run(source.pid, &host.address, &[]);
        assert_eq!(push.code, PREPARE, "{what}: {}", push.message);
        assert!(push.message.contains("refused") && push.message.contains(named), "{what}: {}", push.message);
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
    let run = Push::redclone(&["run", "--", "no-such-program"].map(OsStr::new));
    assert_eq!(run.code, 127);
}

#[test]
fn a_process_without_an_agent_is_refused() {
    let push = Push::run(std::process::id(), "127.0.0.1:1", &[]);
    assert_eq!(push.code, PREPARE);
    assert!(push.message.contains("was not started by redclone run"), "{}", push.message);
}
