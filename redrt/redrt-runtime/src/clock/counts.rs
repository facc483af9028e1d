//! Counts of the system: used memory, faults, switches, load, the processor that a thread runs on.
//!
//! They differ between replicas as clocks do, programs send them as they send times, and runtimes of languages ask for
//! them at moments of their own. So replicas agree on them as on readings of clocks.

use super::{asker, is_agreed};
use crate::decide;
use crate::threads;
use redrt_engine::tasks;
use redrt_wire::event::COUNT_IN_FILE;
use std::ffi::c_int;

/// Replaces this process's own value in `bytes` by the leader's.
pub(super) unsafe extern "C" fn hook(of: c_int, bytes: *mut u8, length: usize) -> c_int {
    if !is_agreed() {
        return 0;
    }
    threads::make_known();
    // SAFETY: - bytes is valid for reads and writes of length bytes, and not shared: the preloaded library passes a
    //           buffer that it has filled.
    let own = unsafe { std::slice::from_raw_parts_mut(bytes, length) };
    let ask = || decide::counted(of, asker::here(of), || own.to_vec());
    let agreed = if threads::is_in_callback() { tasks::hold(ask) } else { ask() };
    // If no sibling asks, this process's own value is used.
    if let Some(agreed) = agreed.filter(|agreed| agreed.len() == length) {
        own.copy_from_slice(&agreed);
    }
    1
}

/// Agrees a last time on the resources that this process and its children have used. The preloaded library shows them
/// from now on. Called in `MPI_Finalize`, after which nothing can be agreed.
pub fn finish() {
    if !is_agreed() {
        return;
    }
    let _program = threads::call_back();
    for who in [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN] {
        // SAFETY: - all zeros are a valid rusage: its fields are numbers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // The preloaded library keeps the values that it shows here.
        // SAFETY: - usage is valid for writes: it is a local variable.
        unsafe { libc::getrusage(who, &raw mut usage) };
    }
}

/// The leader's contents of a file of the system. `read` reads this process's own. Called below a call of the program.
pub fn in_file<E>(read: impl Fn() -> Result<Vec<u8>, E>) -> Result<Vec<u8>, E> {
    let own = read()?;
    let agreed = decide::counted(COUNT_IN_FILE, asker::here(COUNT_IN_FILE), || own.clone());
    Ok(agreed.unwrap_or(own))
}
