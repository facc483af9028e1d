//! `redrt_checkpoint`: the program asks for a checkpoint at a moment that suits it.
//!
//! ```text
//! all ranks      rank 0, its leader        redrun
//!   barrier  ──▶   ── Checkpoint ────────▶   takes a checkpoint, which has all processes in the midst of this call
//!                  ◀─ taken, or not ──────   when the processes go on
//!   ◀── bcast ──   an outcome, as others
//! ```
//! A process that goes on from an image of such a checkpoint gets no answer: the image shows that the checkpoint was
//! taken. A replica that becomes the leader meanwhile, or is a copy, asks again, since the answer goes to the process
//! that asked. Then a second checkpoint may be taken.

use super::redrun::Question;
use redrt_abi::handle::CommHandle;
use redrt_comm::coll::{barrier, bcast};
use redrt_comm::comm;
use redrt_engine as engine;
use redrt_engine::tasks::block_on;
use redrt_runtime as runtime;
use redrt_runtime::decide;
use redrt_runtime::mutation::{self, Mutation};
use redrt_transport::memory::Scratch;
use redrt_types::{Incarnation, ReplicaId};
use redrt_wire::dynamic::{Answer, Request};
use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

/// Result: the checkpoint is taken. Its images are copied, and will be written.
const TAKEN: c_int = 0;
/// Result: this job takes no checkpoints.
pub const NONE: c_int = 1;
/// Result: no checkpoint was taken now; `redrun` has reported the reason.
const NOT_TAKEN: c_int = 2;

process_local! {
    /// True while this process waits for an answer of `redrun`, or for its leader's outcome.
    static IS_ASKING: AtomicBool = AtomicBool::new(false);
    /// True while this process waits for `redrun`. The wait does not show in counts of messages.
    static HAS_ASKED: AtomicBool = AtomicBool::new(false);
    /// True if this process goes on from an image that was made during the question.
    static IS_RESTORED: AtomicBool = AtomicBool::new(false);
}

/// Takes a checkpoint. Collective over all ranks.
pub fn checkpoint() -> c_int {
    let is_saved = runtime::job().is_some_and(|job| job.control.is_some() && job.welcome.options.is_saved);
    let Ok(world) = comm::resolve(CommHandle::WORLD) else { return NONE };
    if !is_saved {
        return NONE;
    }
    // A failure means that a peer is lost for good, and soon this process with it.
    let (arrivals, answers) = (world.peers(), world.peers());
    if block_on(barrier::barrier(arrivals)).is_err() {
        return NOT_TAKEN;
    }
    let mut code = Scratch::new(8);
    if answers.rank == 0 {
        let found = ask();
        code.region().with_bytes_mut(|bytes| bytes.copy_from_slice(&found.to_le_bytes()));
    }
    if block_on(bcast::bcast(answers, code.region(), 0)).is_err() {
        return NOT_TAKEN;
    }
    let code = code.region().with_bytes(|bytes| u64::from_le_bytes(bytes.try_into().expect("8 bytes")));
    c_int::try_from(code).unwrap_or(NOT_TAKEN)
}

/// The answer of `redrun` to the leader, as a result.
fn ask() -> u64 {
    let asked: RefCell<Option<((ReplicaId, Incarnation), Question)>> = RefCell::new(None);
    IS_RESTORED.store(false, Ordering::SeqCst);
    IS_ASKING.store(true, Ordering::SeqCst);
    let code = decide::awaited(|| {
        if IS_RESTORED.load(Ordering::SeqCst) {
            return Some(TAKEN as u64);
        }
        let own = runtime::job().map(|job| (job.welcome.me, job.welcome.incarnation))?;
        let mut asked = asked.borrow_mut();
        if asked.as_ref().is_none_or(|(asker, _)| *asker != own) {
            *asked = Question::ask(Request::Checkpoint, 0).ok().map(|question| (own, question));
            HAS_ASKED.store(asked.is_some(), Ordering::SeqCst);
        }
        match asked.as_ref()?.1.answer()? {
            Answer::Checkpoint(true) => Some(TAKEN as u64),
            Answer::Checkpoint(false) | Answer::Name(_) | Answer::NotSpawned(_) => Some(NOT_TAKEN as u64),
        }
    });
    HAS_ASKED.store(false, Ordering::SeqCst);
    IS_ASKING.store(false, Ordering::SeqCst);
    code
}

/// Returns true if this process waits for `redrun`, not for a message of another process. A follower waits for its
/// leader, as for any outcome: a leader that no longer asks has left its path.
pub fn has_asked() -> bool {
    HAS_ASKED.load(Ordering::SeqCst)
}

/// Records that this process goes on from its image. Allocates no memory.
pub fn record_restored() {
    IS_RESTORED.store(!mutation::is_planted(Mutation::CheckpointUnsent), Ordering::SeqCst);
}

/// Wakes a process that asks for a checkpoint, once all processes of the job are known again.
pub fn go_on() {
    if IS_ASKING.load(Ordering::SeqCst) {
        engine::cell().notify_waiting();
    }
}
