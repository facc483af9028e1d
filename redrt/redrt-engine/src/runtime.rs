//! What the engine has to do with the process around it.

use super::payload::{Payload, Target};
use quiesce::{Outcome, Place, Question, StreamId};
use redrt_types::{ProcessIndex, View, World};
use redrt_wire::control::FromAgent;
use std::sync::atomic::{AtomicBool, Ordering};

/// The process around an engine: it hears what the engine has found out, and knows what messages do not say.
///
/// All of it may be called with the engine locked, so nothing in it may lock the engine.
pub trait Runtime: Sync {
    /// Something happened that concerns others than this process.
    fn tell(&self, message: FromAgent);

    /// A view takes the place of another.
    fn view_changed(&self, world: &World, before: &View, after: &View);

    /// Ends the job. `message` is for the user.
    fn abort(&self, code: i32, message: String) -> !;

    /// The link with a process of another job, so named, broke. What that means for this one, if it cannot go on.
    fn loss_of(&self, process: ProcessIndex, name: &str) -> Option<String>;

    /// The name of the communicator that has this context.
    fn label_of_context(&self, context: u64) -> String;

    /// If members tell each other in this context what collectives they call: which this one has told and waits to hear
    /// of.
    fn told_in_context(&self, context: u64) -> Option<String>;

    /// Whether receives of this context are a server's: nobody waits for them.
    fn serves(&self, context: u64) -> bool;

    /// How many MPI calls the calling thread has begun.
    fn call_count(&self) -> u64;

    /// Where in the program the calling thread is: at no place that replicas agree on where it does something on the
    /// side.
    fn place(&self) -> Place;

    /// Where in the program the thread of this number is.
    fn place_of(&self, thread: u64) -> Place;

    /// A digest of where the program's threads are, the same in replicas whose threads are at the same calls.
    fn places(&self) -> u64;

    /// Whether the program has no other thread than the main one, as far as that can be known.
    fn has_one_thread(&self) -> bool;

    /// How many MPI calls the thread of this number has begun; 0 when none is known, `u64::MAX` when it has ended.
    fn calls_of(&self, thread: u64) -> u64;

    /// The order of threads that siblings were not told of, of a process that decides it.
    fn untold_order(&self) -> Option<(StreamId, Question, Outcome)>;

    /// Two that are equal say that the thread of this number has stood still between them, outside of MPI calls.
    fn pulse_of(&self, thread: u64) -> u64;

    /// For how long the thread of this number has had a processor, in nanoseconds; 0 when none is known.
    fn ran_ns_of(&self, thread: u64) -> u64;

    /// The bit to flip in the copy of a payload of this length that is about to be transmitted, if any.
    fn take_wire_bit(&self, length: usize) -> Option<u64>;

    /// The bit to flip in the next frame with decisions, of this length.
    fn take_decision_bit(&self, length: usize) -> Option<u64>;

    /// What is to be kept of a payload that was sent, if it is to be something else.
    fn corrupt_kept(&self, payload: &Payload) -> Option<Payload>;

    /// The program is about to get a message from another rank, whose verdict is in.
    fn before_delivery(&self, target: &Target, length: u64);
}

process_local! {
    /// Whether faults are injected: looked at by every send.
    static HAS_FAULTS: AtomicBool = AtomicBool::new(false);
}

/// Whether there are faults to carry out. Only then is the runtime asked for them, and all that could be counted must
/// be.
#[inline]
pub fn has_faults() -> bool {
    HAS_FAULTS.load(Ordering::Relaxed)
}

/// There are faults to carry out from now on, or not.
pub fn set_has_faults(has_faults: bool) {
    HAS_FAULTS.store(has_faults, Ordering::Release);
}
