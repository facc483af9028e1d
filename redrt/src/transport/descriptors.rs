//! The library's own descriptors, which a copy of the process does not have, and which life of the process this is.

use cloner_agent::Exclusions;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const WORDS: usize = cloner_agent::abi::EXCLUDED_DESCRIPTOR_END as usize / 64;

/// A bit for each descriptor.
static NOTED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
/// Where the cloner looks for them, in a process that can be cloned.
static EXCLUSIONS: OnceLock<Exclusions> = OnceLock::new();
/// How often this process has become another's copy.
static EPOCH: AtomicU32 = AtomicU32::new(0);

fn word(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let at = usize::try_from(fd).ok()?;
    NOTED.get(at / 64).map(|word| (word, 1 << (at % 64)))
}

/// Leaves a descriptor out of copies. One with a very large number is not, and keeps the process from being copied.
pub fn note(fd: RawFd) {
    if let Some((word, bit)) = word(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
    if let Some(exclusions) = EXCLUSIONS.get() {
        exclusions.add_descriptor(fd);
    }
}

/// It is about to be closed.
pub fn forget(fd: RawFd) {
    if let Some((word, bit)) = word(fd) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
    if let Some(exclusions) = EXCLUSIONS.get() {
        exclusions.remove_descriptor(fd);
    }
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

/// A copy begins its own life.
pub fn next_epoch() {
    EPOCH.fetch_add(1, Ordering::AcqRel);
}

/// Puts the socket `from` in the place of the descriptor `to`, which stays the library's own.
pub fn replace(to: RawFd, from: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: - takes any numbers; whoever has `to` goes on with what is there now.
    if unsafe { libc::dup3(from.as_raw_fd(), to, libc::O_CLOEXEC) } < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
