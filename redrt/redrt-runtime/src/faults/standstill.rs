//! A thread that stands still until the daemon's helper holds it by ptrace. The helper lets it go on by single steps
//! and flips a bit of its registers or its stack (`ProcessFault::FlipThread`).

use super::are_injected;
use crate::{job, threads};
use quiesce::Place;
use redrt_transport::shm::futex_wait;
use redrt_wire::control::FromAgent;
use redrt_wire::fault::ProcessFault;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

const STANDS: u32 = 0;
/// Written by the helper when it holds the thread.
const GOES: u32 = 1;

/// Time between two looks at the word. There is no wake-up: the helper stops the thread and writes the word.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

process_local! {
    /// [`STANDS`] while a thread stands still. The thread waits on this word alone, so that the same instructions
    /// follow whenever the helper comes.
    static WORD: AtomicU32 = AtomicU32::new(GOES);
    /// Faults whose thread has stood still: bits by the fault's index, modulo 64.
    static DONE: AtomicU64 = AtomicU64::new(0);
}

/// Makes the calling thread stand still for a fault, if it is a thread of the program and no other has stood still for
/// this fault. `send` is the number of the thread's send, at or after the fault's; `at` is the fault's index.
pub(super) fn once(asked: ProcessFault, at: usize, send: u64) {
    let bit = 1 << (at % 64);
    if threads::place() == Place::NOWHERE || DONE.load(Ordering::Acquire) & bit != 0 {
        return;
    }
    let Some(control) = job().and_then(|job| job.control) else { return };
    if WORD.compare_exchange(GOES, STANDS, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    DONE.fetch_or(bit, Ordering::AcqRel);
    let (thread, word) = (threads::task() as i32, WORD.as_ptr() as u64);
    // If the daemon is gone, so is the job.
    let _ = control.send(&FromAgent::AwaitsFlip { asked, send, thread, word });
    // The loop ends in a copy of this process, which has no faults, and whose daemon does not know of the thread.
    while WORD.load(Ordering::Acquire) == STANDS && are_injected() {
        futex_wait(&WORD, STANDS, LOOK_INTERVAL);
    }
}

/// Lets the thread that stands still go on without a flip. Without such a thread it has no effect.
pub fn end() {
    WORD.store(GOES, Ordering::Release);
}
