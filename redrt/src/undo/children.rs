//! Children of a process, which change files as it does: what they change is written down in the same logs.
//!
//! ```text
//!   a rank, since a line ── UndoPlace ──▶ file of this job on this host (REDRT_UNDO names it)
//!   a child, before its first change of a file ◀── it loads this library, and reads that
//! ```
//! No image is taken of a process that has children. So a child's records need no passage: no line falls between one
//! and its change.

use super::{IS_CLOSING, RECORDS, STATE, State, is_inside, new_recorders};
use redrt_wire::frame::{decode_body, encode_body};
use redrt_wire::line::{UndoPlace, told_to_children};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::TryLockError;
use std::sync::atomic::{AtomicBool, Ordering};

process_local! {
    /// This process is a child of one that belongs to the job.
    static IS_CHILD: AtomicBool = AtomicBool::new(false);
}

/// Whether this process is a child of one that belongs to the job.
pub fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// Tells children of this process where changes are written down. Where that fails theirs are not.
pub fn tell(job: u64, author: &str, place: &UndoPlace) {
    let path = told_to_children(job, user());
    let mut new = path.clone().into_os_string();
    new.push(format!(".{author}"));
    // One that was begun and not renamed is this process's own, or nobody's that is trusted.
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
    // SAFETY: - has no arguments.
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

/// This process is a child of one that belongs to the job: from now on what it changes is written down, where this file
/// says. Whether it is.
pub fn begin(path: &Path) -> bool {
    let Ok(place) = read(path) else { return false };
    let mut state = match STATE.try_lock() {
        Ok(state) => state,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        // A thread that this process has not was writing something down when it was forked.
        Err(TryLockError::WouldBlock) => return false,
    };
    if is_inside() {
        return false;
    }
    IS_CHILD.store(true, Ordering::Relaxed);
    IS_CLOSING.store(false, Ordering::Relaxed);
    // The parent's, if this process was forked: its descriptors are shared with the parent.
    std::mem::forget(state.take());
    *state = Some(State::new(place.clone(), new_recorders(place.is_of_host)));
    RECORDS.store(true, Ordering::Release);
    true
}
