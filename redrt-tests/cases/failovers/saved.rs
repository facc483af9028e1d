//! Coordinators of jobs with checkpoints: killed while checkpoints are taken, and while the job goes back to one.

use super::{Piped, detachable, find_coordinator, find_with, kill_coordinator, lose_coordinator};
use crate::terminals::{LIMIT, Place, program, rows};
use nix::sys::signal::{Signal, kill as signal};
use redrt_tests::Random;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A job of `echoing` with checkpoints, and the output that it must have shown.
struct Saved {
    place: Place,
    job: Piped,
    expected: String,
    number: u32,
    degree: u16,
}

impl Saved {
    fn start(name: &str, degree: u16, options: &[&str]) -> Self {
        let place = Place::new(name);
        let (program, store, audit) = (program(), place.path("store"), place.path("audit.jsonl"));
        let replicas = degree.to_string();
        let words = detachable(&["-r", &replicas, "-n", "2", "--checkpoint-dir", &store, "--audit", &audit]);
        let job = Piped::start(&place, &[&words[..], options, &[&program]].concat());
        let mut saved = Self { place, job, expected: String::new(), number: 0, degree };
        saved.answers();
        saved
    }

    fn count(&self, event: &str) -> usize {
        let log = std::fs::read_to_string(self.place.path("audit.jsonl")).unwrap_or_default();
        log.matches(&format!("\"event\":\"{event}\"")).count()
    }

    /// Types a word and waits for the whole answer.
    fn answers(&mut self) {
        self.expected += &format!("got word {}\n{}", self.number, rows(self.number));
        self.job.say(&format!("word {}", self.number));
        self.job.see(self.expected.len());
        self.number += 1;
    }

    /// Types a word, and kills the coordinator at some byte of the answer.
    fn answers_two_coordinators(&mut self, random: &mut Random) {
        lose_coordinator(&self.place, &mut self.job, &mut self.expected, self.number, random);
        self.number += 1;
    }

    fn redctl(&self, words: &[&str]) -> Child {
        let mut command = self.place.command("redctl");
        command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("redctl is there")
    }

    /// Takes a checkpoint, again if one is given up because a replica is lost meanwhile.
    fn checkpoint(&self) {
        let since = Instant::now();
        while !self.redctl(&["checkpoint"]).wait().expect("it was started").success() {
            assert!(since.elapsed() < LIMIT, "no checkpoint can be taken");
        }
    }

    fn lose_rank(&self) {
        let words = |index: u16| ["kill".to_owned(), format!("1.{index}")];
        for index in 0..self.degree {
            let [verb, replica] = words(index);
            let killed = self.redctl(&[&verb, &replica]).wait().expect("it was started");
            assert!(killed.success(), "replica {replica} is not killed");
        }
    }

    /// Kills the coordinator at a random moment. The job must go on.
    fn kill_coordinator_soon(&self, random: &mut Random, time_max_ms: u64) {
        std::thread::sleep(Duration::from_micros(random.from_one_to(time_max_ms * 1000)));
        kill_coordinator(&self.place);
    }

    fn end(mut self) {
        self.job.say("end");
        self.expected += &format!("got end\n{}", rows(self.number));
        let (code, shown) = self.job.end();
        assert_eq!(code, Some(7));
        assert!(shown == self.expected, "{shown}");
        self.place.is_clean();
    }
}

#[test]
fn a_coordinator_is_killed_while_checkpoints_are_taken() {
    let mut random = Random::from_environment();
    for degree in [1, 2] {
        let mut saved = Saved::start("killed-savers", degree, &["--checkpoint", "0.2s"]);
        for _ in 0..8 {
            saved.answers_two_coordinators(&mut random);
        }
        for _ in 0..8 {
            let mut asks = saved.redctl(&["checkpoint"]);
            saved.kill_coordinator_soon(&mut random, 60);
            // The coordinator that was asked is gone, or has answered.
            asks.wait().expect("it was started");
            saved.answers();
        }
        // Unfinished work of killed coordinators must not hold up the next checkpoint.
        saved.checkpoint();
        assert!(saved.count("came-back") > 8, "coordinators do not come back");
        saved.end();
    }
}

#[test]
fn a_coordinator_is_killed_while_its_job_goes_back() {
    let mut random = Random::from_environment();
    for (degree, level) in [(1, "shared"), (2, "shared"), (1, "local")] {
        let mut saved = Saved::start("killed-loaders", degree, &["--checkpoint", "asked", "--checkpoint-level", level]);
        for _ in 0..6 {
            saved.checkpoint();
            saved.answers();
            saved.lose_rank();
            for _ in 0..random.from_one_to(2) {
                saved.kill_coordinator_soon(&mut random, 150);
            }
            saved.answers();
            // By then the job has gone back.
            saved.answers_two_coordinators(&mut random);
        }
        // A killed coordinator may not have recorded its return.
        assert!(saved.count("went-back") > 0 && saved.count("came-back") > 6, "the job does not go back");
        saved.end();
    }
}

/// Without the pipe holder, a coordinator that comes back would not know how many bytes of the pipe were shown, and
/// would show them again.
#[test]
fn the_keeper_of_output_outlives_a_return_to_a_checkpoint() {
    let mut saved = Saved::start("kept-pipes", 1, &["--checkpoint", "asked"]);
    let pipe_holders = find_with(&saved.place, "--keep");
    assert_eq!(pipe_holders.len(), 1, "{pipe_holders:?}");
    saved.checkpoint();
    saved.lose_rank();
    let since = Instant::now();
    while saved.count("went-back") == 0 {
        assert!(since.elapsed() < LIMIT, "the job does not go back");
        std::thread::yield_now();
    }
    assert_eq!(find_with(&saved.place, "--keep"), pipe_holders, "it has ended with the processes of the job");
    saved.answers();
    saved.end();
}

#[test]
fn coordinators_killed_again_and_again_do_not_lose_a_return() {
    let mut random = Random::from_environment();
    let mut saved = Saved::start("killed-often", 1, &["--checkpoint", "asked"]);
    saved.checkpoint();
    saved.lose_rank();
    for _ in 0..10 {
        saved.kill_coordinator_soon(&mut random, 40);
    }
    saved.answers();
    saved.end();
}

#[test]
fn a_coordinator_waits_for_checkpoints_that_are_in_use() {
    let mut saved = Saved::start("locked-store", 1, &["--checkpoint", "asked"]);
    saved.checkpoint();
    let console = nix::unistd::Pid::from_raw(saved.job.console.id() as i32);
    let coordinator = find_coordinator(&saved.place).expect("it runs");
    signal(console, Signal::SIGSTOP).and_then(|()| signal(coordinator, Signal::SIGKILL)).expect("both run");
    saved.place.is_rid_of(coordinator);
    signal(console, Signal::SIGKILL).expect("it waits");
    let store = std::fs::read_dir(saved.place.path("store")).expect("it is there").next().expect("the job's");
    let lock = std::fs::File::open(store.expect("it can be read").path()).expect("it is there");
    lock.lock().expect("nobody has it");
    let since = Instant::now();
    loop {
        let refused = saved.place.redrun(&["--attach"]).output().expect("redrun is there");
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{told}");
        if told.contains("runs already") {
            break;
        }
        // The kernel frees the memory of a process that ends before it closes the process's files, among them a socket
        // for consoles.
        assert!(since.elapsed() < LIMIT, "{told}");
    }
    drop(lock);
    saved.job = Piped::start(&saved.place, &["--attach"]);
    // Earlier output is not shown again.
    saved.expected = String::new();
    saved.answers();
    saved.end();
}

/// Waits until a file has this number of bytes.
fn see_in(path: &str, byte_count: usize) {
    let since = Instant::now();
    while std::fs::metadata(path).map_or(0, |file| file.len()) < byte_count as u64 {
        assert!(since.elapsed() < LIMIT, "{path} does not grow");
        std::thread::yield_now();
    }
}

/// With `--output-dir` each coordinator writes on where the killed one stopped; so does a resumed job.
#[test]
fn a_job_that_prints_to_files_of_its_ranks_goes_on_in_them() {
    let mut random = Random::from_environment();
    let place = Place::new("killed-writers");
    let (program, store, directory) = (program(), place.path("store"), place.path("out"));
    let (output, mut expected, mut number) = (format!("{directory}/rank.0.out"), String::new(), 0);
    let always = detachable(&["--output-dir", &directory]);
    let of_first = ["-r", "2", "-n", "2", "--checkpoint", "asked", "--checkpoint-dir", &store, &program];
    for of_this in [&of_first[..], &["--resume", &store]] {
        let mut job = Piped::start(&place, &[&always[..], of_this].concat());
        for _ in 0..8 {
            let answer = format!("got word {number}\n{}", rows(number));
            let before = expected.len();
            expected += &answer;
            job.say(&format!("word {number}"));
            see_in(&output, before + random.from_one_to(answer.len() as u64) as usize);
            kill_coordinator(&place);
            see_in(&output, expected.len());
            number += 1;
        }
        if number == 8 {
            // A coordinator that comes back answers others only after it has written the missing output.
            let stop = || place.command("redctl").args(["checkpoint", "--stop"]).output().expect("redctl is there");
            let since = Instant::now();
            while !stop().status.success() {
                assert!(since.elapsed() < LIMIT, "{}", String::from_utf8_lossy(&stop().stderr));
            }
            assert_eq!(job.end(), (Some(75), String::new()));
        } else {
            job.say("end");
            assert_eq!(job.end(), (Some(7), String::new()));
        }
    }
    expected += &format!("got end\n{}", rows(number));
    let written = std::fs::read_to_string(&output).expect("it is text");
    assert!(written == expected, "{written}");
    place.is_clean();
}

#[test]
fn a_resumed_job_goes_on_when_its_coordinator_was_killed() {
    let mut random = Random::from_environment();
    let mut saved = Saved::start("killed-resumer", 2, &["--checkpoint", "asked"]);
    saved.answers();
    assert!(saved.redctl(&["checkpoint", "--stop"]).wait().expect("it was started").success());
    let (code, shown) = saved.job.end();
    assert_eq!((code, shown), (Some(75), saved.expected));
    let (store, audit) = (saved.place.path("store"), saved.place.path("resumed.jsonl"));
    let words = detachable(&["--resume", &store, "--audit", &audit]);
    saved.job = Piped::start(&saved.place, &words);
    saved.expected = String::new();
    for _ in 0..4 {
        saved.answers_two_coordinators(&mut random);
        // The checkpoint that the job was resumed from must not be the newest any more.
        saved.checkpoint();
    }
    let console = nix::unistd::Pid::from_raw(saved.job.console.id() as i32);
    let coordinator = find_coordinator(&saved.place).expect("it runs");
    signal(console, Signal::SIGSTOP).and_then(|()| signal(coordinator, Signal::SIGKILL)).expect("both run");
    saved.place.is_rid_of(coordinator);
    // The job's processes wait: no other job may go on from their checkpoint.
    let since = Instant::now();
    loop {
        let refused = saved.place.redrun(&["--resume", &store]).output().expect("redrun is there");
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{told}");
        if told.contains("brings it back") {
            break;
        }
        // The kernel frees the memory of a process that ends before it closes the process's files.
        assert!(since.elapsed() < LIMIT, "{told}");
    }
    signal(console, Signal::SIGCONT).expect("it waits");
    saved.answers();
    saved.end();
}
