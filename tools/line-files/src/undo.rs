//! Files of the program, put back as they were at a line: by `redrun` those in a log that all hosts share, by each
//! daemon those in the log of its host.

use anyhow::{Context, Result};
use file_undo::{Cut, Directory, SharedLog, Undone};
use line_store::Manifest;
use redrt_wire::line::{Generation, UndoPlace, cut_path};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What there is to say of it.
#[derive(Default)]
pub struct Told {
    /// What was done, if anything was.
    pub done: Option<String>,
    /// What is not right.
    pub wrong: Vec<String>,
}

/// Puts files back as they were at the line that is in this directory: by the log of all hosts, or that of this one.
///
/// # Errors
/// When what was written down to put files back is damaged: files are as they were before.
pub fn put_back(line: &Path, generation: Generation, host: Option<u32>) -> Result<Told> {
    let place = UndoPlace::beside(line, generation, host.is_some());
    let log = Directory::at(place.directory);
    let cut = cut_of(line, host).and_then(|cut| check(&log).map(|()| cut));
    match cut.and_then(|cut| log.go_back(generation.0, cut)) {
        Ok(undone) => Ok(told(generation, &undone)),
        Err(error) => not_put_back(&log, generation, error),
    }
}

/// The same by the log that hosts share which have logs of their own besides.
///
/// # Errors
/// As for [`put_back`].
pub fn put_back_shared(shared: &SharedLog, line: &Manifest) -> Result<Told> {
    let (log, generation) = (shared.directory(), line.generation);
    if log.path().is_dir() && !log.has_log() {
        // No host with processes sees it.
        return Ok(Told::default());
    }
    match check(&log).and_then(|()| log.go_back(generation.0, cut_in(&log, line)?)) {
        Ok(undone) => Ok(told(generation, &undone)),
        Err(error) => not_put_back(&log, generation, error),
    }
}

/// The same on a host none of whose processes was saved: nobody there has changed files until all were told of the
/// line.
///
/// # Errors
/// As for [`put_back`].
pub fn put_back_unsaved(line: &Path, generation: Generation) -> Result<Told> {
    let log = Directory::at(UndoPlace::beside(line, generation, true).directory);
    let begun = log.begun(generation.0).and_then(|cut| cut.map(|cut| check(&log).map(|()| cut)).transpose());
    match begun.and_then(|cut| cut.map(|cut| log.go_back(generation.0, cut)).transpose()) {
        Ok(undone) => Ok(undone.map(|undone| told(generation, &undone)).unwrap_or_default()),
        Err(error) => not_put_back(&log, generation, error),
    }
}

/// Reads what belongs to the length of a log, which this file of a line says: all records since, and the bytes that
/// were saved with them. The file may be a copy of another host's, whose log is not here: then it is read alone.
///
/// # Errors
/// When something is damaged.
pub fn verify(path: &Path) -> io::Result<()> {
    let cut = Cut::read(path)?;
    let line = path.parent().unwrap_or(path);
    let of_host = line.parent().and_then(Path::file_name).and_then(|name| name.to_str()?.strip_prefix("at-"));
    let is_beside_its_log = match of_host {
        Some(host) => path.file_stem().is_some_and(|stem| *stem == *format!("host-{host}")),
        // All hosts have one log, and one of them is enough.
        None => first_cut(line)? == path,
    };
    let log = Directory::at(line.with_file_name("undo"));
    // What was got from an object store has none: each host has its own.
    if is_beside_its_log && log.path().is_dir() { log.check(cut) } else { Ok(()) }
}

/// The same of the log that hosts share. It may not be seen from here.
///
/// # Errors
/// When something is damaged.
pub fn verify_shared(manifest: &Manifest) -> io::Result<()> {
    let log = manifest.shared_log().map(Directory::at).filter(|log| log.path().is_dir());
    log.map_or(Ok(()), |log| log.check(cut_in(&log, manifest)?))
}

/// What is to be put back was written by this user.
fn check(log: &Directory) -> io::Result<()> {
    if line_store::is_own(&log.path().metadata()?) {
        return Ok(());
    }
    let text = format!("{} belongs to another user, or others may write to it", log.path().display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

fn not_put_back(log: &Directory, generation: Generation, error: io::Error) -> Result<Told> {
    if error.kind() != io::ErrorKind::InvalidData {
        let wrong = format!("files are left as they are, not as at checkpoint {generation}: {error}");
        return Ok(Told { done: None, wrong: vec![wrong] });
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

/// The file of a line that says how long the log of all hosts was.
fn first_cut(line: &Path) -> io::Result<PathBuf> {
    let found = fs::read_dir(line)?.flatten().map(|entry| entry.path());
    found.filter(|path| path.extension().is_some_and(|kind| kind == "undo")).min().ok_or_else(missing)
}

/// How much of the log is older than a line.
fn cut_of(line: &Path, host: Option<u32>) -> io::Result<Cut> {
    let path = host.map_or_else(|| first_cut(line), |host| Ok(cut_path(line, host)))?;
    Cut::read(&path).map_err(|error| if error.kind() == io::ErrorKind::NotFound { missing() } else { error })
}

fn told(generation: Generation, undone: &Undone) -> Told {
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
    Told { done: done.filter(|_| wrong.is_empty()), wrong }
}

/// Forgets changes that are older than the oldest line that is kept, which is in this directory.
pub fn forget_before(line: &Path, generation: Generation, host: Option<u32>) {
    // What stays takes room, and is forgotten with the next line.
    let _ = cut_of(line, host).and_then(|cut| {
        Directory::at(UndoPlace::beside(line, generation, host.is_some()).directory).forget_before(generation.0, cut)
    });
}

/// The same in the log that hosts share.
pub fn forget_shared_before(oldest: &Manifest) {
    let log = oldest.shared_log().map(Directory::at);
    let number = oldest.generation.0;
    let _ = log.map(|log| cut_in(&log, oldest).and_then(|cut| log.forget_before(number, cut)));
}

/// How long the log that hosts share was at a line.
fn cut_in(log: &Directory, line: &Manifest) -> io::Result<Cut> {
    log.cut_at(line.generation.0, line.hosts.len() as u32)
}

/// Removes all logs of a job that can be seen from here, whose lines are gone.
///
/// # Errors
/// When the disk refuses.
pub fn remove_all(job: &Path) -> io::Result<()> {
    Directory::of_job(job).remove()?;
    let Ok(entries) = fs::read_dir(job) else { return Ok(()) };
    for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
        Directory::of_job(&entry.path()).remove()?;
        // Empty now, unless there are lines.
        let _ = fs::remove_dir(entry.path());
    }
    Ok(())
}
