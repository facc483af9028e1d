//! Single faults in jobs with several coordinators: a cut link between two hosts, a console that stands still, the loss
//! of a host while its peer learns.

use crate::HOSTS;
use crate::elsewhere::{RIGHT, begin, lines};
use crate::nothing_left;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redrt_tests::lab::lab;
use redrt_tests::quorum::{OWN, Quorum, peers_on};
use redrt_tests::{Job, Lab, compile_source};
use std::time::Duration;

/// A host other than the coordinator's with a peer.
fn other_peer(lab: &Lab, quorum: &Quorum<'_>) -> String {
    let has_peer = |host: &String| host != "h1" && !peers_on(lab, host).is_empty();
    quorum.alive().into_iter().find(has_peer).expect("two others have one")
}

/// All other hosts hear both. The coordinator stays; it loses the other host, whose processes end within their lease.
#[test]
fn a_cut_between_the_coordinator_and_a_peer_costs_one_host() {
    let Some(lab) = lab(4) else { return };
    let (stop, job) = begin(&lab, &["--coordinator-lease", "8s"]);
    let quorum = Quorum::of(&lab, &job, 4);
    quorum.wait_until_complete();
    let other = other_peer(&lab, &quorum);
    lab.cut_between("h1", &other);
    job.wait_for("daemon-lost", 1);
    std::fs::write(&stop, "").expect("it can be written");
    assert_eq!(quorum.wait_for_good_end(), Ok(true), "{}", job.errors());
    let left = lab.left_behind(Duration::from_secs(15));
    let ended = job.wait();
    assert_eq!(lines(&ended.out), RIGHT, "{ended}");
    assert!(left.is_empty(), "left behind: {left:?}\n{ended}");
}

const CHATTERS: &str = r#"
    #include <mpi.h>
    #include <stdio.h>
    #include <unistd.h>

    int main(int argc, char **argv)
    {
        int rank;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        for (int k = 0; k < 8000; k++) {
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == 1)
                printf("%01023d\n", k);
        }
        MPI_Finalize();
        return argc - 1;
    }
"#;

/// The job prints more than is buffered on the way, so its processes are held. The coordinator is not taken for one
/// that hangs.
#[test]
fn a_console_that_stands_still_only_holds_the_job() {
    let Some(lab) = lab(4) else { return };
    let (_directory, program) = compile_source(CHATTERS);
    let job = Job::new(3, &program).degree(2).on_hosts(&lab, HOSTS).options(&["--detachable", "--coordinators", "3"]);
    let job = job.environment(OWN.0, OWN.1).limit(Duration::from_secs(120)).start();
    let quorum = Quorum::of(&lab, &job, 4);
    quorum.wait_until_complete();
    job.pause(Duration::from_secs(12));
    let ended = job.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(ended.out.len(), 8_000 * 1024);
    let of_coordinators = |event: &&str| ended.events(event).count() > 0;
    let harm: Vec<_> = ["came-back", "daemon-lost", "replica-lost"].into_iter().filter(of_coordinators).collect();
    assert!(harm.is_empty(), "{harm:?}");
    nothing_left(&lab, &ended);
}

/// The peer replaces a killed one. Then another host gets a peer, and the coordinator may be lost with its host.
#[test]
fn a_host_that_is_lost_while_its_peer_learns_is_replaced() {
    for later in [0, 40, 400] {
        let Some(lab) = lab(4) else { return };
        let (stop, job) = begin(&lab, &["--spares", "1"]);
        let quorum = Quorum::of(&lab, &job, 4);
        quorum.wait_until_complete();
        let host = other_peer(&lab, &quorum);
        let before = peers_on(&lab, &host);
        before.iter().for_each(|id| kill(Pid::from_raw(*id), Signal::SIGKILL).expect("it runs"));
        let is_new = |id: &i32| !before.contains(id);
        let joins = || quorum.alive().into_iter().find(|host| peers_on(&lab, host).iter().any(is_new) && host != "h1");
        let was_complete = || job.count("roots");
        let count = was_complete();
        job.wait_until("another peer", |_| {
            joins().is_some_and(|new| new == host) || was_complete() > count && quorum.is_complete()
        });
        std::thread::sleep(Duration::from_millis(later));
        let lost = if peers_on(&lab, &host).is_empty() { joins().expect("one joins") } else { host };
        let there = job.replicas().iter().filter(|replica| replica.ends_with(&format!(" on {lost}"))).count();
        quorum.lose(&lost);
        quorum.wait_until_complete();
        job.wait_for("daemon-lost", 1);
        // Otherwise ranks whose only replicas are on the coordinator's host would be lost with it.
        job.wait_for("recovered", there);
        quorum.lose("h1");
        job.wait_for("came-back", 1);
        std::fs::write(&stop, "").expect("it can be written");
        assert_eq!(quorum.wait_for_good_end(), Ok(true), "after {later}: {}", job.errors());
        let ended = job.wait();
        assert_eq!(lines(&ended.out), RIGHT, "after {later}: {ended}");
        nothing_left(&lab, &ended);
    }
}
