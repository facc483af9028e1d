//! Encrypted checkpoints.

use crate::checkpoints::{LIMIT, checkpoint, is_back, is_right, store, until};
use crate::while_computing;
use redrt_tests::{Job, prefix};
use std::fs::Permissions;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A word in each process's memory that no file of a checkpoint may show.
const MARK: &str = "a-word-that-nobody-else-may-read";

/// A file with a key of this digit.
fn key(directory: &TempDir, digit: &str) -> String {
    let path = directory.path().join(format!("key-{digit}"));
    std::fs::write(&path, format!("{}\n", digit.repeat(64))).expect("it can be written");
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
    path.display().to_string()
}

fn marked(degree: u16, store: &TempDir) -> Job {
    until(degree, "auto", store).environment("MARK", MARK)
}

/// The files of the job's checkpoints.
fn files(store: &Path) -> Vec<PathBuf> {
    let below = |path: &Path| std::fs::read_dir(path).expect("it is there").flatten().map(|entry| entry.path());
    below(store)
        .flat_map(|job| below(&job).collect::<Vec<_>>())
        .flat_map(|line| below(&line).collect::<Vec<_>>())
        .collect()
}

/// Number of these files that have the word.
fn show_the_mark(store: &Path) -> usize {
    let output = Command::new("grep").args(["-rlaF", MARK]).arg(store).output().expect("grep can be started");
    String::from_utf8_lossy(&output.stdout).lines().count()
}

fn redctl(words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(prefix().join("bin/redctl")).args(words).output().expect("it can be started");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_job_goes_back_to_a_checkpoint_that_only_its_key_opens() {
    for degree in [1, 2] {
        let (plain, sealed, keys) = (store(), store(), store());
        let key = key(&keys, "a");
        for (store, options) in [(&plain, vec![]), (&sealed, vec!["--checkpoint-encrypt", &key])] {
            let ended = while_computing(LIMIT, marked(degree, store).options(&options), |job| {
                checkpoint(job);
                let victims: Vec<_> = (0..degree).map(|index| job.pid_of(&format!("1.{index}"))).collect();
                // SAFETY: - a signal to another process touches no memory of this one.
                victims.into_iter().for_each(|id| assert_eq!(unsafe { libc::kill(id, libc::SIGKILL) }, 0));
                is_back(job, 1, 3 * usize::from(degree));
            });
            is_right(ended).said("the job goes back to checkpoint 1");
        }
        assert_eq!(show_the_mark(plain.path()), 3);
        assert_eq!(show_the_mark(sealed.path()), 0);
        let directory = sealed.path().display().to_string();
        let (code, said) = redctl(&["checkpoint", "verify", "--checkpoint-dir", &directory, "--key", &key]);
        assert!(code == Some(0) && said.contains("checkpoint 1: as it was written"), "{said}");
    }
}

#[test]
fn a_wrong_or_missing_key_is_refused_in_one_line() {
    let (store, keys) = (store(), store());
    let [right, wrong] = ["a", "b"].map(|digit| key(&keys, digit));
    let stop = keys.path().join("stop");
    let begin = marked(1, &store).options(&["--checkpoint-encrypt", &right]);
    let begin = begin.arguments(&[&stop.display().to_string()]).limit(LIMIT).start();
    begin.wait_until("computing", |job| job.output().contains("computing"));
    begin.redctl(&["checkpoint", "--stop"]).unwrap_or_else(|why| panic!("{why}: {}", begin.errors()));
    let _ = begin.wait().ended_with(75);
    let open = keys.path().join("open");
    std::fs::write(&open, "c".repeat(64)).expect("it can be written");
    std::fs::set_permissions(&open, Permissions::from_mode(0o644)).expect("it is ours");
    let (open, none) = (open.display().to_string(), keys.path().join("none").display().to_string());
    let resumed = |options: &[&str]| Job::resume(store.path()).limit(LIMIT).options(options);
    for (options, line) in [
        (vec![], "is encrypted: name the file that has its key"),
        (vec!["--checkpoint-encrypt", &wrong], "is encrypted with another key than the one that was named"),
        (vec!["--checkpoint-encrypt", &open], "can be read or written by everybody"),
        (vec!["--checkpoint-encrypt", &none], "Failed to read the secret in"),
    ] {
        let ended = resumed(&options).run().ended_with(2);
        assert!(ended.err.contains(line) && ended.err.trim_end().lines().count() == 1, "{options:?}: {ended}");
    }
    let directory = store.path().display().to_string();
    for (words, line) in [(vec![], "is encrypted: name the file"), (vec!["--key", &wrong], "with another key")] {
        let verify = ["checkpoint", "verify", "--checkpoint-dir", &directory];
        let (code, said) = redctl(&[&verify[..], &words].concat());
        assert!(code != Some(0) && said.contains(line), "{said}");
        let (_, said) = redctl(&[&["checkpoints", "--checkpoint-dir", &directory][..], &words].concat());
        assert!(said.contains(line), "{said}");
    }
    std::fs::write(&stop, "").expect("it can be written");
    let ended = resumed(&["--checkpoint-encrypt", &right]).run().ended_well().said("goes on from checkpoint 1");
    assert_eq!(ended.out.lines().filter(|line| line.ends_with(": right")).count(), 3, "{ended}");
}

#[test]
fn an_encrypted_image_that_was_changed_is_passed_over() {
    let (store, keys) = (store(), store());
    let key = key(&keys, "a");
    let ended = while_computing(LIMIT, marked(1, &store).options(&["--checkpoint-encrypt", &key]), |job| {
        checkpoint(job);
        checkpoint(job);
        let image = files(store.path()).into_iter().find(|path| path.ends_with("line-2/1.image"));
        let file = std::fs::File::options().write(true).open(image.expect("it is there")).expect("it can be opened");
        let middle = file.metadata().expect("it is there").len() / 2;
        file.write_all_at(&[0x5a; 64], middle).expect("it can be written");
        job.kill_replica("1.0");
        job.wait_for("started", 6);
    });
    is_right(ended).said("a part of it was changed").said("trying checkpoint 1");
}
