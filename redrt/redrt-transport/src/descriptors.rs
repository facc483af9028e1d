//! The library's own descriptors, which a copy of the process does not get, and the number of this life of the process.

use cloner_agent::Exclusions;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

const WORDS: usize = cloner_agent::abi::EXCLUDED_DESCRIPTOR_END as usize / 64;

/// The noted descriptors, one bit each.
static NOTED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
/// The cloner's list of them, in a process that can be cloned.
static EXCLUSIONS: OnceLock<Exclusions> = OnceLock::new();
/// Held while a socket is open and not noted: one just made, or one forgotten and not closed yet. An image taken then
/// would be refused for it.
static CHANGING: Mutex<()> = Mutex::new(());
/// Forbids the program to close a descriptor (`true`), or permits it again.
static SPARING: OnceLock<fn(RawFd, bool)> = OnceLock::new();
/// Number of times that this process has become another's copy, or gone on from a checkpoint.
static EPOCH: AtomicU32 = AtomicU32::new(0);
/// Number of times that it has become another's copy. Its source lives on, so the two must be told apart.
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

/// Calls `sparing` with each descriptor that the program may not close, and again when it may.
pub fn spare_by(sparing: fn(RawFd, bool)) {
    let sparing = SPARING.get_or_init(|| sparing);
    noted().for_each(|fd| sparing(fd, true));
}

/// Leaves a descriptor out of copies. A very large number cannot be noted: that descriptor keeps the process from being
/// copied.
pub fn record(fd: RawFd) {
    if let Some((word, bit)) = word(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
    spare(fd, true);
    if let Some(exclusions) = EXCLUSIONS.get() {
        exclusions.add_descriptor(fd);
    }
}

/// Removes a descriptor that is about to be closed.
pub fn forget(fd: RawFd) {
    if let Some((word, bit)) = word(fd) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
    spare(fd, false);
    if let Some(exclusions) = EXCLUSIONS.get() {
        exclusions.remove_descriptor(fd);
    }
}

/// Makes a socket, without waiting, and notes it.
pub fn make<T: AsRawFd>(make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let _changing = settled();
    let made = make()?;
    record(made.as_raw_fd());
    Ok(made)
}

/// Forgets a socket and closes it.
pub fn close(fd: RawFd, close: impl FnOnce()) {
    let _changing = settled();
    forget(fd);
    close();
}

/// Keeps other threads from making or closing sockets while the guard is held.
pub fn settled() -> MutexGuard<'static, ()> {
    CHANGING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports to the cloner all descriptors noted before and from now on.
pub fn report_to(exclusions: Exclusions) {
    let exclusions = EXCLUSIONS.get_or_init(|| exclusions);
    for fd in noted() {
        exclusions.add_descriptor(fd);
    }
}

/// All noted descriptors.
pub fn noted() -> impl Iterator<Item = RawFd> {
    NOTED.iter().enumerate().flat_map(|(number, word)| {
        let bits = word.load(Ordering::Relaxed);
        (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| (number * 64) as RawFd + bit)
    })
}

/// Number of this process's life. Operations begun in another life are void.
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Acquire)
}

/// Number of this copy: a copy is another process than its source. A process that goes on from a checkpoint, with all
/// the others, is not.
pub fn copy_number() -> u32 {
    COPY.load(Ordering::Acquire)
}

/// Counts that this process is a copy whose source lives on.
pub fn record_copy() {
    COPY.fetch_add(1, Ordering::AcqRel);
}

/// Begins a new life of the process.
pub fn next_epoch() {
    EPOCH.fetch_add(1, Ordering::AcqRel);
}

/// Puts the socket `from` in place of the descriptor `to`, which stays the library's own.
pub fn replace(to: RawFd, from: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: - any numbers are permitted; the owner of `to` continues with the new socket.
    if unsafe { libc::dup3(from.as_raw_fd(), to, libc::O_CLOEXEC) } < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// An event counter for threads of this process. A copy of the process has its own.
pub fn event() -> io::Result<File> {
    // SAFETY: - no pointers: a new descriptor is returned, or -1.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // Copies get it too, so it is not noted.
    spare(fd, true);
    // SAFETY: - open, and owned by nobody else.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}
