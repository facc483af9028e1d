//! Programs that save themselves with `redrt_checkpoint`.

use crate::checkpoints::{LIMIT, store};
use redrt_tests::{Ended, Job, Running, compile, compile_case};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const STEPS: u64 = 4;

fn saving(degree: u16) -> Job {
    Job::new(3, &compile("saving")).degree(degree).arguments(&[&STEPS.to_string()]).limit(LIMIT)
}

fn saved(job: Job, store: &TempDir) -> Job {
    job.options(&["--checkpoint", "asked", "--checkpoint-dir", &store.path().display().to_string()])
}

/// A job that has saved itself three times, and waits for the file `stop`.
fn before_last_step(degree: u16, store: &TempDir, stop: &Path) -> Running {
    let job = saved(saving(degree).arguments(&[&stop.display().to_string()]), store).start();
    job.wait_until("three steps", |job| job.output().lines().count() == 3);
    job.wait_for("checkpoint", 3);
    job
}

/// The directory of the only job in this store.
pub fn of_job(store: &TempDir) -> PathBuf {
    std::fs::read_dir(store.path()).expect("it is there").next().expect("the job's").expect("it can be read").path()
}

/// Output when the calls return these outcomes.
fn expected(told: [i32; STEPS as usize]) -> String {
    let sum = |step: u64| (1..=step + 1).sum::<u64>() * 6;
    (0..).zip(told).map(|(step, told)| format!("step {step}: {told}, sum {}\n", sum(step))).collect()
}

fn printed(ended: &Ended, told: [i32; STEPS as usize]) {
    assert_eq!(ended.out, expected(told), "{ended}");
}

#[test]
fn a_program_saves_itself_at_each_degree() {
    for degree in [1, 2, 3] {
        let store = store();
        let ended = saved(saving(degree), &store).run().ended_well();
        printed(&ended, [0; 4]);
        assert!(ended.events("checkpoint").count() >= 3, "{ended}");
    }
}

#[test]
fn where_no_checkpoints_are_taken_it_is_told_so_at_once() {
    for degree in [1, 2] {
        printed(&saving(degree).run().ended_well(), [1; 4]);
    }
    // Nor is there anything to save without redrun.
    let output = std::process::Command::new(compile("saving")).arg(STEPS.to_string()).output();
    let output = output.expect("it can be started");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let sum = |step: u64| (1..=step + 1).sum::<u64>();
    let alone: String = (0..STEPS).map(|step| format!("step {step}: 1, sum {}\n", sum(step))).collect();
    assert_eq!(said, alone);
}

/// A job that goes back goes on in the midst of the call, with the same output as without a loss.
#[test]
fn a_job_goes_back_to_where_it_saved_itself() {
    for degree in [1, 2] {
        let (store, directory) = (store(), store());
        let stop = directory.path().join("stop");
        let job = before_last_step(degree, &store, &stop);
        let victims: Vec<_> = (0..degree).map(|index| job.pid_of(&format!("1.{index}"))).collect();
        // SAFETY: - a signal to another process touches no memory of this one.
        victims.into_iter().for_each(|id| assert_eq!(unsafe { libc::kill(id, libc::SIGKILL) }, 0));
        job.wait_for("went-back", 1);
        std::fs::write(&stop, "").expect("it can be written");
        printed(&job.wait().ended_well(), [0; 4]);
    }
}

/// Lines that the rank printed but had not written yet are not lost.
#[test]
fn a_job_goes_back_when_a_rank_is_killed_after_its_end() {
    for degree in [1, 2] {
        let (store, directory) = (store(), store());
        let file = |name: &str| directory.path().join(name);
        let arguments = [directory.path().to_str().expect("text")];
        let job = Job::new(2, &compile_case("lingering")).degree(degree).arguments(&arguments).limit(LIMIT);
        let job = saved(job, &store).start();
        job.wait_for("checkpoint", 1);
        let victims: Vec<_> = (0..degree).map(|index| job.pid_of(&format!("0.{index}"))).collect();
        std::fs::write(file("go"), "").expect("it can be written");
        job.wait_until("over", |_| file("over").exists());
        // SAFETY: - a signal to another process touches no memory of this one.
        victims.into_iter().for_each(|id| assert_eq!(unsafe { libc::kill(id, libc::SIGKILL) }, 0));
        job.wait_for("went-back", 1);
        std::fs::write(file("end"), "").expect("it can be written");
        let ended = job.wait().ended_well();
        assert_eq!(ended.out, "what was computed\n", "{ended}");
    }
}

/// The job prints one line with the reason; the program gets the outcome and goes on.
#[test]
fn a_program_is_told_when_it_could_not_be_saved() {
    let (store, directory) = (store(), store());
    let stop = directory.path().join("stop");
    let job = before_last_step(1, &store, &stop);
    std::fs::write(of_job(&store).join("line-4.partial"), "in the way").expect("it can be written");
    std::fs::write(&stop, "").expect("it can be written");
    let ended = job.wait().ended_well().said("checkpoint 4 was not taken");
    printed(&ended, [0, 0, 0, 2]);
}

/// The leader that has asked dies while the checkpoint begins. If that voids the checkpoint, its successor asks again.
#[test]
fn the_successor_of_a_leader_that_dies_in_the_call_asks_again() {
    let (store, directory) = (store(), store());
    let stop = directory.path().join("stop");
    let job = before_last_step(2, &store, &stop);
    std::fs::write(&stop, "").expect("it can be written");
    let of_job = of_job(&store);
    let is_begun = || ["line-4", "line-4.partial"].into_iter().any(|name| of_job.join(name).exists());
    job.wait_until("the checkpoint is begun", |job| is_begun() || job.has_ended());
    let leader = job.pid_of("0.0");
    // SAFETY: - a signal to another process touches no memory of this one.
    unsafe { libc::kill(leader, libc::SIGKILL) };
    printed(&job.wait().ended_well(), [0; 4]);
}

/// The example in docs/checkpoints.md.
#[test]
fn a_program_in_python_saves_itself_by_ctypes() {
    let script = redrt_tests::root().join("redrt-tests/cases/saving.py").display().to_string();
    let job = |degree| Job::new(2, "python3".as_ref()).arguments(&[&script]).degree(degree).limit(LIMIT);
    for degree in [1, 2] {
        let store = store();
        let ended = saved(job(degree), &store).run().ended_well();
        let _ = ended.printed(&"[1, 0, 0, 1]\n".repeat(2));
        let _ = job(degree).run().ended_well().printed(&"[1, 1, 1, 1]\n".repeat(2));
    }
}

/// The example in docs/checkpoints.md.
#[test]
fn a_program_in_fortran_saves_itself() {
    let program = compile_case("saving_fortran");
    let job = |degree| Job::new(3, &program).degree(degree).limit(LIMIT);
    for degree in [1, 2] {
        let store = store();
        let ended = saved(job(degree), &store).run().ended_well();
        assert!(ended.events("checkpoint").count() >= 1, "{ended}");
        let _ = ended.printed(&"told 1 0 0 1, sum  6\n".repeat(3));
        let _ = job(degree).run().ended_well().printed(&"told 1 1 1 1, sum  6\n".repeat(3));
    }
}
