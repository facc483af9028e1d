//! What the system counts: memory that was used, faults, switches, load, the processor that a thread runs on.
//!
//! It differs between replicas as clocks do, programs send it as they send times, and runtimes of languages ask for it
//! at moments of their own. So it is agreed as a reading of a clock is.

use super::{asker, is_agreed};
use crate::decide;
use crate::runtime::threads;
use redrt_engine::tasks;
use redrt_wire::event::COUNT_IN_FILE;
use std::ffi::c_int;

/// Answers with the leader's bytes in the place of this process's own, which they hold.
pub(super) unsafe extern "C" fn hook(of: c_int, bytes: *mut u8, length: usize) -> c_int {
    if !is_agreed() {
        return 0;
    }
    threads::make_known();
    // SAFETY: - the preloaded library passes as many bytes.
    let own = unsafe { std::slice::from_raw_parts_mut(bytes, length) };
    let ask = || decide::counted(of, asker::here(of), || own.to_vec());
    let agreed = if threads::is_in_callback() { tasks::hold(ask) } else { ask() };
    // What no sibling asks for is this process's own.
    if let Some(agreed) = agreed.filter(|agreed| agreed.len() == length) {
        own.copy_from_slice(&agreed);
    }
    1
}

/// Nothing can be agreed any more: what this process and its children have used is agreed once more, and shown from now
/// on. Called in `MPI_Finalize`.
pub fn finish() {
    if !is_agreed() {
        return;
    }
    let _program = threads::call_back();
    for who in [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN] {
        // SAFETY: - all zeros are one.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: - valid for writing. The preloaded library remembers what is shown.
        unsafe { libc::getrusage(who, &raw mut usage) };
    }
}

/// What a file of the system says, as the leader reads it: `read` reads this process's own. Called below a call of the
/// program.
pub fn in_file<E>(read: impl Fn() -> Result<Vec<u8>, E>) -> Result<Vec<u8>, E> {
    let own = read()?;
    let agreed = decide::counted(COUNT_IN_FILE, asker::here(COUNT_IN_FILE), || own.clone());
    Ok(agreed.unwrap_or(own))
}
