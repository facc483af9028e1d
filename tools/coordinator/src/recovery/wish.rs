//! What users want changed of a running job, and why it cannot be.

use redrt_types::{ReplicaId, VirtualRank};
use serde::{Deserialize, Serialize};

/// What a user wants changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Wish {
    /// One replica is to be elsewhere.
    Migrate {
        /// The replica.
        replica: ReplicaId,
        /// On this host; where it suits best if absent.
        to: Option<u32>,
    },
    /// No replica is to be on this host.
    Drain {
        /// The host.
        host: u32,
    },
    /// The degree of ranks is to change.
    Degree {
        /// The degree.
        degree: u16,
        /// Which ranks.
        ranks: Vec<VirtualRank>,
    },
}

/// Why a wish is refused. Nothing has changed then.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WishError {
    /// Processes of this job cannot be copied.
    #[error("this job was started so that its replicas cannot be copied: redrun --spares 0 or more makes it possible")]
    NotCloneable,
    /// The job is beginning or ending.
    #[error("replicas are copied while a job is running, and this one is {phase}")]
    NotRunning {
        /// What it is doing, in a word.
        phase: &'static str,
    },
    /// There is no such replica, or it is dead.
    #[error("there is no live replica {0}")]
    NotLive(ReplicaId),
    /// Copies of it would not fit those that it shares memory with.
    #[error(
        "rank {0} shares memory with other ranks (MPI_Win_allocate_shared), and is not copied while it does: a job goes \
         to other hosts from a checkpoint (redctl checkpoint --stop, redrun --resume)"
    )]
    SharesMemory(VirtualRank),
    /// It was to leave before.
    #[error("replica {0} is on its way already")]
    Leaving(ReplicaId),
    /// It is where it is to be.
    #[error("replica {replica} is on {host} already")]
    There {
        /// The replica.
        replica: ReplicaId,
        /// The host.
        host: String,
    },
    /// Nothing is put on that host any more.
    #[error("host {host} is to become free: redctl spare add {host} opens it again")]
    Closed {
        /// The host.
        host: String,
    },
    /// It was to become free before.
    #[error("host {host} is to become free already")]
    Draining {
        /// The host.
        host: String,
    },
    /// All indices of the rank are in use.
    #[error(
        "rank {rank} has no place for another replica: its {place_count} are in use (redrun --max-degree gives more)"
    )]
    RankFull {
        /// The rank.
        rank: VirtualRank,
        /// How many it has.
        place_count: u16,
    },
    /// The rank has fewer indices than that.
    #[error("rank {rank} has places for {place_count} replicas (redrun --max-degree gives more)")]
    DegreeTooGreat {
        /// The rank.
        rank: VirtualRank,
        /// How many it has.
        place_count: u16,
    },
    /// A degree of 0.
    #[error("a rank has one replica at least")]
    DegreeZero,
    /// The host that was named has no room.
    #[error("there is no place free on {host}: redctl spare add {host}:1 makes one")]
    HostFull {
        /// The host.
        host: String,
    },
    /// No host has room for that many copies.
    #[error("{needed} places are needed and {free} are free: redctl spare add HOST brings more")]
    NoRoom {
        /// Copies to be made.
        needed: u32,
        /// Room for copies.
        free: u32,
    },
}
