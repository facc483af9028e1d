//! Which replica runs on which host.
//!
//! Two wishes: replicas of one rank on different hosts, so that a host takes no rank with it (anti-affinity); and
//! neighbouring ranks of one plane together, because they talk most (locality). The first comes first. Plane after plane,
//! ranks fill the hosts in order; when that would put two replicas of a rank together although it could be avoided, ranks
//! are dealt out instead, each to the hosts with the most room, which finds a placement without sharing whenever there
//! is one (the argument of Gale and Ryser: using up the fullest columns first never hurts).

use redrt_types::{ProcessIndex, ReplicaId, VirtualRank, World};
use std::cmp::Reverse;
use std::fmt;

/// A host and how many processes it may run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Places for processes.
    pub slot_count: u32,
}

/// A host for every process of a world.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    hosts: Vec<u32>,
    shared: Vec<VirtualRank>,
}

impl Placement {
    /// Number of the host of a process, in the order the hosts were given.
    #[must_use]
    pub fn host(&self, process: ProcessIndex) -> u32 {
        self.hosts[process.0 as usize]
    }

    /// The ranks that have two replicas on one host, because there are too few hosts. The user should be told.
    #[must_use]
    pub fn shared(&self) -> &[VirtualRank] {
        &self.shared
    }
}

/// The processes do not fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacementError {
    /// Processes to be placed.
    pub process_count: u32,
    /// Places for them.
    pub slot_count: u64,
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} processes do not fit into {} slots", self.process_count, self.slot_count)
    }
}

impl std::error::Error for PlacementError {}

/// Places all processes of `world` on `hosts`.
pub fn place(world: &World, hosts: &[Host]) -> Result<Placement, PlacementError> {
    let slot_count = hosts.iter().map(|host| u64::from(host.slot_count)).sum();
    if u64::from(world.process_count()) > slot_count {
        return Err(PlacementError { process_count: world.process_count(), slot_count });
    }
    let filled = fill(world, hosts);
    if filled.shared.is_empty() {
        return Ok(filled);
    }
    let dealt = deal(world, hosts);
    Ok(if dealt.shared.len() < filled.shared.len() { dealt } else { filled })
}

/// Places in the making.
struct Draft<'a> {
    world: &'a World,
    free: Vec<u32>,
    hosts: Vec<Option<u32>>,
    shared: Vec<VirtualRank>,
}

impl<'a> Draft<'a> {
    fn new(world: &'a World, hosts: &[Host]) -> Self {
        Self {
            world,
            free: hosts.iter().map(|host| host.slot_count).collect(),
            hosts: vec![None; world.process_count() as usize],
            shared: Vec::new(),
        }
    }

    fn holds_sibling(&self, host: u32, replica: ReplicaId) -> bool {
        self.world.sphere(replica.rank).any(|other| self.hosts[self.world.process(other).0 as usize] == Some(host))
    }

    /// Takes the first of `candidates` with room and without a sibling; else the first with room.
    fn put(&mut self, replica: ReplicaId, candidates: impl Iterator<Item = u32> + Clone) {
        let with_room = candidates.filter(|host| self.free[*host as usize] > 0);
        let alone = with_room.clone().find(|host| !self.holds_sibling(*host, replica));
        let host = alone.or_else(|| with_room.clone().next()).expect("the slots were counted");
        if alone.is_none() && !self.shared.contains(&replica.rank) {
            self.shared.push(replica.rank);
        }
        self.free[host as usize] -= 1;
        self.hosts[self.world.process(replica).0 as usize] = Some(host);
    }

    fn finish(self) -> Placement {
        let hosts = self.hosts.into_iter().map(|host| host.expect("every replica was put somewhere")).collect();
        let mut shared = self.shared;
        shared.sort_unstable();
        Placement { hosts, shared }
    }
}

/// Plane after plane, rank after rank, host after host.
fn fill(world: &World, hosts: &[Host]) -> Placement {
    let mut draft = Draft::new(world, hosts);
    for index in 0..world.max_degree() {
        for rank in 0..world.rank_count() {
            let replica = ReplicaId::new(rank, index);
            if world.contains(replica) {
                draft.put(replica, 0..hosts.len() as u32);
            }
        }
    }
    draft.finish()
}

/// Rank after rank, those of the highest degree first, each to the hosts with the most room.
fn deal(world: &World, hosts: &[Host]) -> Placement {
    let mut draft = Draft::new(world, hosts);
    let mut ranks: Vec<_> = (0..world.rank_count()).map(VirtualRank).collect();
    ranks.sort_by_key(|rank| Reverse(world.degree(*rank)));
    for rank in ranks {
        let mut order: Vec<_> = (0..hosts.len() as u32).collect();
        order.sort_by_key(|host| Reverse(draft.free[*host as usize]));
        for replica in world.sphere(rank) {
            draft.put(replica, order.iter().copied());
        }
    }
    draft.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hosts(slot_counts: &[u32]) -> Vec<Host> {
        let host = |(number, slot_count): (usize, &u32)| Host { name: format!("h{number}"), slot_count: *slot_count };
        slot_counts.iter().enumerate().map(host).collect()
    }

    fn placed(degrees: &[u16], slot_counts: &[u32]) -> (Vec<u32>, usize) {
        let placement = place(&World::new(degrees.to_vec()), &hosts(slot_counts)).unwrap();
        (placement.hosts, placement.shared.len())
    }

    #[test]
    fn table_of_small_placements() {
        for (degrees, slots, hosts, shared) in [
            (&[1, 1][..], &[2][..], &[0, 0][..], 0),
            // Planes stay together.
            (&[2, 2], &[2, 2], &[0, 1, 0, 1], 0),
            (&[2, 2, 2, 2], &[4, 4], &[0, 1, 0, 1, 0, 1, 0, 1], 0),
            (&[2, 1], &[1, 2], &[0, 1, 1], 0),
            // One host only: everything is shared, and said.
            (&[2, 2], &[4], &[0, 0, 0, 0], 2),
            // Filling in order would leave rank 1 no second host.
            (&[1, 2], &[1, 2], &[1, 1, 0], 0),
        ] {
            assert_eq!(placed(degrees, slots), (hosts.to_vec(), shared), "{degrees:?} on {slots:?}");
        }
    }

    #[test]
    fn too_many_processes_are_refused() {
        let error = place(&World::uniform(3, 2), &hosts(&[2, 3])).unwrap_err();
        assert_eq!(error.to_string(), "6 processes do not fit into 5 slots");
    }

    proptest! {
        /// No host gets more than it has room for, and a rank shares a host only if there is no way around it.
        #[test]
        fn sharing_only_where_it_must_be(
            degrees in proptest::collection::vec(1u16..4, 1..8),
            slots in proptest::collection::vec(0u32..8, 1..6),
        ) {
            let world = World::new(degrees.clone());
            let total: u32 = slots.iter().sum();
            let result = place(&world, &hosts(&slots));
            prop_assert_eq!(result.is_err(), world.process_count() > total);
            let Ok(placement) = result else { return Ok(()) };
            for (number, slot_count) in slots.iter().enumerate() {
                prop_assert!(placement.hosts.iter().filter(|host| **host as usize == number).count() as u32 <= *slot_count);
            }
            for rank in (0..world.rank_count()).map(VirtualRank) {
                let mut used: Vec<_> = world.sphere(rank).map(|replica| placement.host(world.process(replica))).collect();
                used.sort_unstable();
                used.dedup();
                let shares = used.len() < usize::from(world.degree(rank));
                prop_assert_eq!(shares, placement.shared.contains(&rank));
            }
            // Gale and Ryser: it can be avoided if, for every k, the k largest degrees fit into min(k, slots) of each host.
            let mut sorted = degrees;
            sorted.sort_unstable_by_key(|degree| Reverse(*degree));
            let fits = (1..=sorted.len()).all(|count| {
                let needed: u32 = sorted[..count].iter().map(|degree| u32::from(*degree)).sum();
                needed <= slots.iter().map(|slot_count| (*slot_count).min(count as u32)).sum()
            });
            prop_assert_eq!(placement.shared.is_empty(), fits);
        }
    }
}
