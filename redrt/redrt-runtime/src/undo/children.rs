//! Children of the program, whose changes of files are recorded in the program's logs.
//!
//! ```text
//!   a rank, since a checkpoint ── UndoPlace ──▶ file of this job on this host (REDRT_UNDO names it)
//!   a child, before its first change of a file ◀── it loads this library, and reads the file
//! ```
//! No image is taken of a process that has children. So a child's records need no passage: no checkpoint falls between
//! a record and its change.

use super::{IS_CLOSING, RECORDS, STATE, State, is_inside, new_recorders};
use redrt_wire::checkpoint::{UndoPlace, told_to_children};
use redrt_wire::frame::{decode_body, encode_body};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::TryLockError;
use std::sync::atomic::{AtomicBool, Ordering};

process_local! {
    /// True in a child of a process of the job.
    static IS_CHILD: AtomicBool = AtomicBool::new(false);
}

/// Returns true in a child of a process of the job.
pub fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// Writes the file by which children of this process find the logs. If that fails, their changes are not recorded.
pub fn publish(job: u64, author: &str, place: &UndoPlace) {
    let path = told_to_children(job, user());
    let mut new = path.clone().into_os_string();
    new.push(format!(".{author}"));
    // A file of this name is a leftover of this process, or made by a process that is not trusted.
    let _ = fs::remove_file(&new);
    let write = || {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(&new)?.write_all(&encode_body(place))?;
        fs::rename(&new, &path)
    };
    let _ = write();
}

fn user() -> u32 {
    // SAFETY: - touches no memory: geteuid takes no arguments.
    unsafe { libc::geteuid() }
}

fn read(path: &Path) -> io::Result<UndoPlace> {
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
    if file.metadata()?.uid() != user() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    decode_body(&bytes).map_err(io::Error::other)
}

/// Begins to record changes in a child of a process of the job, in the logs that the file at `path` names. Returns true
/// if they are recorded.
pub fn begin(path: &Path) -> bool {
    let Ok(place) = read(path) else { return false };
    let mut state = match STATE.try_lock() {
        Ok(state) => state,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        // A thread of the parent was recording when this process was forked. This process lacks that thread, so the
        // lock stays taken.
        Err(TryLockError::WouldBlock) => return false,
    };
    if is_inside() {
        return false;
    }
    IS_CHILD.store(true, Ordering::Relaxed);
    IS_CLOSING.store(false, Ordering::Relaxed);
    // In a forked process the state is the parent's: it is leaked, since its drop would close descriptors that are
    // shared with the parent.
    std::mem::forget(state.take());
    *state = Some(State::new(place.clone(), new_recorders(place.is_of_host)));
    RECORDS.store(true, Ordering::Release);
    true
}
