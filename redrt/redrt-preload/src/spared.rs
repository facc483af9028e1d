//! Descriptors of the MPI library and its daemon, which the program may not close by accident.
//!
//! Programs that become daemons, and some launchers, close every descriptor they do not know: `close` in a loop,
//! `close_range`, `closefrom`. The connection to the daemon exists from the first instruction on, so this library
//! spares it before `MPI_Init`; the MPI library adds its own later ([`redrt_preload_spare`]). To the program they seem
//! closed: closing one is `EBADF`, and a range leaves them out. Forked children may close any.

use libc::{c_int, c_uint};
use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = 64;
/// Descriptors with larger numbers are not spared.
pub const END: c_uint = 64 * WORDS as c_uint;

static SPARED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

fn bit(fd: c_uint) -> Option<(&'static AtomicU64, u64)> {
    SPARED.get(fd as usize / 64).map(|word| (word, 1 << (fd % 64)))
}

/// Spares a descriptor from now on, or ends that.
pub fn spare(fd: c_int, is_spared: bool) {
    let Some((word, bit)) = c_uint::try_from(fd).ok().and_then(bit) else { return };
    if is_spared {
        word.fetch_or(bit, Ordering::Relaxed);
    } else {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// Spares a descriptor of the MPI library, or ends that. The library finds this function by `dlsym`.
#[unsafe(no_mangle)]
pub extern "C" fn redrt_preload_spare(fd: c_int, is_spared: bool) {
    spare(fd, is_spared);
}

/// True for a spared descriptor.
pub fn is_marked(fd: c_uint) -> bool {
    bit(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// Calls `each` with the ranges from `first` to `last`, both included, that remain without the marked descriptors.
/// Stops at the first that fails.
pub fn around(
    first: c_uint,
    last: c_uint,
    marked: impl Fn(c_uint) -> bool,
    mut each: impl FnMut(c_uint, c_uint) -> bool,
) -> bool {
    let mut begin = first;
    for fd in first..last.min(END - 1).saturating_add(1) {
        if marked(fd) {
            if begin < fd && !each(begin, fd - 1) {
                return false;
            }
            begin = fd + 1;
        }
    }
    begin > last || each(begin, last)
}
