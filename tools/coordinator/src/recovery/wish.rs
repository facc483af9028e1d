//! Changes of a running job that users ask for, and the reasons for refusing them.

use redrt_types::{ReplicaId, VirtualRank};
use serde::{Deserialize, Serialize};

/// A change that a user asks for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Wish {
    /// Move one replica to another host.
    Migrate {
        /// The replica to move.
        replica: ReplicaId,
        /// Number of the host. None leaves the choice to the pool.
        to: Option<u32>,
    },
    /// Move all replicas away from a host, and put no more there.
    Drain {
        /// Number of the host.
        host: u32,
    },
    /// Change the number of replicas of some ranks.
    Degree {
        /// The degree wanted for them.
        degree: u16,
        /// The ranks to change.
        ranks: Vec<VirtualRank>,
    },
}

/// The reason why a wish is refused. Nothing has changed then.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WishError {
    /// The job was started without the means to copy processes.
    #[error("this job was started so that its replicas cannot be copied: redrun --spares 0 or more makes it possible")]
    NotCloneable,
    /// The job does not run yet, or is ending.
    #[error("replicas are copied while a job is running, and this one is {phase}")]
    NotRunning {
        /// The state of the job, in a word.
        phase: &'static str,
    },
    /// There is no such replica, or it is dead.
    #[error("there is no live replica {0}")]
    NotLive(ReplicaId),
    /// The rank shares memory with others, which a copy would not fit.
    #[error(
        "rank {0} shares memory with other ranks (MPI_Win_allocate_shared), and is not copied while it does: a job goes \
         to other hosts from a checkpoint (redctl checkpoint --stop, redrun --resume)"
    )]
    SharesMemory(VirtualRank),
    /// It is to leave already.
    #[error("replica {0} is on its way already")]
    Leaving(ReplicaId),
    /// It is on the destination host already.
    #[error("replica {replica} is on {host} already")]
    There {
        /// The replica to move.
        replica: ReplicaId,
        /// Name of the host.
        host: String,
    },
    /// The host is to become free, and gets no more replicas.
    #[error("host {host} is to become free: redctl spare add {host} opens it again")]
    Closed {
        /// Name of the host.
        host: String,
    },
    /// The host is to become free already.
    #[error("host {host} is to become free already")]
    Draining {
        /// Name of the host.
        host: String,
    },
    /// All places of the rank are in use.
    #[error(
        "rank {rank} has no place for another replica: its {place_count} are in use (redrun --max-degree gives more)"
    )]
    RankFull {
        /// The rank without a free place.
        rank: VirtualRank,
        /// Number of its places.
        place_count: u16,
    },
    /// The degree exceeds the places of a rank.
    #[error("rank {rank} has places for {place_count} replicas (redrun --max-degree gives more)")]
    DegreeTooGreat {
        /// The rank with too few places.
        rank: VirtualRank,
        /// Number of its places.
        place_count: u16,
    },
    /// A rank needs one replica at least.
    #[error("a rank has one replica at least")]
    DegreeZero,
    /// The host that was named has no room.
    #[error("there is no place free on {host}: redctl spare add {host}:1 makes one")]
    HostFull {
        /// Name of the host.
        host: String,
    },
    /// The hosts have too little room for all the copies together.
    #[error("{needed} places are needed and {free} are free: redctl spare add HOST brings more")]
    NoRoom {
        /// Number of copies to be made.
        needed: u32,
        /// Number of copies for which there is room.
        free: u32,
    },
}
