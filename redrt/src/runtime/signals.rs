//! The user's signals, raised in the program: in a replicated world at calls that its replicas agree on
//! (`redrt_engine::signals`). Elsewhere the daemon sends them to the process, and this has nothing to do.

use super::{preload, threads};
use crate::mutation::{self, Mutation};
use redrt_engine as engine;
use redrt_engine::signals::{Raise, are_pending};
use redrt_process::simulation;
use redrt_sync::fence;

/// The calling thread has begun a call, which is counted.
#[inline]
pub fn look() {
    fence::light();
    if are_pending() {
        raise_due();
    }
}

#[cold]
fn raise_due() {
    // A callback of the program is at a place of its own, in the middle of a call.
    if threads::number() != 0 || threads::is_in_callback() {
        return;
    }
    let call = threads::call_count();
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

/// The program's handler runs here, as outside of MPI.
fn raise(signal: i32, call: u64) {
    if simulation::raise(signal, call) {
        return;
    }
    let was_internal = preload::set_internal(false);
    // Not by `raise`: a thread of the program may wait for it. This one gets it if it has not blocked it. The real id
    // of the process is wanted, which `getpid` does not tell replicas.
    // SAFETY: - asks for a number.
    let process = unsafe { libc::syscall(libc::SYS_getpid) };
    // SAFETY: - what follows from it is the program's affair, as with any signal that the user sends it.
    unsafe { libc::syscall(libc::SYS_kill, process, signal) };
    preload::set_internal(was_internal);
}
