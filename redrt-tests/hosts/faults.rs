//! Losses of hosts, daemons, links and redrun while a job runs.

use crate::{HOSTS, nothing_left, program, undisturbed};
use redrt_tests::lab::lab;
use redrt_tests::{Disk, Ended, Job, Lab, Running, breadth};
use std::time::Duration;

/// Detection within the default of a second, with its consequences.
const AT_ONCE: Duration = Duration::from_secs(3);

fn send(signal: i32, process: i32) {
    // SAFETY: - the call takes any number; the process is one of the lab's.
    unsafe { libc::kill(process, signal) };
}

fn kill(process: i32) {
    send(libc::SIGKILL, process);
}

/// A job that goes on until the file `stop` is there, at most long after any test. Each rank prints a hash of all
/// messages it received.
fn endless(lab: &Lab, degree: u16, hosts: &str) -> Job {
    let stop = lab.path("stop");
    let program = redrt_tests::compile("until");
    Job::new(4, &program).arguments(&[&stop.display().to_string()]).degree(degree).on_hosts(lab, hosts)
}

/// Starts such a job and waits until it computes.
fn running(lab: &Lab, degree: u16, hosts: &str, options: &[&str]) -> Running {
    let job = endless(lab, degree, hosts).options(options).limit(Duration::from_secs(120)).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    job
}

/// Lets such a job end.
fn finish(lab: &Lab, job: Running) -> Ended {
    std::fs::write(lab.path("stop"), "").expect("it can be written");
    job.wait()
}

fn lost(job: &Running) -> usize {
    job.audit().iter().filter(|record| record["event"] == "replica-lost").count()
}

fn lost_hosts(ended: &Ended) -> Vec<String> {
    ended.events("daemon-lost").map(|record| record["host"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn replicas_killed_on_any_host_change_nothing() {
    let Some(lab) = lab(4) else { return };
    for name in breadth(&["master_worker"][..], &["heat", "master_worker", "collectives"]) {
        let program = program(name);
        let out = undisturbed(&program);
        for (degree, faults) in
            [(2, &["kill:0.0@#3", "kill:1.1@#5"][..]), (3, &["kill:0.0@#3", "kill:0.1@#4", "kill:2.2@#2"])]
        {
            let job = Job::of(&program).degree(degree).on_hosts(&lab, HOSTS);
            let job = faults.iter().fold(job, |job, fault| job.inject(fault));
            let job = job.run().ended_well().printed(&out);
            nothing_left(&lab, &job);
        }
    }
}

#[test]
fn a_host_without_power_is_found_and_the_job_goes_on() {
    for (degree, fan_out) in [(2, "32"), (3, "32"), (2, "1")] {
        let Some(lab) = lab(4) else { return };
        // The host has others below it in the tree of daemons: these must find another way.
        let job = running(&lab, degree, HOSTS, &["--fan-out", fan_out]);
        lab.cut_power("h2");
        job.wait_until("loss", |job| lost(job) > 0);
        let ended = finish(&lab, job).ended_well().said("lost host h2");
        assert_eq!(lost_hosts(&ended), ["h2"], "{ended}");
        nothing_left(&lab, &ended);
    }
}

#[test]
fn a_whole_plane_of_hosts_may_go_at_once() {
    let Some(lab) = lab(4) else { return };
    let job = running(&lab, 2, HOSTS, &[]);
    lab.cut_power("h3");
    lab.cut_power("h4");
    job.wait_until("losses", |job| lost(job) == 4);
    let ended = finish(&lab, job).ended_well();
    nothing_left(&lab, &ended);
}

#[test]
fn the_loss_of_all_replicas_of_a_rank_ends_the_job() {
    let Some(lab) = lab(4) else { return };
    let job = running(&lab, 2, HOSTS, &[]);
    // Ranks 2 and 3 are on h2 and h4.
    lab.cut_power("h2");
    lab.cut_power("h4");
    let ended = job.wait().ended_with(128 + 9).said("is lost");
    nothing_left(&lab, &ended);
}

#[test]
fn a_killed_daemon_takes_its_host_with_it_and_nothing_stays() {
    let Some(lab) = lab(4) else { return };
    let job = running(&lab, 2, HOSTS, &[]);
    let daemons = lab.processes("h3", "redrtd");
    assert!(!daemons.is_empty());
    // The newest process is the daemon; the oldest is its guard, which cleans up.
    kill(*daemons.iter().max().expect("there are some"));
    job.wait_until("loss", |job| lost(job) == 2);
    let ended = finish(&lab, job).ended_well().said("lost host h3").said("its daemon has ended");
    nothing_left(&lab, &ended);
}

/// Its processes end by themselves, and the daemon cannot come back into the job.
#[test]
fn a_host_that_is_cut_off_stops_itself_and_stays_out() {
    let Some(lab) = lab(4) else { return };
    let job = running(&lab, 2, HOSTS, &[]);
    lab.cut_link("h4");
    job.wait_until("loss", |job| lost(job) == 2);
    let left = lab.processes("h4", "until");
    job.wait_until("end on the side that is cut off", |_| lab.processes("h4", "until").is_empty());
    assert!(left.len() <= 2);
    lab.heal_link("h4");
    let ended = finish(&lab, job).ended_well().said("lost host h4");
    assert_eq!(lost_hosts(&ended), ["h4"], "{ended}");
    nothing_left(&lab, &ended);
}

#[test]
fn a_link_that_is_cut_for_a_moment_is_no_death() {
    let Some(lab) = lab(4) else { return };
    let job = running(&lab, 2, HOSTS, &["--detect-timeout", "5"]);
    for host in ["h4", "h2", "h3"] {
        lab.cut_link(host);
        std::thread::sleep(Duration::from_millis(400));
        lab.heal_link(host);
    }
    let ended = finish(&lab, job).ended_well();
    assert_eq!(lost_hosts(&ended), [] as [&str; 0], "{ended}");
    nothing_left(&lab, &ended);
}

/// Time until processes have opened their connections again: that of 5 retransmissions.
const PARTED_FOR_A_WHILE: Duration = Duration::from_secs(12);

#[test]
fn two_hosts_cut_apart_for_a_while_are_not_lost() {
    let Some(lab) = lab(4) else { return };
    let job = running(&lab, 2, HOSTS, &["--transport", "tcp"]);
    lab.cut_between("h2", "h3");
    std::thread::sleep(PARTED_FOR_A_WHILE);
    lab.heal_between("h2", "h3");
    job.wait_for("reconnected", 1);
    let ended = finish(&lab, job).ended_well();
    assert_eq!((lost_hosts(&ended), ended.events("replica-lost").count()), (Vec::new(), 0), "{ended}");
    nothing_left(&lab, &ended);
}

#[test]
#[ignore = "scripts/test.sh --all: needs processors that nothing else uses; the simulator of tools/host-watch plays it"]
fn of_two_hosts_that_do_not_hear_each_other_one_is_given_up() {
    let Some(lab) = lab(4) else { return };
    let job = running(&lab, 2, HOSTS, &["--transport", "tcp"]);
    lab.cut_between("h2", "h3");
    // The daemons do not hear each other either, but others hear both.
    job.wait_for("daemon-lost", 1);
    let ended = finish(&lab, job).ended_well().said("do not hear each other");
    assert_eq!(lost_hosts(&ended), ["h3"], "{ended}");
    nothing_left(&lab, &ended);
}

/// One direction of their link is cut.
#[test]
#[ignore = "scripts/test.sh --all: the simulator of tools/host-watch plays it"]
fn of_two_hosts_cut_apart_one_way_one_is_given_up() {
    let Some(lab) = lab(4) else { return };
    let job = running(&lab, 2, HOSTS, &["--transport", "tcp"]);
    lab.cut_from("h3", "h2");
    job.wait_for("daemon-lost", 1);
    let ended = finish(&lab, job).ended_well().said("do not hear each other");
    assert_eq!(lost_hosts(&ended).len(), 1, "{ended}");
    nothing_left(&lab, &ended);
}

/// One of three hosts hears neither of the other two.
#[test]
#[ignore = "scripts/test.sh --all: the simulator of tools/host-watch plays it"]
fn of_three_hosts_cut_apart_one_or_two_are_given_up() {
    let Some(lab) = lab(4) else { return };
    let job = running(&lab, 2, HOSTS, &["--transport", "tcp"]);
    lab.cut_between("h2", "h3");
    lab.cut_between("h2", "h4");
    job.wait_for("daemon-lost", 1);
    let ended = finish(&lab, job).ended_well().said("do not hear each other");
    assert!(matches!(lost_hosts(&ended).len(), 1 | 2), "{ended}");
    nothing_left(&lab, &ended);
}

#[test]
#[ignore = "scripts/test.sh --all: the simulator of tools/host-watch plays it"]
fn without_replicas_two_hosts_cut_apart_end_the_job() {
    let Some(lab) = lab(4) else { return };
    let job = running(&lab, 1, HOSTS, &["--transport", "tcp"]);
    lab.cut_between("h2", "h3");
    let ended = job.wait().ended_with(1).said("the connection between").said("broke; neither has a sibling");
    nothing_left(&lab, &ended);
}

#[test]
fn the_part_of_the_network_without_redrun_stops() {
    let Some(lab) = lab(4) else { return };
    let job = running(&lab, 2, HOSTS, &[]);
    // The planes are apart: h1 and h2 hold one, h3 and h4 the other.
    lab.part(&["h3", "h4"]);
    job.wait_until("losses", |job| lost(job) == 4);
    job.wait_until("end of the other part", |_| {
        lab.processes("h3", "redrtd").is_empty() && lab.processes("h4", "redrtd").is_empty()
    });
    let ended = finish(&lab, job).ended_well();
    nothing_left(&lab, &ended);
}

#[test]
fn a_daemon_that_was_stopped_for_long_is_fenced() {
    let Some(lab) = lab(4) else { return };
    let job = running(&lab, 2, HOSTS, &[]);
    let daemons = lab.processes("h4", "redrtd");
    daemons.iter().for_each(|daemon| send(libc::SIGSTOP, *daemon));
    job.wait_until("loss", |job| lost(job) == 2);
    daemons.iter().for_each(|daemon| send(libc::SIGCONT, *daemon));
    job.wait_until("its end", |_| lab.processes("h4", "until").is_empty());
    job.wait_until("its last words", |job| job.errors().contains("the daemon on h4 stood still for"));
    let ended = finish(&lab, job).ended_well();
    nothing_left(&lab, &ended);
}

#[test]
fn ctrl_z_stops_redrun_and_no_host() {
    let Some(lab) = lab(4) else { return };
    let job = running(&lab, 2, HOSTS, &[]);
    job.signal(libc::SIGTSTP);
    // Longer than any daemon waits for redrun.
    std::thread::sleep(Duration::from_secs(3));
    job.resume();
    let ended = finish(&lab, job).ended_well();
    assert_eq!(lost_hosts(&ended), [] as [&str; 0], "{ended}");
    nothing_left(&lab, &ended);
}

#[test]
fn a_job_can_be_looked_at_from_any_host() {
    let Some(lab) = lab(4) else { return };
    let job = running(&lab, 2, HOSTS, &[]);
    let redctl = redrt_tests::prefix().join("bin/redctl");
    let start = job.audit();
    let id = start[0]["job"].as_str().expect("a job has an identity").to_owned();
    for host in ["h1", "h3"] {
        let output = lab.on(host).arg(&redctl).args(["--job", &id, "status"]).output().expect("redctl can be run");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            text.contains("running") && text.contains("2.1 on h4"),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let killed = lab.on("h4").arg(&redctl).args(["--job", &id, "kill", "2.1"]).status().expect("redctl can be run");
    assert!(killed.success());
    job.wait_until("loss", |job| lost(job) == 1);
    let ended = finish(&lab, job).ended_well().said("lost replica 2.1");
    nothing_left(&lab, &ended);
}

#[test]
fn ssh_may_be_killed_once_the_daemons_run() {
    let Some(lab) = lab(4) else { return };
    let job = running(&lab, 2, HOSTS, &["--detect-timeout", "4"]);
    let clients = lab.processes("h1", "ssh");
    assert_eq!(clients.len(), 3);
    clients.into_iter().for_each(kill);
    for host in ["h2", "h3", "h4"] {
        // All but the oldest `sshd`, which listens.
        let mut sessions = lab.processes(host, "sshd");
        sessions.sort_unstable();
        sessions.into_iter().skip(1).for_each(kill);
    }
    // A daemon that stands still for over half of the timeout reports it to redrun alone.
    let daemons = lab.processes("h4", "redrtd");
    daemons.iter().for_each(|daemon| send(libc::SIGSTOP, *daemon));
    std::thread::sleep(Duration::from_millis(2500));
    daemons.iter().for_each(|daemon| send(libc::SIGCONT, *daemon));
    let ended = finish(&lab, job).ended_well();
    assert_eq!(lost_hosts(&ended), [] as [&str; 0], "{ended}");
    nothing_left(&lab, &ended);
}

#[test]
fn nothing_is_left_when_redrun_is_killed_or_interrupted() {
    for (signal, code) in [(libc::SIGKILL, 128 + 9), (libc::SIGINT, 130)] {
        for fan_out in ["32", "1"] {
            let Some(lab) = lab(4) else { return };
            let job = running(&lab, 2, HOSTS, &["--fan-out", fan_out]);
            job.signal(signal);
            let ended = job.wait();
            let left = lab.left_behind(Duration::from_secs(2));
            assert!(left.is_empty(), "signal {signal}: {left:?}");
            let _ = ended.ended_with(code);
        }
    }
}

#[test]
fn the_power_of_the_host_of_redrun_ends_the_job_on_all_hosts() {
    let Some(lab) = lab(4) else { return };
    let job = running(&lab, 2, HOSTS, &[]);
    lab.cut_power("h1");
    let ended = job.wait();
    nothing_left(&lab, &ended);
    assert!(ended.code != Some(0));
}

#[test]
fn a_time_limit_ends_the_job_on_all_hosts() {
    let Some(lab) = lab(4) else { return };
    let job = endless(&lab, 2, HOSTS).options(&["--timeout", "2"]).run().ended_with(124);
    let job = job.within(AT_ONCE + Duration::from_secs(4));
    nothing_left(&lab, &job);
}

#[test]
fn an_audit_log_whose_file_system_stands_still_costs_no_host() {
    let Some(mut disk) = Disk::freezable() else { return };
    let Some(lab) = lab(3) else { return };
    let job = endless(&lab, 2, "h1,h2,h3").audit_at(&disk.path("audit")).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    disk.freeze();
    // The record of a loss waits for the disk: three times as long as hosts may be silent.
    job.redctl(&["kill", "1.1"]).expect("it is there");
    std::thread::sleep(Duration::from_secs(3));
    disk.thaw();
    job.wait_for("replica-lost", 1);
    let ended = finish(&lab, job).ended_with(0);
    assert_eq!(lost_hosts(&ended), [""; 0], "{ended}");
    assert_eq!(ended.events("replica-lost").count(), 1, "{ended}");
    nothing_left(&lab, &ended);
}

#[test]
fn when_redrun_stood_still_that_is_the_reason() {
    let Some(lab) = lab(3) else { return };
    let job = running(&lab, 2, "h1,h2,h3", &["--detect-timeout", "1"]);
    job.signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_secs(3));
    job.resume();
    let ended = job.wait().said("redrun stood still for 3.");
    assert!(!matches!(ended.code, None | Some(0)) && ended.err.contains("so that the daemons gave it up"), "{ended}");
    nothing_left(&lab, &ended);
}

#[test]
fn a_stopped_guard_and_daemon_lose_their_host_and_leave() {
    let Some(lab) = lab(4) else { return };
    let job = running(&lab, 2, HOSTS, &[]);
    let stopped = lab.processes("h2", "redrtd");
    assert!(stopped.len() >= 2, "{stopped:?}");
    stopped.iter().for_each(|process| send(libc::SIGSTOP, *process));
    job.wait_until("host lost", |job| job.audit().iter().any(|record| record["event"] == "daemon-lost"));
    let ended = finish(&lab, job);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_eq!(lost_hosts(&ended), ["h2"], "{ended}");
    // A stopped process cannot end its children; once it goes on, nothing may be left.
    stopped.iter().for_each(|process| send(libc::SIGCONT, *process));
    nothing_left(&lab, &ended);
}
