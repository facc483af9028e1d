//! Hosts lose their power together with their disks, and other hosts go on from an object store.

use crate::levels::{checkpoint, goes_back_twice};
use redrt_tests::changing::Undisturbed;
use redrt_tests::lab::lab;
use redrt_tests::{Job, compile};
use std::time::Duration;

/// A directory in the file system that hosts have in their memory: it is lost with their power.
const SCRATCH: &str = "/dev/shm/scratch";
const LIMIT: Duration = Duration::from_secs(180);

#[test]
fn a_new_host_goes_on_from_the_store_when_all_are_lost() {
    for degree in [1, 2] {
        let Some(lab) = lab(4) else { return };
        let (url, stop) = (format!("file://{}", lab.path("store").display()), lab.path("stop"));
        let job = Job::new(3, &compile("until"))
            .degree(degree)
            .arguments(&[&stop.display().to_string()])
            .environment("UNTIL_MIB", "4")
            .options(&["--checkpoint", "asked", "--checkpoint-dir", &url, "--checkpoint-scratch", SCRATCH])
            .on_hosts(&lab, "h1,h2,h3")
            .limit(LIMIT)
            .start();
        job.wait_until("computing", |job| job.output().contains("computing"));
        let count = 3 * usize::from(degree);
        (0..2).for_each(|_| checkpoint(&job));
        // With replicas, the remaining ones go on.
        lab.cut_power("h2");
        if degree == 2 {
            job.wait_for("daemon-lost", 1);
        }
        // Then a rank loses its last replica; copies at a partner would be lost as well.
        lab.cut_power("h3");
        job.wait_for("went-back", 1);
        job.wait_until("all are there again", |job| job.count("started") >= 2 * count);
        checkpoint(&job);
        checkpoint(&job);
        job.signal(libc::SIGKILL);
        let _ = job.wait();
        lab.cut_power("h1");
        std::fs::write(&stop, "").expect("it can be written");
        let resumed =
            Job::resume_with(&[url, "--checkpoint-scratch".into(), SCRATCH.into()]).on_hosts(&lab, "h4").limit(LIMIT);
        let ended = resumed.run().ended_well();
        let right = ended.out.lines().filter(|line| line.ends_with(": right")).count();
        assert_eq!((right, ended.out.lines().count()), (3, 3), "{ended}");
        let left = lab.left_behind(Duration::from_secs(3));
        assert!(left.len() == 1 && left[0].ends_with(SCRATCH), "{left:?}");
    }
}

/// Each host undoes its processes' changes from a log in its working directory.
#[test]
fn files_are_as_they_were_where_a_store_has_checkpoints() {
    let Some(lab) = lab(2) else { return };
    let (undisturbed, files) = (Undisturbed::new(2), lab.path("files"));
    let url = format!("file://{}", lab.path("store").display());
    std::fs::create_dir(&files).expect("it can be made");
    let job = undisturbed
        .job(&files)
        .options(&["--checkpoint", "asked", "--checkpoint-dir", &url, "--checkpoint-scratch", SCRATCH])
        .on_hosts(&lab, "h1,h2")
        .limit(LIMIT)
        .start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    goes_back_twice(&job, &files);
    let ended = job.wait().ended_well();
    undisturbed.check(&ended, &files, "object");
}
