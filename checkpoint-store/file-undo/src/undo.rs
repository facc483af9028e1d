//! Undo of records.
//!
//! A step that was already done is detected. So a record may be undone again after a crash.

use crate::files::{FileKind, Files, Seen, Step, Subject, Target};
use crate::record::{Attribute, Copy, Data, FileKey, Held, Record, Was};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Files without a link that were made again from saved bytes: old identity to new.
pub type Replaced = HashMap<FileKey, FileKey>;

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn missing(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, what.to_owned())
}

/// Link of a file, if it exists and belongs to this file. A copied directory has links to other files.
fn link_of<'a>(files: &impl Files, held: &'a Held) -> io::Result<Option<&'a str>> {
    let Some(link) = &held.link else { return Ok(None) };
    let seen = files.held(link)?;
    Ok(seen.is_some_and(|seen| Some(seen.key) == held.key).then_some(link))
}

fn is_now(seen: &Seen, key: FileKey, replaced: &Replaced) -> bool {
    seen.key == *replaced.get(&key).unwrap_or(&key)
}

/// Finds the file that a record is about.
fn find<'a>(files: &impl Files, held: &'a Held, replaced: &Replaced) -> io::Result<Target<'a>> {
    if let Some(link) = link_of(files, held)? {
        return Ok(Target::Held(link));
    }
    let path = path_of(&held.path);
    match files.inspect(Subject::Named(path))? {
        Some(seen) if held.key.is_none() && matches!(seen.kind, FileKind::Directory | FileKind::Link(_)) => {
            Ok(Target::Named(path))
        }
        Some(seen) if held.key.is_some_and(|key| is_now(&seen, key, replaced)) => Ok(Target::Named(path)),
        Some(_) => Err(missing("another file has its name")),
        None => Err(missing("it is not there")),
    }
}

/// Finds a file, directory or symbolic link. `None` for a directory or link that does not exist: it was created since
/// the cut and removed, because others have been put back before.
fn find_unless_made_since<'a>(
    files: &impl Files,
    held: &'a Held,
    replaced: &Replaced,
) -> io::Result<Option<Target<'a>>> {
    match find(files, held, replaced) {
        Err(error) if held.key.is_none() && error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// A record that could not be undone: its file, and the reason.
pub type Failure = (String, io::Error);

/// Undoes records, last first. Calls `done` with the index of each. Records that cannot be undone are skipped and
/// returned.
pub fn put_all_back<F: Files>(
    files: &mut F,
    records: &[Record],
    mut done: impl FnMut(&mut F, usize) -> io::Result<()>,
) -> io::Result<Vec<Failure>> {
    let (mut failures, mut replaced) = (Vec::new(), Replaced::new());
    for (number, record) in records.iter().enumerate().rev() {
        if let Err(error) = put_back(files, record, &mut replaced) {
            failures.push((subject_of(record), error));
        }
        done(files, number)?;
    }
    Ok(failures)
}

/// Bytes that were saved for a record.
pub fn saved_by(record: &Record) -> Option<&Data> {
    match record {
        Record::Bytes(_, _, data) | Record::Name(_, Was::File(_, Some(Copy { data, .. }))) => Some(data),
        Record::First(..) | Record::Attribute(..) | Record::Name(..) | Record::Moved { .. } => None,
    }
}

/// Path of the file that a record is about, for messages.
pub fn subject_of(record: &Record) -> String {
    let path = match record {
        Record::First(held, _) | Record::Bytes(held, ..) | Record::Attribute(held, _) => &held.path,
        Record::Name(path, _) | Record::Moved { from: path, .. } => path,
    };
    path_of(path).display().to_string()
}

fn put_back(files: &mut impl Files, record: &Record, replaced: &mut Replaced) -> io::Result<()> {
    match record {
        Record::First(held, about) => {
            let Some(target) = find_unless_made_since(files, held, replaced)? else { return Ok(()) };
            if held.key.is_some() {
                files.put(Step::Cut(target, about.size))?;
            }
            files.put(Step::Describe(target, about))
        }
        Record::Bytes(held, offset, data) => files.put(Step::Write(find(files, held, replaced)?, *offset, data)),
        Record::Attribute(held, attribute) => match find_unless_made_since(files, held, replaced)? {
            Some(target) => files.put(Step::Attribute(target, attribute)),
            None => Ok(()),
        },
        Record::Name(path, was) => put_name_back(files, path_of(path), was, replaced),
        Record::Moved { from, to, directory } => {
            let (from, to) = (path_of(from), path_of(to));
            let is_it = |seen: &Seen| seen.key == *directory;
            let (there, moved) = (files.inspect(Subject::Named(from))?, files.inspect(Subject::Named(to))?);
            if there.as_ref().is_some_and(is_it) {
                return Ok(());
            }
            // If the directory was removed after its rename, another one now stands in for it.
            let stands_for_it = |seen: &Seen| there.is_none() && seen.kind == FileKind::Directory;
            if !moved.is_some_and(|seen| is_it(&seen) || stands_for_it(&seen)) {
                return if there.is_some() { Ok(()) } else { Err(missing("the directory is not there")) };
            }
            clear(files, from, there)?;
            files.put(Step::Rename(to, from))
        }
    }
}

/// Removes whatever occupies a path.
fn clear(files: &mut impl Files, path: &Path, there: Option<Seen>) -> io::Result<()> {
    match there {
        None => Ok(()),
        Some(Seen { kind: FileKind::Directory, .. }) => files.put(Step::RemoveDirectory(path)),
        Some(_) => files.put(Step::Unlink(path)),
    }
}

fn put_name_back(files: &mut impl Files, path: &Path, was: &Was, replaced: &mut Replaced) -> io::Result<()> {
    let there = files.inspect(Subject::Named(path))?;
    match was {
        Was::Absent => clear(files, path, there),
        Was::File(held, copy) => {
            let is_it = |seen: &Seen| held.key.is_some_and(|key| is_now(seen, key, replaced));
            if there.as_ref().is_some_and(is_it) {
                return Ok(());
            }
            if let Some(link) = link_of(files, held)? {
                clear(files, path, there)?;
                return files.put(Step::Link(link, path));
            }
            let copy = copy.as_ref().ok_or_else(|| missing("its link beside the checkpoint is gone"))?;
            clear(files, path, there)?;
            make_again(files, path, copy)?;
            if let (Some(key), Some(made)) = (held.key, files.inspect(Subject::Named(path))?) {
                replaced.insert(key, made.key);
            }
            Ok(())
        }
        Was::Directory(about, attributes) => {
            if there.as_ref().is_none_or(|seen| seen.kind != FileKind::Directory) {
                clear(files, path, there)?;
                files.put(Step::MakeDirectory(path))?;
            }
            set_all(files, path, attributes)?;
            files.put(Step::Describe(Target::Named(path), about))
        }
        Was::Link(target) => {
            if there.as_ref().is_some_and(|seen| seen.kind == FileKind::Link(target.clone())) {
                return Ok(());
            }
            clear(files, path, there)?;
            files.put(Step::SymbolicLink(target, path))
        }
        Was::Other if there.is_some() => Ok(()),
        Was::Other => Err(missing("devices, sockets and pipes are not made again")),
    }
}

fn make_again(files: &mut impl Files, path: &Path, copy: &Copy) -> io::Result<()> {
    files.put(Step::Create(path))?;
    files.put(Step::Write(Target::Named(path), 0, &copy.data))?;
    set_all(files, path, &copy.attributes)?;
    files.put(Step::Describe(Target::Named(path), &copy.about))
}

fn set_all(files: &mut impl Files, path: &Path, attributes: &[Attribute]) -> io::Result<()> {
    attributes.iter().try_for_each(|attribute| files.put(Step::Attribute(Target::Named(path), attribute)))
}
