//! Differences between a forked child and its parent.

use crate::{files, ordered, processes, random, state};

/// Registers handlers for forks. A child draws other random bytes than its parent, but the same in all replicas. The
/// MPI library does not answer it: its engine is the parent's.
pub fn watch() {
    unsafe extern "C" fn before() {
        random::count_fork();
        processes::before_child(true);
    }
    unsafe extern "C" fn in_child() {
        state::set_hooks(std::ptr::null());
        files::leave_alone();
        ordered::leave_alone();
        random::follow_fork();
    }
    // SAFETY: the functions stay loaded as long as the process lives, for a preloaded library is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), None, Some(in_child)) };
}
