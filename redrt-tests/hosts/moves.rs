//! Replicas are moved between hosts, hosts become free, come while the job runs, or are lent by a site's pool.

use crate::failovers::kill_coordinator;
use crate::nothing_left;
use crate::pool::{ChildGuard, hosts_of, program, redctl, wait};
use redrt_tests::lab::{lab, slurm_lab};
use redrt_tests::{Ended, Job, Lab, Random, Running, compile};
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;

/// A job that computes until the file `stop` is there.
fn start(lab: &Lab, degree: u16, hosts: &str, options: &[&str]) -> Running {
    let stop = lab.path("stop");
    let job = Job::new(4, &compile("until")).arguments(&[&stop.display().to_string()]).degree(degree);
    let job = job.options(options).on_hosts(lab, hosts).limit(Duration::from_secs(120)).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    job
}

fn finish(lab: &Lab, job: Running) -> Ended {
    std::fs::write(lab.path("stop"), "").expect("it can be written");
    let ended = job.wait().ended_well();
    let is_right = |line: &str| line == "computing" || line.ends_with(": right");
    assert!(ended.out.lines().count() == 5 && ended.out.lines().all(is_right), "{ended}");
    ended
}

#[track_caller]
fn done(said: Result<String, String>) {
    said.unwrap_or_else(|why| panic!("{why}"));
}

fn on_host(job: &Running, host: &str) -> usize {
    count_on(&job.replicas(), host)
}

fn count_on(replicas: &[String], host: &str) -> usize {
    replicas.iter().filter(|replica| replica.ends_with(&format!(" on {host}"))).count()
}

/// Fails unless this number of replicas runs on a host.
#[track_caller]
fn assert_on_host(job: &Running, host: &str, count: usize) {
    let replicas = job.replicas();
    assert_eq!(count_on(&replicas, host), count, "on {host} of {replicas:?}\n{}", job.errors());
}

#[test]
fn a_drained_host_may_be_switched_off() {
    for degree in [1, 2] {
        let Some(lab) = lab(4) else { return };
        let job = start(&lab, degree, "h1:4,h2:4,h3:4,h4:8", &["--spares", "1", "--map-by", "node"]);
        assert!(on_host(&job, "h2") > 0, "{:?}", job.replicas());
        done(job.redctl(&["drain", "h2", "--wait"]));
        assert_on_host(&job, "h2", 0);
        job.wait_for("host-free", 1);
        lab.cut_power("h2");
        let ended = finish(&lab, job);
        nothing_left(&lab, &ended);
        assert_eq!(ended.events("replica-lost").count() + ended.events("daemon-lost").count(), 0, "{ended}");
    }
}

#[test]
fn a_replica_goes_where_it_is_told_to() {
    let Some(lab) = lab(4) else { return };
    let job = start(&lab, 2, "h1:4,h2:4,h3:4,h4:2", &["--spares", "1"]);
    let replica = job.replicas().into_iter().find(|replica| replica.ends_with(" on h2")).expect("h2 has some");
    let replica = replica.split(' ').next().expect("its name").to_owned();
    let said = job.redctl(&["migrate", &replica, "--to", "h3"]).expect_err("nothing is free there");
    assert!(said.contains("no place free on h3"), "{said}");
    done(job.redctl(&["migrate", &replica, "--to", "h4", "--wait"]));
    assert_on_host(&job, "h4", 1);
    let ended = finish(&lab, job);
    nothing_left(&lab, &ended);
    assert_eq!((ended.number("joined"), ended.number("left")), (1, 1), "{ended}");
}

#[test]
fn a_host_that_is_added_takes_what_was_lost() {
    let Some(lab) = lab(3) else { return };
    let job = start(&lab, 2, "h1,h2", &["--spares", "0"]);
    let said = job.redctl(&["spare", "add", "nowhere"]).expect_err("there is no such host");
    assert!(said.contains("nowhere"), "{said}");
    lab.cut_power("h2");
    job.wait_for("no-spare", 4);
    done(job.redctl(&["spare", "add", "h3"]));
    job.wait_for("recovered", 4);
    assert_on_host(&job, "h3", 4);
    nothing_left(&lab, &finish(&lab, job));
}

/// `redspared` on h1, with these further options.
fn begin_pool(lab: &Lab, options: &[&str]) -> ChildGuard {
    let mut command = lab.on("h1");
    command.arg(program("redspared")).args(["--listen", "7480", "--watch-interval", "0.2", "--watch-timeout", "2"]);
    command.args(["--launcher-exec", &lab.ssh(), "--lease-time", "3", "--state"]).arg(lab.path("pool")).args(options);
    let daemon = ChildGuard(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("redspared can be run"));
    let secret = lab.path("pool.secret");
    wait("the daemon listens", || redctl(lab, "h1", "h1", &secret, &["status"]).map(drop));
    daemon
}

/// A pool on h1 that keeps these hosts, and has probed them.
fn pool(lab: &Lab, hosts: &[&str], options: &[&str]) -> ChildGuard {
    let daemon = begin_pool(lab, options);
    let words: Vec<_> = ["add"].into_iter().chain(hosts.iter().copied()).collect();
    redctl(lab, "h1", "h1", &lab.path("pool.admin"), &words).expect("they are hosts");
    wait("they are seen", || {
        let states = states(lab);
        if states.iter().all(|state| state.ends_with(" idle true")) { Ok(()) } else { Err(states.join(", ")) }
    });
    daemon
}

fn end_pool(lab: &Lab, daemon: ChildGuard) {
    for process in lab.processes("h1", "redspared") {
        // SAFETY: - the call takes any number; the process is one of the lab's.
        unsafe { libc::kill(process, libc::SIGKILL) };
    }
    drop(daemon);
    let is_gone = || lab.processes("h1", "redspared").is_empty();
    wait("the pool is gone", || if is_gone() { Ok(()) } else { Err("it is there".into()) });
}

/// The pool's hosts and their states.
fn states(lab: &Lab) -> Vec<String> {
    let status = redctl(lab, "h1", "h1", &lab.path("pool.secret"), &["status", "--json"]);
    hosts_of(&status.expect("the pool answers"))
}

fn is_so(condition: bool, lab: &Lab) -> Result<(), String> {
    if condition { Ok(()) } else { Err(states(lab).join(", ")) }
}

#[test]
fn a_pool_lends_hosts_and_gets_them_back() {
    let Some(lab) = lab(5) else { return };
    let daemon = pool(&lab, &["h4:4", "h5:4"], &[]);
    let secret = lab.path("pool.secret");
    let job = start(&lab, 2, "h1,h2,h3", &["--pool", "h1", "--pool-secret", &secret.display().to_string()]);
    lab.cut_power("h2");
    job.wait_until("recovery", |job| job.count("recovered") == job.count("replica-lost") && job.count("recovered") > 0);
    let lent = if on_host(&job, "h4") > 0 { "h4" } else { "h5" };
    let is = |state: &str| states(&lab).iter().any(|host| host.starts_with(&format!("{lent} {state}")));
    assert!(is("leased"), "{:?}", states(&lab));
    // A lease that is not renewed would end within this time.
    std::thread::sleep(Duration::from_secs(4));
    assert!(is("leased"), "{:?}", states(&lab));
    // The pool recalls the host: its replicas move to the other one.
    redctl(&lab, "h1", "h1", &lab.path("pool.admin"), &["drain", lent]).expect("it is there");
    job.wait_for("host-free", 1);
    wait("it is given back", || is_so(is("drained"), &lab));
    assert_on_host(&job, lent, 0);
    let ended = finish(&lab, job);
    wait("all are given back", || is_so(!states(&lab).iter().any(|host| host.contains(" leased")), &lab));
    assert_eq!(ended.number("left"), ended.number("recovered"), "{ended}");
    end_pool(&lab, daemon);
    nothing_left(&lab, &ended);
}

/// The next coordinator has the hosts that the killed one was lent, and gives them back.
#[test]
fn a_job_whose_coordinator_was_killed_keeps_what_was_lent() {
    let Some(lab) = lab(5) else { return };
    let daemon = pool(&lab, &["h4:4"], &[]);
    let secret = lab.path("pool.secret");
    let secret = secret.display().to_string();
    let options = ["--detachable", "--coordinators", "1", "--pool", "h1", "--pool-secret", &secret];
    let job = start(&lab, 2, "h1,h2,h3", &options);
    lab.cut_power("h2");
    job.wait_until("recovery", |job| job.count("recovered") == job.count("replica-lost") && job.count("recovered") > 0);
    let mut killed = Vec::new();
    for _ in 0..2 {
        kill_coordinator(&lab, &job, &mut killed, 3);
        // A lease that is not renewed would end within this time.
        std::thread::sleep(Duration::from_secs(4));
        assert!(states(&lab)[0].starts_with("h4 leased"), "{:?}", states(&lab));
    }
    // The pool has another host, and recalls this one.
    let admin = lab.path("pool.admin");
    redctl(&lab, "h1", "h1", &admin, &["add", "h5:4"]).expect("it is a host");
    redctl(&lab, "h1", "h1", &admin, &["drain", "h4"]).expect("it is there");
    job.wait_for("host-free", 1);
    wait("it is given back", || is_so(states(&lab).iter().any(|host| host.starts_with("h4 drained")), &lab));
    kill_coordinator(&lab, &job, &mut killed, 3);
    let ended = finish(&lab, job);
    wait("all are given back", || is_so(!states(&lab).iter().any(|host| host.contains(" leased")), &lab));
    assert_eq!(ended.events("came-back").count(), 3, "{ended}");
    end_pool(&lab, daemon);
    nothing_left(&lab, &ended);
}

/// Uses a lab with Slurm, which has MUNGE.
#[test]
fn a_restarted_pool_knows_by_munge_whose_a_job_is() {
    let Some(lab) = slurm_lab(3) else { return };
    let daemon = pool(&lab, &["h3:4"], &["--munge"]);
    let secret = lab.path("pool.secret");
    let job = start(&lab, 2, "h1,h2", &["--pool", "h1", "--pool-secret", &secret.display().to_string()]);
    lab.cut_power("h2");
    job.wait_until("recovery", |job| job.count("recovered") == 4);
    let known = || -> Result<(), String> {
        let status = redctl(&lab, "h1", "h1", &secret, &["status", "--json"])?;
        let status: Value = serde_json::from_str(&status).map_err(|error| error.to_string())?;
        let job = &status["jobs"][0];
        let is_known = job["user"] == "root" && job["connected"] == true;
        if is_known { Ok(()) } else { Err(status["jobs"].to_string()) }
    };
    wait("the job is root's", known);
    end_pool(&lab, daemon);
    let daemon = begin_pool(&lab, &["--munge"]);
    wait("the job has come back", known);
    let ended = finish(&lab, job);
    assert_eq!(ended.events("host-free").count(), 0, "no lease was lost\n{ended}");
    end_pool(&lab, daemon);
    nothing_left(&lab, &ended);
}

#[test]
fn a_lent_host_that_fails_is_marked_and_another_one_lent() {
    let Some(lab) = lab(4) else { return };
    // h3 cannot be reached at the lease, though it answered a probe a moment ago.
    let daemon = pool(&lab, &["h3:4"], &[]);
    let secret = lab.path("pool.secret");
    let job = start(&lab, 2, "h1,h2", &["--pool", "h1", "--pool-secret", &secret.display().to_string()]);
    lab.cut_power("h3");
    lab.cut_power("h2");
    job.wait_for("replica-lost", 4);
    redctl(&lab, "h1", "h1", &lab.path("pool.admin"), &["add", "h4:4"]).expect("it is a host");
    job.wait_for("recovered", 4);
    assert_on_host(&job, "h4", 4);
    let ended = finish(&lab, job);
    end_pool(&lab, daemon);
    nothing_left(&lab, &ended);
}

/// Waits for the next clone to begin and cuts the power of a host that takes part, during the clone.
fn cut_in_the_midst(lab: &Lab, job: &Running, random: &mut Random, before: usize, host: impl Fn(&Value) -> String) {
    job.wait_for("clone", before + 1);
    let clone = job.audit().into_iter().filter(|record| record["event"] == "clone").nth(before).expect("it was there");
    std::thread::sleep(Duration::from_micros(random.from_one_to(80_000)));
    lab.cut_power(&host(&clone));
}

#[test]
fn hosts_that_die_while_copies_are_made_are_made_good_too() {
    let Some(lab) = lab(6) else { return };
    let mut random = Random::from_environment();
    let job = start(&lab, 3, "h1:4,h2:4,h3:4,h4:8,h5:8,h6:8", &["--spares", "3", "--map-by", "node"]);
    let on = |record: &Value| record["host"].as_str().expect("a host").to_owned();
    lab.cut_power("h2");
    // First the host of the copies is lost, then the host of a source, which has the copies' partners.
    cut_in_the_midst(&lab, &job, &mut random, 0, on);
    let is_whole = |job: &Running, lost: usize| job.count("daemon-lost") == lost && job.replicas().len() == 12;
    job.wait_until("recovery", |job| is_whole(job, 2));
    let before = job.count("clone");
    let victim = job.replicas()[1].clone();
    job.redctl(&["kill", victim.split(' ').next().expect("its name")]).expect("it is there");
    cut_in_the_midst(&lab, &job, &mut random, before, |_| "h3".into());
    job.wait_until("second recovery", |job| is_whole(job, 3));
    let hosts: std::collections::BTreeSet<_> =
        job.replicas().iter().map(|replica| replica.split(" on ").nth(1).expect("its host").to_owned()).collect();
    assert_eq!(hosts.len(), 3, "{hosts:?}");
    let ended = finish(&lab, job);
    nothing_left(&lab, &ended);
}
