//! Raises the user's signals in the program. In a replicated world they are raised at calls on which the replicas agree
//! (`redrt_engine::signals`). Elsewhere the daemon sends them to the process, and this module has no effect.

use super::{call_count, is_in_callback, number};
use crate::mutation::{self, Mutation};
use crate::preload;
use redrt_engine as engine;
use redrt_engine::signals::{Raise, are_pending};
use redrt_process::simulation;
use redrt_sync::fence;

/// Raises signals that are due. Called by a thread that has begun a call, after the call was counted.
#[inline]
pub fn poll() {
    fence::light();
    if are_pending() {
        raise_due();
    }
}

#[cold]
fn raise_due() {
    // Only the main thread raises signals, and not in a callback, which runs in the middle of a call.
    if number() != 0 || is_in_callback() {
        return;
    }
    let call = call_count();
    let ask = || {
        if mutation::is_planted(Mutation::SignalUnwaited) {
            return engine::cell().lock().next_signal(call).unwrap_or(Raise::Nothing);
        }
        engine::cell().wait_for(|engine| engine.next_signal(call))
    };
    while let Raise::Signal(signal) = ask() {
        raise(signal, call);
    }
}

/// Runs the program's handler, as outside of MPI.
fn raise(signal: i32, call: u64) {
    if simulation::raise(signal, call) {
        return;
    }
    let was_internal = preload::set_internal(false);
    // Not by `raise`, which signals one thread: another thread of the program may wait for the signal. The calling
    // thread gets it if it has not blocked it. The system call returns the real process id, which `getpid` hides from
    // replicas.
    // SAFETY: - touches no memory: getpid takes no arguments.
    let process = unsafe { libc::syscall(libc::SYS_getpid) };
    // SAFETY: - touches no memory: kill takes two numbers. The handler is the program's, as for any signal of the user.
    unsafe { libc::syscall(libc::SYS_kill, process, signal) };
    preload::set_internal(was_internal);
}
