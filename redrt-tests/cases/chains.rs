//! Checkpoints with only the changes since the one before, which need that one's images.

use crate::checkpoints::{LIMIT, checkpoint, is_back, is_right, store, until};
use crate::while_computing;
use redrt_tests::{Ended, Job, prefix};
use serde_json::Value;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A job of three processes with 16 MiB each, which write to one of their pages every millisecond.
fn quiet(degree: u16, transport: &str, store: &TempDir) -> Job {
    until(degree, transport, store).environment("UNTIL_MIB", "16").environment("UNTIL_PAUSE", "1000")
}

/// Checkpoints of a `quiet` job whose `redrun` was killed.
struct Lost {
    store: TempDir,
    stop: TempDir,
}

impl Lost {
    /// Kills `redrun` after this number of checkpoints.
    fn after(count: usize, options: &[&str]) -> Self {
        let lost = Self { store: store(), stop: store() };
        let job = quiet(1, "auto", &lost.store).options(options).arguments(&[&lost.file().display().to_string()]);
        let job = job.limit(LIMIT).start();
        job.wait_until("computing", |job| job.output().contains("computing"));
        (0..count).for_each(|_| checkpoint(&job));
        job.signal(libc::SIGKILL);
        let _ = job.wait();
        lost
    }

    /// A file that lets the processes go on to their ends.
    fn file(&self) -> PathBuf {
        self.stop.path().join("stop")
    }

    fn of_job(&self) -> PathBuf {
        let mut entries = std::fs::read_dir(self.store.path()).expect("it is there");
        entries.next().expect("the job's").expect("it can be read").path()
    }

    /// Runs `redctl checkpoint` on the job.
    fn redctl(&self, words: &[&str]) -> (Option<i32>, String) {
        redctl(&[&["checkpoint"], words, &[&self.of_job().display().to_string()]].concat())
    }

    /// Resumes the job, which must come to its right end.
    fn resumed(&self) -> Ended {
        std::fs::write(self.file(), "").expect("it can be written");
        let ended = Job::resume(self.store.path()).limit(LIMIT).run().ended_well();
        let mut lines: Vec<_> = ended.out.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["rank 0: right", "rank 1: right", "rank 2: right"], "{ended}");
        ended
    }
}

/// Exit code and output of `redctl`.
pub fn redctl(words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(prefix().join("bin/redctl")).args(words).output().expect("it can be started");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// Each checkpoint with the one that it is built on, the newest first.
fn chain(store: &TempDir) -> Vec<(u64, Option<u64>)> {
    let (_, said) = redctl(&["checkpoints", "--json", "--checkpoint-dir", &store.path().display().to_string()]);
    let rows = said.lines().map(|line| serde_json::from_str::<Value>(line).expect("a row is JSON"));
    rows.map(|row| (row["number"].as_u64().expect("a number"), row["built_on"].as_u64())).collect()
}

fn bytes(ended: &Ended) -> Vec<(u64, u64)> {
    let number = |record: &Value, name: &str| record[name].as_u64().expect("a number");
    ended.events("checkpoint").map(|record| (number(record, "bytes"), number(record, "kept_bytes"))).collect()
}

/// Overwrites bytes in the middle of a file; the length stays.
fn damage(file: &Path) {
    let len = std::fs::metadata(file).expect("it is there").len();
    let file = std::fs::File::options().write(true).open(file).expect("it can be opened");
    file.write_all_at(&[0x5a; 64], len / 2).expect("it can be written");
}

/// A return to the third works, too.
#[test]
fn later_checkpoints_of_a_quiet_program_are_small() {
    for (degree, transport) in [(1, "shm"), (1, "tcp"), (2, "auto")] {
        let store = store();
        let ended = while_computing(LIMIT, quiet(degree, transport, &store), |job| {
            (0..3).for_each(|_| checkpoint(job));
            assert_eq!(chain(&store), [(3, Some(2)), (2, Some(1)), (1, None)]);
            let victims: Vec<_> = (0..degree).map(|index| job.pid_of(&format!("1.{index}"))).collect();
            // SAFETY: - a signal to another process touches no memory of this one.
            victims.into_iter().for_each(|id| assert_eq!(unsafe { libc::kill(id, libc::SIGKILL) }, 0));
            is_back(job, 1, 3 * usize::from(degree));
            // The next checkpoint is compared with the loaded image.
            checkpoint(job);
            assert_eq!(chain(&store)[0], (4, Some(3)));
        });
        let ended = is_right(ended).said("the job goes back to checkpoint 3");
        let all = 3 * (16 << 20);
        let bytes = bytes(&ended);
        assert!(bytes[0].0 > all && bytes[0].1 == 0, "{bytes:?}");
        assert!(bytes[1..].iter().all(|(bytes, kept)| *bytes < all / 4 && *kept > all * 3 / 4), "{bytes:?}");
    }
}

#[test]
fn a_lost_job_is_resumed_from_a_chain_however_it_is_written() {
    for options in [
        &[][..],
        &["--checkpoint-compression", "lz4"],
        &["--checkpoint-compression", "zstd", "--checkpoint-level", "local"],
    ] {
        let lost = Lost::after(3, options);
        assert_eq!(chain(&lost.store), [(3, Some(2)), (2, Some(1)), (1, None)]);
        let (code, said) = lost.redctl(&["verify"]);
        assert!(code == Some(0) && said.lines().count() == 3, "{said}");
        let (_, said) = redctl(&["checkpoints", &lost.of_job().display().to_string()]);
        assert!(said.contains(" on 2 ") && said.contains(" full "), "{said}");
        lost.resumed().said("goes on from checkpoint 3");
    }
}

#[test]
fn a_chain_ends_and_the_one_before_it_stays() {
    let lost = Lost::after(5, &["--checkpoint-chain", "2"]);
    let all = [(5, None), (4, Some(3)), (3, None)];
    assert_eq!(chain(&lost.store), all);
    let (code, said) = lost.redctl(&["delete", "--number", "3"]);
    assert!(code == Some(1) && said.contains("checkpoint 4 is built on checkpoint 3: remove that one first"), "{said}");
    assert_eq!(chain(&lost.store), all);
    for number in ["4", "3"] {
        assert_eq!(lost.redctl(&["delete", "--number", number]).0, Some(0));
    }
    assert_eq!(chain(&lost.store), [(5, None)]);
    lost.resumed();

    let alone = Lost::after(3, &["--checkpoint-chain", "1"]);
    assert_eq!(chain(&alone.store), [(3, None), (2, None)]);
    assert!(!alone.of_job().join("line-3/0.pages").exists());
    alone.resumed();
}

#[test]
fn without_a_link_the_next_older_whole_checkpoint_is_used() {
    let lost = Lost::after(4, &["--checkpoint-chain", "2"]);
    assert_eq!(chain(&lost.store), [(4, Some(3)), (3, None), (2, Some(1)), (1, None)]);
    std::fs::remove_dir_all(lost.of_job().join("line-3")).expect("it can be removed");
    let (_, said) = redctl(&["checkpoints", &lost.of_job().display().to_string()]);
    assert!(said.contains("4  unusable: checkpoint 4 is built on checkpoint 3: "), "{said}");
    let ended = lost.resumed().said("an older checkpoint is used, since checkpoint 4 is built on checkpoint 3: ");
    ended.said("goes on from checkpoint 2");
}

#[test]
fn a_torn_link_spoils_only_the_checkpoints_built_on_it() {
    let lost = Lost::after(4, &["--checkpoint-chain", "2"]);
    damage(&lost.of_job().join("line-3/1.image"));
    let (code, said) = lost.redctl(&["verify"]);
    let lines: Vec<_> = said.lines().collect();
    assert!(code == Some(1) && lines[0].contains("checkpoint 4: damaged: it is built on checkpoint 3"), "{said}");
    assert!(lines[1].contains("checkpoint 3: damaged: ") && lines[2].ends_with("as it was written"), "{said}");
    let ended = lost.resumed().said("checkpoint 4 cannot be loaded: replica 1.0").said("trying checkpoint 3");
    ended.said("checkpoint 3 cannot be loaded: replica 1.0").said("trying checkpoint 2");
}

/// The image that another is built on is replaced by one of the same process from another checkpoint, which is whole.
#[test]
fn a_link_that_is_another_is_noticed() {
    let lost = Lost::after(4, &["--checkpoint-chain", "2"]);
    let of_job = lost.of_job();
    for name in ["1.image", "1.pages"] {
        std::fs::copy(of_job.join("line-1").join(name), of_job.join("line-3").join(name)).expect("it can be copied");
    }
    let (code, said) = lost.redctl(&["verify"]);
    assert!(code == Some(1) && said.contains("checkpoint 4: damaged: "), "{said}");
}

/// The digests beside an image are damaged: the next checkpoint has all pages.
#[test]
fn digests_that_cannot_be_read_cost_bytes_and_nothing_else() {
    let store = store();
    let ended = while_computing(LIMIT, quiet(1, "auto", &store), |job| {
        checkpoint(job);
        let of_job = std::fs::read_dir(store.path()).expect("it is there").next().expect("the job's");
        let line = of_job.expect("it can be read").path().join("line-1");
        // The length stays; another length would be noticed at once.
        (0..3).for_each(|rank| damage(&line.join(format!("{rank}.pages"))));
        checkpoint(job);
        job.kill_replica("1.0");
        is_back(job, 1, 3);
    });
    let ended = is_right(ended).said("the job goes back to checkpoint 2");
    let bytes = bytes(&ended);
    assert!(bytes[1].1 == 0 && bytes[1].0 > bytes[0].0 / 2, "{bytes:?}");
}
