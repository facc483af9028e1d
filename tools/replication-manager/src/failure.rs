//! Reasons why a copy, a checkpoint or a move failed.

use crate::STOP_TIME_MAX;
use redrt_types::ReplicaId;
use redrt_wire::no_image::NoImage;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The reason why a clone failed. The text follows on the name of the clone.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CloneFailure {
    /// A daemon reports that there is no image.
    #[error("{0}")]
    NoImage(NoImage),
    /// A daemon reports that there is no image, and no other replica of this rank can be copied.
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
    /// The pool took the place back, for this reason.
    #[error("{0}")]
    PlaceLost(String),
    /// Ranks share memory. The copy would have its part at another moment than the rest of its plane.
    #[error("its rank shares memory with others (MPI_Win_allocate_shared), and is not copied while it does")]
    SharesMemory,
    /// Some process did not confirm in time that it keeps messages for the copy.
    #[error("a process does not answer")]
    Silent,
    /// The source's memory differs from its siblings', and a sibling of another lineage was vouched for.
    #[error("no replica of another lineage has the memory that its source has")]
    Contradicted,
}

impl CloneFailure {
    /// Returns true if the host of the copy had too little memory. Such a failure is not held against the host.
    #[must_use]
    pub fn is_want_of_memory(&self) -> bool {
        matches!(self, Self::NoImage(why) if why.is_want_of_memory())
    }
}

/// The reason why no checkpoint was taken. [`CheckpointFailure::told`] makes the sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CheckpointFailure {
    /// The store cannot keep it.
    Store(StoreFailure),
    /// A process could not be imaged, or its image could not be written.
    NoImage {
        /// The process without an image.
        replica: ReplicaId,
        /// The reason that its daemon gave.
        why: NoImage,
    },
    /// A process sent an answer that does not fit the stage.
    OutOfTurn(ReplicaId),
    /// The membership has changed. None if a host was lost without a replica that can be named.
    Lost(Option<ReplicaId>),
    /// The siblings of this leader have contradicted its memory.
    Distrusted(ReplicaId),
    /// This leader shares memory with other ranks whose leaders are on another plane.
    Apart(ReplicaId),
    /// These processes did not stop in [`STOP_TIME_MAX`].
    Late(Vec<ReplicaId>),
    /// Nothing was written of the images of these processes for this time.
    Unwritten(Vec<ReplicaId>, Duration),
    /// The store has been silent for this time.
    StoreSilent(Duration),
}

impl CheckpointFailure {
    /// The sentence for the user, with each replica named by `name`.
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

impl fmt::Display for CheckpointFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told(&|replica| replica.to_string()))
    }
}

/// An operation of the store that failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum StoreFailure {
    /// It could not make a place for the images, for this reason.
    #[error("there is no place for it: {0}")]
    NoPlace(String),
    /// All images were written, and the store could not keep them, for this reason.
    #[error("it cannot be kept: {0}")]
    NotKept(String),
}

/// Writing the output of the job failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[error("Failed to write {name}: {cause}")]
pub struct OutputFailure {
    /// Name of the destination.
    pub name: String,
    /// The error of the system.
    pub cause: String,
}

/// The reason why no copies of a rank stand ready to judge.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotHeld {
    /// No copy could be made.
    #[error("{0}")]
    Clone(CloneFailure),
    /// No host is free. For each host the reason, as far as it is known.
    #[error("{}", reasons(.0))]
    NoPlace(Vec<String>),
    /// The replicas differ, so a copy would repeat what its possibly wrong original says.
    #[error("its replicas differ, and nobody knows which one is right")]
    Undecided,
    /// Their places are needed to replace lost replicas, which comes first.
    #[error("its places are needed for replicas that were lost")]
    PlacesNeeded,
    /// All replicas must take part in what the program does next, and a copy that waits cannot.
    #[error(
        "its program has come to what all replicas of it must agree on, a receive that is cancelled or a file system"
    )]
    MustAgree,
    /// Standard input arrived after the cut, so the copy would lack it.
    #[error("it reads standard input, and some came after it was copied")]
    InputCame,
}

/// The reason why a replica is not moved after all.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StayReason {
    /// The destination host is gone, or closed.
    #[error("that host cannot be used any more")]
    HostUnfit,
    /// The copy failed too often.
    #[error("{0}")]
    Clone(CloneFailure),
}

fn reasons(hosts: &[String]) -> String {
    if hosts.is_empty() { "there is no place".to_owned() } else { hosts.join("; ") }
}
