//! Files of the program when a job goes back to a checkpoint: they are as they were, however they were changed since.

use crate::checkpoints::{LIMIT, checkpoint, resume, saved, store};
use crate::saving::of_job;
use redrt_tests::changing::{Undisturbed, goes_on};
use redrt_tests::{Disk, Job, Running, breadth, compile_case};

fn kill_rank_1(job: &Running) {
    let running = job.replicas();
    let of_rank = running.iter().filter_map(|one| one.split(' ').next()).filter(|name| name.starts_with("1."));
    let ids: Vec<_> = of_rank.map(|replica| job.pid_of(replica)).collect();
    // SAFETY: - a signal to another process touches no memory of this one.
    ids.into_iter().for_each(|id| _ = unsafe { libc::kill(id, libc::SIGKILL) });
}

#[test]
fn files_are_as_they_were_when_a_job_goes_back() {
    let undisturbed = Undisturbed::new(2);
    for degree in breadth(vec![1, 3], vec![1, 2, 3]) {
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
        // A second return to the same checkpoint.
        kill_rank_1(&job);
        let ended = job.wait().ended_well().said("changes were taken back");
        assert_eq!(ended.number("returns"), 3, "{ended}");
        undisturbed.check(&ended, directory.path(), &format!("r = {degree}"));
    }
}

#[test]
fn the_successor_of_a_saved_replica_logs_its_changes() {
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
fn files_are_as_they_were_when_a_lost_job_is_resumed() {
    let undisturbed = Undisturbed::new(2);
    for degree in breadth(vec![2], vec![1, 2, 3]) {
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

/// A checkpoint that could not be loaded for a while belongs to a past that was undone.
#[test]
fn files_are_as_they_were_past_an_unreadable_checkpoint() {
    let (undisturbed, store, directory, aside) = (Undisturbed::new(2), store(), store(), store());
    let job = saved(undisturbed.job(directory.path()).limit(LIMIT), "asked", &store).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    for _ in 0..2 {
        checkpoint(&job);
        goes_on(&job, directory.path(), 20);
    }
    let of_job = of_job(&store);
    let (image, elsewhere) = (of_job.join("line-2/1.image"), aside.path().join("1.image"));
    std::fs::copy(&image, &elsewhere).expect("it can be copied");
    std::fs::remove_file(&image).expect("it can be removed");
    kill_rank_1(&job);
    job.wait_for("went-back", 1);
    goes_on(&job, directory.path(), 5);
    for name in ["line-2", "line-2.partial"] {
        // The directory of either name may be gone.
        let _ = std::fs::copy(&elsewhere, of_job.join(name).join("1.image"));
    }
    job.signal(libc::SIGKILL);
    let begun = job.wait().said("checkpoint 2 cannot be loaded").said("is back at checkpoint 1");
    assert_ne!(begun.code, Some(0), "{begun}");
    let ended = resume(store.path()).run().ended_well().said("goes on from checkpoint 1");
    undisturbed.check(&ended, directory.path(), "r = 1");
}

#[test]
fn undo_works_when_checkpoints_are_in_another_file_system() {
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

/// Changes by a child's shell and its filters, files that it makes and renames, and writes of a forked process: each is
/// there once.
#[test]
fn what_children_have_changed_in_files_is_taken_back() {
    const STEPS: usize = 10;
    let (store, directory) = (store(), store());
    let path = |name: &str| directory.path().join(name);
    let program = compile_case("children");
    let arguments = [directory.path().display().to_string(), STEPS.to_string()];
    let job = Job::new(2, &program).arguments(&arguments.each_ref().map(String::as_str)).limit(LIMIT);
    let job = saved(job, "asked", &store).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    checkpoint(&job);
    std::fs::write(path("run"), "").expect("the directory is there");
    let text = |name: &str| std::fs::read_to_string(path(name)).unwrap_or_default();
    job.wait_until("some steps", |_| text("forked.1").lines().count() > 3);
    kill_rank_1(&job);
    let ended = job.wait().ended_well().said("changes were taken back");
    assert_eq!(ended.number("returns"), 1, "{ended}");
    let numbers = |times: usize| (0..STEPS).flat_map(|step| vec![format!("{step}\n"); times]).collect::<String>();
    for rank in 0..2 {
        let of = |name: &str| text(&format!("{name}.{rank}"));
        assert_eq!((of("shell"), of("filter"), of("forked")), (numbers(1), numbers(2), numbers(1)), "{ended}");
        assert_eq!((of("new"), of("moved")), (String::new(), format!("{}\n", STEPS - 1)), "{ended}");
        let made = |step: &usize| path(&format!("made.{rank}.{step}")).exists();
        assert_eq!((0..STEPS).filter(made).collect::<Vec<_>>(), [STEPS - 1], "{ended}");
    }
}

#[test]
fn an_undo_log_on_a_full_disk_is_reported_and_the_job_goes_on() {
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
    // The program has other files than it expects; its outcome is not checked.
    let _ = job.wait().said("goes back to checkpoint 1").said("they may not be as they were");
}
