//! Files of the program, put back as they were at a line: by `redrun` where all hosts have one log, else by each
//! daemon.

use file_undo::{Cut, Directory, Undone};
use redrt_wire::line::{Generation, UndoPlace, cut_path};
use std::fs;
use std::io;
use std::path::Path;

/// What there is to say of it.
#[derive(Default)]
pub struct Told {
    /// What was done, if anything was.
    pub done: Option<String>,
    /// What is not right.
    pub wrong: Vec<String>,
}

/// Puts files back as they were at the line that is in this directory: by the log of all hosts, or that of this one.
#[must_use]
pub fn put_back(line: &Path, generation: Generation, host: Option<u32>) -> Told {
    let place = UndoPlace::beside(line, generation, host.is_some());
    let log = Directory::at(place.directory);
    let cut = cut_of(line, host).and_then(|cut| check(&log).map(|()| cut));
    match cut.and_then(|cut| log.go_back(generation.0, cut)) {
        Ok(undone) => told(generation, &undone),
        Err(error) => Told { done: None, wrong: vec![not_put_back(generation, &error)] },
    }
}

/// The same on a host none of whose processes was saved: nobody there has changed files until all were told of the
/// line.
#[must_use]
pub fn put_back_unsaved(line: &Path, generation: Generation) -> Told {
    let log = Directory::at(UndoPlace::beside(line, generation, true).directory);
    let begun = log.begun(generation.0).and_then(|cut| cut.map(|cut| check(&log).map(|()| cut)).transpose());
    match begun.and_then(|cut| cut.map(|cut| log.go_back(generation.0, cut)).transpose()) {
        Ok(undone) => undone.map(|undone| told(generation, &undone)).unwrap_or_default(),
        Err(error) => Told { done: None, wrong: vec![not_put_back(generation, &error)] },
    }
}

/// What is to be put back was written by this user.
fn check(log: &Directory) -> io::Result<()> {
    if line_store::is_own(&log.path().metadata()?) {
        return Ok(());
    }
    let text = format!("{} belongs to another user, or others may write to it", log.path().display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

fn not_put_back(generation: Generation, error: &io::Error) -> String {
    format!("files are left as they are, not as at checkpoint {generation}: {error}")
}

/// How much of the log is older than a line.
fn cut_of(line: &Path, host: Option<u32>) -> io::Result<Cut> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, "it does not say how long the log of changes was");
    let first = || {
        let found = fs::read_dir(line)?.flatten().map(|entry| entry.path());
        found.filter(|path| path.extension().is_some_and(|kind| kind == "undo")).min().ok_or_else(missing)
    };
    let path = host.map_or_else(first, |host| Ok(cut_path(line, host)))?;
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
