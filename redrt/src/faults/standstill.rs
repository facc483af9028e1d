//! A thread that stands still until the daemon's helper holds it by ptrace: the helper lets it go on by single steps
//! and flips a bit of its registers or its stack (`ProcessFault::FlipThread`).

use crate::runtime::{self, threads};
use quiesce::Place;
use redrt_engine::has_faults;
use redrt_transport::shm::futex_wait;
use redrt_wire::control::FromAgent;
use redrt_wire::fault::ProcessFault;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

const STANDS: u32 = 0;
/// What the helper writes when it holds the thread.
const GOES: u32 = 1;

/// Nobody wakes the thread but the helper, which stops it: without one it looks again so often.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

process_local! {
    /// Whether a thread stands still. The thread that does looks at this word alone, so that the instructions which
    /// follow are the same whenever the helper comes.
    static WORD: AtomicU32 = AtomicU32::new(GOES);
    /// Which faults have had their thread, by bit.
    static DONE: AtomicU64 = AtomicU64::new(0);
}

/// The calling thread makes send number `send`, at or behind that of the fault: it stands still, if it is one of the
/// program's, and no other has for this fault.
pub(super) fn once(asked: ProcessFault, at: usize, send: u64) {
    let bit = 1 << (at % 64);
    if threads::place() == Place::NOWHERE || DONE.load(Ordering::Acquire) & bit != 0 {
        return;
    }
    let Some(control) = runtime::job().and_then(|job| job.control) else { return };
    if WORD.compare_exchange(GOES, STANDS, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    DONE.fetch_or(bit, Ordering::AcqRel);
    let (thread, word) = (threads::task() as i32, WORD.as_ptr() as u64);
    // If the daemon is gone, so is the job.
    let _ = control.send(&FromAgent::AwaitsFlip { asked, send, thread, word });
    // A copy of this process has no faults, and its daemon knows nothing of the thread.
    while WORD.load(Ordering::Acquire) == STANDS && has_faults() {
        futex_wait(&WORD, STANDS, LOOK_INTERVAL);
    }
}

/// The thread that stands still, if one does, goes on without a flip.
pub fn end() {
    WORD.store(GOES, Ordering::Release);
}
