//! Checkpoints on hosts, of which some go to an archive besides.

use crate::levels::{CheckpointedJob, checkpoint};
use redrt_tests::lab::lab;
use redrt_tests::{Job, Running};
use std::time::Duration;

fn archived(job: &Running) -> Vec<u64> {
    let audit = job.audit().into_iter();
    audit.filter(|it| it["event"] == "checkpoint-archived").filter_map(|it| it["generation"].as_u64()).collect()
}

/// Takes checkpoints until one is in the archive, and a further one that is not. Returns the number of the former.
fn take_past_the_archive(job: &Running) -> u64 {
    let before = archived(job).len();
    while archived(job).len() == before {
        checkpoint(job);
    }
    checkpoint(job);
    archived(job).pop().expect("one was taken")
}

/// A host is lost with the only part of all checkpoints on hosts. Then all hosts' disks are, after a stop; and the job
/// is resumed by the name of its directory.
#[test]
fn a_job_whose_hosts_lost_a_part_goes_back_to_the_archive() {
    for (level, lost) in [("local", &["h2"][..]), ("erasure:2+1", &["h2", "h3"])] {
        let Some(lab) = lab(3) else { return };
        let kept = CheckpointedJob::new(&lab);
        let archive = |interval: &str| format!("{interval},{}", lab.path("archive").display());
        let job = kept.start(level, "h1,h2,h3", &["--checkpoint-archive", &archive("2s")]);
        let generation = take_past_the_archive(&job);
        let name = kept.of_job().file_name().expect("it has one").to_string_lossy().into_owned();
        for host in lost {
            lab.cut_power(host);
            kept.lose_disk(if *host == "h2" { 1 } else { 2 });
        }
        job.wait_for("went-back", 1);
        job.wait_for("started", 6);
        job.redctl(&["checkpoint", "--stop"]).unwrap_or_else(|why| panic!("{why}: {}", job.errors()));
        let ended = job.wait().ended_with(75).said(&format!("the job is back at checkpoint {generation}, "));
        let number = |event| ended.events(event).last().and_then(|it| it["generation"].as_u64());
        let last = number("checkpoint-archived");
        assert_eq!((last, ended.events("checkpoint-unarchived").count()), (number("checkpoint"), 0), "{ended}");
        std::fs::remove_dir_all(kept.of_job()).expect("it can be removed");
        kept.end();
        let hosts = if lost.len() == 1 { "h1,h3" } else { "h1" };
        let resumed = Job::resume_with(&[name])
            .options(&["--checkpoint-level", "local", "--checkpoint-dir", &kept.store.display().to_string()])
            .options(&["--checkpoint", "1h", "--checkpoint-archive", &archive("1h")])
            .on_hosts(&lab, hosts)
            .limit(Duration::from_secs(120))
            .run();
        let resumed =
            kept.computed_right(resumed).said("the archive's newest checkpoint is used, since the hosts have");
        let _ = resumed.said(&format!("goes on from checkpoint {}", last.expect("one is there")));
    }
}
