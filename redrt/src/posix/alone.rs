//! Calls that the C library answers in this process, where nobody has to agree: at r = 1, with `--files=all`, and for
//! paths that replicas do not share. What they change is written down, so that the job can go back to a line.

use super::{attributes, path_of};
use crate::runtime::call::{Call, Operation};
use crate::undo::{self, Passage};
use file_undo::{Change, Subject};
use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::fs;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

/// What the preloaded library is told: it calls the C library, and says when that has returned.
const WAITED_FOR: c_int = 2;
const ANSWERED: c_int = 1;
const LEFT: c_int = 0;
/// More the kernel does not follow.
const LINKS_MAX: usize = 40;

per_thread! {
    /// Of the call that the C library carries out now. Nothing that is dropped at the thread's end: see
    /// `membership::cloning`.
    static PASSAGE: RefCell<Option<ManuallyDrop<Passage>>> = RefCell::new(None);
    /// That call may make a file.
    static MAKES: Cell<bool> = Cell::new(false);
}

/// A call that the C library is about to carry out.
pub fn before(call: &mut Call) -> c_int {
    if !undo::is_recording() {
        return LEFT;
    }
    if call.operation == Operation::Fill && call.flags != 0 && range_of(call).is_some() {
        // It would wait for what comes through a pipe, and no line could be taken. Callers read and write then.
        (call.result, call.error) = (-1, libc::EINVAL);
        return ANSWERED;
    }
    // In a handler of a signal: the call that it has interrupted has a passage, and comes to its end after this one.
    if undo::is_inside() {
        let makes = MAKES.get();
        let _ = passage_for(call);
        MAKES.set(makes);
        return LEFT;
    }
    match passage_for(call) {
        Some(passage) => {
            PASSAGE.set(Some(ManuallyDrop::new(passage)));
            WAITED_FOR
        }
        None => LEFT,
    }
}

/// It has returned.
pub fn after(call: &Call) {
    let passage = PASSAGE.take().map(ManuallyDrop::into_inner);
    if MAKES.replace(false) && passage.is_some() && call.result >= 0 {
        undo::note_made(call.result as c_int);
    }
}

/// What a path names in the end. The path itself if nothing is there.
pub fn followed(call: &Call) -> Option<PathBuf> {
    let path = path_of(call.directory, call.path)?;
    let follows = call.flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    Some(if follows { fs::canonicalize(&path).unwrap_or(path) } else { path })
}

fn other_path(call: &Call) -> Option<PathBuf> {
    path_of(call.other, call.other_path)
}

fn passage_for(call: &Call) -> Option<Passage> {
    let own_path = || path_of(call.directory, call.path);
    let open = Subject::Open(call.fd);
    Some(match call.operation {
        Operation::Open => return before_open(call),
        Operation::Write | Operation::Fill => {
            let (at, length) = range_of(call)?;
            undo::before(Change::Write(open, at, length))
        }
        Operation::TruncateDescriptor => undo::before(Change::Resize(open, size_of(call.length))),
        Operation::Allocate => undo::before(allocation(call)),
        Operation::Truncate => undo::before(Change::Resize(Subject::Named(&followed(call)?), size_of(call.length))),
        Operation::Unlink | Operation::MakeDirectory | Operation::SymbolicLink => {
            undo::before(Change::Name(&own_path()?))
        }
        Operation::Link => undo::before(Change::Name(&other_path(call)?)),
        Operation::Rename => {
            let (from, to) = (own_path()?, other_path(call)?);
            undo::before(renaming(&from, &to, call.flags))
        }
        Operation::ChangeMode | Operation::ChangeOwner | Operation::SetTimes if call.path.is_null() => {
            undo::before(Change::Describe(open))
        }
        Operation::ChangeMode | Operation::ChangeOwner | Operation::SetTimes => {
            undo::before(Change::Describe(Subject::Named(&followed(call)?)))
        }
        Operation::SetAttribute | Operation::RemoveAttribute if call.path.is_null() => {
            undo::before(Change::Attribute(open, attributes::name_of(call)))
        }
        Operation::SetAttribute | Operation::RemoveAttribute => {
            undo::before(Change::Attribute(Subject::Named(&followed(call)?), attributes::name_of(call)))
        }
        _ => return None,
    })
}

/// What renaming changes.
pub fn renaming<'a>(from: &'a Path, to: &'a Path, flags: c_int) -> Change<'a> {
    match flags.cast_unsigned() & libc::RENAME_EXCHANGE {
        0 => Change::Rename(from, to),
        _ => Change::Exchange(from, to),
    }
}

/// What `fallocate` changes.
pub fn allocation(call: &Call) -> Change<'_> {
    let mode = call.mode.cast_signed();
    let open = Subject::Open(call.fd);
    let (at, length) = (size_of(call.offset), size_of(call.length));
    if mode & (libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE) != 0 {
        // All that is behind moves.
        Change::Write(open, at, u64::MAX)
    } else if mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0 {
        Change::Write(open, at, length)
    } else {
        Change::Describe(open)
    }
}

/// As the kernel takes it; it refuses negative ones.
pub fn size_of(length: i64) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn before_open(call: &Call) -> Option<Passage> {
    if call.flags & libc::O_PATH != 0 || call.flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return None;
    }
    let (passage, makes) = opening(&path_of(call.directory, call.path)?, call.flags)?;
    MAKES.set(makes);
    Some(passage)
}

/// What opening changes, if anything, and whether it is about to make the file.
pub fn opening(path: &Path, flags: c_int) -> Option<(Passage, bool)> {
    let (creates, cuts) = (flags & libc::O_CREAT != 0, flags & libc::O_TRUNC != 0);
    if !undo::is_recording() || !(creates || cuts) {
        return None;
    }
    match fs::metadata(path) {
        Ok(found) if cuts && found.is_file() && !(creates && flags & libc::O_EXCL != 0) => {
            let path = fs::canonicalize(path).ok()?;
            Some((undo::before(Change::Resize(Subject::Named(&path), 0)), false))
        }
        Err(_) if creates => Some((undo::before(Change::Name(&end_of_links(path)?)), true)),
        // A pipe may wait here for long.
        _ => None,
    }
}

/// The name under which a file is made that has none yet: at the end of symbolic links.
fn end_of_links(path: &Path) -> Option<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&path) else { return Some(path) };
        path = path.parent()?.join(target);
    }
    None
}

/// What is written where, in a regular file.
fn range_of(call: &Call) -> Option<(u64, u64)> {
    // SAFETY: - all zeros are a status.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: - valid for writing.
    let found = unsafe { libc::fstat(call.fd, &raw mut status) };
    if found != 0 || status.st_mode & libc::S_IFMT != libc::S_IFREG {
        return None;
    }
    let length = if call.vector.is_null() {
        size_of(call.length)
    } else {
        // SAFETY: - the program vouches for `count` stretches.
        let parts = unsafe { std::slice::from_raw_parts(call.vector, call.count) };
        parts.iter().map(|part| part.iov_len as u64).sum()
    };
    // SAFETY: - touches no memory.
    let flags = unsafe { libc::fcntl(call.fd, libc::F_GETFL) };
    let at = match call.offset {
        _ if flags & libc::O_APPEND != 0 => status.st_size,
        // SAFETY: - touches no memory.
        -1 => unsafe { libc::lseek(call.fd, 0, libc::SEEK_CUR) },
        offset => offset,
    };
    Some((u64::try_from(at).ok()?, length))
}
