//! Checkpoints that hosts keep on disks of their own, and for each other.

use crate::nothing_left;
use redrt_tests::changing::{Undisturbed, goes_on};
use redrt_tests::lab::{Lab, lab};
use redrt_tests::{Ended, Job, Running, compile};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A directory in the file system that each host has in its memory.
const IN_MEMORY: &str = "/dev/shm/kept";

/// A job on three hosts, with a process on each, that keeps its checkpoints on the hosts.
pub struct CheckpointedJob<'a> {
    lab: &'a Lab,
    pub store: PathBuf,
    stop: PathBuf,
}

impl<'a> CheckpointedJob<'a> {
    pub fn new(lab: &'a Lab) -> Self {
        Self { lab, store: lab.path("store"), stop: lab.path("stop") }
    }

    pub fn start(&self, level: &str, hosts: &str, options: &[&str]) -> Running {
        let job = Job::new(3, &compile("until"))
            .arguments(&[&self.stop.display().to_string()])
            .environment("UNTIL_MIB", "4")
            .options(&["--checkpoint", "asked", "--checkpoint-level", level])
            .options(&["--checkpoint-dir", &self.store.display().to_string()])
            .options(options)
            .on_hosts(self.lab, hosts)
            .limit(Duration::from_secs(180))
            .start();
        job.wait_until("computing", |job| job.output().contains("computing"));
        job
    }

    /// The directory of the job, the only one in the store.
    pub fn of_job(&self) -> PathBuf {
        let mut entries = std::fs::read_dir(&self.store).expect("it is there");
        entries.next().expect("the job's").expect("it can be read").path()
    }

    /// Stands for the disk of the host with this number.
    fn disk(&self, host: u32) -> PathBuf {
        self.of_job().join(format!("at-{host}"))
    }

    /// Removes the content of that disk.
    pub fn lose_disk(&self, host: u32) {
        std::fs::remove_dir_all(self.disk(host)).expect("it can be removed");
    }

    pub fn end(&self) {
        std::fs::write(&self.stop, "").expect("it can be written");
    }

    fn is_right(&self, ended: Ended) -> Ended {
        let ended = self.computed_right(ended);
        nothing_left(self.lab, &ended);
        ended
    }

    pub fn computed_right(&self, ended: Ended) -> Ended {
        let ended = ended.ended_well();
        let mut lines: Vec<_> = ended.out.lines().filter(|line| *line != "computing").collect();
        lines.sort_unstable();
        assert_eq!(lines, ["rank 0: right", "rank 1: right", "rank 2: right"], "{ended}");
        ended
    }
}

pub fn checkpoint(job: &Running) {
    job.redctl(&["checkpoint"]).unwrap_or_else(|why| panic!("{why}: {}", job.errors()));
}

/// A host loses its power and its disk, and its partner has a copy of it; then the partner is lost too, after another
/// checkpoint.
#[test]
fn a_partner_has_what_a_lost_host_had_again_and_again() {
    let Some(lab) = lab(3) else { return };
    let kept = CheckpointedJob::new(&lab);
    let key = lab.path("key");
    std::fs::write(&key, "5a".repeat(32)).expect("it can be written");
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("it is ours");
    let job = kept.start("partner", "h1,h2,h3", &["--checkpoint-encrypt", &key.display().to_string()]);
    checkpoint(&job);
    // Each host has its own image, the length of its undo log, and both of the host that it is partner of.
    for host in 0..3 {
        let files = std::fs::read_dir(kept.disk(host).join("line-1")).expect("it is there").count();
        assert_eq!(files, 6, "{:?}", kept.disk(host));
    }
    kept.lose_disk(1);
    lab.cut_power("h2");
    job.wait_for("went-back", 1);
    job.wait_for("started", 6);
    checkpoint(&job);
    // h3 runs two groups now.
    [1, 2].into_iter().for_each(|host| kept.lose_disk(host));
    lab.cut_power("h3");
    job.wait_for("went-back", 2);
    job.wait_for("started", 9);
    // With no other host left there is no copy, and the checkpoint counts all the same.
    checkpoint(&job);
    kept.end();
    let ended =
        kept.is_right(job.wait()).said("the job goes back to checkpoint 1").said("the job goes back to checkpoint 2");
    let ended =
        ended.said("checkpoint 3 does not survive the loss of h1, whose part has no copy: no other host is left");
    assert_eq!(ended.events("checkpoint-copied").count(), 3, "{ended}");
}

/// At this level nothing is on a disk: a lost host's part is in the memory of its partner. Each host of the lab has
/// memory of its own.
#[test]
fn what_a_lost_host_had_is_in_the_memory_of_its_partner() {
    let Some(lab) = lab(3) else { return };
    let kept = CheckpointedJob { lab: &lab, store: IN_MEMORY.into(), stop: lab.path("stop") };
    let job = kept.start("memory", "h1,h2,h3", &[]);
    checkpoint(&job);
    checkpoint(&job);
    lab.cut_power("h2");
    job.wait_for("went-back", 1);
    job.wait_for("started", 6);
    checkpoint(&job);
    kept.end();
    let ended = kept.computed_right(job.wait()).said("the job goes back to checkpoint 2");
    assert_eq!(ended.events("checkpoint-copied").count(), 3, "{ended}");
    // Checkpoints in memory are removed when the job has ended well.
    nothing_left(&lab, &ended);
}

#[test]
fn what_is_to_be_in_memory_is_not_kept_on_a_disk() {
    let Some(lab) = lab(2) else { return };
    let directory = tempfile::tempdir_in("/var/tmp").expect("the disk has room").path().display().to_string();
    let job = Job::new(2, &compile("until")).options(&["--checkpoint", "1h", "--checkpoint-level", "memory"]);
    let ended = job.options(&["--checkpoint-dir", &directory]).on_hosts(&lab, "h1,h2").run().ended_with(2);
    let ended = ended.said(&format!("--checkpoint-level memory: {directory} is not in memory"));
    assert_eq!(ended.err.trim_end().lines().count(), 1, "{ended}");
}

/// Only the hosts themselves can read or remove their parts: `redctl` does it there.
#[test]
fn parts_on_other_hosts_are_verified_and_removed_there() {
    let Some(lab) = lab(3) else { return };
    let kept = CheckpointedJob { lab: &lab, store: IN_MEMORY.into(), stop: lab.path("stop") };
    let job = kept.start("memory", "h1,h2,h3", &[]);
    checkpoint(&job);
    checkpoint(&job);
    job.signal(libc::SIGKILL);
    let _ = job.wait();
    let run = |host: &str, words: &[&str]| {
        let output = lab.on(host).args(words).output().expect("the host is up");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    let job = run("h1", &["ls", IN_MEMORY]).1;
    let of_job = format!("{IN_MEMORY}/{}", job.trim());
    let (program, ssh) = (redrt_tests::prefix().join("bin/redctl").display().to_string(), lab.ssh());
    let redctl = |word| run("h1", &[&program, "checkpoint", word, &of_job, "--on-hosts", "--launcher-exec", &ssh]);
    let (code, said) = redctl("verify");
    assert!(code == Some(0) && said.matches("as it was written, on all hosts that keep it").count() == 2, "{said}");
    // The copy of h2's part.
    assert_eq!(run("h3", &["rm", &format!("{of_job}/at-2/line-2/1.image")]).0, Some(0));
    let (code, said) = redctl("verify");
    assert!(code == Some(1) && said.contains("checkpoint 2: damaged: h3: 1.image is missing"), "{said}");
    lab.cut_link("h3");
    let (code, said) = redctl("delete");
    assert!(code == Some(1) && said.contains("checkpoint 2 stays: h3: it cannot be asked: "), "{said}");
    lab.heal_link("h3");
    let (code, said) = redctl("delete");
    assert_eq!(code, Some(0), "{said}");
    for host in ["h1", "h2", "h3"] {
        assert_eq!(run(host, &["ls", IN_MEMORY]), (Some(0), String::new()), "{host}");
    }
}

/// The job survives the loss of a process, and not that of a host, where hosts have no copies of each other.
#[test]
fn without_copies_a_job_survives_the_loss_of_processes_alone() {
    let Some(lab) = lab(3) else { return };
    let kept = CheckpointedJob::new(&lab);
    let job = kept.start("local", "h1,h2,h3", &[]);
    checkpoint(&job);
    job.redctl(&["kill", "1.0"]).unwrap_or_else(|why| panic!("{why}"));
    job.wait_for("went-back", 1);
    job.wait_for("started", 6);
    lab.cut_power("h2");
    let ended = job.wait().said("checkpoint 1 cannot be loaded: a part of it is on h2 alone, which cannot be had");
    assert!(ended.code != Some(0) && !ended.hung(), "{ended}");
    let ended = ended.said("there is no older checkpoint to go back to");
    nothing_left(&lab, &ended);
}

/// A job that changes files is saved, goes on, and loses its second process, twice.
pub fn goes_back_twice(job: &Running, files: &Path) {
    for returns in 1..3 {
        checkpoint(job);
        goes_on(job, files, 20);
        job.redctl(&["kill", "1.0"]).unwrap_or_else(|why| panic!("{why}"));
        job.wait_for("went-back", returns);
        goes_on(job, files, 5);
    }
}

/// Each host undoes its processes' changes from a log of its own; several hosts write to one file.
#[test]
fn files_are_as_they_were_where_hosts_keep_checkpoints() {
    let Some(lab) = lab(2) else { return };
    let undisturbed = Undisturbed::new(2);
    for level in ["local", "partner"] {
        let (store, files) = (lab.path(&format!("store-{level}")), lab.path(&format!("files-{level}")));
        std::fs::create_dir(&files).expect("it can be made");
        let job = undisturbed
            .job(&files)
            .options(&["--checkpoint", "asked", "--checkpoint-level", level])
            .options(&["--checkpoint-dir", &store.display().to_string()])
            .on_hosts(&lab, "h1,h2")
            .limit(Duration::from_secs(180))
            .start();
        job.wait_until("computing", |job| job.output().contains("computing"));
        goes_back_twice(&job, &files);
        let ended = job.wait().ended_well();
        undisturbed.check(&ended, &files, level);
        nothing_left(&lab, &ended);
    }
}

/// Changes by a lost host's processes on a shared file system are undone too, in one order with the changes of other
/// hosts to the same files.
#[test]
fn changes_by_a_lost_host_to_shared_files_are_undone() {
    undone("partner", "h1,h2,h3", &["h2", "h3"], &[]);
}

#[test]
fn changes_by_a_lost_host_are_undone_with_parts_in_pieces() {
    undone("erasure:2+1", "h1,h2,h3,h4", &["h2"], &["--spares", "1"]);
}

/// A job on these hosts that goes back to a checkpoint of this level for each host that is lost.
fn undone(level: &str, hosts: &str, lost: &[&str], options: &[&str]) {
    let Some(lab) = lab(hosts.split(',').count() as u32) else { return };
    let undisturbed = Undisturbed::new(3);
    let (store, files) = (lab.path("store"), lab.path("files"));
    std::fs::create_dir(&files).expect("it can be made");
    let job = undisturbed
        .job(&files)
        .options(&["--checkpoint", "asked", "--checkpoint-level", level])
        .options(&["--checkpoint-dir", &store.display().to_string()])
        .options(options)
        .on_hosts(&lab, hosts)
        .limit(Duration::from_secs(180))
        .start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    for (returns, lost) in lost.iter().enumerate() {
        checkpoint(&job);
        goes_on(&job, &files, 20);
        lab.cut_power(lost);
        job.wait_for("went-back", returns + 1);
        goes_on(&job, &files, 5);
    }
    let ended = job.wait().ended_well().said("changes were taken back");
    assert!(!ended.err.contains("not taken back"), "{ended}");
    undisturbed.check(&ended, &files, "after the loss of hosts");
    nothing_left(&lab, &ended);
}

/// A partner that cannot write costs one line of output; the job goes on, and the checkpoint counts without the copy.
#[test]
fn a_partner_that_cannot_keep_its_copy_is_reported() {
    let Some(lab) = lab(4) else { return };
    let kept = CheckpointedJob::new(&lab);
    let job = kept.start("partner", "h1,h2,h3,h4", &["--spares", "1"]);
    checkpoint(&job);
    // h4 keeps the copies of h3.
    kept.lose_disk(3);
    std::fs::write(kept.disk(3), "in the way").expect("it can be written");
    checkpoint(&job);
    let why = "checkpoint 2 does not survive the loss of h3, whose part has no copy: on h4: ";
    assert!(job.errors().contains(why), "{}", job.errors());
    // The copies that were made are of use: h2 is lost, and its partner is h3.
    kept.lose_disk(1);
    lab.cut_power("h2");
    job.wait_for("went-back", 1);
    job.wait_for("started", 6);
    // The copy that failed is of no use, and the older checkpoint is taken.
    std::fs::remove_file(kept.disk(3)).expect("it can be removed");
    kept.end();
    kept.is_right(job.wait()).said("the job goes back to checkpoint 2");
}

/// The newest checkpoint has a torn part, so the older one is loaded.
#[test]
fn a_torn_part_is_passed_over_and_the_older_checkpoint_stays() {
    let Some(lab) = lab(3) else { return };
    let kept = CheckpointedJob::new(&lab);
    let job = kept.start("partner", "h1,h2,h3", &[]);
    checkpoint(&job);
    checkpoint(&job);
    let image = kept.disk(2).join("line-2/1.image");
    let len = std::fs::metadata(&image).expect("it is there").len();
    let file = std::fs::File::options().write(true).open(&image).expect("it can be opened");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0x5a; 64], len / 2).expect("it can be written");
    kept.lose_disk(1);
    lab.cut_power("h2");
    job.wait_for("started", 6);
    kept.end();
    kept.is_right(job.wait()).said("checkpoint 2 cannot be loaded: replica 1.0").said("trying checkpoint 1");
}

/// A checkpoint that is built on others is loaded from the copies of all of them.
#[test]
fn a_partner_has_a_whole_chain() {
    let Some(lab) = lab(3) else { return };
    let kept = CheckpointedJob::new(&lab);
    let job = kept.start("partner", "h1,h2,h3", &[]);
    (0..3).for_each(|_| checkpoint(&job));
    let built_on = |number: u64| {
        let output = std::process::Command::new(redrt_tests::prefix().join("bin/redctl"))
            .args(["checkpoints", "--json", &kept.of_job().display().to_string()])
            .output();
        let output = output.expect("redctl can be started").stdout;
        let rows = String::from_utf8_lossy(&output).into_owned();
        let rows = rows.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("it is JSON"));
        rows.into_iter().find(|row| row["number"] == number).expect("it is there")["built_on"].as_u64()
    };
    assert_eq!([3, 2, 1].map(built_on), [Some(2), Some(1), None]);
    kept.lose_disk(1);
    lab.cut_power("h2");
    job.wait_for("went-back", 1);
    job.wait_for("started", 6);
    // Ranks of h2 keep their images on another host now.
    checkpoint(&job);
    assert_eq!(built_on(4), None);
    checkpoint(&job);
    kept.end();
    kept.is_right(job.wait()).said("the job goes back to checkpoint 3");
}

/// The partner loses its power at any moment of a copy.
#[test]
fn the_loss_of_a_partner_during_a_copy_takes_no_job_back() {
    let Some(lab) = lab(4) else { return };
    let kept = CheckpointedJob::new(&lab);
    let job = kept.start("partner", "h1,h2,h3,h4", &["--spares", "1"]);
    checkpoint(&job);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| checkpoint(&job));
        let is_begun = || kept.disk(3).join("line-2").exists();
        job.wait_until("h4 keeps a copy", |_| is_begun());
        lab.cut_power("h4");
        asked.join().expect("the checkpoint counts");
    });
    kept.end();
    let ended = kept.is_right(job.wait());
    assert_eq!((ended.number("returns"), ended.events("checkpoint").count()), (0, 2), "{ended}");
}

/// The disk of each host has its pieces, and no image once the checkpoint is kept. A host loses its power and its disk,
/// and a spare host runs its processes; a byte of a piece is flipped besides.
#[test]
fn what_a_lost_host_had_is_made_of_pieces_on_a_spare_host() {
    let Some(lab) = lab(5) else { return };
    let kept = CheckpointedJob::new(&lab);
    let job = kept.start("erasure:2+2", "h1,h2,h3,h4,h5", &["--spares", "2"]);
    (0..2).for_each(|_| checkpoint(&job));
    let is_in_pieces = |host: u32| {
        let files = std::fs::read_dir(kept.disk(host).join("line-2")).expect("it is there").flatten();
        let names: Vec<_> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        let whole = names.iter().any(|name| name.ends_with(".image") || name.ends_with(".memory"));
        names.iter().any(|name| name.contains(".piece-")) && !whole
    };
    job.wait_until("whole images go", |_| (0..3).all(is_in_pieces));
    let piece = kept.disk(2).join("line-2/host-2.piece-0");
    let len = std::fs::metadata(&piece).expect("it is there").len();
    let file = std::fs::File::options().write(true).open(&piece).expect("it can be opened");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0x5a; 8], len / 2).expect("it can be written");
    kept.lose_disk(1);
    lab.cut_power("h2");
    job.wait_for("went-back", 1);
    job.wait_for("started", 6);
    checkpoint(&job);
    kept.end();
    let ended = kept.is_right(job.wait()).said("the job goes back to checkpoint 2");
    let ended = ended.said("piece 0 of the part of host 2 of checkpoint 2 counts as lost: it is torn in stripe ");
    assert_eq!(ended.events("checkpoint-encoded").count(), 3, "{ended}");
    let spare = ended.events("went-back").count() == 1 && ended.events("started").any(|record| record["host"] == "h4");
    assert!(spare, "{ended}");
}

/// Each host has the manifest, in a directory of its own. So a job that lost its first host is resumed from another,
/// with a chain of checkpoints.
#[test]
fn a_job_on_disks_of_hosts_is_resumed_from_any_host() {
    for (level, hosts) in [("erasure:2+1", "h1,h2,h3,h4"), ("partner", "h1,h2,h3,h4")] {
        resume_on_another_host(level, hosts);
    }
}

fn resume_on_another_host(level: &str, hosts: &str) {
    let Some(lab) = lab(4) else { return };
    let kept = CheckpointedJob { lab: &lab, store: IN_MEMORY.into(), stop: lab.path("stop") };
    let job = kept.start(level, hosts, &["--spares", "1"]);
    (0..3).for_each(|_| checkpoint(&job));
    let run = |host: &str, words: &[&str]| {
        let output = lab.on(host).args(words).output().expect("the host is up");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    let of_job = format!("{IN_MEMORY}/{}", run("h1", &["ls", IN_MEMORY]).1.trim());
    let manifest = format!("{of_job}/line-3/manifest.json");
    job.wait_until("all have the manifest", |_| {
        ["h1", "h2", "h3", "h4"].iter().all(|host| run(host, &["test", "-e", &manifest]).0 == Some(0))
    });
    // A host that the job runs on knows that it does.
    let running = Job::resume(&kept.store).on_hosts(&lab, "h2,h1,h3").run().ended_with(2);
    let _ = running.said("runs already, on h1: end it first");
    job.signal(libc::SIGKILL);
    let _ = job.wait();
    let (program, ssh) = (redrt_tests::prefix().join("bin/redctl").display().to_string(), lab.ssh());
    let words = [&*program, "checkpoint", "verify", &of_job, "--on-hosts", "--launcher-exec", &ssh];
    let (code, said) = run("h2", &words);
    assert!(code == Some(0) && said.matches("as it was written, on all hosts that keep it").count() > 1, "{said}");
    lab.cut_power("h1");
    // The host on which it is resumed has not heard of the last one, and one cannot be asked.
    assert_eq!(run("h2", &["rm", "-r", &format!("{of_job}/line-3")]).0, Some(0));
    kept.end();
    let ended = Job::resume(&kept.store).on_hosts(&lab, "h2,h3,h4").limit(Duration::from_secs(120)).run();
    kept.computed_right(ended).said("goes on from checkpoint 3");
}

/// A proof comes after the manifest, which all hosts have by then.
#[test]
fn all_hosts_know_which_checkpoint_is_proven() {
    let Some(lab) = lab(3) else { return };
    let job = Job::new(2, &compile("heat")).arguments(&["96", "10000000"]).degree(2);
    let job = job.options(&["--checkpoint", "asked", "--checkpoint-level", "partner", "--checkpoint-dir", IN_MEMORY]);
    let job = job.on_hosts(&lab, "h1,h2,h3").limit(Duration::from_secs(120)).start();
    job.wait_for("started", 4);
    job.wait_until("a checkpoint", |job| job.redctl(&["checkpoint"]).is_ok());
    job.wait_for("checkpoint-proven", 1);
    // One may have failed at the begin.
    let audit = job.audit();
    let proven = audit.iter().find(|record| record["event"] == "checkpoint-proven").expect("it was waited for");
    let line = format!("line-{}", proven["generation"]);
    let run = |host: &str, words: &[&str]| {
        let output = lab.on(host).args(words).output().expect("the host is up");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let of_job = format!("{IN_MEMORY}/{}", run("h1", &["ls", IN_MEMORY]).trim());
    job.wait_until("the proof on all hosts", |_| {
        let manifest = |host: &&str| run(host, &["cat", &format!("{of_job}/{line}/manifest.json")]);
        ["h1", "h2", "h3"].iter().all(|host| manifest(host).contains(r#""proof": "Independent""#))
    });
    job.signal(libc::SIGINT);
    let _ = job.wait().ended_with(130);
}

/// With fewer hosts left than a part has pieces the checkpoint counts, and says what it survives; a job whose hosts are
/// too few from the begin is refused.
#[test]
fn a_checkpoint_in_pieces_says_what_it_survives() {
    let Some(lab) = lab(3) else { return };
    let kept = CheckpointedJob::new(&lab);
    let job = kept.start("erasure:2+1", "h1,h2,h3", &[]);
    checkpoint(&job);
    kept.lose_disk(1);
    lab.cut_power("h2");
    job.wait_for("went-back", 1);
    job.wait_for("started", 6);
    checkpoint(&job);
    kept.end();
    let ended = kept.is_right(job.wait()).said("the job goes back to checkpoint 1");
    let why = "its pieces are on 2 hosts, and should be on 3";
    let ended = ended.said(&format!("checkpoint 2 survives the loss of 0 hosts together, not of 1: {why}"));
    assert_eq!(ended.events("checkpoint-weakened").count(), 1, "{ended}");
    let job = Job::new(2, &compile("until")).options(&["--checkpoint", "1h", "--checkpoint-level", "erasure:3+1"]);
    let ended = job.on_hosts(&lab, "h1,h3").run().ended_with(2);
    let ended =
        ended.said("--checkpoint-level erasure:3+1: that needs 4 hosts, one for each piece, and the job has 2 hosts");
    assert_eq!(ended.err.trim_end().lines().count(), 1, "{ended}");
}

/// `redrun` and a host are lost; the job is resumed on hosts that have all parts, and refused on fewer.
#[test]
fn a_job_is_resumed_only_on_hosts_that_have_all_its_parts() {
    let Some(lab) = lab(3) else { return };
    let kept = CheckpointedJob::new(&lab);
    let job = kept.start("partner", "h1,h2,h3", &[]);
    checkpoint(&job);
    job.signal(libc::SIGKILL);
    let _ = job.wait();
    kept.lose_disk(2);
    lab.cut_power("h3");
    kept.end();
    let resumed = |hosts| Job::resume(&kept.store).on_hosts(&lab, hosts).limit(Duration::from_secs(120)).run();
    // The part of h2 is on h2 and h3.
    let ended = resumed("h1").ended_with(2).said("a part of it is on h2 and h3 alone, which cannot be had");
    assert_eq!(ended.err.trim_end().lines().count(), 1, "{ended}");
    kept.is_right(resumed("h1,h2"));
}

#[test]
fn a_job_on_one_host_has_no_partner() {
    let ended = Job::new(3, &compile("until")).options(&["--checkpoint", "1h", "--checkpoint-level", "partner"]).run();
    let ended = ended.ended_with(2).said("--checkpoint-level partner: the job has one host");
    assert_eq!(ended.err.trim_end().lines().count(), 1, "{ended}");
}
