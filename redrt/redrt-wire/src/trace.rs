//! Positions in a program, for `redrun --check-determinism`.

use redrt_types::{ContextId, SeqNum, VirtualRank};
use serde::{Deserialize, Serialize};

/// Identity of a message at its sender.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Sending {
    /// Rank of the receiver.
    pub to: VirtualRank,
    /// The context it travelled in.
    pub context: ContextId,
    /// Its number on the channel.
    pub sequence: SeqNum,
}

/// A position of a replica that is asked for, or told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum TracePoint {
    /// That of a send.
    Send(Sending),
    /// That of a thread whose replica has left its leader's path. Siblings tell the latest step of this thread in the
    /// order of threads.
    Thread(u64),
}

/// A position in a file that is mapped where code runs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Frame {
    /// The file; empty for code that is in none.
    pub file: String,
    /// Offset in the file; the address without a file.
    pub offset: u64,
}

/// A step in the order of threads: an operation on a lock that another thread had last, or on a descriptor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LockEvent {
    /// Number of the operation among all of its thread, the same in all replicas.
    pub number: u64,
    /// The stack of the operation.
    pub frames: Vec<Frame>,
}

/// A stack, innermost frame first. Each frame but the first is a return address.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Trace {
    /// Time of the stack, in nanoseconds since the epoch by its host's clock.
    pub time_ns: u64,
    /// Frames, innermost first.
    pub frames: Vec<Frame>,
    /// Number of the thread, the same in all replicas.
    pub thread: u64,
    /// Name of the thread, as `pthread_setname_np` has set it; that of the program otherwise.
    pub thread_name: String,
    /// The latest events of the thread before this position, the earliest first. At most
    /// [`LOCK_EVENTS_MAX`](Self::LOCK_EVENTS_MAX).
    pub lock_events: Vec<LockEvent>,
}

impl Trace {
    /// Maximum number of lock events.
    pub const LOCK_EVENTS_MAX: usize = 16;
}
