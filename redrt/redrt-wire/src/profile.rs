//! Profile of a process, for `redrun --profile`: time in MPI by kind of call, and bytes sent to each rank.

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
    /// Number of kinds.
    pub const COUNT: usize = Self::ALL.len();

    /// All kinds, by number.
    pub const ALL: [Self; 7] =
        [Self::Send, Self::Isend, Self::Recv, Self::Irecv, Self::Wait, Self::Collective, Self::Other];
}

/// Calls of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CallTime {
    /// Calls that have ended.
    pub count: u64,
    /// Nanoseconds in them. Threads that are in MPI at the same time count separately.
    pub time_ns: u64,
}

/// Messages sent to one rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SentTo {
    /// The receiver, in the world of the job.
    pub rank: u32,
    /// Logical messages: replicas of the receiver count once.
    pub messages: u64,
    /// Their payload bytes.
    pub bytes: u64,
}

/// Profile of a process since its rank began, also where it is a copy.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProcessProfile {
    /// By [`CallKind`].
    pub calls: [CallTime; CallKind::COUNT],
    /// By receiver, in ascending order, without ranks that got nothing.
    pub sent: Vec<SentTo>,
}
