//! What a process was seen to do, for `redrun --profile`: time in MPI by kind of call, and what it sent to whom.

use serde::{Deserialize, Serialize};

/// A kind of MPI call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum CallKind {
    /// Blocking sends.
    Send,
    /// Nonblocking sends, and starts of persistent requests.
    Isend,
    /// Blocking receives, and those of calls that send too.
    Recv,
    /// Nonblocking receives.
    Irecv,
    /// Waits, tests and probes.
    Wait,
    /// Collectives, blocking or not.
    Collective,
    /// Everything else.
    Other,
}

impl CallKind {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// All of them, by number.
    pub const ALL: [Self; 7] =
        [Self::Send, Self::Isend, Self::Recv, Self::Irecv, Self::Wait, Self::Collective, Self::Other];
}

/// All calls of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CallTime {
    /// How many have ended.
    pub count: u64,
    /// Nanoseconds in them. Threads that are in MPI at the same time count each for itself.
    pub time_ns: u64,
}

/// What was sent to one rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SentTo {
    /// The receiver, in the world of the job.
    pub rank: u32,
    /// Logical messages: replicas of the receiver count once.
    pub messages: u64,
    /// Their payload bytes.
    pub bytes: u64,
}

/// What a process was seen to do since its rank began, also where it is a copy.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProcessProfile {
    /// By [`CallKind`].
    pub calls: [CallTime; CallKind::COUNT],
    /// By receiver, in ascending order; those that nothing was sent to are left out.
    pub sent: Vec<SentTo>,
}
