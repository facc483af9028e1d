//! Why something that the coordinator has begun comes to nothing: a copy, a line, a move.

use crate::STOP_TIME_MAX;
use redrt_types::ReplicaId;
use redrt_wire::no_image::NoImage;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Why nothing comes of a clone, in words that follow on its name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CloneFailure {
    /// A daemon says so.
    #[error("{0}")]
    NoImage(NoImage),
    /// The same, and no other source is left for copies of this rank.
    #[error("{0}; this is not tried again")]
    Hopeless(NoImage),
    /// The replica that was to be copied is gone.
    #[error("its source was lost")]
    SourceLost,
    /// The host of the copy is gone.
    #[error("its host was lost")]
    HostLost,
    /// The host of the copy is being drained.
    #[error("its host is to become free")]
    HostLeaves,
    /// The pool has taken the place back, and says why.
    #[error("{0}")]
    PlaceLost(String),
    /// A copy would have its part of memory at another moment than the others of its plane.
    #[error("its rank shares memory with others (MPI_Win_allocate_shared), and is not copied while it does")]
    SharesMemory,
    /// Messages for the copy are not kept everywhere.
    #[error("a process does not answer")]
    Silent,
    /// The source may be wrong.
    #[error("no replica of another lineage has the memory that its source has")]
    Contradicted,
}

impl CloneFailure {
    /// Whether there was too little memory on the host of the copy.
    #[must_use]
    pub fn is_want_of_memory(&self) -> bool {
        matches!(self, Self::NoImage(why) if why.is_want_of_memory())
    }
}

/// Why no line was taken, in words that follow on its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LineFailure {
    /// The store cannot keep it.
    Store(StoreFailure),
    /// There is no image of a process.
    NoImage {
        /// Of which.
        replica: ReplicaId,
        /// Why.
        why: NoImage,
    },
    /// A process answered what was not asked.
    OutOfTurn(ReplicaId),
    /// The membership has changed, by the loss of this replica if one is named.
    Lost(Option<ReplicaId>),
    /// This one decides for its rank, and its siblings have contradicted its memory.
    Distrusted(ReplicaId),
    /// This one decides for its rank, and those that decide for others are not all on the plane with which it shares
    /// memory.
    Apart(ReplicaId),
    /// These did not stop in time.
    Late(Vec<ReplicaId>),
    /// The images of these were not written in this time.
    Unwritten(Vec<ReplicaId>, Duration),
    /// The store has not answered in this time.
    StoreSilent(Duration),
}

impl LineFailure {
    /// The sentence, in which `name` names a replica.
    #[must_use]
    pub fn told(&self, name: &dyn Fn(ReplicaId) -> String) -> String {
        match self {
            Self::Store(why) => why.to_string(),
            Self::NoImage { replica, why } => format!("{}: {why}", name(*replica)),
            Self::OutOfTurn(replica) => format!("{} answered out of turn", name(*replica)),
            Self::Lost(None) => "a host was lost meanwhile".to_owned(),
            Self::Lost(Some(replica)) => format!("{} was lost meanwhile", name(*replica)),
            Self::Distrusted(replica) => {
                format!("all would go on with the memory of {}, which its siblings have contradicted", name(*replica))
            }
            Self::Apart(replica) => {
                format!("{} shares memory with other ranks, of which replicas of another index decide", name(*replica))
            }
            Self::Late(replicas) => {
                let names: Vec<_> = replicas.iter().map(|replica| name(*replica)).collect();
                let (names, limit) = (names.join(", "), STOP_TIME_MAX.as_secs());
                format!("{names} did not stop within {limit} s: what is stopped (T in ps) goes on with kill -CONT")
            }
            Self::Unwritten(replicas, time) => {
                let names: Vec<_> = replicas.iter().map(|replica| name(*replica)).collect();
                let (names, minutes) = (names.join(", "), time.as_secs() / 60);
                format!(
                    "nothing more was written of {names} for {minutes} min: look at the disk of --checkpoint-dir there"
                )
            }
            Self::StoreSilent(time) => {
                let minutes = time.as_secs() / 60;
                format!(
                    "the disk of --checkpoint-dir, or a host that is to keep a copy, has not answered for {minutes} min"
                )
            }
        }
    }
}

impl fmt::Display for LineFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told(&|replica| replica.to_string()))
    }
}

/// What the store could not do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum StoreFailure {
    /// Make a place for the images.
    #[error("there is no place for it: {0}")]
    NoPlace(String),
    /// Keep the line, all of whose images are there.
    #[error("it cannot be kept: {0}")]
    NotKept(String),
}

/// What the job has printed could not be written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[error("Failed to write {name}: {cause}")]
pub struct OutputFailure {
    /// Where to.
    pub name: String,
    /// What the system said.
    pub cause: String,
}

/// Why no copies of a rank stand ready to judge.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotHeld {
    /// None could be made.
    #[error("{0}")]
    Clone(CloneFailure),
    /// No host is free: why each cannot be given, as far as that is known.
    #[error("{}", reasons(.0))]
    NoPlace(Vec<String>),
    /// A copy would be of one that may be wrong.
    #[error("its replicas differ, and nobody knows which one is right")]
    Undecided,
    /// Replacing the dead comes first.
    #[error("its places are needed for replicas that were lost")]
    PlacesNeeded,
    /// A copy would not be there to agree.
    #[error(
        "its program has come to what all replicas of it must agree on, a receive that is cancelled or a file system"
    )]
    MustAgree,
    /// A copy would lack it.
    #[error("it reads standard input, and some came after it was copied")]
    InputCame,
}

/// Why a replica is not moved after all.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StayReason {
    /// The host it was to be moved to is gone, or closed.
    #[error("that host cannot be used any more")]
    HostUnfit,
    /// The copy failed too often.
    #[error("{0}")]
    Clone(CloneFailure),
}

fn reasons(hosts: &[String]) -> String {
    if hosts.is_empty() { "there is no place".to_owned() } else { hosts.join("; ") }
}
