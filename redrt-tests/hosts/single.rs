//! Single faults in jobs with several roots: a cut link between two hosts, a console that stands still, the loss of a
//! host while its member learns.

use crate::HOSTS;
use crate::elsewhere::{RIGHT, begin, lines};
use crate::nothing_left;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redrt_tests::council::{Council, OWN, members_on};
use redrt_tests::lab::lab;
use redrt_tests::{Job, Lab, compile_source};
use std::time::Duration;

/// A host other than the root's with a member.
fn other_member(lab: &Lab, council: &Council<'_>) -> String {
    let has_member = |host: &String| host != "h1" && !members_on(lab, host).is_empty();
    council.alive().into_iter().find(has_member).expect("two others have one")
}

/// All other hosts hear both. The root stays; it loses the other host, whose processes end within their lease.
#[test]
fn a_cut_between_the_root_and_a_member_costs_one_host() {
    let Some(lab) = lab(4) else { return };
    let (stop, job) = begin(&lab, &["--root-lease", "8s"]);
    let council = Council::of(&lab, &job, 4);
    council.wait_until_complete();
    let other = other_member(&lab, &council);
    lab.cut_between("h1", &other);
    job.wait_for("daemon-lost", 1);
    std::fs::write(&stop, "").expect("it can be written");
    assert_eq!(council.wait_for_good_end(), Ok(true), "{}", job.errors());
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

/// The job prints more than is buffered on the way, so its processes are held. The root is not taken for one that
/// hangs.
#[test]
fn a_console_that_stands_still_only_holds_the_job() {
    let Some(lab) = lab(4) else { return };
    let (_directory, program) = compile_source(CHATTERS);
    let job = Job::new(3, &program).degree(2).on_hosts(&lab, HOSTS).options(&["--detachable", "--roots", "3"]);
    let job = job.environment(OWN.0, OWN.1).limit(Duration::from_secs(120)).start();
    let council = Council::of(&lab, &job, 4);
    council.wait_until_complete();
    job.pause(Duration::from_secs(12));
    let ended = job.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(ended.out.len(), 8_000 * 1024);
    let of_roots = |event: &&str| ended.events(event).count() > 0;
    let harm: Vec<_> = ["came-back", "daemon-lost", "replica-lost"].into_iter().filter(of_roots).collect();
    assert!(harm.is_empty(), "{harm:?}");
    nothing_left(&lab, &ended);
}

/// The member replaces a killed one. Then another host gets a member, and the root may be lost with its host.
#[test]
fn a_host_that_is_lost_while_its_member_learns_is_replaced() {
    for later in [0, 40, 400] {
        let Some(lab) = lab(4) else { return };
        let (stop, job) = begin(&lab, &["--spares", "1"]);
        let council = Council::of(&lab, &job, 4);
        council.wait_until_complete();
        let host = other_member(&lab, &council);
        let before = members_on(&lab, &host);
        before.iter().for_each(|id| kill(Pid::from_raw(*id), Signal::SIGKILL).expect("it runs"));
        let is_new = |id: &i32| !before.contains(id);
        let joins =
            || council.alive().into_iter().find(|host| members_on(&lab, host).iter().any(is_new) && host != "h1");
        let was_complete = || job.count("roots");
        let count = was_complete();
        job.wait_until("another member", |_| {
            joins().is_some_and(|new| new == host) || was_complete() > count && council.is_complete()
        });
        std::thread::sleep(Duration::from_millis(later));
        let lost = if members_on(&lab, &host).is_empty() { joins().expect("one joins") } else { host };
        let there = job.replicas().iter().filter(|replica| replica.ends_with(&format!(" on {lost}"))).count();
        council.lose(&lost);
        council.wait_until_complete();
        job.wait_for("daemon-lost", 1);
        // Otherwise ranks whose only replicas are on the root's host would be lost with it.
        job.wait_for("recovered", there);
        council.lose("h1");
        job.wait_for("came-back", 1);
        std::fs::write(&stop, "").expect("it can be written");
        assert_eq!(council.wait_for_good_end(), Ok(true), "after {later}: {}", job.errors());
        let ended = job.wait();
        assert_eq!(lines(&ended.out), RIGHT, "after {later}: {ended}");
        nothing_left(&lab, &ended);
    }
}
