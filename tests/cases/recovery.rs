//! Lost replicas are replaced by copies of living ones, and the job's result stays what it is.

use redrt_tests::{Ended, Job, Program, Random, Running, compile};
use serde_json::Value;
use std::time::Duration;

/// Arguments that make the programs run for seconds.
const LONG: [(&str, &[&str]); 9] = [
    ("heat", &["32", "5000"]),
    ("cg", &["256", "4000"]),
    ("master_worker", &["8000"]),
    ("polling", &["500"]),
    ("threads", &["3", "1500"]),
    ("alltoall", &["1500", "2000"]),
    ("ring", &["1", "150"]),
    ("cancel", &["300"]),
    ("neighbors", &["60"]),
];

fn count(audit: &[Value], event: &str) -> usize {
    audit.iter().filter(|record| record["event"] == event).count()
}

/// The process id of the latest life of a replica.
fn pid_of(job: &Running, replica: &str) -> i32 {
    let audit = job.audit();
    let is_its = |record: &&Value| {
        record["replica"] == replica && (record["event"] == "started" || record["event"] == "copy-runs")
    };
    let record = audit.iter().rfind(is_its).expect("it was started");
    i32::try_from(record["pid"].as_i64().expect("a process id")).expect("a process id")
}

/// Kills the replica and waits until redundancy is back.
fn lose(job: &Running, replica: &str) {
    let before = count(&job.audit(), "recovered");
    // SAFETY: - a signal to another process touches no memory of this one.
    assert_eq!(unsafe { libc::kill(pid_of(job, replica), libc::SIGKILL) }, 0, "{replica} is there");
    job.wait_until("recovery", |job| count(&job.audit(), "recovered") > before);
}

/// Runs `until` while `disturb` does something, and then to its end.
fn disturbed(job: Job, disturb: impl FnOnce(&Running)) -> Ended {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let stop = directory.path().join("stop");
    let job = job.arguments(&[&stop.display().to_string()]).limit(Duration::from_secs(120)).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    disturb(&job);
    std::fs::write(&stop, "").expect("the directory is there");
    let ended = job.wait().ended_well();
    let mut lines: Vec<_> = ended.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["computing", "rank 0: right", "rank 1: right", "rank 2: right"], "{ended}");
    ended
}

#[test]
fn after_a_loss_and_a_recovery_the_other_replica_may_go() {
    for transport in ["shm", "tcp"] {
        let job = Job::new(3, &compile("until")).degree(2).transport(transport).options(&["--spares", "1"]);
        let ended = disturbed(job, |job| {
            for replica in ["1.0", "1.1", "1.0", "0.1", "0.0", "2.1", "2.0", "1.1"] {
                lose(job, replica);
            }
        });
        let lost = ended.summary["lost"].as_array().map_or(0, Vec::len);
        assert_eq!((lost, ended.number("recovered")), (8, 8), "{ended}");
    }
}

#[test]
fn replicas_of_several_ranks_are_cloned_at_once() {
    let job = Job::new(3, &compile("until")).degree(3).options(&["--spares", "3", "--max-clones", "3"]);
    let ended = disturbed(job, |job| {
        for _ in 0..3 {
            let before = count(&job.audit(), "recovered");
            for replica in ["0.0", "1.1", "2.2", "2.0"] {
                // SAFETY: - a signal to another process touches no memory of this one.
                assert_eq!(unsafe { libc::kill(pid_of(job, replica), libc::SIGKILL) }, 0);
            }
            job.wait_until("recovery", |job| count(&job.audit(), "recovered") == before + 4);
        }
    });
    assert_eq!(ended.number("recovered"), 12, "{ended}");
}

#[test]
fn without_spares_a_lost_replica_stays_lost() {
    let job = Job::new(3, &compile("until")).degree(2);
    let ended = disturbed(job, |job| {
        // SAFETY: - a signal to another process touches no memory of this one.
        assert_eq!(unsafe { libc::kill(pid_of(job, "1.0"), libc::SIGKILL) }, 0);
        job.wait_until("loss", |job| count(&job.audit(), "replica-lost") == 1);
    });
    assert_eq!((ended.number("recovered"), count(&ended.audit, "clone")), (0, 0), "{ended}");
}

#[test]
fn programs_with_losses_and_recoveries_print_the_same() {
    let mut random = Random::from_environment();
    let mut recovered = 0;
    for (name, arguments) in LONG {
        let program = Program { arguments, ..Program::named(name).expect("a test program") };
        let alone = Job::of(&program).run().ended_well();
        for (degree, transport) in [(2, "shm"), (3, "tcp")] {
            let rank = random.from_one_to(u64::from(program.rank_count)) - 1;
            let replica = random.from_one_to(u64::from(degree)) - 1;
            let mtbf = format!("random:mtbf=0.4s,seed={}", random.from_one_to(1 << 30));
            let ended = Job::of(&program)
                .degree(degree)
                .transport(transport)
                .options(&["--spares", "2"])
                .inject(&format!("kill:{rank}.{replica}@#{}", random.from_one_to(40)))
                .inject(&mtbf)
                .limit(Duration::from_secs(120))
                .run()
                .ended_well()
                .printed(&alone.out);
            recovered += ended.number("recovered");
        }
    }
    assert!(recovered >= 9, "only {recovered} recoveries in 18 jobs");
}
