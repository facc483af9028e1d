//! The place of a job's coordinator, as commands on each of several hosts report it, and a coordinator's return where a
//! host has no room for its journal.

use crate::elsewhere::{RIGHT, begin, lines};
use crate::nothing_left;
use redrt_tests::lab::lab;
use redrt_tests::quorum::{OWN, Quorum, coordinators_on, end_of};
use redrt_tests::{Lab, prefix};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A path in a host's file systems.
fn on_host(lab: &Lab, host: &str, path: &str) -> PathBuf {
    Path::new("/proc").join(lab.init(host).to_string()).join("root").join(path)
}

/// Directory with the records of the coordinator's host, and those that daemons keep, as ssh does not pass variables on
/// to them.
const OF_DAEMONS: &str = "";

fn on(lab: &Lab, host: &str, directory: &str, program: &str) -> Command {
    let mut command = lab.on(host);
    command.arg(format!("{}={directory}", OWN.0)).arg(prefix().join("bin").join(program));
    command
}

/// Output about one job: this machine may run others.
fn redctl(lab: &Lab, host: &str, directory: &str, job: &str, word: &str) -> String {
    let (_, shown, said) = end_of(on(lab, host, directory, "redctl").args(["--job", job, word]));
    match word {
        "list" => shown.lines().filter(|line| line.contains(job)).fold(String::new(), |rows, row| rows + row + "\n"),
        _ => shown + &said,
    }
}

fn attach(lab: &Lab, host: &str, directory: &str, job: &str) -> (Option<i32>, String) {
    let (code, _, said) = end_of(on(lab, host, directory, "redrun").args(["--attach", job]));
    (code, said)
}

#[test]
fn users_are_told_on_each_host_where_the_coordinator_is() {
    let Some(lab) = lab(4) else { return };
    let (stop, job) = begin(&lab, &[]);
    let quorum = Quorum::of(&lab, &job, 4);
    quorum.wait_until_complete();
    let number = quorum.number();
    let is_told = |host: &str, coordinator: &str| {
        let directory = if host == coordinator { OWN.1 } else { OF_DAEMONS };
        let where_to_attach =
            if host == coordinator { "detachable\n".into() } else { format!("detachable on {coordinator}\n") };
        // A daemon hears of another coordinator before it has that on record.
        for (word, answer) in [("status", format!("coordinator on {coordinator}")), ("list", where_to_attach)] {
            job.wait_until(&format!("{answer:?} on {host}"), |_| {
                redctl(&lab, host, directory, number, word).contains(&answer)
            });
        }
        if host != coordinator {
            let (code, said) = attach(&lab, host, directory, number);
            let there =
                format!("job {number} has its coordinator on host {coordinator}: redrun --attach {number} there");
            assert!(code == Some(1) && said.contains(&there), "{code:?} {said}");
        }
    };
    // With records of another coordinator, and without.
    ["h1", "h2", "h4"].iter().for_each(|host| is_told(host, "h1"));
    quorum.lose("h1");
    job.wait_for("came-back", 1);
    job.wait_for("daemon-lost", 1);
    job.wait_until("another coordinator", |_| quorum.find_coordinator().is_some());
    let coordinator = quorum.find_coordinator().expect("it was there");
    quorum.alive().iter().for_each(|host| is_told(host, &coordinator));
    std::fs::write(&stop, "").expect("it can be written");
    assert_eq!(quorum.wait_for_good_end(), Ok(true));
    let ended = job.wait();
    assert_eq!(lines(&ended.out), RIGHT, "{ended}");
    nothing_left(&lab, &ended);
}

/// One host has room in shared memory alone, another nowhere.
#[test]
fn a_coordinator_comes_back_where_there_is_room_for_its_journal() {
    let Some(lab) = lab(4) else { return };
    for (host, path) in [("h2", "run/redrt"), ("h3", "run/redrt"), ("h3", "dev/shm/redrt-0")] {
        // A file prevents a directory of the same name.
        std::fs::write(on_host(&lab, host, path), "").expect("a new file");
    }
    let (stop, job) = begin(&lab, &[]);
    let quorum = Quorum::of(&lab, &job, 4);
    quorum.wait_until_complete();
    quorum.lose("h1");
    job.wait_for("came-back", 1);
    job.wait_for("daemon-lost", 1);
    assert_eq!(coordinators_on(&lab, "h2").len(), 1);
    std::fs::write(&stop, "").expect("it can be written");
    let number = quorum.number();
    let (code, said) = attach(&lab, "h2", OWN.1, number);
    assert_eq!(code, Some(0), "{said}");
    let ended = job.wait();
    assert_eq!(lines(&ended.out), RIGHT, "{ended}");
    std::fs::remove_file(on_host(&lab, "h3", "dev/shm/redrt-0")).expect("it is there still");
    nothing_left(&lab, &ended);
}
