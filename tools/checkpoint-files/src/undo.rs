//! Files of the program, put back as they were at a checkpoint: by `redrun` with the log that all hosts share, by each
//! daemon with the log of its host.

use anyhow::{Context, Result};
use checkpoint_store::Manifest;
use file_undo::{Cut, Directory, SharedLog, Undone};
use redrt_wire::checkpoint::{Generation, UndoPlace, cut_path};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Messages about the outcome.
#[derive(Default)]
pub struct UndoReport {
    /// Summary of the changes. `None` if there were none.
    pub done: Option<String>,
    /// Warnings for the user, each in one line.
    pub wrong: Vec<String>,
}

/// Puts files back as they were at the checkpoint in this directory, by the log of all hosts (`None`) or of this one.
///
/// # Errors
/// When a record is damaged. Files are unchanged then.
pub fn put_back(checkpoint: &Path, generation: Generation, host: Option<u32>) -> Result<UndoReport> {
    let place = UndoPlace::beside(checkpoint, generation, host.is_some());
    let log = Directory::at(place.directory);
    let cut = cut_of(checkpoint, host).and_then(|cut| check(&log).map(|()| cut));
    match cut.and_then(|cut| log.go_back(generation.0, cut)) {
        Ok(undone) => Ok(told(generation, &undone)),
        Err(error) => not_put_back(&log, generation, error),
    }
}

/// Puts files back by the log that hosts share besides their own ones.
///
/// # Errors
/// As for [`put_back`].
pub fn put_back_shared(shared: &SharedLog, checkpoint: &Manifest) -> Result<UndoReport> {
    let (log, generation) = (shared.directory(), checkpoint.generation);
    if log.path().is_dir() && !log.has_log() {
        // No host with processes sees the log.
        return Ok(UndoReport::default());
    }
    match check(&log).and_then(|()| log.go_back(generation.0, cut_in(&log, checkpoint)?)) {
        Ok(undone) => Ok(told(generation, &undone)),
        Err(error) => not_put_back(&log, generation, error),
    }
}

/// Puts files back on a host without a saved process: no process there changed files before all were told of the
/// checkpoint.
///
/// # Errors
/// As for [`put_back`].
pub fn put_back_unsaved(checkpoint: &Path, generation: Generation) -> Result<UndoReport> {
    let log = Directory::at(UndoPlace::beside(checkpoint, generation, true).directory);
    let begun = log.begun(generation.0).and_then(|cut| cut.map(|cut| check(&log).map(|()| cut)).transpose());
    match begun.and_then(|cut| cut.map(|cut| log.go_back(generation.0, cut)).transpose()) {
        Ok(undone) => Ok(undone.map(|undone| told(generation, &undone)).unwrap_or_default()),
        Err(error) => not_put_back(&log, generation, error),
    }
}

/// Verifies a log from the length on that this file of a checkpoint has: all records since, and their saved bytes. The
/// file may be a copy of another host's, whose log is not here; then only the file is read.
///
/// # Errors
/// When something is damaged.
pub fn verify(path: &Path) -> io::Result<()> {
    let cut = Cut::read(path)?;
    let checkpoint = path.parent().unwrap_or(path);
    let of_host = checkpoint.parent().and_then(Path::file_name).and_then(|name| name.to_str()?.strip_prefix("at-"));
    let is_beside_its_log = match of_host {
        Some(host) => path.file_stem().is_some_and(|stem| *stem == *format!("host-{host}")),
        // All hosts have one log, and checking it once is enough.
        None => first_cut(checkpoint)? == path,
    };
    let log = Directory::at(checkpoint.with_file_name("undo"));
    // A checkpoint from an object store has no log beside it: each host has its own.
    if is_beside_its_log && log.path().is_dir() { log.check(cut) } else { Ok(()) }
}

/// Verifies the log that hosts share, if it is seen from here.
///
/// # Errors
/// When something is damaged.
pub fn verify_shared(manifest: &Manifest) -> io::Result<()> {
    let log = manifest.shared_log().map(Directory::at).filter(|log| log.path().is_dir());
    log.map_or(Ok(()), |log| log.check(cut_in(&log, manifest)?))
}

/// Checks that only this user could write the log.
fn check(log: &Directory) -> io::Result<()> {
    if checkpoint_store::is_own(&log.path().metadata()?) {
        return Ok(());
    }
    let text = format!("{} belongs to another user, or others may write to it", log.path().display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

fn not_put_back(log: &Directory, generation: Generation, error: io::Error) -> Result<UndoReport> {
    if error.kind() != io::ErrorKind::InvalidData {
        let wrong = format!("files are left as they are, not as at checkpoint {generation}: {error}");
        return Ok(UndoReport { done: None, wrong: vec![wrong] });
    }
    let directory = log.path().display();
    Err(error).with_context(|| {
        format!(
            "files cannot be put back as they were at checkpoint {generation}; they are left as they are (to go on with \
             them, remove {directory})"
        )
    })
}

fn missing() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "it does not say how long the log of changes was")
}

/// File of a checkpoint with the length of the log of all hosts.
fn first_cut(checkpoint: &Path) -> io::Result<PathBuf> {
    let found = fs::read_dir(checkpoint)?.flatten().map(|entry| entry.path());
    found.filter(|path| path.extension().is_some_and(|kind| kind == "undo")).min().ok_or_else(missing)
}

/// Length of the log at a checkpoint.
fn cut_of(checkpoint: &Path, host: Option<u32>) -> io::Result<Cut> {
    let path = host.map_or_else(|| first_cut(checkpoint), |host| Ok(cut_path(checkpoint, host)))?;
    Cut::read(&path).map_err(|error| if error.kind() == io::ErrorKind::NotFound { missing() } else { error })
}

fn told(generation: Generation, undone: &Undone) -> UndoReport {
    let Undone { count, failures, is_incomplete, is_disturbed } = undone;
    let done = (*count > 0).then(|| {
        let changes = if *count == 1 { "1 change was" } else { &format!("{count} changes were") };
        format!("files are as they were at checkpoint {generation}: {changes} taken back")
    });
    let mut wrong = Vec::new();
    if *is_incomplete {
        wrong.push(format!(
            "not all that was changed in files since checkpoint {generation} was written down: they may not be as they \
             were"
        ));
    }
    if *is_disturbed {
        wrong.push("processes of the job as it was before still live, and may change its files".to_owned());
    }
    if let Some((path, error)) = failures.first() {
        let more = failures.len() - 1;
        let others = if more == 0 { String::new() } else { format!(" ({more} others could not either)") };
        wrong.push(format!("{path} could not be put back as it was at checkpoint {generation}: {error}{others}"));
    }
    UndoReport { done: done.filter(|_| wrong.is_empty()), wrong }
}

/// Removes records older than the oldest checkpoint, which is in this directory.
pub fn forget_before(checkpoint: &Path, generation: Generation, host: Option<u32>) {
    // Failure is harmless: old records take room, and are removed with the next checkpoint.
    let _ = cut_of(checkpoint, host).and_then(|cut| {
        Directory::at(UndoPlace::beside(checkpoint, generation, host.is_some()).directory)
            .forget_before(generation.0, cut)
    });
}

/// Removes such records from the log that hosts share.
pub fn forget_shared_before(oldest: &Manifest) {
    let log = oldest.shared_log().map(Directory::at);
    let number = oldest.generation.0;
    let _ = log.map(|log| cut_in(&log, oldest).and_then(|cut| log.forget_before(number, cut)));
}

/// Length of the shared log at a checkpoint.
fn cut_in(log: &Directory, checkpoint: &Manifest) -> io::Result<Cut> {
    log.cut_at(checkpoint.generation.0, checkpoint.hosts.len() as u32)
}

/// Removes all logs of a job that are seen from here, once its checkpoints are gone.
///
/// # Errors
/// When the disk refuses.
pub fn remove_all(job: &Path) -> io::Result<()> {
    Directory::of_job(job).remove()?;
    let Ok(entries) = fs::read_dir(job) else { return Ok(()) };
    for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
        Directory::of_job(&entry.path()).remove()?;
        // The directory is empty now, unless it has checkpoints.
        let _ = fs::remove_dir(entry.path());
    }
    Ok(())
}
