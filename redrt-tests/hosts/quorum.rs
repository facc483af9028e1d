//! Coordinators on several hosts (`--coordinators 3`): any host may be lost, and another takes over the coordinator
//! without a user's help.

use crate::elsewhere::{RIGHT, begin, begin_in, lines};
use crate::{HOSTS, nothing_left};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redrt_tests::lab::lab;
use redrt_tests::quorum::{OWN, Quorum, coordinators_on, end_of, peers_on};
use redrt_tests::{Job, Lab, Random, Running, compile, prefix};
use std::process::Stdio;
use std::time::Duration;

/// The host that takes over the coordinator is lost as well, and the output is right.
#[test]
fn hosts_of_coordinators_are_lost_one_after_another() {
    let Some(lab) = lab(4) else { return };
    let (stop, job) = begin(&lab, &["--spares", "1"]);
    let quorum = Quorum::of(&lab, &job, 4);
    quorum.wait_until_complete();
    let lost = job.replicas().iter().filter(|replica| replica.ends_with(" on h1")).count();
    quorum.lose("h1");
    job.wait_for("came-back", 1);
    job.wait_for("recovered", lost);
    quorum.wait_until_complete();
    let second = quorum.find_coordinator().expect("a host has it");
    quorum.lose(&second);
    job.wait_for("came-back", 2);
    job.wait_for("daemon-lost", 2);
    std::fs::write(&stop, "").expect("it can be written");
    let (code, shown, said) = end_of(&mut quorum.console());
    assert_eq!((code, shown.as_str()), (Some(0), ""), "{said}");
    let ended = job.wait();
    assert_eq!(lines(&ended.out), RIGHT, "{ended}");
    assert_eq!(ended.events("mismatch").count(), 0, "{ended}");
    nothing_left(&lab, &ended);
}

/// Each job has peers of its own on the same hosts.
#[test]
fn two_jobs_of_a_user_lose_the_host_of_their_coordinators() {
    let Some(lab) = lab(4) else { return };
    let both = [begin(&lab, &[]).1, begin(&lab, &[]).1];
    let quorums = both.each_ref().map(|job| Quorum::of(&lab, job, 4));
    quorums.iter().for_each(Quorum::wait_until_complete);
    lab.cut_power("h1");
    for (quorum, job) in quorums.iter().zip(&both) {
        quorum.forget("h1");
        job.wait_for("came-back", 1);
        job.wait_for("daemon-lost", 1);
    }
    std::fs::write(lab.path("stop"), "").expect("it can be written");
    for quorum in &quorums {
        assert_eq!(quorum.wait_for_good_end(), Ok(true));
    }
    let left = lab.left_behind(Duration::from_secs(5));
    assert!(left.is_empty(), "left behind: {left:?}");
    for ended in both.map(Running::wait) {
        assert_eq!(lines(&ended.out), RIGHT, "{ended}");
    }
}

/// A killed coordinator's console goes on with the coordinator that the host's peer starts; a stopped coordinator is
/// replaced by one on another host.
#[test]
fn a_killed_coordinator_stays_and_a_stopped_one_moves() {
    let Some(lab) = lab(4) else { return };
    let (stop, job) = begin(&lab, &[]);
    let quorum = Quorum::of(&lab, &job, 4);
    quorum.wait_until_complete();
    let coordinator = |host| coordinators_on(&lab, host).first().copied().map(Pid::from_raw).expect("it is there");
    let first = coordinator("h1");
    kill(first, Signal::SIGKILL).expect("it runs");
    job.wait_for("came-back", 1);
    let second = coordinator("h1");
    assert_ne!(first, second);
    kill(second, Signal::SIGSTOP).expect("it runs");
    job.wait_for("came-back", 2);
    quorum.forget("h1");
    job.wait_until("another coordinator", |_| quorum.find_coordinator().is_some());
    std::fs::write(&stop, "").expect("it can be written");
    let (code, _, said) = end_of(&mut quorum.console());
    assert_eq!(code, Some(0), "{said}");
    let ended = job.wait();
    assert_eq!(lines(&ended.out), RIGHT, "{ended}");
    assert_eq!(ended.events("replica-lost").count(), 0, "{ended}");
    nothing_left(&lab, &ended);
}

/// The kill comes before or after the console has the job's end. A console goes on with the next coordinator and ends
/// well.
#[test]
fn a_coordinator_killed_at_the_end_leaves_nothing_behind() {
    let mut random = Random::from_environment();
    for _ in 0..coordinator_losses().unwrap_or(2) {
        let Some(lab) = lab(4) else { return };
        let (stop, job) = begin(&lab, &[]);
        let quorum = Quorum::of(&lab, &job, 4);
        quorum.wait_until_complete();
        let kill_coordinator = || {
            for coordinator in coordinators_on(&lab, "h1") {
                // The coordinator may have ended meanwhile.
                let _ = kill(Pid::from_raw(coordinator), Signal::SIGKILL);
            }
        };
        // The second coordinator that is lost on a host within seconds comes back on another.
        let is_second = random.draw().is_multiple_of(2);
        if is_second {
            kill_coordinator();
            job.wait_for("came-back", 1);
        }
        std::fs::write(&stop, "").expect("it can be written");
        let later = Duration::from_millis(random.from_one_to(60));
        std::thread::sleep(later);
        kill_coordinator();
        assert_eq!(quorum.wait_for_good_end(), Ok(true), "after {later:?}, {is_second}");
        let ended = job.wait();
        assert_eq!(lines(&ended.out), RIGHT, "after {later:?}, {is_second}: {ended}");
        assert!(!ended.err.contains("error:"), "after {later:?}, {is_second}: {ended}");
        nothing_left(&lab, &ended);
    }
}

/// The coordinator's host is on the smaller side: the other hosts get another coordinator, and the processes on the
/// coordinator's side end.
#[test]
fn a_coordinator_without_a_quorum_ends_and_others_go_on() {
    let Some(lab) = lab(4) else { return };
    let (stop, job) = begin(&lab, &["--coordinator-lease", "10s"]);
    let quorum = Quorum::of(&lab, &job, 4);
    quorum.wait_until_complete();
    lab.cut_link("h1");
    quorum.forget("h1");
    // The cut-off coordinator may still have had the audit log open when the next coordinator needed it.
    job.wait_until("another coordinator", |_| quorum.find_coordinator().is_some());
    job.wait_until("the end of the other", |_| coordinators_on(&lab, "h1").is_empty());
    std::fs::write(&stop, "").expect("it can be written");
    let (code, _, said) = end_of(&mut quorum.console());
    assert_eq!(code, Some(0), "{said}");
    job.wait_until("the end of its side", |_| lab.processes("h1", "until").is_empty());
    let ended = job.wait();
    assert_eq!(lines(&ended.out), RIGHT, "{ended}");
    nothing_left(&lab, &ended);
}

/// Moments of a host's loss.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// Processes are being started; three hosts may decide already.
    Launch,
    /// A replica was killed, and the coordinator has not acted on it yet.
    Loss,
    /// Copies of replicas are being made.
    Copy,
    /// A checkpoint is being taken.
    Checkpoint,
    /// The job goes back to a checkpoint of this level.
    Return(&'static str),
    /// Processes end.
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
    /// Time in which the moment begins and passes.
    fn time_max(self) -> Duration {
        match self {
            Self::Launch => Duration::from_millis(600),
            Self::Return(_) => Duration::from_millis(1500),
            _ => Duration::from_millis(120),
        }
    }
}

/// Once three hosts decide, the job goes on. Earlier, the loss of the coordinator's host ends it, and so does the loss
/// of another host that has no part of the job yet.
fn lose_at_launch(victim: &str, later: Duration) {
    let Some(lab) = lab(4) else { return };
    let stop = lab.path("stop");
    let job = Job::new(4, &compile("until")).arguments(&[&stop.display().to_string()]).degree(2);
    let job = job.on_hosts(&lab, HOSTS).options(&["--detachable", "--coordinators", "3", "--transport", "tcp"]);
    let job = job.environment(OWN.0, OWN.1).limit(Duration::from_secs(120)).start();
    std::thread::sleep(later);
    let quorum = Quorum::of(&lab, &job, 4);
    let was_complete = quorum.is_complete();
    quorum.lose(victim);
    if victim != COORDINATOR_HOST {
        job.wait_until("computing, or the end", |job| job.output().contains("computing") || job.has_ended());
        std::fs::write(&stop, "").expect("it can be written");
        let ended = job.wait();
        let is_told = ended.code == Some(1) && ended.err.contains("redrun: error:");
        assert!(ended.code == Some(0) && lines(&ended.out) == RIGHT || is_told, "{victim} after {later:?}: {ended}");
        return nothing_left(&lab, &ended);
    }
    job.wait_until("the end of its console", Running::has_ended);
    job.wait_until("another root, or the end", |_| quorum.find_coordinator().is_some() || quorum.has_nobody());
    assert!(
        !was_complete || quorum.find_coordinator().is_some(),
        "after {later:?}: three hosts decided, and none goes on"
    );
    std::fs::write(&stop, "").expect("it can be written");
    let has_coordinator = quorum.find_coordinator().is_some();
    if has_coordinator {
        let (code, _, said) = end_of(&mut quorum.console());
        let is_told = code == Some(1) && said.contains("redrun: error:");
        assert!(code == Some(0) || !was_complete && is_told, "after {later:?}: {code:?} {said}{}", job.errors());
    }
    let left = lab.left_behind(Duration::from_secs(5));
    assert!(left.is_empty(), "after {later:?}: left behind: {left:?}");
    let ended = job.wait();
    assert!(!was_complete || lines(&ended.out) == RIGHT, "after {later:?}: {ended}");
}

/// Each rank has one replica. The replica that is killed is on another host than the lost one.
fn lose_at_return(victim: &str, level: &str, later: Duration) {
    let Some(lab) = lab(4) else { return };
    let (stop, store) = (lab.path("stop"), lab.path("store").display().to_string());
    let job = Job::new(3, &compile("until")).arguments(&[&stop.display().to_string()]);
    let job = job.on_hosts(&lab, HOSTS).options(&["--detachable", "--coordinators", "3"]);
    let job = job.options(&["--checkpoint", "0.5s", "--checkpoint-dir", &store, "--checkpoint-level", level]);
    let job = job.environment(OWN.0, OWN.1).limit(Duration::from_secs(120)).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    let quorum = Quorum::of(&lab, &job, 4);
    quorum.wait_until_complete();
    // Each part of the checkpoint is on two hosts.
    let kept = if level == "partner" { "checkpoint-copied" } else { "checkpoint" };
    job.wait_for(kept, 1);
    job.redctl(&["kill", "2.0"]).expect("it is there");
    std::thread::sleep(later);
    quorum.lose(victim);
    if victim == COORDINATOR_HOST {
        job.wait_until("the end of its console", Running::has_ended);
        job.wait_until("another coordinator", |_| quorum.find_coordinator().is_some());
    }
    std::fs::write(&stop, "").expect("it can be written");
    assert_eq!(quorum.wait_for_good_end(), Ok(true), "{victim}, {level} after {later:?}: {}", job.errors());
    let ended = job.wait();
    assert_eq!(lines(&ended.out), RIGHT[..4], "{victim}, {level} after {later:?}: {ended}");
    // Daemons that were being started anew do not know each other's addresses yet: only the kernel's probes find a dead
    // peer.
    let left = lab.left_behind(Duration::from_secs(40));
    assert!(left.is_empty(), "{victim}, {level} after {later:?}: left behind: {left:?}\n{ended}");
}

fn lose_at(victim: &str, moment: Moment, later: Duration) {
    let Some(lab) = lab(5) else { return };
    let store = lab.path("store").display().to_string();
    let (stop, job) = begin(&lab, &["--spares", "1", "--checkpoint", "asked", "--checkpoint-dir", &store]);
    let quorum = Quorum::of(&lab, &job, 4);
    quorum.wait_until_complete();
    let redctl = || {
        let mut command = lab.on("h1");
        command.arg(format!("{}={}", OWN.0, OWN.1)).arg(prefix().join("bin/redctl")).arg("checkpoint");
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("redctl is there")
    };
    // The killed replica's rank loses nothing else with the host.
    let replicas = job.replicas();
    let rank = |replica: &str| replica.split('.').next().unwrap_or_default().to_owned();
    let is_victims = |one: &&String| one.ends_with(&format!(" on {victim}"));
    let of_victim: Vec<_> = replicas.iter().filter(is_victims).map(|one| rank(one)).collect();
    let other = replicas.iter().find(|one| !of_victim.contains(&rank(one))).expect("there is a rank without it");
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
    quorum.lose(victim);
    if victim == COORDINATOR_HOST {
        // The job may have ended before the loss.
        job.wait_until("the end of its console", Running::has_ended);
        job.wait_until("another root, or the end", |_| quorum.find_coordinator().is_some() || quorum.has_nobody());
    }
    std::fs::write(&stop, "").expect("it can be written");
    let end = quorum.wait_for_good_end();
    assert!(end.is_ok(), "{victim}, {moment:?} after {later:?}: {end:?}{}", job.errors());
    if let Some(mut asked) = asked {
        let _ = asked.kill();
        let _ = asked.wait();
    }
    let ended = job.wait();
    assert_eq!(lines(&ended.out), RIGHT, "{victim}, {moment:?} after {later:?}: {ended}");
    assert_eq!(ended.events("mismatch").count(), 0, "{ended}");
    nothing_left(&lab, &ended);
}

/// Host of the first coordinator.
const COORDINATOR_HOST: &str = "h1";
const VICTIMS: [&str; 4] = [COORDINATOR_HOST, "h2", "h3", "h4"];

/// Number of losses in `REDRT_COORDINATOR_LOSSES`, if set.
fn coordinator_losses() -> Option<usize> {
    std::env::var("REDRT_COORDINATOR_LOSSES").ok().and_then(|text| text.parse().ok())
}

/// Draws two of the moments from a seed, one of them for the coordinator's host; with `REDRT_COORDINATOR_LOSSES=N` N of
/// each host and moment.
#[test]
fn any_host_is_lost_at_any_moment() {
    let mut random = Random::from_environment();
    let pairs = || VICTIMS.into_iter().flat_map(|victim| MOMENTS.map(|moment| (victim, moment)));
    let all: Vec<(&str, Moment)> = match coordinator_losses() {
        Some(count) => std::iter::repeat_with(pairs).take(count).flatten().collect(),
        None => {
            [COORDINATOR_HOST, *random.one_of(&VICTIMS[1..])].map(|victim| (victim, *random.one_of(&MOMENTS))).into()
        }
    };
    for (victim, moment) in all {
        let later = Duration::from_millis(random.from_one_to(moment.time_max().as_millis() as u64) - 1);
        eprintln!("{victim}, {moment:?} after {later:?}");
        match moment {
            Moment::Launch => lose_at_launch(victim, later),
            Moment::Return(level) => lose_at_return(victim, level, later),
            moment => lose_at(victim, moment, later),
        }
    }
}

/// The peer is stopped for longer than its replacement takes. When it wakes it is no peer any more, and ends.
#[test]
#[ignore = "scripts/test.sh --all: the simulator of coordinator-quorum plays it"]
fn a_peer_stopped_for_long_is_replaced_and_ends() {
    let Some(lab) = lab(4) else { return };
    let (stop, job) = begin(&lab, &[]);
    let quorum = Quorum::of(&lab, &job, 4);
    quorum.wait_until_complete();
    let is_peer = |host: &&String| host.as_str() != COORDINATOR_HOST && !peers_on(&lab, host).is_empty();
    let host = quorum.alive().iter().find(is_peer).cloned().expect("two others have one");
    let stopped = peers_on(&lab, &host);
    let send = |signal| stopped.iter().for_each(|peer| kill(Pid::from_raw(*peer), signal).expect("it is there"));
    let before = job.count("roots");
    send(Signal::SIGSTOP);
    job.wait_until("another peer", |job| job.count("roots") > before && quorum.is_complete());
    send(Signal::SIGCONT);
    job.wait_until("its end", |_| !peers_on(&lab, &host).iter().any(|peer| stopped.contains(peer)));
    std::fs::write(&stop, "").expect("it can be written");
    let ended = job.wait();
    assert_eq!((lines(&ended.out), ended.code), (RIGHT.to_vec(), Some(0)), "{ended}");
    nothing_left(&lab, &ended);
}

/// The cut-off host's peer removes the files of its own coordinator, and no file of the next coordinator.
#[test]
fn a_coordinator_goes_on_where_hosts_share_a_directory() {
    let Some(lab) = lab(4) else { return };
    let shared = lab.path("shared");
    std::fs::create_dir(&shared).expect("a new directory");
    let (stop, job) = begin_in(&shared.display().to_string(), &lab, &["--coordinator-lease", "10s"]);
    let quorum = Quorum::of(&lab, &job, 4);
    quorum.wait_until_complete();
    lab.cut_link(COORDINATOR_HOST);
    job.wait_for("came-back", 1);
    job.wait_until("the end of the other", |_| coordinators_on(&lab, COORDINATOR_HOST).is_empty());
    job.wait_until("the end of its side", |_| lab.processes(COORDINATOR_HOST, "redrtd").is_empty());
    let has_coordinator = |host: &&&str| !coordinators_on(&lab, host).is_empty();
    let coordinator = *VICTIMS[1..].iter().find(has_coordinator).expect("a host has the coordinator");
    let number = quorum.number().to_owned();
    std::fs::write(&stop, "").expect("it can be written");
    let ended = job.wait();
    // The console may have found the next coordinator: hosts of a lab share their kernel.
    if ended.code != Some(0) {
        let mut console = lab.on(coordinator);
        console.arg(format!("{}={}", OWN.0, shared.display())).arg(prefix().join("bin/redrun"));
        let (code, _, said) = end_of(console.args(["--attach", &number]).stdin(Stdio::null()));
        assert_eq!(code, Some(0), "{said}{ended}");
    }
    assert_eq!(lines(&ended.out), RIGHT, "{ended}");
    nothing_left(&lab, &ended);
    // The cut-off daemon has noted there why its part of the job ended.
    let left = std::fs::read_dir(shared.join("redrt")).into_iter().flatten().flatten().map(|entry| entry.path());
    let left: Vec<_> = left.filter(|path| path.extension().is_none_or(|kind| kind != "end")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Leaves room for a few lines where a coordinator would keep its journal. A host with a journal there keeps it.
fn take_room(lab: &Lab, host: &str) {
    for place in [&format!("{}/redrt", OWN.1), "/dev/shm"] {
        let mut mount = lab.on(host);
        let line = format!("mkdir -p {place} && mount -t tmpfs -o size=4k,mode=0700 none {place}");
        assert!(mount.args(["sh", "-c", &line]).status().expect("mount is there").success(), "{place} on {host}");
    }
}

/// Removes the small file systems, with all files of the attempts on them.
fn give_room_back(lab: &Lab, host: &str) {
    assert!(lab.on(host).args(["umount", "-l", "/dev/shm"]).status().expect("umount is there").success());
}

/// Another host takes over the coordinator.
#[test]
fn a_host_without_room_for_the_journal_is_passed_over() {
    let Some(lab) = lab(4) else { return };
    let (stop, job) = begin(&lab, &[]);
    let quorum = Quorum::of(&lab, &job, 4);
    quorum.wait_until_complete();
    let full = VICTIMS[1..].iter().find(|host| !peers_on(&lab, host).is_empty()).expect("two others have a peer");
    take_room(&lab, full);
    quorum.lose(COORDINATOR_HOST);
    job.wait_for("came-back", 1);
    std::fs::write(&stop, "").expect("it can be written");
    assert_eq!(quorum.wait_for_good_end(), Ok(true), "{}", job.errors());
    let ended = job.wait();
    assert_eq!(lines(&ended.out), RIGHT, "{ended}");
    give_room_back(&lab, full);
    nothing_left(&lab, &ended);
}

/// A console on a host that held the records shows the reason.
#[test]
fn a_job_without_room_for_a_journal_ends_and_says_why() {
    let Some(lab) = lab(4) else { return };
    let (_, job) = begin(&lab, &["--coordinator-lease", "6s"]);
    let quorum = Quorum::of(&lab, &job, 4);
    quorum.wait_until_complete();
    let peers: Vec<_> = VICTIMS[1..].iter().filter(|host| !peers_on(&lab, host).is_empty()).collect();
    VICTIMS[1..].iter().for_each(|host| take_room(&lab, host));
    quorum.lose(COORDINATOR_HOST);
    job.wait_until("the end of its console", Running::has_ended);
    job.wait_until("the end of its peers and daemons", |_| quorum.has_nobody());
    for host in &peers {
        let (code, _, said) = end_of(&mut quorum.console_on(host));
        assert!(
            code == Some(1) && said.contains("has ended: no coordinator of the job could be started"),
            "{code:?} {said}"
        );
        assert!(said.contains("No space left on device"), "{said}");
    }
    VICTIMS[1..].iter().for_each(|host| give_room_back(&lab, host));
    nothing_left(&lab, &job.wait());
}
