//! Programs in several languages are copied once; source and copy print what an undisturbed run prints.

use cloner_tests::{Host, Link, Push, Random, Source, compile, root, workshop};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn undisturbed(program: &Path, arguments: &[&str]) -> Vec<String> {
    let ended = Command::new(program).args(arguments).stdin(Stdio::null()).output().expect("the program runs");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).expect("text").lines().map(str::to_owned).collect()
}

fn copied_once(program: &Path, arguments: &[&str], options: &[&str]) {
    let expected = undisturbed(program, arguments);
    let host = Host::start();
    let source = Source::start(program, arguments);
    Random::new(&format!("{program:?}")).moment(300);
    let push = Push::run(source.pid, &host.address, options);
    assert_eq!(push.code, 0, "{}", push.message);
    let outcome = source.finish();
    assert_eq!(outcome.lines, expected, "the source");
    assert_eq!(outcome.code, Some(0));
    assert_eq!(host.output_of_copy(), expected, "the copy");
}

#[test]
fn cpp_with_exceptions_and_thread_locals() {
    copied_once(&compile("exceptions.cpp", &[]), &["30000"], &["--verify-memory"]);
}

#[test]
fn openmp() {
    copied_once(&compile("openmp.c", &["-fopenmp"]), &["2000"], &["--verify-memory"]);
}

#[test]
fn fortran() {
    copied_once(&compile("waves.f90", &[]), &["10000"], &["--verify-memory"]);
}

#[test]
fn rust() {
    copied_once(Path::new(env!("CARGO_BIN_EXE_cloner-test-crates")), &["100000"], &["--verify-memory"]);
}

#[test]
fn python_with_threads() {
    let python =
        ["REDRT_PYTHON"].iter().find_map(std::env::var_os).map_or_else(|| PathBuf::from("python3"), PathBuf::from);
    let found = Command::new(&python).args(["-c", "import sys; print(sys.executable)"]).output().expect("python3 runs");
    let python = PathBuf::from(String::from_utf8(found.stdout).expect("a path").trim());
    let program = root().join("cloner/cloner-tests/programs/snakes.py");
    let program = program.canonicalize().expect("it is there");
    copied_once(&python, &[program.to_str().expect("text"), "1000"], &["--verify-memory"]);
}

/// Writes a script into the workshop.
fn script(name: &str, interpreter: &str, text: &str) -> PathBuf {
    let path = workshop().join(name);
    script_file::write(&path, &format!("#!{interpreter}\n{text}\n"));
    path
}

#[test]
fn a_script_that_executes_a_program_in_its_place() {
    let program = compile("exceptions.cpp", &[]);
    let wrapper = script("wrapper", "/bin/sh", &format!("exec {} \"$@\"", program.display()));
    copied_once(&wrapper, &["30000"], &["--verify-memory"]);
}

/// It has yet to execute the program when it is copied first.
#[test]
fn a_copied_script_can_be_copied_after_it_runs_its_program() {
    let program = compile("exceptions.cpp", &[]);
    let (arguments, gate) = (["100000"], workshop().join("gate"));
    let (shown, expected) = (program.display(), undisturbed(&program, &arguments));
    let text = format!("echo running\nwhile [ ! -e {} ]; do :; done\nexec {shown} \"$@\"", gate.display());
    let (first, second) = (Host::start(), Host::start());
    let source = Source::start(&script("gated", "/bin/bash", &text), &arguments);
    let push = Push::run(source.pid, &first.address, &[]);
    assert_eq!(push.code, 0, "{}", push.message);
    std::fs::write(&gate, "").expect("it can be written");
    let copy = push.copy_pid();
    let begun = Instant::now();
    while std::fs::read_link(format!("/proc/{copy}/exe")).expect("it runs") != program.canonicalize().expect("a file") {
        assert!(begun.elapsed() < Duration::from_secs(60), "the copy does not execute its program");
        std::thread::yield_now();
    }
    let push = Push::run(copy, &second.address, &[]);
    assert_eq!(push.code, 0, "{}", push.message);
    let expected = [vec!["running".to_owned()], expected].concat();
    assert_eq!(source.finish().lines, expected, "the source");
    assert_eq!(first.output_of_copy(), expected, "its copy");
    // The copy may have been made before or after the program printed "running".
    let without_begin = |lines: Vec<String>| lines.into_iter().filter(|line| line != "running").collect::<Vec<_>>();
    assert_eq!(without_begin(second.output_of_copy()), without_begin(expected), "the copy of the copy");
}

#[test]
fn programs_that_a_script_starts_see_nothing_of_the_agent() {
    let text =
        "echo running\nenv | grep REDCLONE_AGENT\nenv | grep libredclone\nls -l /proc/self/fd | grep socket\necho end";
    let outcome = Source::start(&script("starter", "/bin/sh", text), &[]).finish();
    assert_eq!(outcome.lines, ["running", "end"]);
}

#[test]
fn memory_can_be_compressed() {
    let program = compile("torture.c", &["-lrt"]);
    for how in ["zstd", "lz4"] {
        copied_once(&program, &["5", "30"], &["--compress", how, "--verify-memory"]);
    }
}

#[test]
fn without_tracking_the_copy_is_the_same() {
    copied_once(
        &compile("torture.c", &["-lrt"]),
        &["6", "30"],
        &["--tracking", "none", "--verify-memory", "--streams", "1"],
    );
}

#[test]
fn an_image_in_a_file_becomes_a_process_as_often_as_wanted() {
    let program = compile("torture.c", &["-lrt"]);
    let expected = undisturbed(&program, &["9", "60"]);
    let source = Source::start(&program, &["9", "60"]);
    let file = workshop().join("image");
    let saved = Push::save(source.pid, &file, &["--verify-memory"]);
    assert_eq!(saved.code, 0, "{}", saved.message);
    assert_eq!(source.finish().lines, expected);
    for _ in 0..2 {
        let copy = Source::load(&file).finish();
        assert_eq!(copy.lines, expected);
        assert_eq!(copy.code, Some(0));
    }
}

/// The file is replaced during the copy.
#[test]
fn a_program_with_a_replaced_file_is_copied_whole() {
    let compiled = compile("torture.c", &["-lrt"]);
    // The program may not have the replaced file open: that is refused. It reads another one.
    let arguments = ["31", "60", "/nonexistent", compiled.to_str().expect("text")];
    let expected = undisturbed(&compiled, &arguments);
    let directory = tempfile::tempdir_in(workshop()).expect("the disk has room");
    let (program, newer) = (directory.path().join("torture"), directory.path().join("newer"));
    for file in [&program, &newer] {
        std::fs::copy(&compiled, file).expect("the disk has room");
    }
    let host = Host::start();
    let source = Source::start(&program, &arguments);
    // The first round is being sent, and later frames are far from any buffer.
    let link = Link::doing(&host.address, 1 << 20, move || std::fs::rename(newer, program).expect("it is there"));
    let push = Push::run(source.pid, &link.address.to_string(), &["--verify-memory"]);
    assert!(link.struck(), "the file was not replaced");
    assert_eq!(push.code, 0, "{}", push.message);
    assert_eq!(source.finish().lines, expected, "the source");
    assert_eq!(host.output_of_copy(), expected, "the copy");
}

#[test]
fn what_belongs_to_the_process_is_carried() {
    let program = compile("belongings.c", &["-lrt"]);
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = [directory.path().to_str().expect("text")];
    let host = Host::start();
    let source = Source::start(&program, &arguments);
    let push = Push::run(source.pid, &host.address, &["--verify-memory"]);
    assert_eq!(push.code, 0, "{}", push.message);
    // The program has reserved 100 GiB.
    let sent = push.report.and_then(|report| report["sent_bytes"].as_u64());
    assert!(sent.is_some_and(|sent| sent < 8 << 20), "{sent:?}");
    assert_eq!(host.output_of_copy(), ["running", "done"]);
    assert_eq!(source.finish().lines, ["running", "done"]);
}

#[test]
fn what_the_kernel_keeps_for_a_process_is_carried() {
    let program = compile("attributes.c", &["-lrt"]);
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = [directory.path().to_str().expect("text")];
    let host = Host::start();
    let source = Source::start(&program, &arguments);
    let push = Push::run(source.pid, &host.address, &["--verify-memory"]);
    assert_eq!(push.code, 0, "{}", push.message);
    assert_eq!(host.output_of_copy(), ["running", "done"]);
    assert_eq!(source.finish().lines, ["running", "done"]);
}

/// Names are bytes: a thread's name may be cut within a character, and a file's may have another encoding.
#[test]
fn names_that_are_no_text_are_carried() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path().join(OsStr::from_bytes(b"d\xfcr"));
    std::fs::create_dir(&directory).expect("a directory");
    // 15 bytes end within the last character.
    let program = directory.join("gasturbine-str\u{f6}mung");
    std::fs::copy(compile("names.c", &[]), &program).expect("the disk has room");
    let host = Host::start();
    let source = Source::start(&program, &[]);
    let push = Push::run(source.pid, &host.address, &["--verify-memory"]);
    assert_eq!(push.code, 0, "{}", push.message);
    assert_eq!(host.output_of_copy(), ["running", "done"]);
    assert_eq!(source.finish().lines, ["running", "done"]);
}

/// A file in the place of a standard stream is carried as a file, and a stream under another number is a stream.
#[test]
fn standard_streams_are_known_wherever_they_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let (program, place) = (compile("streams.c", &[]), directory.path().display().to_string());
    let text = format!("exec {} 4<&0 <{place}/in 3>&1 >{place}/out", program.display());
    std::fs::write(directory.path().join("in"), "first\nsecond\n").expect("the disk has room");
    let wrapper = script("streams", "/bin/sh", &text);
    let host = Host::start();
    let source = Source::start(&wrapper, &[]);
    let file = workshop().join("streams-image");
    let saved = Push::save(source.pid, &file, &["--verify-memory"]);
    assert_eq!(saved.code, 0, "{}", saved.message);
    let push = Push::run(source.pid, &host.address, &["--verify-memory"]);
    assert_eq!(push.code, 0, "{}", push.message);
    assert_eq!(host.output_of_copy(), ["running", "second", "done"]);
    assert_eq!(Source::load(&file).finish().lines, ["running", "second", "done"]);
    assert_eq!(source.finish().lines, ["running", "second", "done"]);
    let out = std::fs::read_to_string(directory.path().join("out")).expect("it was written");
    assert_eq!(out, "begun\nended\n");
}

#[test]
fn a_user_without_privileges_can_do_all_of_it() {
    // SAFETY: - `geteuid` takes no arguments and touches no memory.
    if unsafe { libc::geteuid() } != 0 {
        // All other tests have run without privileges already.
        return;
    }
    const NOBODY: u32 = 65534;
    let program = compile("torture.c", &["-lrt"]);
    // Programs and the installation must be readable by other users.
    std::fs::set_permissions(workshop(), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let expected = undisturbed(&program, &["11", "60"]);
    let host = Host::start_as(Some(NOBODY));
    let source = Source::start_as(Some(NOBODY), &program, &["11", "60"]);
    let push = Push::run_as(Some(NOBODY), source.pid, &host.address, &["--verify-memory"]);
    assert_eq!(push.code, 0, "{}", push.message);
    assert_eq!(source.finish().lines, expected);
    assert_eq!(host.output_of_copy(), expected);
}

#[test]
fn an_embedder_holds_locks_over_the_cut_and_renews_sockets() {
    let host = Host::start();
    let source = Source::start_embedder(Path::new(env!("CARGO_BIN_EXE_cloner-test-embedder")), 0);
    let push = Push::run(source.pid, &host.address, &[]);
    assert_eq!(push.code, 0, "{}", push.message);
    assert_eq!(host.output_of_copy(), ["running", "before cut, in copy after", "done"]);
    assert_eq!(source.finish().lines, ["running", "before cut, in source after", "done"]);
}

#[test]
fn the_agent_does_nothing_while_nobody_asks() {
    let source = Source::start(&compile("torture.c", &["-lrt"]), &["13", "40"]);
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let waits = format!("{} ", libc::SYS_accept4);
    // The agent names itself and waits soon afterwards, unless the program has ended before.
    let agent = loop {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", source.pid)).expect("it runs");
        let mut tasks = tasks.filter_map(Result::ok).map(|task| task.path());
        let agent = tasks.find(|task| read(task.join("comm")).trim() == "redclone");
        if let Some(agent) = agent.filter(|agent| read(agent.join("syscall")).starts_with(&waits)) {
            break agent;
        }
        std::thread::yield_now();
    };
    let switches = || {
        let status = read(agent.join("status"));
        status.lines().filter(|line| line.contains("ctxt_switches")).map(str::to_owned).collect::<Vec<_>>()
    };
    let before = switches();
    Random::new("idle").moment(1000);
    assert_eq!((before.len(), switches()), (2, before));
    assert_eq!(source.finish().code, Some(0));
}
