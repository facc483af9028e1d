//! The library's own descriptors, which a copy of the process does not have, and which life of the process this is.

use cloner_agent::Exclusions;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

const WORDS: usize = cloner_agent::abi::EXCLUDED_DESCRIPTOR_END as usize / 64;

/// A bit for each descriptor.
static NOTED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
/// Where the cloner looks for them, in a process that can be cloned.
static EXCLUSIONS: OnceLock<Exclusions> = OnceLock::new();
/// Held while there is a socket that is not noted, or one that was forgotten and is not closed: an image that is taken
/// then would be refused for it.
static CHANGING: Mutex<()> = Mutex::new(());
/// What keeps the program from closing a descriptor, or lets it again.
static SPARING: OnceLock<fn(RawFd, bool)> = OnceLock::new();
/// How often this process has become another's copy, or gone on from a line.
static EPOCH: AtomicU32 = AtomicU32::new(0);
/// How often it has become another's copy, which may be told what that has done since.
static COPY: AtomicU32 = AtomicU32::new(0);

fn word(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let at = usize::try_from(fd).ok()?;
    NOTED.get(at / 64).map(|word| (word, 1 << (at % 64)))
}

fn spare(fd: RawFd, is_spared: bool) {
    if let Some(sparing) = SPARING.get() {
        sparing(fd, is_spared);
    }
}

/// From now on this is called with each descriptor that the program may not close, and again when it may.
pub fn spare_by(sparing: fn(RawFd, bool)) {
    let sparing = SPARING.get_or_init(|| sparing);
    noted().for_each(|fd| sparing(fd, true));
}

/// Leaves a descriptor out of copies. One with a very large number is not, and keeps the process from being copied.
pub fn note(fd: RawFd) {
    if let Some((word, bit)) = word(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
    spare(fd, true);
    if let Some(exclusions) = EXCLUSIONS.get() {
        exclusions.add_descriptor(fd);
    }
}

/// It is about to be closed.
pub fn forget(fd: RawFd) {
    if let Some((word, bit)) = word(fd) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
    spare(fd, false);
    if let Some(exclusions) = EXCLUSIONS.get() {
        exclusions.remove_descriptor(fd);
    }
}

/// Makes a socket, which takes no time, and notes it.
pub fn make<T: AsRawFd>(make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let _changing = settled();
    let made = make()?;
    note(made.as_raw_fd());
    Ok(made)
}

/// Forgets a socket and closes it.
pub fn close(fd: RawFd, close: impl FnOnce()) {
    let _changing = settled();
    forget(fd);
    close();
}

/// Nobody makes or closes a socket while this is held.
pub fn settled() -> MutexGuard<'static, ()> {
    CHANGING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on the cloner is told; of those that were noted before, too.
pub fn tell(exclusions: Exclusions) {
    let exclusions = EXCLUSIONS.get_or_init(|| exclusions);
    for fd in noted() {
        exclusions.add_descriptor(fd);
    }
}

/// All that are noted.
pub fn noted() -> impl Iterator<Item = RawFd> {
    NOTED.iter().enumerate().flat_map(|(number, word)| {
        let bits = word.load(Ordering::Relaxed);
        (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| (number * 64) as RawFd + bit)
    })
}

/// The number of this process's life. What was begun in another is void.
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Acquire)
}

/// Who this process is: a copy is another than its source. Who goes on from a line, with all that was there, is not.
pub fn copy_number() -> u32 {
    COPY.load(Ordering::Acquire)
}

/// This process is a copy, and its source lives on.
pub fn note_copy() {
    COPY.fetch_add(1, Ordering::AcqRel);
}

/// A copy begins its own life.
pub fn next_epoch() {
    EPOCH.fetch_add(1, Ordering::AcqRel);
}

/// Puts the socket `from` in the place of the descriptor `to`, which stays the library's own.
pub fn replace(to: RawFd, from: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: - takes any numbers; the owner of `to` goes on with what is there now.
    if unsafe { libc::dup3(from.as_raw_fd(), to, libc::O_CLOEXEC) } < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// A counter that threads of this process ring. A copy of the process has its own.
pub fn event() -> io::Result<File> {
    // SAFETY: - a new descriptor is returned, or -1.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // It is carried to copies, so it is not noted.
    spare(fd, true);
    // SAFETY: - open, and nobody else's.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}
