//! Locks that the calling thread has. With one of them it does not stand still, since others may need it on their way.
//!
//! Giving a lock back is not interposed, so the owner that the C library notes in a lock is looked at. The lock may be
//! gone by then, with its memory.

use crate::real;
use libc::{c_long, iovec};
use std::cell::Cell;

/// Limit on the locks that are known. Beyond it the oldest are forgotten.
const KNOWN_COUNT: usize = 16;

thread_local! {
    /// Addresses of the owners of locks that the thread has taken, the newest first; or 0.
    static TAKEN: Cell<[usize; KNOWN_COUNT]> = const { Cell::new([0; KNOWN_COUNT]) };
}

/// Records that the calling thread has taken the lock with this owner; null where the C library notes none.
pub fn record(owner: *const i32) {
    let mut taken = TAKEN.get();
    if owner.is_null() || taken.contains(&owner.addr()) {
        return;
    }
    if taken[KNOWN_COUNT - 1] != 0 {
        holds_any();
        taken = TAKEN.get();
    }
    taken.rotate_right(1);
    taken[0] = owner.addr();
    TAKEN.set(taken);
}

/// Returns true if the calling thread has a known lock.
pub fn holds_any() -> bool {
    let (pid, me) = (real::process_id(), real::thread_id());
    let mut held = [0; KNOWN_COUNT];
    let mut count = 0;
    for owner in TAKEN.get().into_iter().filter(|owner| *owner != 0 && value_at(pid, *owner) == Some(me)) {
        held[count] = owner;
        count += 1;
    }
    TAKEN.set(held);
    count > 0
}

/// The value at an address of this process, if there is memory.
fn value_at(pid: i32, address: usize) -> Option<i32> {
    let mut value = 0_i32;
    let into = iovec { iov_base: (&raw mut value).cast(), iov_len: size_of::<i32>() };
    let from = iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: size_of::<i32>() };
    let (into, from) = (&raw const into as c_long, &raw const from as c_long);
    // SAFETY: - both pieces live until the call returns, and the first one is valid for writing. The kernel checks the
    //           second one.
    let length = unsafe { real::system_call(libc::SYS_process_vm_readv, [pid.into(), into, 1, from, 1, 0]) };
    (length == size_of::<i32>() as c_long).then_some(value)
}
