//! Commands of `--on-event`, files of options, and the standard's requirements on `mpiexec`.

use redrt_tests::{Job, compile, compile_source, prefix};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[test]
fn a_command_is_run_for_what_an_administrator_wants_to_hear_of() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events");
    let command = format!("printf '%s: %s\\n' \"$REDRT_EVENT\" \"$REDRT_MESSAGE\" >> {}", path.display());
    let job = Job::new(2, &compile("ring")).degree(2).inject("kill:1.0@#3").options(&["--on-event", &command]);
    let ended = job.run().ended_with(0);
    let events = std::fs::read_to_string(&path).unwrap();
    let mut events = events.lines();
    assert_eq!(events.next(), Some("job-start: "), "{ended}");
    let lost = events.next().unwrap_or_default();
    assert!(lost.starts_with("replica-lost: lost replica 1.0 on ") && lost.contains("killed by signal 9"), "{ended}");
    assert_eq!(events.next_back().map(|line| line.starts_with("job-end: ")), Some(true), "{ended}");
}

/// The failure is reported and costs the job nothing else.
#[test]
fn a_command_that_fails_does_not_fail_the_job() {
    let job = Job::new(1, Path::new("/bin/true")).options(&["--on-event", "echo no mail >&2; exit 7"]);
    let ended = job.run().ended_with(0);
    ended.said("--on-event, for job-start: the command ended with exit code 7: no mail");
}

/// A user need not wait for the command.
#[test]
fn a_command_without_an_end_is_left_at_ctrl_c() {
    let directory = tempfile::tempdir().unwrap();
    let gate = directory.path().join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let command = format!("cat {}", gate.display());
    let job = Job::new(1, Path::new("/bin/echo")).arguments(&["here"]).options(&["--on-event", &command]).start();
    job.wait_until("output", |job| job.output().contains("here"));
    let mut ended = None;
    // One Ctrl-C may not suffice: the first ends a job that has not quite ended.
    while ended.is_none() {
        job.signal(libc::SIGINT);
        std::thread::sleep(Duration::from_millis(50));
        ended = job.has_ended().then_some(());
    }
    let _ = job.wait().said("events were not told, or not to their end");
}

/// The arguments reach the program through its helper, over a socket.
#[test]
fn arguments_may_be_longer_than_a_socket_takes_at_once() {
    let long = "x".repeat(120_000);
    let arguments = ["-c", "echo $# ${#1} ${#3}", "sh", &long, &long, &long];
    let job = Job::new(1, Path::new("/bin/sh")).arguments(&arguments).options(&["--spares", "1"]);
    assert_eq!(job.run().ended_well().out, "3 120000 120000\n");
}

/// Each replica would get a part of a pipe, and of a file the bytes that the other has not read.
#[test]
fn what_the_shell_has_opened_for_redrun_is_not_for_replicas() {
    let redrun = prefix().join("bin/redrun").display().to_string();
    let says = |options: &str, program: &str| {
        let line = format!("exec 7<<<'one' && {redrun} -q {options} -n 1 {program}");
        let output = Command::new("bash").arg("-c").arg(line).output().expect("bash can be run");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let is_open = "sh -c 'test -e /proc/self/fd/7 && cat <&7 || echo closed'";
    for options in ["-r 2", "-r 1 --spares 1"] {
        let (code, _, error) = says(options, "cat --number=/dev/fd/7");
        assert!(code == Some(2) && error.contains("descriptor 7 is open in redrun alone"), "{code:?} {error}");
        let (code, out, error) = says(options, "cat --number=/dev/fd/77");
        assert!(code == Some(1) && error.contains("--number"), "its own business: {code:?} {out} {error}");
        let (code, out, error) = says(options, &is_open.replace("/7", "/$((3 + 4))"));
        assert_eq!((code, out.as_str()), (Some(0), "closed\n"), "{error}");
    }
    let (code, out, error) = says("-r 1", "cat /dev/fd/7");
    assert_eq!((code, out.as_str()), (Some(0), "one\n"), "{error}");
}

#[test]
fn the_command_line_overrides_a_file_of_options() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("redrt.toml");
    std::fs::write(&path, "[redrun]\nlabel = true\ndegree = 2\n").unwrap();
    let job = |options: &[&str]| {
        let job = Job::new(1, Path::new("/bin/sh")).environment("REDRT_CONFIG", path.to_str().unwrap());
        job.arguments(&["-c", "echo here"]).options(options).run()
    };
    let ended = job(&[]).ended_with(0);
    assert!(ended.out.ends_with("here\n") && ended.out.len() > "here\n".len(), "{ended}");
    let _ = ended.said("1 rank x 2 replicas");
    let ended = job(&["-r", "1"]).ended_with(0);
    assert!(!ended.err.contains("replicas"), "{ended}");
    std::fs::write(&path, "[redrun]\ncolour = 'red'\n").unwrap();
    job(&[]).ended_with(2).said("redrt.toml: colour: redrun has no such option");
    std::fs::write(&path, "[redrun]\ndegree = 0\n").unwrap();
    job(&[]).ended_with(2).said("REDRT_CONFIG= leaves them out");
}

/// MPI-5.0 section 11.5 defines the option for it.
#[test]
fn communicators_begin_with_the_error_handler_of_mpiexec() {
    let source = r#"
        #include <mpi.h>
        #include <stdio.h>
        int main(int argc, char **argv) {
            MPI_Init(&argc, &argv);
            int code = MPI_Send(NULL, 0, MPI_INT, 99, 0, MPI_COMM_WORLD), class;
            MPI_Error_class(code, &class);
            printf("%s\n", class == MPI_ERR_RANK ? "returned" : "something else");
            MPI_Finalize();
        }"#;
    let (_directory, program) = compile_source(source);
    for degree in [1, 2] {
        let job = || Job::new(1, &program).degree(degree);
        let ended = job().options(&["-initial-errhandler", "mpi_errors_return"]).run().ended_with(0);
        assert_eq!(ended.out, "returned\n", "{ended}");
        let ended = job().run();
        assert!(!ended.out.contains("returned") && ended.code != Some(0), "{ended}");
    }
}

#[test]
fn a_debugger_is_started_at_replicas() {
    let job = Job::new(3, &compile("until")).degree(2);
    let ended = crate::while_computing(Duration::from_secs(60), job, |job| {
        let pid = job.pid_of("1.1");
        let debug = |words: &[&str]| job.redctl(&[&["debug"], words].concat());
        assert_eq!(debug(&["1.1", "--with", "echo at"]), Ok(format!("at {pid}\n")));
        let several = debug(&["0", "1.1", "--with", "gdb -p", "--print"]).unwrap();
        let mut lines = several.lines();
        assert_eq!(lines.next(), Some(format!("gdb -p {}", job.pid_of("0.0")).as_str()));
        assert_eq!(lines.next(), Some(format!("gdb -p {pid}").as_str()));
        let gone = debug(&["7"]).unwrap_err();
        assert!(gone.contains("rank 7 of job") && gone.contains("does not run"), "{gone}");
    });
    let _ = ended.ended_with(0);
}

/// The interface by which parallel debuggers find processes (MPIR 1.0): at the breakpoint all of them exist and wait in
/// `MPI_Init`.
#[test]
fn parallel_debuggers_find_the_processes() {
    let is_there = Command::new("gdb").arg("--version").output().is_ok();
    if !is_there {
        return println!("skipped: there is no gdb (scripts/setup-tests.sh installs it)");
    }
    let word = |what: &str| format!("output *(int*)&MPIR_{what}");
    let entry = |number: u32| {
        let at = format!("(*(char***)&MPIR_proctable + {})", 3 * number);
        format!("printf \"%s %d\\n\", {at}[1], *(int*)&{at}[2]")
    };
    let mut gdb = Command::new("gdb");
    gdb.args([
        "-batch",
        "-nx",
        "-ex",
        "set breakpoint pending on",
        "-ex",
        "break MPIR_Breakpoint",
        "-ex",
        "run",
        "-ex",
        "set language c",
    ]);
    for command in
        [&word("debug_state"), "echo \\n", &word("proctable_size"), "echo \\n", &entry(0), &entry(3), "continue"]
    {
        gdb.args(["-ex", command]);
    }
    let redrun = prefix().join("bin/redrun");
    let output = gdb.arg("--args").arg(redrun).args(["-r", "2", "-n", "2"]).arg(compile("ring")).args(["4", "1"]);
    let output = output.output().expect("gdb can be run");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("\n1\n4\n"), "state and number of processes: {said}");
    assert_eq!(said.lines().filter(|line| line.contains("/ring ")).count(), 2, "{said}");
    assert!(said.contains("exited normally"), "{said}");
}

/// As in a container without a network.
#[test]
fn a_job_runs_where_no_interface_is_up() {
    let may_unshare = Command::new("unshare").args(["--net", "true"]).output();
    if !may_unshare.is_ok_and(|output| output.status.success()) {
        return println!("skipped: this user cannot make a network namespace");
    }
    for options in [&["-r", "2", "--spares", "1", "--inject", "kill:1.0@#8"][..], &["-r", "2", "--transport", "tcp"]] {
        let mut unshare = Command::new("unshare");
        unshare.arg("--net").arg(prefix().join("bin/redrun")).args(options).args(["-n", "2"]);
        let output = unshare.arg(compile("ring")).args(["1", "20"]).output().unwrap();
        assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_job_runs_in_a_directory_that_was_removed() {
    let directory = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"mkdir "$0/gone" && cd "$0/gone" && rmdir "$0/gone" && exec "$@""#]).arg(directory.path());
    shell.arg(prefix().join("bin/redrun")).args(["-r", "2", "-n", "2"]).arg(compile("ring")).args(["1", "20"]);
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Where the root is no mount point, `--spares` once failed.
#[test]
#[ignore = "scripts/test.sh --all: it makes a chroot of this host's files"]
fn replicas_are_copied_in_a_chroot() {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        return println!("skipped: this user cannot make a chroot");
    }
    let directory = tempfile::tempdir().unwrap();
    let script = r#"
        root=$1; shift
        for place in /*; do
            [ -d "$place" ] && [ ! -L "$place" ] && mkdir "$root$place" && mount --rbind "$place" "$root$place"
            [ ! -L "$place" ] || cp -P "$place" "$root$place"
        done
        exec chroot "$root" "$@""#;
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).arg(directory.path());
    let options = ["-r", "2", "--spares", "1", "-n", "2", "--inject", "kill:1.0@#8", "--inject-required"];
    unshare.arg(prefix().join("bin/redrun")).args(options).arg(compile("ring")).args(["4", "20"]);
    let output = unshare.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("lost replica 1.0"), "{said}");
    // No file system is mounted in the chroot.
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(directory.path().to_str().unwrap()));
}
