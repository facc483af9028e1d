//! Interface between the engine and the process around it.

use quiesce::{Outcome, Place, Question, StreamId};
use redrt_types::{ProcessIndex, View, World};
use redrt_wire::control::FromAgent;

/// The process around an engine: it receives the engine's reports, and answers questions that messages do not.
///
/// The trap: all of it may be called with the engine locked, so nothing in it may lock the engine.
pub trait Runtime: Sync {
    /// Reports an event that concerns others than this process.
    fn report(&self, message: FromAgent);

    /// Reports that the view `after` takes the place of `before`.
    fn view_changed(&self, world: &World, before: &View, after: &View);

    /// Ends the job. `message` is for the user.
    fn abort(&self, code: i32, message: String) -> !;

    /// A link to a process of another job, called `name`, broke. Returns the reason to abort; `None` if this process
    /// can go on.
    fn loss_of(&self, process: ProcessIndex, name: &str) -> Option<String>;

    /// Name of the communicator with this context.
    fn label_of_context(&self, context: u64) -> String;

    /// The collective that this process has announced in a context and waits for others to announce; `None` in contexts
    /// where members announce none.
    fn told_in_context(&self, context: u64) -> Option<String>;

    /// Returns true if receives of this context are a server's: no thread of the program waits for them.
    fn serves(&self, context: u64) -> bool;

    /// Number of MPI calls that the calling thread has begun.
    fn call_count(&self) -> u64;

    /// Position of the calling thread in the program. In work on the side, which replicas do at different positions, it
    /// is [`Place::NOWHERE`].
    fn place(&self) -> Place;

    /// Position in the program of the thread with this number.
    fn place_of(&self, thread: u64) -> Place;

    /// Digest of the positions of the program's threads, the same in replicas whose threads are at the same calls.
    fn places(&self) -> u64;

    /// Returns true if the program has no thread but the main one, as far as that can be known.
    fn has_one_thread(&self) -> bool;

    /// Number of MPI calls that the thread with this number has begun; 0 for an unknown thread, `u64::MAX` once it has
    /// ended.
    fn calls_of(&self, thread: u64) -> u64;

    /// In the process that decides the order of threads: the part of it that siblings do not know yet.
    fn untold_order(&self) -> Option<(StreamId, Question, Outcome)>;

    /// A value that stays equal while the thread with this number stands still outside of MPI calls.
    fn pulse_of(&self, thread: u64) -> u64;

    /// Processor time of the thread with this number, in nanoseconds; 0 for an unknown thread.
    fn ran_ns_of(&self, thread: u64) -> u64;
}
