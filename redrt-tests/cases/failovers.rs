//! Coordinators that are killed while their jobs run, and come back.

mod saved;

use super::terminals::{LIMIT, Place, code, kill, program, rows, screen};
use nix::sys::signal::{Signal, kill as signal};
use nix::unistd::Pid;
use redrt_tests::{Random, kill_marked, marked};
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// The job's coordinator, if one runs.
fn find_coordinator(place: &Place) -> Option<Pid> {
    find_with(place, "--coordinator").first().copied()
}

/// Processes of the job whose first argument is `flag`.
fn find_with(place: &Place, flag: &str) -> Vec<Pid> {
    let has_it = |id: i32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(flag.as_bytes())
    };
    marked(place.mark()).into_iter().filter(|(id, _)| has_it(*id)).map(|(id, _)| Pid::from_raw(id)).collect()
}

/// The coordinator, after a wait if it is coming back.
fn coordinator(place: &Place) -> Pid {
    let since = Instant::now();
    loop {
        if let Some(coordinator) = find_coordinator(place) {
            return coordinator;
        }
        assert!(since.elapsed() < LIMIT, "there is no coordinator");
        std::thread::yield_now();
    }
}

fn kill_coordinator(place: &Place) {
    let coordinator = coordinator(place);
    signal(coordinator, Signal::SIGKILL).expect("it runs");
    place.is_rid_of(coordinator);
}

/// Options of a job that outlives its coordinator and whose journal is shortened now and then, followed by `others`.
fn detachable<'a>(others: &[&'a str]) -> Vec<&'a str> {
    [&["--detachable", "--coordinator-journal", "8KiB", "-q"], others].concat()
}

/// A job whose console has pipes.
struct Piped {
    console: Child,
    input: ChildStdin,
    output: ChildStdout,
    shown: Vec<u8>,
}

impl Piped {
    fn start(place: &Place, arguments: &[&str]) -> Self {
        let mut command = place.redrun(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut console = command.spawn().expect("redrun is there");
        let (input, output) = (console.stdin.take(), console.stdout.take());
        let (input, output) = (input.expect("it is piped"), output.expect("it is piped"));
        Self { console, input, output, shown: Vec::new() }
    }

    fn say(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).expect("the job reads");
    }

    /// Reads until this number of bytes has been shown in all.
    fn see(&mut self, byte_count: usize) {
        while self.shown.len() < byte_count {
            let mut bytes = vec![0; byte_count - self.shown.len()];
            let count = self.output.read(&mut bytes).expect("it is a pipe");
            assert!(count > 0, "the job has ended after {}", String::from_utf8_lossy(&self.shown));
            self.shown.extend_from_slice(&bytes[..count]);
        }
    }

    fn end(mut self) -> (Option<i32>, String) {
        self.output.read_to_end(&mut self.shown).expect("it is a pipe");
        (code(&mut self.console), String::from_utf8(self.shown).expect("the program prints text"))
    }
}

/// Types a word and kills the coordinator at some byte of the answer; the whole answer must be shown.
fn lose_coordinator(place: &Place, job: &mut Piped, expected: &mut String, number: u32, random: &mut Random) {
    let answer = format!("got word {number}\n{}", rows(number));
    let before = expected.len();
    *expected += &answer;
    job.say(&format!("word {number}"));
    job.see(before + (random.draw() as usize) % answer.len());
    kill_coordinator(place);
    job.see(expected.len());
}

/// The input is read and the output shown without a gap and without a repetition.
#[test]
fn a_coordinator_is_killed_at_any_moment_and_no_byte_is_lost() {
    let place = Place::new("killed-roots");
    let mut random = Random::from_environment();
    let program = program();
    let mut job = Piped::start(&place, &detachable(&["-r", "2", "-n", "2", &program]));
    let mut expected = String::new();
    job.say("first");
    expected += &format!("got first\n{}", rows(0));
    job.see(expected.len());
    for number in 1..=24 {
        lose_coordinator(&place, &mut job, &mut expected, number, &mut random);
    }
    // A journal that was never shortened would have the output of both replicas.
    let journal = place.journal_bytes();
    assert!(journal < expected.len() as u64, "the journal has {journal} bytes");
    job.say("end");
    expected += &format!("got end\n{}", rows(25));
    let (code, shown) = job.end();
    assert_eq!(code, Some(7));
    assert!(shown == expected, "{shown}");
    place.is_clean();
}

/// Replicas are killed and copied all the time, so some coordinators are killed in the midst of a copy.
#[test]
fn a_coordinator_is_killed_while_replicas_are_replaced() {
    let place = Place::new("killed-cloners");
    let mut random = Random::from_environment();
    let (program, log) = (program(), place.path("audit.jsonl"));
    let losses = format!("random:mtbf=0.3s,count=200,seed={}", random.from_one_to(1 << 30));
    let words = detachable(&["-r", "2", "-n", "2", "--spares", "1", "--inject", &losses, "--audit", &log]);
    let mut job = Piped::start(&place, &[&words[..], &[&program]].concat());
    let mut expected = String::new();
    let events = |event: &str| {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        log.matches(&format!("\"event\":\"{event}\"")).count()
    };
    for number in 0..16 {
        // A replica lost together with the coordinator may be noticed by the next coordinator.
        let recovered = events("recovered");
        lose_coordinator(&place, &mut job, &mut expected, number, &mut random);
        let since = Instant::now();
        while number < 10 && events("recovered") == recovered {
            assert!(since.elapsed() < LIMIT, "no replica is lost and copied under coordinator {number}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    job.say("end");
    expected += &format!("got end\n{}", rows(16));
    let (code, shown) = job.end();
    assert_eq!(code, Some(7));
    assert!(shown == expected, "{shown}");
    place.is_clean();
}

#[test]
fn another_console_brings_back_a_coordinator_killed_with_it() {
    let place = Place::new("killed-both");
    let mut random = Random::from_environment();
    let program = program();
    let (mut screen_now, terminal) = screen();
    let mut console = place.on(terminal, &detachable(&["-r", "2", "-n", "2", &program]));
    let (mut shown, mut expected) = (String::new(), String::new());
    for number in 0..10 {
        screen_now.type_line(&format!("word {number}"));
        // Unread input is lost with a terminal that is closed.
        screen_now.see(&format!("got word {number}\n"));
        expected += &format!("got word {number}\n{}", rows(number));
        if random.draw().is_multiple_of(2) {
            screen_now.see(&format!("line {number}, row {}\n", random.draw() % 200));
        }
        let coordinator = coordinator(&place);
        let (first, second) = match random.draw().is_multiple_of(2) {
            true => (coordinator, Pid::from_raw(console.id() as i32)),
            false => (Pid::from_raw(console.id() as i32), coordinator),
        };
        let list = || {
            let mut redctl = place.command("redctl");
            String::from_utf8(redctl.arg("list").output().expect("it is there").stdout).expect("it is text")
        };
        assert!(list().contains("well, detachable"), "{}", list());
        // A console that sees its coordinator end would bring it back.
        signal(Pid::from_raw(console.id() as i32), Signal::SIGSTOP).expect("it runs");
        signal(first, Signal::SIGKILL).and_then(|()| signal(second, Signal::SIGKILL)).expect("both run");
        console.wait().expect("it was killed");
        place.is_rid_of(coordinator);
        // The kernel frees the memory of a process that ends before it closes the process's files.
        let since = Instant::now();
        while !list().contains("its coordinator was killed: redrun --attach") {
            assert!(since.elapsed() < LIMIT, "{}", list());
        }
        shown += &screen_now.close();
        (screen_now, console) = place.attached();
    }
    screen_now.type_line("end");
    assert_eq!(code(&mut console), Some(7));
    shown += &screen_now.close();
    expected += &format!("got end\n{}", rows(10));
    assert!(shown == expected, "{shown}");
    place.is_clean();
}

#[test]
fn an_attached_console_brings_a_killed_coordinator_back() {
    let place = Place::new("attached");
    let program = program();
    let mut job = Piped::start(&place, &detachable(&["-r", "2", "-n", "2", &program]));
    let mut random = Random::from_environment();
    job.say("first");
    job.see(format!("got first\n{}", rows(0)).len());
    let mut number = 1;
    for _ in 0..3 {
        // The second console displaces the first, which is the coordinator's parent.
        let mut other = Piped::start(&place, &["-q", "--attach"]);
        assert_eq!(code(&mut job.console), Some(76), "it has another place");
        let mut expected = String::new();
        for _ in 0..3 {
            lose_coordinator(&place, &mut other, &mut expected, number, &mut random);
            number += 1;
        }
        assert_eq!(String::from_utf8_lossy(&other.shown), expected);
        job = other;
    }
    job.shown.clear();
    job.say("end");
    assert_eq!(job.end(), (Some(7), format!("got end\n{}", rows(number))));
    place.is_clean();
}

#[test]
fn a_coordinator_that_is_stopped_is_replaced() {
    let place = Place::new("stopped-root");
    let program = program();
    let mut job = Piped::start(&place, &detachable(&["-r", "2", "-n", "2", &program]));
    job.say("word");
    let first = format!("got word\n{}", rows(0));
    job.see(first.len());
    let stopped = coordinator(&place);
    signal(stopped, Signal::SIGSTOP).expect("it runs");
    // The displaced console would bring the coordinator back as well.
    let mut other = Piped::start(&place, &["--attach", "--replace-coordinator"]);
    assert_eq!(code(&mut job.console), Some(76));
    other.say("end");
    let (code, shown) = other.end();
    assert_eq!(code, Some(7));
    assert!(shown == format!("got end\n{}", rows(1)), "{shown}");
    place.is_rid_of(stopped);
    place.is_clean();
}

#[test]
fn processes_end_without_a_coordinator_within_their_lease() {
    let place = Place::new("lease");
    let program = program();
    let arguments = ["--detachable", "--coordinator-lease", "1s", "-q", "-r", "2", "-n", "2", &program];
    let mut job = Piped::start(&place, &arguments);
    job.say("word");
    job.see(10);
    signal(Pid::from_raw(job.console.id() as i32), Signal::SIGSTOP).expect("it runs");
    kill_coordinator(&place);
    kill(&mut job.console);
    place.is_clean();
    let output = place.redrun(&["--attach"]).output().expect("redrun is there");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        told.contains("has ended: the coordinator of the job was killed, and none has come back within 1 s"),
        "{told}"
    );
}

/// All processes end at once, so none records the reason.
#[test]
fn the_record_of_a_dead_job_is_removed_after_its_lease() {
    let place = Place::new("abandoned");
    let program = program();
    let mut job =
        Piped::start(&place, &["--detachable", "--coordinator-lease", "1s", "-q", "-r", "2", "-n", "2", &program]);
    // Lower bound for the last write to the journal.
    let since = Instant::now();
    job.say("word");
    job.see(10);
    kill_marked(place.mark());
    kill(&mut job.console);
    place.is_clean();
    let list = || place.command("redctl").arg("list").output().expect("redctl is there").stdout;
    let listed = || String::from_utf8_lossy(&list()).into_owned();
    assert!(listed().contains("its coordinator was killed"), "{}", listed());
    while !listed().is_empty() {
        assert!(since.elapsed() < LIMIT, "{}", listed());
    }
    assert!(since.elapsed() >= Duration::from_secs(1), "it was removed within its lease");
    let left: Vec<_> = std::fs::read_dir(place.path("redrt")).into_iter().flatten().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// True when a daemon of the job, or its guard, runs.
fn has_daemon(place: &Place) -> bool {
    let words = |id: i32| std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    marked(place.mark())
        .into_iter()
        .any(|(id, comm)| comm == "redrtd" && !words(id).windows(6).any(|at| at == b"--keep"))
}

/// The output that was not shown yet is shown once.
#[test]
fn a_coordinator_is_killed_after_its_daemons_have_left() {
    let program = program();
    let place = Place::new("tail");
    let (mut screen_now, terminal) = screen();
    let mut command = place.redrun(&detachable(&["-r", "2", "-n", "2", &program]));
    command.stdin(Stdio::from(terminal.try_clone().expect("there are descriptors"))).stdout(Stdio::from(terminal));
    // Standard error has the message that the coordinator was killed.
    let mut console = command.stderr(Stdio::null()).spawn().expect("redrun is there");
    drop(command);
    let mut expected: String = (0..40).map(|number| format!("got word {number}\n{}", rows(number))).collect();
    expected += &format!("got end\n{}", rows(40));
    (0..40).for_each(|number| screen_now.type_line(&format!("word {number}")));
    screen_now.type_line("end");
    // A terminal has little room, so most of the output is still on its way.
    let since = Instant::now();
    screen_now.see("got word 0\n");
    while has_daemon(&place) {
        assert!(since.elapsed() < LIMIT, "the daemon has not ended");
        std::thread::yield_now();
    }
    kill_coordinator(&place);
    let code = std::thread::scope(|scope| {
        let code = scope.spawn(|| code(&mut console));
        let shown = screen_now.close();
        assert!(shown == expected, "{} of {} bytes", shown.len(), expected.len());
        code.join().expect("it ends")
    });
    assert_eq!(code, Some(7));
    place.is_clean();
}

#[test]
fn without_a_lease_a_job_ends_with_its_coordinator() {
    let place = Place::new("no-lease");
    let program = program();
    let mut job =
        Piped::start(&place, &["--detachable", "--coordinator-lease", "0", "-q", "-r", "2", "-n", "2", &program]);
    job.say("word");
    job.see(10);
    kill_coordinator(&place);
    assert_eq!(job.end().0, Some(137));
    place.is_clean();
}

#[test]
fn a_coordinator_that_comes_back_knows_its_lost_replicas() {
    let place = Place::new("losses");
    let program = program();
    let mut job = Piped::start(&place, &detachable(&["-r", "2", "-n", "2", &program]));
    let mut expected = format!("got word\n{}", rows(0));
    job.say("word");
    job.see(expected.len());
    let name = program.rsplit('/').next().expect("it has one");
    let mut processes: Vec<_> = marked(place.mark()).into_iter().filter(|(_, comm)| name.starts_with(comm)).collect();
    assert_eq!(processes.len(), 4);
    processes.sort_unstable();
    // The first with a coordinator that runs, the second without one.
    signal(Pid::from_raw(processes[0].0), Signal::SIGKILL).expect("it runs");
    kill_coordinator(&place);
    signal(Pid::from_raw(processes[2].0), Signal::SIGKILL).expect("it runs");
    for number in 1..4 {
        expected += &format!("got word\n{}", rows(number));
        job.say("word");
        job.see(expected.len());
        kill_coordinator(&place);
    }
    job.say("end");
    expected += &format!("got end\n{}", rows(4));
    assert_eq!(job.end(), (Some(7), expected));
    place.is_clean();
}

#[test]
fn a_job_goes_on_in_its_files_when_its_coordinator_was_killed() {
    let place = Place::new("files");
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let path = |name: &str| directory.path().join(name);
    let words: String = (0..40).map(|number| format!("word {number}\n")).collect();
    std::fs::write(path("input"), words + "end\n").expect("it can be written");
    let mut command = place.redrun(&detachable(&["-r", "2", "-n", "2", &program()]));
    command.stdin(std::fs::File::open(path("input")).expect("it was just written"));
    command.stdout(std::fs::File::create(path("output")).expect("it can be written"));
    let mut console = command.stderr(Stdio::null()).spawn().expect("redrun is there");
    let all: String = (0..40).map(|number| format!("got word {number}\n{}", rows(number))).collect();
    let all = format!("{all}got end\n{}", rows(40));
    let written = || std::fs::metadata(path("output")).expect("it is there").len();
    let wait_until = |byte_count: u64| {
        let since = Instant::now();
        while written() < byte_count {
            assert!(since.elapsed() < LIMIT, "nothing is written");
            std::thread::yield_now();
        }
    };
    for eighth in 1..8 {
        wait_until(all.len() as u64 / 8 * eighth);
        // The console brings the coordinator back, unless the job has ended.
        if let Some(coordinator) = find_coordinator(&place) {
            let _ = signal(coordinator, Signal::SIGKILL);
        }
    }
    assert_eq!(code(&mut console), Some(7));
    let shown = std::fs::read_to_string(path("output")).expect("it is text");
    let same = shown.bytes().zip(all.bytes()).take_while(|(one, other)| one == other).count();
    assert!(shown == all, "{same} of {} bytes are right, then: {:.200}", all.len(), &shown[same..]);
    place.is_clean();
}
