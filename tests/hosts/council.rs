//! Roots on several hosts (`--roots 3`): whichever host is lost, another has the root, and nobody does anything for it.

use crate::elsewhere::{RIGHT, begin, lines};
use crate::{HOSTS, nothing_left};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redrt_tests::council::{Council, OWN, end_of, roots_on};
use redrt_tests::lab::lab;
use redrt_tests::{Job, Random, Running, compile, prefix};
use std::process::Stdio;
use std::time::Duration;

/// The host that takes the place of a root's is lost in its turn.
#[test]
fn hosts_of_roots_are_lost_one_after_another_and_the_job_ends_right() {
    let Some(lab) = lab(4) else { return };
    let (stop, job) = begin(&lab, &["--spares", "1"]);
    let council = Council::of(&lab, &job, 4);
    council.wait_until_complete();
    let lost = job.replicas().iter().filter(|replica| replica.ends_with(" on h1")).count();
    council.lose("h1");
    job.wait_for("came-back", 1);
    job.wait_for("recovered", lost);
    council.wait_until_complete();
    let second = council.find_root().expect("a host has it");
    council.lose(&second);
    job.wait_for("came-back", 2);
    job.wait_for("daemon-lost", 2);
    std::fs::write(&stop, "").expect("it can be written");
    let (code, shown, said) = end_of(&mut council.console());
    assert_eq!((code, shown.as_str()), (Some(0), ""), "{said}");
    let ended = job.wait();
    assert_eq!(lines(&ended.out), RIGHT, "{ended}");
    assert_eq!(ended.events("mismatch").count(), 0, "{ended}");
    nothing_left(&lab, &ended);
}

/// They have members of their own on the same hosts.
#[test]
fn two_jobs_of_a_user_lose_the_host_of_their_roots() {
    let Some(lab) = lab(4) else { return };
    let both = [begin(&lab, &[]).1, begin(&lab, &[]).1];
    let councils = both.each_ref().map(|job| Council::of(&lab, job, 4));
    councils.iter().for_each(Council::wait_until_complete);
    lab.cut_power("h1");
    for (council, job) in councils.iter().zip(&both) {
        council.forget("h1");
        job.wait_for("came-back", 1);
        job.wait_for("daemon-lost", 1);
    }
    std::fs::write(lab.path("stop"), "").expect("it can be written");
    for council in &councils {
        assert_eq!(council.wait_for_good_end(), Ok(true));
    }
    let left = lab.left_behind(Duration::from_secs(5));
    assert!(left.is_empty(), "left behind: {left:?}");
    for ended in both.map(Running::wait) {
        assert_eq!(lines(&ended.out), RIGHT, "{ended}");
    }
}

/// Its console is there, and goes on with the root that its host's member starts. One that hangs is started elsewhere.
#[test]
fn a_root_that_is_killed_comes_back_on_its_host_and_one_that_is_stopped_on_another() {
    let Some(lab) = lab(4) else { return };
    let (stop, job) = begin(&lab, &[]);
    let council = Council::of(&lab, &job, 4);
    council.wait_until_complete();
    let root = |host| roots_on(&lab, host).first().copied().map(Pid::from_raw).expect("it is there");
    let first = root("h1");
    kill(first, Signal::SIGKILL).expect("it runs");
    job.wait_for("came-back", 1);
    let second = root("h1");
    assert_ne!(first, second);
    kill(second, Signal::SIGSTOP).expect("it runs");
    job.wait_for("came-back", 2);
    council.forget("h1");
    job.wait_until("another root", |_| council.find_root().is_some());
    std::fs::write(&stop, "").expect("it can be written");
    let (code, _, said) = end_of(&mut council.console());
    assert_eq!(code, Some(0), "{said}");
    let ended = job.wait();
    assert_eq!(lines(&ended.out), RIGHT, "{ended}");
    assert_eq!(ended.events("replica-lost").count(), 0, "{ended}");
    nothing_left(&lab, &ended);
}

/// Before or after anybody was told that the job has ended. A console goes on with the next one, and ends well.
#[test]
fn a_root_that_is_killed_while_its_job_ends_leaves_nothing_behind() {
    let mut random = Random::from_environment();
    for _ in 0..root_losses().unwrap_or(2) {
        let Some(lab) = lab(4) else { return };
        let (stop, job) = begin(&lab, &[]);
        let council = Council::of(&lab, &job, 4);
        council.wait_until_complete();
        let kill_root = || {
            for root in roots_on(&lab, "h1") {
                // It may have ended meanwhile.
                let _ = kill(Pid::from_raw(root), Signal::SIGKILL);
            }
        };
        // The second one of a host within seconds comes back on another.
        let is_second = random.draw().is_multiple_of(2);
        if is_second {
            kill_root();
            job.wait_for("came-back", 1);
        }
        std::fs::write(&stop, "").expect("it can be written");
        let later = Duration::from_millis(random.from_one_to(60));
        std::thread::sleep(later);
        kill_root();
        assert_eq!(council.wait_for_good_end(), Ok(true), "after {later:?}, {is_second}");
        let ended = job.wait();
        assert_eq!(lines(&ended.out), RIGHT, "after {later:?}, {is_second}: {ended}");
        assert!(!ended.err.contains("error:"), "after {later:?}, {is_second}: {ended}");
        nothing_left(&lab, &ended);
    }
}

/// The root's host is on the wrong side: the others have another root, and what is on its side ends.
#[test]
fn a_root_without_most_of_the_members_ends_and_the_others_go_on() {
    let Some(lab) = lab(4) else { return };
    let (stop, job) = begin(&lab, &["--root-lease", "10s"]);
    let council = Council::of(&lab, &job, 4);
    council.wait_until_complete();
    lab.cut_link("h1");
    council.forget("h1");
    // The audit log may have been the other root's still when this one wanted it.
    job.wait_until("another root", |_| council.find_root().is_some());
    job.wait_until("the end of the other", |_| roots_on(&lab, "h1").is_empty());
    std::fs::write(&stop, "").expect("it can be written");
    let (code, _, said) = end_of(&mut council.console());
    assert_eq!(code, Some(0), "{said}");
    job.wait_until("the end of its side", |_| lab.processes("h1", "until").is_empty());
    let ended = job.wait();
    assert_eq!(lines(&ended.out), RIGHT, "{ended}");
    nothing_left(&lab, &ended);
}

/// What is under way when the root's host is lost.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// Processes are being started, and three hosts may decide already.
    Launch,
    /// A replica was killed, and nothing else was done about it yet.
    Loss,
    /// Copies of replicas are being made.
    Copy,
    /// A checkpoint is being taken.
    Checkpoint,
    /// The job goes back to a checkpoint that is at this level.
    Return(&'static str),
    /// The processes end.
    End,
}

const MOMENTS: [Moment; 7] = [
    Moment::Launch,
    Moment::Loss,
    Moment::Copy,
    Moment::Checkpoint,
    Moment::Return("shared"),
    Moment::Return("partner"),
    Moment::End,
];

impl Moment {
    /// How long it takes, with what comes before it.
    fn time_max(self) -> Duration {
        match self {
            Self::Launch => Duration::from_millis(600),
            Self::Return(_) => Duration::from_millis(1500),
            _ => Duration::from_millis(120),
        }
    }
}

/// Once three hosts decide, the job goes on. Before that it ends with its host, within the detection timeout, and so it
/// does when its daemons have not heard yet that three do.
fn lose_root_host_at_launch(later: Duration) {
    let Some(lab) = lab(4) else { return };
    let stop = lab.path("stop");
    let job = Job::new(4, &compile("until")).arguments(&[&stop.display().to_string()]).degree(2);
    let job = job.on_hosts(&lab, HOSTS).options(&["--detachable", "--roots", "3", "--transport", "tcp"]);
    let job = job.environment(OWN.0, OWN.1).limit(Duration::from_secs(120)).start();
    std::thread::sleep(later);
    let council = Council::of(&lab, &job, 4);
    let was_complete = council.is_complete();
    council.lose("h1");
    job.wait_until("the end of its console", Running::has_ended);
    job.wait_until("another root, or the end", |_| council.find_root().is_some() || council.has_nobody());
    assert!(!was_complete || council.find_root().is_some(), "after {later:?}: three hosts decided, and none goes on");
    std::fs::write(&stop, "").expect("it can be written");
    let has_root = council.find_root().is_some();
    if has_root {
        let (code, _, said) = end_of(&mut council.console());
        let is_told = code == Some(1) && said.contains("redrun: error:");
        assert!(code == Some(0) || !was_complete && is_told, "after {later:?}: {code:?} {said}{}", job.errors());
    }
    let left = lab.left_behind(Duration::from_secs(5));
    assert!(left.is_empty(), "after {later:?}: left behind: {left:?}");
    let ended = job.wait();
    assert!(!was_complete || lines(&ended.out) == RIGHT, "after {later:?}: {ended}");
}

/// Each rank has one replica, and one of another host is killed.
fn lose_root_host_at_return(level: &str, later: Duration) {
    let Some(lab) = lab(4) else { return };
    let (stop, store) = (lab.path("stop"), lab.path("store").display().to_string());
    let job = Job::new(3, &compile("until")).arguments(&[&stop.display().to_string()]);
    let job = job.on_hosts(&lab, HOSTS).options(&["--detachable", "--roots", "3"]);
    let job = job.options(&["--checkpoint", "0.5s", "--checkpoint-dir", &store, "--checkpoint-level", level]);
    let job = job.environment(OWN.0, OWN.1).limit(Duration::from_secs(120)).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    let council = Council::of(&lab, &job, 4);
    council.wait_until_complete();
    // On two hosts each.
    let kept = if level == "partner" { "checkpoint-copied" } else { "checkpoint" };
    job.wait_for(kept, 1);
    job.redctl(&["kill", "2.0"]).expect("it is there");
    std::thread::sleep(later);
    council.lose("h1");
    job.wait_until("the end of its console", Running::has_ended);
    job.wait_until("another root", |_| council.find_root().is_some());
    std::fs::write(&stop, "").expect("it can be written");
    let (code, _, said) = end_of(&mut council.console());
    assert_eq!(code, Some(0), "{level} after {later:?}: {said}{}", job.errors());
    let ended = job.wait();
    assert_eq!(lines(&ended.out), RIGHT[..4], "{level} after {later:?}: {ended}");
    nothing_left(&lab, &ended);
}

fn lose_root_host_at(moment: Moment, later: Duration) {
    let Some(lab) = lab(5) else { return };
    let store = lab.path("store").display().to_string();
    let (stop, job) = begin(&lab, &["--spares", "1", "--checkpoint", "asked", "--checkpoint-dir", &store]);
    let council = Council::of(&lab, &job, 4);
    council.wait_until_complete();
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
        Moment::Launch | Moment::Return(_) => unreachable!("those are jobs of their own"),
    }
    std::thread::sleep(later);
    council.lose("h1");
    // The job may have ended before.
    job.wait_until("the end of its console", Running::has_ended);
    let is_over = || !["h2", "h3", "h4"].iter().any(|host| !lab.processes(host, "redrtd").is_empty());
    job.wait_until("another root, or the end", |_| council.find_root().is_some() || is_over());
    std::fs::write(&stop, "").expect("it can be written");
    if council.find_root().is_some() {
        let (code, _, said) = end_of(&mut council.console());
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

/// How many losses are asked for.
fn root_losses() -> Option<usize> {
    std::env::var("REDRT_ROOT_LOSSES").ok().and_then(|text| text.parse().ok())
}

/// One such moment of a seed; with `REDRT_ROOT_LOSSES=N` N of each kind.
#[test]
fn the_host_of_the_root_is_lost_at_any_moment() {
    let mut random = Random::from_environment();
    let all: Vec<Moment> = match root_losses() {
        Some(count) => std::iter::repeat_n(MOMENTS, count).flatten().collect(),
        None => vec![*random.one_of(&MOMENTS)],
    };
    for moment in all {
        let later = Duration::from_millis(random.from_one_to(moment.time_max().as_millis() as u64) - 1);
        eprintln!("{moment:?} after {later:?}");
        match moment {
            Moment::Launch => lose_root_host_at_launch(later),
            Moment::Return(level) => lose_root_host_at_return(level, later),
            moment => lose_root_host_at(moment, later),
        }
    }
}
