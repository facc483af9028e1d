//! Changes of a running job that users ask for, and the reasons for refusing them.

use super::Plans;
use super::hosts::Hosts;
use crate::facts::Facts;
use redrt_types::{ReplicaId, VirtualRank};
use serde::{Deserialize, Serialize};

/// A change that a user asks for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ChangeRequest {
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

/// The reason why a request is refused. Nothing has changed then.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChangeRequestError {
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
    TooFewPlaces {
        /// Number of copies to be made.
        needed: u32,
        /// Number of copies for which there is room.
        free: u32,
    },
}

impl ChangeRequest {
    /// Checks that the request can be fulfilled. `room` is the number of copies that the hosts concerned can still
    /// take, if known.
    pub(super) fn check(
        &self,
        facts: Facts<'_>,
        hosts: &Hosts,
        plans: Plans<'_>,
        room: Option<u32>,
    ) -> Result<(), ChangeRequestError> {
        match self {
            Self::Migrate { replica, to } => check_move(facts, hosts, plans, (*replica, *to), room),
            Self::Drain { host } => check_drain(facts, hosts, plans, *host, room),
            Self::Degree { degree, ranks } => check_degree(facts, *degree, ranks, room),
        }
    }
}

fn check_move(
    facts: Facts<'_>,
    hosts: &Hosts,
    plans: Plans<'_>,
    (replica, to): (ReplicaId, Option<u32>),
    room: Option<u32>,
) -> Result<(), ChangeRequestError> {
    let members = facts.members;
    if !members.world().contains(replica) || !members.view().is_live(replica) || !members.counts(replica) {
        return Err(ChangeRequestError::NotLive(replica));
    }
    if plans.moves.contains(replica) {
        return Err(ChangeRequestError::Leaving(replica));
    }
    check_planes(facts, [replica.rank])?;
    if let Some(to) = to.filter(|to| members.host_of(replica) == Some(*to)) {
        return Err(ChangeRequestError::There { replica, host: hosts.name(to).to_owned() });
    }
    if let Some(to) = to.filter(|to| hosts.is_closed(*to)) {
        return Err(ChangeRequestError::Closed { host: hosts.name(to).to_owned() });
    }
    check_places(facts, plans, replica.rank)?;
    match (room, to) {
        (Some(0), Some(to)) => Err(ChangeRequestError::HostFull { host: hosts.name(to).to_owned() }),
        _ => check_room(1, room),
    }
}

fn check_drain(
    facts: Facts<'_>,
    hosts: &Hosts,
    plans: Plans<'_>,
    host: u32,
    room: Option<u32>,
) -> Result<(), ChangeRequestError> {
    if hosts.is_closed(host) {
        return Err(ChangeRequestError::Draining { host: hosts.name(host).to_owned() });
    }
    let there = facts.members.live_on(host).into_iter();
    let there: Vec<_> = there.filter(|replica| !plans.moves.contains(*replica)).collect();
    check_planes(facts, there.iter().map(|replica| replica.rank))?;
    for replica in &there {
        check_places(facts, plans, replica.rank)?;
        check_room(there.len() as u32, room)?;
    }
    Ok(())
}

fn check_degree(
    facts: Facts<'_>,
    degree: u16,
    ranks: &[VirtualRank],
    room: Option<u32>,
) -> Result<(), ChangeRequestError> {
    let world = facts.members.world();
    if degree == 0 {
        return Err(ChangeRequestError::DegreeZero);
    }
    if let Some(rank) = ranks.iter().find(|rank| world.degree(**rank) < degree) {
        return Err(ChangeRequestError::DegreeTooGreat { rank: *rank, place_count: world.degree(*rank) });
    }
    check_planes(facts, ranks.iter().copied())?;
    let more = ranks.iter().map(|rank| degree.saturating_sub(facts.members.degree(*rank)));
    check_room(more.map(u32::from).sum(), room)
}

/// Checks that these ranks can be copied: ranks that share memory cannot.
fn check_planes(facts: Facts<'_>, ranks: impl IntoIterator<Item = VirtualRank>) -> Result<(), ChangeRequestError> {
    let members = facts.members;
    let in_plane = |rank: &VirtualRank| members.view().live(*rank).any(|replica| members.is_in_plane(replica));
    ranks.into_iter().find(in_plane).map_or(Ok(()), |rank| Err(ChangeRequestError::SharesMemory(rank)))
}

/// Checks that a rank has a place that has no replica, and for which none is planned.
fn check_places(facts: Facts<'_>, plans: Plans<'_>, rank: VirtualRank) -> Result<(), ChangeRequestError> {
    let world = facts.members.world();
    let is_used = |place: ReplicaId| {
        facts.members.view().is_live(place) || plans.needs.contains(place) || plans.clones.has(place)
    };
    match world.sphere(rank).all(is_used) {
        true => Err(ChangeRequestError::RankFull { rank, place_count: world.degree(rank) }),
        false => Ok(()),
    }
}

fn check_room(needed: u32, room: Option<u32>) -> Result<(), ChangeRequestError> {
    match room {
        Some(free) if free < needed => Err(ChangeRequestError::TooFewPlaces { needed, free }),
        _ => Ok(()),
    }
}
