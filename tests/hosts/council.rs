//! Roots on several hosts (`--roots 3`): whichever host is lost, another has the root, and nobody does anything for it.

use crate::comebacks::roots_on;
use crate::elsewhere::{OWN, RIGHT, begin, jobs_on, lines};
use crate::nothing_left;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redrt_tests::lab::lab;
use redrt_tests::{Lab, Random, Running, prefix};
use std::cell::RefCell;
use std::process::Stdio;
use std::time::Duration;

/// The hosts of a lab, as long as they are there.
struct Council<'a> {
    lab: &'a Lab,
    job: &'a Running,
    number: String,
    alive: RefCell<Vec<String>>,
}

impl<'a> Council<'a> {
    fn of(lab: &'a Lab, job: &'a Running, count: usize) -> Self {
        let entries = std::fs::read_dir(jobs_on(lab, "h1")).expect("it is there").flatten();
        let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let number = names.find_map(|name| name.strip_suffix(".root").map(str::to_owned)).expect("the job has a root");
        let alive = RefCell::new((1..=count).map(|host| format!("h{host}")).collect());
        Self { lab, job, number, alive }
    }

    /// Waits until three hosts that are there decide together.
    fn is_complete(&self) {
        self.job.wait_until("three roots", |job| {
            let audit = job.audit();
            let hosts = audit.iter().rfind(|record| record["event"] == "roots").map(|record| record["hosts"].clone());
            let names: Vec<_> = hosts.iter().filter_map(|hosts| hosts.as_array()).flatten().collect();
            let is_alive = |name: &serde_json::Value| self.alive.borrow().iter().any(|host| name == host.as_str());
            names.len() == 3 && names.into_iter().all(is_alive)
        });
    }

    fn find_root(&self) -> Option<String> {
        let alive = self.alive.borrow();
        let has_root = |host: &&String| jobs_on(self.lab, host).join(format!("{}.console", self.number)).exists();
        alive.iter().find(has_root).cloned()
    }

    fn has_root(&self) -> bool {
        self.find_root().is_some()
    }

    fn root_host(&self) -> String {
        self.find_root().expect("one has it")
    }

    fn lose(&self, host: &str) {
        self.lab.cut_power(host);
        self.alive.borrow_mut().retain(|other| other != host);
    }

    /// The code with which a console on the root's host ends, and what it says.
    fn see_end(&self) -> (Option<i32>, String, String) {
        let mut command = self.lab.on(&self.root_host());
        command.arg(format!("{}={}", OWN.0, OWN.1)).arg(prefix().join("bin/redrun")).args(["--attach", &self.number]);
        let output = command.stdin(Stdio::null()).output().expect("redrun is there");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

/// The host that takes the place of a root's is lost in its turn.
#[test]
fn hosts_of_roots_are_lost_one_after_another_and_the_job_ends_right() {
    let Some(lab) = lab(4) else { return };
    let (stop, job) = begin(&lab, &["--spares", "1"]);
    let council = Council::of(&lab, &job, 4);
    council.is_complete();
    council.lose("h1");
    job.wait_for("came-back", 1);
    job.wait_for("daemon-lost", 1);
    council.is_complete();
    let second = council.root_host();
    council.lose(&second);
    job.wait_for("came-back", 2);
    job.wait_for("daemon-lost", 2);
    std::fs::write(&stop, "").expect("it can be written");
    let (code, shown, said) = council.see_end();
    assert_eq!((code, shown.as_str()), (Some(0), ""), "{said}");
    let ended = job.wait();
    assert_eq!(lines(&ended.out), RIGHT, "{ended}");
    assert_eq!(ended.events("mismatch").count(), 0, "{ended}");
    nothing_left(&lab, &ended);
}

/// Its console is there, and goes on with the root that its host's member starts. One that hangs is started elsewhere.
#[test]
fn a_root_that_is_killed_comes_back_on_its_host_and_one_that_is_stopped_on_another() {
    let Some(lab) = lab(4) else { return };
    let (stop, job) = begin(&lab, &[]);
    let council = Council::of(&lab, &job, 4);
    council.is_complete();
    let root = |host| roots_on(&lab, host).first().copied().map(Pid::from_raw).expect("it is there");
    let first = root("h1");
    kill(first, Signal::SIGKILL).expect("it runs");
    job.wait_for("came-back", 1);
    let second = root("h1");
    assert_ne!(first, second);
    kill(second, Signal::SIGSTOP).expect("it runs");
    job.wait_for("came-back", 2);
    council.alive.borrow_mut().retain(|host| host != "h1");
    job.wait_until("another root", |_| council.has_root());
    std::fs::write(&stop, "").expect("it can be written");
    let (code, _, said) = council.see_end();
    assert_eq!(code, Some(0), "{said}");
    let ended = job.wait();
    assert_eq!(lines(&ended.out), RIGHT, "{ended}");
    assert_eq!(ended.events("replica-lost").count(), 0, "{ended}");
    nothing_left(&lab, &ended);
}

/// The root's host is on the wrong side: the others have another root, and what is on its side ends.
#[test]
fn a_root_without_most_of_the_members_ends_and_the_others_go_on() {
    let Some(lab) = lab(4) else { return };
    let (stop, job) = begin(&lab, &["--root-lease", "10s"]);
    let council = Council::of(&lab, &job, 4);
    council.is_complete();
    lab.cut_link("h1");
    council.alive.borrow_mut().retain(|host| host != "h1");
    // The audit log may have been the other root's still when this one wanted it.
    job.wait_until("another root", |_| council.has_root());
    job.wait_until("the end of the other", |_| roots_on(&lab, "h1").is_empty());
    std::fs::write(&stop, "").expect("it can be written");
    let (code, _, said) = council.see_end();
    assert_eq!(code, Some(0), "{said}");
    job.wait_until("the end of its side", |_| lab.processes("h1", "until").is_empty());
    let ended = job.wait();
    assert_eq!(lines(&ended.out), RIGHT, "{ended}");
    nothing_left(&lab, &ended);
}

/// What is under way when the root's host is lost.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// A replica was killed, and nothing else was done about it yet.
    Loss,
    /// Copies of replicas are being made.
    Copy,
    /// A checkpoint is being taken.
    Checkpoint,
    /// The processes end.
    End,
}

const MOMENTS: [Moment; 4] = [Moment::Loss, Moment::Copy, Moment::Checkpoint, Moment::End];

fn lose_root_host_at(moment: Moment, later: Duration) {
    let Some(lab) = lab(5) else { return };
    let store = lab.path("store").display().to_string();
    let (stop, job) = begin(&lab, &["--spares", "1", "--checkpoint", "asked", "--checkpoint-dir", &store]);
    let council = Council::of(&lab, &job, 4);
    council.is_complete();
    let redctl = || {
        let mut command = lab.on("h1");
        command.arg(format!("{}={}", OWN.0, OWN.1)).arg(prefix().join("bin/redctl")).arg("checkpoint");
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("redctl is there")
    };
    // Of a rank that loses nothing else with the root's host.
    let replicas = job.replicas();
    let rank = |replica: &str| replica.split('.').next().unwrap_or_default().to_owned();
    let of_h1: Vec<_> = replicas.iter().filter(|one| one.ends_with(" on h1")).map(|one| rank(one)).collect();
    let other = replicas.iter().find(|one| !of_h1.contains(&rank(one))).expect("there is a rank without it");
    let other = other.split(' ').next().unwrap_or_default().to_owned();
    let end = || job.redctl(&["kill", &other]).map(drop).expect("it is there");
    let mut asked = None;
    match moment {
        Moment::Loss => end(),
        Moment::Copy => {
            end();
            job.wait_for("replica-lost", 1);
        }
        Moment::Checkpoint => asked = Some(redctl()),
        Moment::End => std::fs::write(&stop, "").expect("it can be written"),
    }
    std::thread::sleep(later);
    council.lose("h1");
    // The job may have ended before.
    job.wait_until("the end of its console", Running::has_ended);
    let is_over = || !["h2", "h3", "h4"].iter().any(|host| !lab.processes(host, "redrtd").is_empty());
    job.wait_until("another root, or the end", |_| council.has_root() || is_over());
    std::fs::write(&stop, "").expect("it can be written");
    if council.has_root() {
        let (code, _, said) = council.see_end();
        assert_eq!(code, Some(0), "{moment:?} after {later:?}: {said}{}", job.errors());
    }
    if let Some(mut asked) = asked {
        let _ = asked.kill();
        let _ = asked.wait();
    }
    let ended = job.wait();
    assert_eq!(lines(&ended.out), RIGHT, "{moment:?} after {later:?}: {ended}");
    assert_eq!(ended.events("mismatch").count(), 0, "{ended}");
    nothing_left(&lab, &ended);
}

/// One such moment of a seed; with `REDRT_ROOT_LOSSES=N` N of each kind.
#[test]
fn the_host_of_the_root_is_lost_at_any_moment() {
    let mut random = Random::from_environment();
    let count = std::env::var("REDRT_ROOT_LOSSES").ok().and_then(|text| text.parse::<usize>().ok());
    let all: Vec<Moment> = match count {
        Some(count) => std::iter::repeat_n(MOMENTS, count).flatten().collect(),
        None => vec![*random.one_of(&MOMENTS)],
    };
    for moment in all {
        let later = Duration::from_millis(random.from_one_to(120) - 1);
        eprintln!("{moment:?} after {later:?}");
        lose_root_host_at(moment, later);
    }
}
