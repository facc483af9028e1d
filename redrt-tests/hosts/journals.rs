//! Coordinators on several hosts with a long journal, and processes of a former coordinator on a host that it has left.

use crate::elsewhere::{RIGHT, lines};
use crate::{HOSTS, nothing_left};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redrt_tests::lab::lab;
use redrt_tests::quorum::{OWN, Quorum, jobs_on, peers_on};
use redrt_tests::{Job, compile, compile_source};
use std::time::{Duration, Instant};

/// Lines that each of two replicas prints before it waits: the journal gets more than 40 MiB of output.
const PRINTED_LINES: usize = 22 << 10;

const PROGRAM: &str = r#"
    #include <mpi.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>

    int main(int argc, char **argv)
    {
        int rank;
        char line[1024];
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        memset(line, 'x', sizeof line - 1);
        line[sizeof line - 1] = '\n';
        for (int k = 0; rank == 0 && k < atoi(argv[2]); k++)
            fwrite(line, 1, sizeof line, stdout);
        fflush(stdout);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1)
            printf("waiting\n"), fflush(stdout);
        while (rank == 0 && access(argv[1], F_OK) != 0)
            usleep(2000);
        MPI_Barrier(MPI_COMM_WORLD);
        printf("end of rank %d\n", rank);
        MPI_Finalize();
        return 0;
    }
"#;

/// The next coordinator replays all of the journal before it calls the daemons, whose processes wait meanwhile.
#[test]
#[ignore = "scripts/test.sh --all: a long journal takes its time"]
fn a_coordinator_goes_on_from_a_journal_of_40_mebibytes() {
    let Some(lab) = lab(4) else { return };
    let (_directory, program) = compile_source(PROGRAM);
    let stop = lab.path("stop");
    let job = Job::new(3, &program).arguments(&[&stop.display().to_string(), &PRINTED_LINES.to_string()]).degree(2);
    let job =
        job.on_hosts(&lab, HOSTS).options(&["--detachable", "--coordinators", "3", "--coordinator-journal", "240MiB"]);
    let job = job.environment(OWN.0, OWN.1).limit(Duration::from_secs(120)).start();
    let quorum = Quorum::of(&lab, &job, 4);
    quorum.wait_until_complete();
    job.wait_until("all output", |job| job.output().contains("waiting"));
    let journal = jobs_on(&lab, "h1").join(format!("{}.root/journal", quorum.number()));
    let journal_bytes = std::fs::metadata(&journal).expect("the coordinator has one").len();
    assert!(journal_bytes > 40 << 20, "{journal_bytes} bytes");
    let lost_at = Instant::now();
    quorum.lose("h1");
    job.wait_for("came-back", 1);
    let came_back = lost_at.elapsed();
    job.wait_for("daemon-lost", 1);
    eprintln!("journal of {} MiB: another coordinator after {came_back:?}", journal_bytes >> 20);
    std::fs::write(&stop, "").expect("it can be written");
    assert_eq!(quorum.wait_for_good_end(), Ok(true), "{}", job.errors());
    let ended = job.wait();
    assert_eq!(
        ended.out.len(),
        PRINTED_LINES * 1024 + "waiting\n".len() + 3 * "end of rank 0\n".len(),
        "{}",
        ended.err
    );
    assert_eq!(ended.out.matches("end of rank").count(), 3);
    nothing_left(&lab, &ended);
}

/// The peer, which would end them, was killed with the coordinator, so no process watches the coordinator's children
/// there; and one of them waits for a host that is cut off.
#[test]
fn children_of_a_coordinator_end_with_the_job_without_its_peer() {
    let Some(lab) = lab(4) else { return };
    let stop = lab.path("stop");
    let job = Job::new(4, &compile("until")).arguments(&[&stop.display().to_string()]).degree(2).on_hosts(&lab, HOSTS);
    // Without a tree the coordinator starts all daemons itself.
    let job = job.options(&["--detachable", "--coordinators", "3", "--transport", "tcp", "--coordinator-lease", "6s"]);
    let job = job.environment(OWN.0, OWN.1).limit(Duration::from_secs(120)).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    let quorum = Quorum::of(&lab, &job, 4);
    quorum.wait_until_complete();
    let (peers, before) = (peers_on(&lab, "h1"), job.count("roots"));
    peers.iter().for_each(|peer| kill(Pid::from_raw(*peer), Signal::SIGKILL).expect("it runs"));
    job.wait_for("came-back", 1);
    quorum.forget("h1");
    job.wait_until("another coordinator", |_| quorum.find_coordinator().is_some());
    // Once without the killed peer, and once with its replacement.
    job.wait_until("three coordinators again", |job| job.count("roots") >= before + 2);
    let coordinator = quorum.find_coordinator();
    let other =
        quorum.alive().into_iter().find(|host| Some(host) != coordinator.as_ref()).expect("two others are there");
    lab.cut_link(&other);
    quorum.forget(&other);
    job.wait_for("daemon-lost", 1);
    std::fs::write(&stop, "").expect("it can be written");
    assert_eq!(quorum.wait_for_good_end(), Ok(true), "{}", job.errors());
    let left = lab.left_behind(Duration::from_secs(12));
    let ended = job.wait();
    assert!(left.is_empty(), "left behind: {left:?}\n{ended}");
    assert_eq!(lines(&ended.out), RIGHT, "{ended}");
}
