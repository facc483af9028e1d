//! Newtypes that all redrt crates share: ranks, replicas, views, sequence numbers.
//!
//! The type is the glossary. These types only keep, display, parse and encode their values; `quiesce` decides the
//! *meaning* of a view (suppliers, leaders).
#![forbid(unsafe_code)]

mod host_name;
mod kinship;
pub mod path_bytes;
mod replica;
mod replica_set;
mod view;

pub use host_name::is_same_host;
pub use kinship::{CutNumber, ImageGroup, Kinship};
pub use replica::{
    Incarnation, ParseReplicaError, ProcessIndex, ReplicaId, ReplicaIndex, VirtualRank, World, WorldError,
};
pub use replica_set::ReplicaSet;
pub use view::{Admission, Member, Origin, View, ViewNumber};

use serde::{Deserialize, Serialize};
use std::fmt;

/// Identifies one communication context of a communicator (MPI-5.0 §7.2). Point-to-point and collective traffic of
/// one communicator use different contexts. Derived by hashing from the parent's context, so that all replicas of
/// all members arrive at the same value without exchanging messages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ContextId(pub u64);

/// A message tag (MPI-5.0 §3.2.3), 0 to `MPI_TAG_UB`; negative only inside the library.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Tag(pub i32);

/// Position of a logical message on its channel (virtual rank → virtual rank, context), from 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct SeqNum(pub u64);

impl SeqNum {
    /// The position after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// 128-bit digest of a logical message: xxh3-128 of the payload, seeded per job and message (`sdc-detect`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Digest(pub u128);

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The part of a message that matching needs, and that a receiver learns before the payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// Rank of the sender within the communicator of the context.
    pub source: u32,
    /// Message tag.
    pub tag: Tag,
    /// Payload length in bytes.
    pub length_bytes: u64,
}
