//! Files of the program when a job goes back to a checkpoint: they are as they were, whatever was done to them since.

use crate::checkpoints::{LIMIT, checkpoint, resume, saved, store};
use redrt_tests::changing::{Undisturbed, goes_on};
use redrt_tests::{Disk, Running};

fn kill_rank_1(job: &Running) {
    let running = job.replicas();
    let of_rank = running.iter().filter_map(|one| one.split(' ').next()).filter(|name| name.starts_with("1."));
    let ids: Vec<_> = of_rank.map(|replica| job.pid_of(replica)).collect();
    // SAFETY: a signal to another process touches no memory of this one.
    ids.into_iter().for_each(|id| _ = unsafe { libc::kill(id, libc::SIGKILL) });
}

#[test]
fn files_are_as_they_were_at_the_checkpoint_that_a_job_goes_back_to() {
    let undisturbed = Undisturbed::new(2);
    for degree in [1, 2, 3] {
        let (store, directory) = (store(), store());
        let job = saved(undisturbed.job(directory.path()).limit(LIMIT).degree(degree), "asked", &store).start();
        job.wait_until("computing", |job| job.output().contains("computing"));
        for returns in 1..3 {
            checkpoint(&job);
            goes_on(&job, directory.path(), 20);
            kill_rank_1(&job);
            job.wait_for("went-back", returns);
            goes_on(&job, directory.path(), 5);
        }
        // Again, to the same one.
        kill_rank_1(&job);
        let ended = job.wait().ended_well().said("changes were taken back");
        assert_eq!(ended.number("returns"), 3, "{ended}");
        undisturbed.check(&ended, directory.path(), &format!("r = {degree}"));
    }
}

#[test]
fn the_successor_of_one_that_was_saved_writes_down_what_it_changes() {
    let (undisturbed, store, directory) = (Undisturbed::new(2), store(), store());
    let job = saved(undisturbed.job(directory.path()).limit(LIMIT).degree(2), "asked", &store).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    checkpoint(&job);
    goes_on(&job, directory.path(), 10);
    job.kill_replica("1.0");
    goes_on(&job, directory.path(), 20);
    kill_rank_1(&job);
    job.wait_for("went-back", 1);
    goes_on(&job, directory.path(), 5);
    kill_rank_1(&job);
    let ended = job.wait().ended_well().said("changes were taken back");
    assert_eq!(ended.number("returns"), 2, "{ended}");
    undisturbed.check(&ended, directory.path(), "r = 2");
}

#[test]
fn files_are_as_they_were_when_a_job_is_resumed_that_was_lost_with_its_redrun() {
    let undisturbed = Undisturbed::new(2);
    for degree in [1, 2, 3] {
        let (store, directory) = (store(), store());
        let job = saved(undisturbed.job(directory.path()).limit(LIMIT).degree(degree), "asked", &store).start();
        job.wait_until("computing", |job| job.output().contains("computing"));
        checkpoint(&job);
        goes_on(&job, directory.path(), 40);
        job.signal(libc::SIGKILL);
        assert_ne!(job.wait().code, Some(0));
        let ended = resume(store.path()).run().ended_well().said("changes were taken back");
        undisturbed.check(&ended, directory.path(), &format!("r = {degree}"));
    }
}

#[test]
fn files_are_as_they_were_when_checkpoints_are_in_another_file_system() {
    let Some(disk) = Disk::small(256 << 20) else { return };
    let (undisturbed, directory) = (Undisturbed::new(2), store());
    let job = undisturbed.job(directory.path()).options(&["--checkpoint", "asked", "--checkpoint-dir"]).limit(LIMIT);
    let job = job.options(&[&disk.path("store").display().to_string()]).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    checkpoint(&job);
    goes_on(&job, directory.path(), 40);
    kill_rank_1(&job);
    let ended = job.wait().ended_well().said("changes were taken back");
    undisturbed.check(&ended, directory.path(), "r = 1");
}

#[test]
fn what_cannot_be_written_down_on_a_full_disk_is_told_and_the_job_goes_on() {
    let Some(disk) = Disk::small(48 << 20) else { return };
    let (undisturbed, directory) = (Undisturbed::new(2), store());
    let job = undisturbed.job(directory.path()).options(&["--checkpoint", "asked", "--checkpoint-dir"]).limit(LIMIT);
    let job = job.options(&[&disk.path("store").display().to_string()]).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    checkpoint(&job);
    disk.fill();
    job.wait_until("it is told", |job| job.errors().contains("cannot be written down in"));
    goes_on(&job, directory.path(), 20);
    kill_rank_1(&job);
    // What becomes of a program whose files are others is its own affair.
    let _ = job.wait().said("goes back to checkpoint 1").said("they may not be as they were");
}
