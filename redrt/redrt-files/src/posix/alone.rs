//! Calls that the C library carries out in this process, without agreement: at r = 1, with `--files=all`, and for paths
//! that replicas do not share. Their changes are recorded, so that the job can go back to a checkpoint.

use super::{attributes, path_of};
use file_undo::{Change, Subject};
use redrt_runtime::call::{Call, Operation};
use redrt_runtime::undo::{self, Passage};
use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::fs;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

/// Answer to the preloaded library: it calls the C library, and reports the call's return.
const WAITED_FOR: c_int = 2;
const ANSWERED: c_int = 1;
const LEFT: c_int = 0;
/// Number of symbolic links that the kernel follows at most.
const LINKS_MAX: usize = 40;

per_thread! {
    /// Passage of the call that the C library carries out now. `ManuallyDrop`, since a thread's end must not run a
    /// destructor: see `membership::cloning`.
    static PASSAGE: RefCell<Option<ManuallyDrop<Passage>>> = RefCell::new(None);
    /// True if that call may make a file.
    static MAKES: Cell<bool> = Cell::new(false);
}

/// Records the change of a call that the C library is about to carry out. Returns the answer to the preloaded library.
pub fn before(call: &mut Call) -> c_int {
    if !undo::is_recording() {
        return LEFT;
    }
    if call.operation == Operation::Fill && call.flags != 0 && range_of(call).is_some() {
        // Refused: it would wait for bytes from a pipe while it has a passage, and no checkpoint could be taken.
        // Callers then read and write.
        (call.result, call.error) = (-1, libc::EINVAL);
        return ANSWERED;
    }
    // In a signal handler: the interrupted call has the passage, and ends after this call.
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

/// Ends the passage of a call that has returned.
pub fn after(call: &Call) {
    let passage = PASSAGE.take().map(ManuallyDrop::into_inner);
    if MAKES.replace(false) && passage.is_some() && call.result >= 0 {
        undo::record_made(call.result as c_int);
    }
}

/// The path of a call, with symbolic links resolved if the call follows them; unchanged if no file exists there.
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

/// The change by a `rename`.
pub fn renaming<'a>(from: &'a Path, to: &'a Path, flags: c_int) -> Change<'a> {
    match flags.cast_unsigned() & libc::RENAME_EXCHANGE {
        0 => Change::Rename(from, to),
        _ => Change::Exchange(from, to),
    }
}

/// The change by a `fallocate`.
pub fn allocation(call: &Call) -> Change<'_> {
    let mode = call.mode.cast_signed();
    let open = Subject::Open(call.fd);
    let (at, length) = (size_of(call.offset), size_of(call.length));
    if mode & (libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE) != 0 {
        // All bytes behind the range are moved.
        Change::Write(open, at, u64::MAX)
    } else if mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0 {
        Change::Write(open, at, length)
    } else {
        Change::Describe(open)
    }
}

/// A length for a record. Negative lengths, which the kernel refuses, become the maximum.
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

/// Records the change by an open. Returns its passage, and true if it is about to make the file; `None` if it changes
/// nothing.
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
        // No passage otherwise: opening a pipe may wait for long.
        _ => None,
    }
}

/// The name of a new file: the end of symbolic links. `None` if there are too many.
fn end_of_links(path: &Path) -> Option<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&path) else { return Some(path) };
        path = path.parent()?.join(target);
    }
    None
}

/// Position and length of a write to a regular file; `None` for other files.
fn range_of(call: &Call) -> Option<(u64, u64)> {
    // SAFETY: - all zeros are a valid stat: its fields are numbers.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: - status is valid for writes: a local variable.
    let found = unsafe { libc::fstat(call.fd, &raw mut status) };
    if found != 0 || status.st_mode & libc::S_IFMT != libc::S_IFREG {
        return None;
    }
    let length = if call.vector.is_null() {
        size_of(call.length)
    } else {
        // SAFETY: - valid for reads of count entries: the contract of the program's call.
        let parts = unsafe { std::slice::from_raw_parts(call.vector, call.count) };
        parts.iter().map(|part| part.iov_len as u64).sum()
    };
    // SAFETY: - touches no memory: F_GETFL takes no pointer.
    let flags = unsafe { libc::fcntl(call.fd, libc::F_GETFL) };
    let at = match call.offset {
        _ if flags & libc::O_APPEND != 0 => status.st_size,
        // SAFETY: - touches no memory: lseek takes numbers.
        -1 => unsafe { libc::lseek(call.fd, 0, libc::SEEK_CUR) },
        offset => offset,
    };
    Some((u64::try_from(at).ok()?, length))
}
