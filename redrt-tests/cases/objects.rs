//! Checkpoints in an object store, here a directory named by a URL.

use crate::chains::redctl;
use crate::checkpoints::{LIMIT, checkpoint, is_back, is_right, store};
use crate::while_computing;
use redrt_tests::{Disk, Ended, Job, Running, compile, parent};
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// A store, and the scratch directories of hosts.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { directory: store() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn url(&self) -> String {
        format!("file://{}", self.path("store").display())
    }

    /// A job with this scratch directory.
    fn saved(&self, job: Job, scratch: &str) -> Job {
        let scratch = self.path(scratch).display().to_string();
        job.options(&["--checkpoint-dir", &self.url(), "--checkpoint-scratch", &scratch]).limit(LIMIT)
    }

    fn until(&self, degree: u16) -> Job {
        let job = Job::new(3, &compile("until")).degree(degree).environment("UNTIL_MIB", "4");
        self.saved(job.options(&["--checkpoint", "asked"]), "scratch")
    }

    /// A job that computes until the file `stop` is there.
    fn computing(&self, degree: u16, options: &[&str]) -> Running {
        let job = self.until(degree).options(options).arguments(&[&self.path("stop").display().to_string()]).start();
        job.wait_until("computing", |job| job.output().contains("computing"));
        job
    }

    /// A store with two checkpoints of a job that was lost with its `redrun` and its scratch directory.
    fn of_lost() -> Self {
        let place = Self::new();
        let first = place.computing(1, &["--checkpoint-chain", "1"]);
        (0..2).for_each(|_| checkpoint(&first));
        first.signal(libc::SIGKILL);
        let _ = first.wait();
        fs::remove_dir_all(place.path("scratch")).expect("it can be removed");
        place.stop();
        place
    }

    /// The process that puts an object into the store. It has nothing of the job's environment.
    fn sender(&self) -> Option<i32> {
        self.sender_of(|_| true)
    }

    /// Such a process whose parent `is_parent` accepts.
    fn sender_of(&self, is_parent: impl Fn(i32) -> bool) -> Option<i32> {
        let begin = format!("redstore\0put\0{}", self.url());
        let is_it = |id: &i32| {
            let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains(&begin) && parent(*id).is_some_and(&is_parent)
        };
        let ids = fs::read_dir("/proc").expect("it is there").flatten();
        ids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_it)
    }

    fn stop(&self) {
        fs::write(self.path("stop"), "").expect("the directory is there");
    }

    fn resume(&self, scratch: &str) -> Job {
        Job::resume_with(&[self.url(), "--checkpoint-scratch".into(), self.path(scratch).display().to_string()])
            .limit(LIMIT)
    }

    /// Directory of the only job in the store.
    fn of_job(&self) -> PathBuf {
        let mut entries = fs::read_dir(self.path("store")).expect("it is there");
        entries.next().expect("there is a job").expect("it can be read").path()
    }

    /// Checkpoints in the store, each with its number of objects.
    fn lines(&self) -> Vec<(String, usize)> {
        let lines = fs::read_dir(self.of_job()).expect("it is there").flatten();
        let count = |path: &Path| fs::read_dir(path).expect("it is a directory").count();
        let mut lines: Vec<_> =
            lines.map(|line| (line.file_name().to_string_lossy().into_owned(), count(&line.path()))).collect();
        lines.sort();
        lines
    }
}

fn signal(id: i32, signal: i32) {
    // SAFETY: - a signal to another process touches no memory of this one.
    unsafe { libc::kill(id, signal) };
}

fn kill(id: i32) {
    signal(id, libc::SIGKILL);
}

fn lose_rank_1(job: &Running, degree: u16) {
    let victims: Vec<_> = (0..degree).map(|index| job.pid_of(&format!("1.{index}"))).collect();
    victims.into_iter().for_each(kill);
}

fn resumed_right(ended: Ended) -> Ended {
    let ended = ended.ended_well();
    let mut lines: Vec<_> = ended.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["rank 0: right", "rank 1: right", "rank 2: right"], "{ended}");
    ended
}

#[test]
fn a_job_goes_back_to_an_object_store_again_and_again() {
    for degree in [1, 2] {
        let place = Place::new();
        let ended = while_computing(LIMIT, place.until(degree), |job| {
            for count in 1..3 {
                checkpoint(job);
                // The return fetches only files that are missing or damaged in the scratch directory.
                if count == 2 {
                    let scratch = fs::read_dir(place.path("scratch")).expect("it is there").flatten().next();
                    let line = scratch.expect("the job's").path().join("at-0/line-2");
                    fs::write(line.join("0.image"), "torn").expect("it can be written");
                }
                lose_rank_1(job, degree);
                is_back(job, count, 3 * usize::from(degree));
            }
        });
        let ended = is_right(ended).said("the job goes back to checkpoint 1").said("the job goes back to checkpoint 2");
        assert_eq!(ended.events("checkpoint-stored").count(), 2, "{ended}");
        // The second is built on the first.
        let names: Vec<_> = place.lines().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["line-1", "line-2"], "{ended}");
    }
}

#[test]
fn two_checkpoints_stay_in_a_store_and_torn_ones_go() {
    let place = Place::new();
    let job = place.computing(1, &["--checkpoint-chain", "1"]);
    checkpoint(&job);
    for torn in ["line-1", "line-9"] {
        fs::create_dir_all(place.of_job().join(torn)).expect("it can be made");
        fs::write(place.of_job().join(torn).join("7.image"), "torn").expect("it can be written");
    }
    (0..2).for_each(|_| checkpoint(&job));
    // Three images, the memory that they shared, and the manifest.
    assert_eq!(place.lines(), [("line-2".into(), 5), ("line-3".into(), 5)]);
    place.stop();
    let _ = job.wait().ended_well();
}

/// A kill in the midst of a part voids its checkpoint with one line; the job goes on, and the torn objects are neither
/// read nor kept.
#[test]
fn a_part_whose_sender_is_killed_costs_one_checkpoint() {
    let place = Place::new();
    let job = place.until(1).environment("UNTIL_MIB", "64").arguments(&[&place.path("stop").display().to_string()]);
    let job = job.options(&["--checkpoint-chain", "1"]).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    let unlucky = std::thread::scope(|scope| {
        let asked = scope.spawn(|| job.redctl(&["checkpoint"]));
        // A kill before the job's directory exists would leave nothing to look into.
        job.wait_until("what sends it", |_| {
            let begun = fs::read_dir(place.path("store")).is_ok_and(|mut jobs| jobs.next().is_some());
            let sender = place.sender().filter(|_| begun);
            sender.into_iter().for_each(kill);
            sender.is_some() || asked.is_finished()
        });
        asked.join().expect("it does not panic")
    });
    let why = unlucky.expect_err("it was killed");
    assert!(why.contains("checkpoint 1 was not taken"), "{why}");
    // A torn file, as of a kill in the midst of one.
    let torn = place.of_job().join("line-1");
    fs::create_dir_all(&torn).expect("it can be made");
    fs::write(torn.join("0.image#1"), "torn").expect("it can be written");
    checkpoint(&job);
    assert_eq!(place.lines().into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["line-2"]);
    lose_rank_1(&job, 1);
    is_back(&job, 1, 3);
    place.stop();
    let _ = is_right(job.wait()).said("the job goes back to checkpoint 2");
}

/// The job is lost while only the manifest is missing and on its way: the return waits for it, and uses the checkpoint.
#[test]
fn a_return_waits_for_a_checkpoint_that_is_being_committed() {
    let place = Place::new();
    let job = place.computing(1, &[]);
    checkpoint(&job);
    let [redrun, ..] = job.chain();
    let mut is_caught = false;
    // Some checkpoints are committed before the sender is seen.
    while !is_caught {
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| job.redctl(&["checkpoint"]));
            while !asked.is_finished() {
                let Some(sender) = place.sender_of(|parent| parent == redrun) else { continue };
                signal(sender, libc::SIGSTOP);
                lose_rank_1(&job, 1);
                job.wait_until("it is waited for", |job| job.errors().contains("the job goes back when"));
                signal(sender, libc::SIGCONT);
                is_caught = true;
                return;
            }
        });
    }
    is_back(&job, 1, 3);
    let newest = place.lines().last().map(|(name, _)| name.clone()).expect("there are some");
    place.stop();
    let _ = is_right(job.wait()).said(&format!("the job is back at {}", newest.replace("line-", "checkpoint ")));
}

/// Neither resumed job sees the other's scratch directory.
#[test]
fn of_two_that_resume_a_job_from_a_store_one_goes_on() {
    let place = Place::of_lost();
    fs::remove_file(place.path("stop")).expect("it is there");
    // Both have the same number.
    let records = ["a", "b"].map(|_| tempfile::tempdir().expect("it can be made"));
    let resume = |scratch: &str, records: &TempDir| {
        place.resume(scratch).options(&["--checkpoint", "asked"]).written_down_in(records.path()).start()
    };
    let jobs = [resume("a", &records[0]), resume("b", &records[1])];
    // Resumed at the same moment, the later one is refused; one after the other, the older one finds out.
    jobs[0].wait_until("both run, or one was refused", |_| {
        jobs.iter().any(Running::has_ended) || jobs.iter().all(|job| job.count("started") == 3)
    });
    let are_refused = jobs.each_ref().map(Running::has_ended);
    // A job that has just begun does not take checkpoints yet.
    let goes_on = jobs.each_ref().map(|job| {
        job.wait_until("a checkpoint, or its end", |job| job.has_ended() || job.redctl(&["checkpoint"]).is_ok());
        !job.has_ended()
    });
    place.stop();
    let ended = jobs.into_iter().map(Running::wait).zip(are_refused).zip(goes_on);
    let ended: Vec<_> = ended.map(|((ended, is_refused), goes_on)| (ended, is_refused, goes_on)).collect();
    assert_eq!(ended.iter().filter(|(.., goes_on)| *goes_on).count(), 1, "{} and {}", ended[0].0, ended[1].0);
    for (ended, is_refused, goes_on) in ended {
        if goes_on {
            let _ = resumed_right(ended);
            continue;
        }
        let (code, line) = match is_refused {
            true => (2, "another redrun resumes it at this moment"),
            false => (1, "the job was resumed by another redrun"),
        };
        let ended = ended.ended_with(code).said(line);
        assert_eq!(ended.err.lines().filter(|line| line.contains("error")).count(), 1, "{ended}");
    }
}

/// All hosts are gone with their disks. At r = 2 the checkpoints are encrypted.
#[test]
fn a_job_is_resumed_from_an_object_store_alone() {
    for degree in [1, 2] {
        let place = Place::new();
        let key = place.path("key");
        fs::write(&key, "5a".repeat(32)).expect("it can be written");
        fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("it is ours");
        let (key, with_key) = (key.display().to_string(), ["--checkpoint-encrypt", "--key"]);
        let [options, words] = with_key.map(|word| if degree == 2 { vec![word, key.as_str()] } else { vec![] });
        let first = place.computing(degree, &options);
        (0..2).for_each(|_| checkpoint(&first));
        first.signal(libc::SIGKILL);
        assert_ne!(first.wait().code, Some(0));
        fs::remove_dir_all(place.path("scratch")).expect("it can be removed");
        let url = place.url();
        let (code, said) = redctl(&[&["checkpoint", "verify", &url], &words[..]].concat());
        assert!(code == Some(0) && said.matches("as it was written").count() == 2, "{said}");
        let second = place.resume("elsewhere").options(&["--checkpoint", "asked"]).options(&options).start();
        second.wait_for("started", 3 * usize::from(degree));
        second.wait_until("a checkpoint", |job| job.redctl(&["checkpoint"]).is_ok());
        second.redctl(&["checkpoint", "--stop"]).unwrap_or_else(|why| panic!("{why}: {}", second.errors()));
        let _ = second.wait().ended_with(75).said("goes on from checkpoint 2");
        place.stop();
        // Resumed by its number, with the store of the first job.
        let job = place.of_job().file_name().expect("it has a name").to_string_lossy()[..6].to_owned();
        let third = place.saved(Job::resume_with(&[job]), "third").options(&options).run();
        let _ = resumed_right(third).said("goes on from checkpoint 4");
    }
}

#[test]
fn missing_objects_are_reported_and_an_older_checkpoint_is_used() {
    // A checkpoint that a job goes back past is removed, so each damage has a job of its own.
    let damaged = |damage: &dyn Fn(PathBuf)| {
        let place = Place::of_lost();
        damage(place.of_job().join("line-2"));
        resumed_right(place.resume("a").run())
    };
    let ended = damaged(&|line| fs::write(line.join("1.image"), vec![7; 4096]).expect("it can be written"));
    let _ = ended.said("1.image in file://").said("is not what was put there").said("trying checkpoint 1");
    let ended = damaged(&|line| fs::remove_file(line.join("1.image")).expect("it is there"));
    let _ = ended.said("Failed to get line-2/1.image").said("trying checkpoint 1");
    let ended = damaged(&|line| fs::remove_file(line.join("manifest.json")).expect("it is there"));
    let ended = ended.said("goes on from checkpoint 1");
    assert!(!ended.err.contains("trying"), "{ended}");
}

/// One object is a pipe without a writer: a read of it never ends.
#[test]
fn a_store_that_hangs_while_a_job_is_resumed_is_given_up() {
    let place = Place::of_lost();
    let image = place.of_job().join("line-2/1.image");
    fs::remove_file(&image).expect("it is there");
    assert!(Command::new("mkfifo").arg(&image).status().expect("mkfifo is there").success());
    let resumed = place.resume("elsewhere").environment("REDRT_STORE_PATIENCE", "2").run();
    let _ = resumed_right(resumed).said("does not answer: nothing has moved for 2 s").said("trying checkpoint 1");
}

#[test]
fn a_failed_store_and_a_full_disk_cost_one_checkpoint_each() {
    let place = Place::new();
    let job = place.computing(1, &[]);
    // A file takes the place of the store's directory.
    fs::write(place.path("store"), "").expect("it can be written");
    let why = job.redctl(&["checkpoint"]).expect_err("there is no place for it");
    assert!(why.contains("checkpoint 1 was not taken") && why.contains("Failed to make "), "{why}");
    fs::remove_file(place.path("store")).expect("it is there");
    checkpoint(&job);
    lose_rank_1(&job, 1);
    is_back(&job, 1, 3);
    place.stop();
    let _ = job.wait().ended_well().said("the job goes back to checkpoint 2");
    let Some(disk) = Disk::small(1 << 20) else { return };
    let options = ["--checkpoint-scratch", &disk.path("scratch").display().to_string()];
    let place = Place::new();
    let job = Job::new(3, &compile("until"))
        .environment("UNTIL_MIB", "4")
        .arguments(&[&place.path("stop").display().to_string()]);
    let job = job
        .options(&["--checkpoint", "asked", "--checkpoint-dir", &place.url()])
        .options(&options)
        .limit(LIMIT)
        .start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    let why = job.redctl(&["checkpoint"]).expect_err("there is no room for it");
    assert!(why.contains("was not taken"), "{why}");
    place.stop();
    let _ = job.wait().ended_well();
}

#[test]
fn redctl_lists_verifies_and_deletes_what_is_in_an_object_store() {
    let place = Place::new();
    let job = place.computing(1, &["--checkpoint-chain", "1"]);
    (0..2).for_each(|_| checkpoint(&job));
    job.redctl(&["checkpoint", "--stop"]).unwrap_or_else(|why| panic!("{why}: {}", job.errors()));
    let _ = job.wait().ended_with(75);
    let url = place.url();
    let (code, said) = redctl(&["checkpoints", "--checkpoint-dir", &url]);
    assert!(code == Some(0) && said.lines().count() == 2 && said.contains("3 ranks"), "{said}");
    let (code, said) = redctl(&["checkpoint", "verify", "--checkpoint-dir", &url]);
    assert!(code == Some(0) && said.matches("as it was written").count() == 2, "{said}");
    fs::write(place.of_job().join("line-3/0.image"), "torn").expect("it can be written");
    let (code, said) = redctl(&["checkpoint", "verify", &url]);
    assert!(code == Some(1) && said.contains("checkpoint 3: damaged: line-3/0.image in file://"), "{said}");
    assert!(said.contains("is not what was put there"), "{said}");
    let (code, said) = redctl(&["checkpoint", "delete", &url, "--number", "2"]);
    assert!(code == Some(0) && place.lines() == [("line-3".to_owned(), 5)], "{said}");
    let (code, said) = redctl(&["checkpoint", "delete", &url]);
    assert_eq!(code, Some(0), "{said}");
    assert!(fs::read_dir(place.path("store")).expect("it is there").next().is_none());
    let (code, said) = redctl(&["checkpoints", &url]);
    assert!(code == Some(0) && said.contains("there are no checkpoints in "), "{said}");
    let refused = place.resume("none").run().ended_with(2);
    let _ = refused.said("no job like this has a checkpoint in file://");
}

/// The store's credentials are not in images that go there.
#[test]
fn programs_get_credentials_of_the_store_only_if_named() {
    let place = Place::new();
    let shown = |options: &[&str]| {
        let job = place.saved(Job::new(1, Path::new("/usr/bin/env")).options(&["--checkpoint", "asked"]), "scratch");
        let job = job.environment("AWS_SECRET_ACCESS_KEY", "hidden").environment("AWS_REGION", "here");
        job.options(options).run().ended_well().out
    };
    let usual = shown(&[]);
    assert!(usual.contains("AWS_REGION=here") && !usual.contains("hidden"), "{usual}");
    assert!(shown(&["-x", "AWS_SECRET_ACCESS_KEY"]).contains("AWS_SECRET_ACCESS_KEY=hidden"));
}

#[test]
fn what_is_said_of_an_object_store_has_to_make_sense() {
    let refused = |options: &[&str], what: &str| {
        let ended =
            Job::new(1, &compile("until")).options(&["--checkpoint", "1h"]).options(options).run().ended_with(2);
        let ended = ended.said(what);
        assert_eq!(ended.err.trim_end().lines().count(), 1, "{ended}");
    };
    refused(&["--checkpoint-level", "object"], "say where with --checkpoint-dir s3://BUCKET/PREFIX");
    refused(&["--checkpoint-level", "partner", "--checkpoint-dir", "s3://b/p"], "s3://b/p is an object store");
    refused(
        &["--checkpoint-dir", "ftp://b/p"],
        "ftp://b/p: say s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIRECTORY",
    );
    refused(&["--checkpoint-dir", "s3://key:secret@b/p"], "no credentials go into a URL");
    refused(&["--checkpoint-scratch", "/tmp"], "--checkpoint-scratch is for an object store");
}

/// The store accepts connections and never answers.
#[test]
fn a_silent_store_is_reported_before_the_start() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).expect("there is a port");
    let endpoint = format!("http://{}", silent.local_addr().expect("it has one"));
    let place = Place::new();
    let job = Job::new(1, &compile("until")).options(&["--checkpoint", "1h", "--checkpoint-dir", "s3://bucket/p"]);
    let job = job.options(&["--checkpoint-scratch", &place.path("scratch").display().to_string()]);
    let job = job.environment("AWS_ENDPOINT_URL", &endpoint).environment("AWS_ALLOW_HTTP", "true");
    let job = job.environment("AWS_ACCESS_KEY_ID", "key").environment("AWS_SECRET_ACCESS_KEY", "not-printed");
    let ended = job.environment("REDRT_STORE_PATIENCE", "2").limit(Duration::from_secs(30)).run();
    assert!(ended.code != Some(0) && !ended.hung() && !ended.err.contains("not-printed"), "{ended}");
    let _ = ended.said("does not answer");
}
