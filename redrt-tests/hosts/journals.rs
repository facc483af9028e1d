//! Roots on several hosts with a long journal, and processes of a former root on a host that it has left.

use crate::elsewhere::{RIGHT, lines};
use crate::{HOSTS, nothing_left};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redrt_tests::council::{Council, OWN, jobs_on, members_on};
use redrt_tests::lab::lab;
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

/// The next root replays all of the journal before it calls the daemons, whose processes wait meanwhile.
#[test]
#[ignore = "scripts/test.sh --all: a long journal takes its time"]
fn a_root_goes_on_elsewhere_from_a_journal_of_40_mebibytes() {
    let Some(lab) = lab(4) else { return };
    let (_directory, program) = compile_source(PROGRAM);
    let stop = lab.path("stop");
    let job = Job::new(3, &program).arguments(&[&stop.display().to_string(), &PRINTED_LINES.to_string()]).degree(2);
    let job = job.on_hosts(&lab, HOSTS).options(&["--detachable", "--roots", "3", "--root-journal", "240MiB"]);
    let job = job.environment(OWN.0, OWN.1).limit(Duration::from_secs(120)).start();
    let council = Council::of(&lab, &job, 4);
    council.wait_until_complete();
    job.wait_until("all output", |job| job.output().contains("waiting"));
    let journal = jobs_on(&lab, "h1").join(format!("{}.root/journal", council.number()));
    let journal_bytes = std::fs::metadata(&journal).expect("the root has one").len();
    assert!(journal_bytes > 40 << 20, "{journal_bytes} bytes");
    let lost_at = Instant::now();
    council.lose("h1");
    job.wait_for("came-back", 1);
    let came_back = lost_at.elapsed();
    job.wait_for("daemon-lost", 1);
    eprintln!("journal of {} MiB: another root after {came_back:?}", journal_bytes >> 20);
    std::fs::write(&stop, "").expect("it can be written");
    assert_eq!(council.wait_for_good_end(), Ok(true), "{}", job.errors());
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

/// The member, which would end them, was killed with the root, so no process watches the root's children there; and one
/// of them waits for a host that is cut off.
#[test]
fn children_of_a_root_end_with_the_job_without_its_member() {
    let Some(lab) = lab(4) else { return };
    let stop = lab.path("stop");
    let job = Job::new(4, &compile("until")).arguments(&[&stop.display().to_string()]).degree(2).on_hosts(&lab, HOSTS);
    // Without a tree the root starts all daemons itself.
    let job = job.options(&["--detachable", "--roots", "3", "--transport", "tcp", "--root-lease", "6s"]);
    let job = job.environment(OWN.0, OWN.1).limit(Duration::from_secs(120)).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    let council = Council::of(&lab, &job, 4);
    council.wait_until_complete();
    let (members, before) = (members_on(&lab, "h1"), job.count("roots"));
    members.iter().for_each(|member| kill(Pid::from_raw(*member), Signal::SIGKILL).expect("it runs"));
    job.wait_for("came-back", 1);
    council.forget("h1");
    job.wait_until("another root", |_| council.find_root().is_some());
    // Once without the killed member, and once with its replacement.
    job.wait_until("three roots again", |job| job.count("roots") >= before + 2);
    let root = council.find_root();
    let other = council.alive().into_iter().find(|host| Some(host) != root.as_ref()).expect("two others are there");
    lab.cut_link(&other);
    council.forget(&other);
    job.wait_for("daemon-lost", 1);
    std::fs::write(&stop, "").expect("it can be written");
    assert_eq!(council.wait_for_good_end(), Ok(true), "{}", job.errors());
    let left = lab.left_behind(Duration::from_secs(12));
    let ended = job.wait();
    assert!(left.is_empty(), "left behind: {left:?}\n{ended}");
    assert_eq!(lines(&ended.out), RIGHT, "{ended}");
}
