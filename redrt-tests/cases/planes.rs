//! Ranks that share memory (`MPI_Win_allocate_shared`): their result is the same at every degree, after losses, and
//! after a return to a checkpoint.

use crate::checkpoints::{LIMIT, checkpoint, saved, store};
use crate::while_computing;
use redrt_tests::{Ended, Job, compile};

/// Output of the four ranks when they share memory.
const RIGHT: &str = "4 of 4 share memory: e8be7f33acc25690\n";

fn shares() -> Job {
    Job::new(4, &compile("shares")).arguments(&["200"])
}

/// Checks the output of a job that waited for the test.
fn is_right(ended: Ended) -> Ended {
    ended.ended_well().printed(&format!("computing\n{RIGHT}"))
}

#[test]
fn ranks_share_memory_at_every_degree_and_with_checkpoints() {
    let store = store();
    let _ = shares().run().ended_well().printed(RIGHT);
    for transport in ["shm", "tcp"] {
        let _ = saved(shares(), "asked", &store).transport(transport).run().ended_well().printed(RIGHT);
        let _ = shares().options(&["--spares", "1"]).transport(transport).run().ended_well().printed(RIGHT);
        let _ = shares().degree(2).transport(transport).run().ended_well().printed(RIGHT);
    }
    let _ = shares().degree(3).run().ended_well().printed(RIGHT);
    // Deferred verification has no windows over several ranks.
    let ended = shares().degree(2).options(&["--verify", "deferred"]).run().ended_well();
    assert!(ended.out.starts_with("1 of 4 share memory: "), "{ended}");
}

#[test]
fn shared_memory_is_as_it_was_when_a_job_goes_back() {
    for (options, lost) in [
        (&["-r", "1"][..], &["1.0"][..]),
        (&["-r", "1", "--checkpoint-level", "local"], &["3.0"]),
        (&["-r", "1", "--spares", "1"], &["2.0"]),
        (&["-r", "2"], &["1.0", "0.1"]),
    ] {
        let store = store();
        let ended = while_computing(LIMIT, saved(shares().options(options), "asked", &store), |job| {
            checkpoint(job);
            for (number, replica) in lost.iter().enumerate() {
                job.wait_for("replica-lost", number);
                job.kill_replica(replica);
            }
            job.wait_for("went-back", 1);
        });
        let _ = is_right(ended).said("the job goes back to checkpoint 1");
    }
}

#[test]
fn a_job_whose_ranks_share_memory_is_resumed() {
    for (before, after) in [("1", "1"), ("2", "2"), ("2", "1")] {
        let (lines, directory) = (store(), store());
        let stop = directory.path().join("stop");
        let job = saved(shares().options(&["-r", before]), "asked", &lines);
        let job = job.arguments(&[&stop.display().to_string()]).limit(LIMIT).start();
        job.wait_until("computing", |job| job.output().contains("computing"));
        job.redctl(&["checkpoint", "--stop"]).unwrap_or_else(|why| panic!("{why}: {}", job.errors()));
        let _ = job.wait().ended_with(75).printed("computing\n");
        std::fs::write(&stop, "").expect("the directory is there");
        let _ = Job::resume(lines.path()).options(&["-r", after]).limit(LIMIT).run().ended_well().printed(RIGHT);
    }
}

#[test]
fn a_plane_ends_as_a_whole_and_the_others_go_on() {
    for (degree, spares) in [(2, None), (3, None), (2, Some("1"))] {
        let job = shares().degree(degree).options(&spares.map_or(vec![], |count| vec!["--spares", count]));
        let ended = while_computing(LIMIT, job, |job| {
            job.kill_replica("1.0");
            job.wait_for("replica-lost", 4);
        });
        let ended = is_right(ended).said("0.0, 2.0, 3.0 share memory with 1.0, which is lost: they are ended, too");
        assert_eq!((ended.number("recovered"), ended.mismatches().len()), (0, 0), "{ended}");
        let refused = "its rank shares memory with others (MPI_Win_allocate_shared), and is not copied while it does";
        assert_eq!(ended.err.matches(refused).count(), usize::from(spares.is_some()), "{ended}");
    }
}
