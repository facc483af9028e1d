//! Assignment of replicas to hosts.
//!
//! Two goals. Anti-affinity: replicas of one rank are on different hosts, so that the loss of a host loses no rank.
//! Locality: neighbouring ranks of one plane are together, because they communicate most. The first takes precedence.
//!
//! Ranks fill the hosts in order, plane after plane. If that puts two replicas of a rank together although it could be
//! avoided, ranks are dealt out instead, each to the hosts with the most room. That finds a placement without sharing
//! whenever one exists (the argument of Gale and Ryser: using up the fullest columns first never hurts). If racks are
//! known, replicas of one rank also go to different racks, as long as that costs no sharing of hosts.

use redrt_types::{ProcessIndex, ReplicaId, VirtualRank, World};
use std::cmp::Reverse;
use std::fmt;

/// A host, and its capacity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// Name of the host.
    pub name: String,
    /// Number of processes that it takes.
    pub slot_count: u32,
    /// Number of its rack, or of another group that fails as a whole. A host without one counts as a rack of its own.
    pub rack: Option<u32>,
}

/// Order in which hosts are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// Hosts are filled one after the other, so that neighbouring ranks share one.
    #[default]
    Fill,
    /// Ranks are distributed round-robin.
    Round,
}

/// Host of each process of a world.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    hosts: Vec<u32>,
    shared: Vec<VirtualRank>,
    shared_racks: Vec<VirtualRank>,
}

impl Placement {
    /// Index of the host of a process, in the order in which hosts were given.
    #[must_use]
    pub fn host(&self, process: ProcessIndex) -> u32 {
        self.hosts[process.0 as usize]
    }

    /// Ranks that have two replicas on one host, because there are too few hosts. The user should be told.
    #[must_use]
    pub fn shared(&self) -> &[VirtualRank] {
        &self.shared
    }

    /// Ranks that have two replicas in one rack, including those of [`Placement::shared`].
    #[must_use]
    pub fn shared_racks(&self) -> &[VirtualRank] {
        &self.shared_racks
    }
}

/// The hosts have too few places.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacementError {
    /// Number of processes to place.
    pub process_count: u32,
    /// Number of places on all hosts.
    pub slot_count: u64,
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} processes do not fit into {} slots", self.process_count, self.slot_count)
    }
}

impl std::error::Error for PlacementError {}

/// Places all processes of `world` on `hosts`. Replicas of `fixed` go to the hosts with these indices regardless of
/// capacity, because the user demanded it.
///
/// Errors if the hosts have fewer places than the world has processes.
pub fn place(
    world: &World,
    hosts: &[Host],
    order: Order,
    fixed: &[(ReplicaId, u32)],
) -> Result<Placement, PlacementError> {
    let slot_count = hosts.iter().map(|host| u64::from(host.slot_count)).sum();
    if u64::from(world.process_count()) > slot_count {
        return Err(PlacementError { process_count: world.process_count(), slot_count });
    }
    let has_racks = hosts.iter().any(|host| host.rack.is_some());
    let mut best: Option<Placement> = None;
    for minds_racks in [true, false] {
        if minds_racks && !has_racks {
            continue;
        }
        for deals in [false, true] {
            let draft = Draft::new(world, hosts, minds_racks, fixed);
            let found = if deals { deal(draft) } else { fill(draft, order) };
            let cost = |placement: &Placement| (placement.shared.len(), placement.shared_racks.len());
            if best.as_ref().is_none_or(|best| cost(&found) < cost(best)) {
                best = Some(found);
            }
            if best.as_ref().is_some_and(|best| cost(best) == (0, 0)) {
                break;
            }
        }
    }
    Ok(best.expect("there is always a draft that does not mind racks, unless one that does is good"))
}

/// A placement under construction.
struct Draft<'a> {
    world: &'a World,
    racks: Vec<u32>,
    minds_racks: bool,
    free: Vec<u32>,
    hosts: Vec<Option<u32>>,
}

impl<'a> Draft<'a> {
    fn new(world: &'a World, hosts: &[Host], minds_racks: bool, fixed: &[(ReplicaId, u32)]) -> Self {
        // A host without a rack gets a number that no rack has.
        let own = |number: usize| u32::MAX - number as u32;
        let mut draft = Self {
            world,
            racks: hosts.iter().enumerate().map(|(number, host)| host.rack.unwrap_or(own(number))).collect(),
            minds_racks,
            free: hosts.iter().map(|host| host.slot_count).collect(),
            hosts: vec![None; world.process_count() as usize],
        };
        for (replica, host) in fixed {
            let free = &mut draft.free[*host as usize];
            *free = free.saturating_sub(1);
            draft.hosts[world.process(*replica).0 as usize] = Some(*host);
        }
        draft
    }

    fn is_placed(&self, replica: ReplicaId) -> bool {
        self.hosts[self.world.process(replica).0 as usize].is_some()
    }

    fn siblings(&self, replica: ReplicaId) -> impl Iterator<Item = u32> + '_ {
        let hosts = self.world.sphere(replica.rank).map(|other| self.hosts[self.world.process(other).0 as usize]);
        hosts.flatten()
    }

    /// Puts a replica on the first candidate with room in a rack without siblings, if racks matter; else with room and
    /// without a sibling; else with room.
    fn put(&mut self, replica: ReplicaId, candidates: impl Iterator<Item = u32> + Clone) {
        let with_room = || candidates.clone().filter(|host| self.free[*host as usize] > 0);
        let rack = |host: u32| self.racks[host as usize];
        let apart = |host: &u32| self.siblings(replica).all(|other| rack(other) != rack(*host));
        let alone = |host: &u32| self.siblings(replica).all(|other| other != *host);
        let found = with_room().find(|host| self.minds_racks && apart(host)).or_else(|| with_room().find(alone));
        let host = found.or_else(|| with_room().next()).expect("the slots were counted");
        self.free[host as usize] -= 1;
        self.hosts[self.world.process(replica).0 as usize] = Some(host);
    }

    fn finish(self) -> Placement {
        let hosts: Vec<_> = self.hosts.iter().map(|host| host.expect("every replica was put somewhere")).collect();
        let ranks = || (0..self.world.rank_count()).map(VirtualRank);
        let shares = |rank: &VirtualRank, place: &dyn Fn(u32) -> u32| {
            let mut used: Vec<_> =
                self.world.sphere(*rank).map(|replica| place(hosts[self.world.process(replica).0 as usize])).collect();
            used.sort_unstable();
            used.windows(2).any(|pair| pair[0] == pair[1])
        };
        let shared = ranks().filter(|rank| shares(rank, &|host| host)).collect();
        let shared_racks = ranks().filter(|rank| shares(rank, &|host| self.racks[host as usize])).collect();
        Placement { hosts, shared, shared_racks }
    }
}

/// Goes through planes, then ranks, then hosts.
fn fill(mut draft: Draft<'_>, order: Order) -> Placement {
    let (world, count) = (draft.world, draft.free.len() as u32);
    for index in 0..world.max_degree() {
        for rank in 0..world.rank_count() {
            let replica = ReplicaId::new(rank, index);
            if world.contains(replica) && !draft.is_placed(replica) {
                let first = match order {
                    Order::Fill => 0,
                    Order::Round => (rank + u32::from(index)) % count,
                };
                draft.put(replica, (first..count).chain(0..first));
            }
        }
    }
    draft.finish()
}

/// Goes through ranks and puts each on the hosts with the most room. Ranks with fixed replicas come first, then those
/// of the highest degree.
fn deal(mut draft: Draft<'_>) -> Placement {
    let world = draft.world;
    let mut ranks: Vec<_> = (0..world.rank_count()).map(VirtualRank).collect();
    let is_begun = |rank: VirtualRank| world.sphere(rank).any(|replica| draft.is_placed(replica));
    ranks.sort_by_key(|rank| Reverse((is_begun(*rank), world.degree(*rank))));
    for rank in ranks {
        let mut order: Vec<_> = (0..draft.free.len() as u32).collect();
        order.sort_by_key(|host| Reverse(draft.free[*host as usize]));
        let open: Vec<_> = world.sphere(rank).filter(|replica| !draft.is_placed(*replica)).collect();
        for replica in open {
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
        let host = |(number, slot_count): (usize, &u32)| Host {
            name: format!("h{number}"),
            slot_count: *slot_count,
            rack: None,
        };
        slot_counts.iter().enumerate().map(host).collect()
    }

    fn placed(degrees: &[u16], slot_counts: &[u32]) -> (Vec<u32>, usize) {
        let placement = place(&World::new(degrees.to_vec()), &hosts(slot_counts), Order::Fill, &[]).unwrap();
        (placement.hosts, placement.shared.len())
    }

    #[test]
    fn table_of_small_placements() {
        for (degrees, slots, hosts, shared) in [
            (&[1, 1][..], &[2][..], &[0, 0][..], 0),
            // Each plane stays on one host.
            (&[2, 2], &[2, 2], &[0, 1, 0, 1], 0),
            (&[2, 2, 2, 2], &[4, 4], &[0, 1, 0, 1, 0, 1, 0, 1], 0),
            (&[2, 1], &[1, 2], &[0, 1, 1], 0),
            // With one host everything is shared, and reported.
            (&[2, 2], &[4], &[0, 0, 0, 0], 2),
            // Filling in order would leave no second host for rank 1.
            (&[1, 2], &[1, 2], &[1, 1, 0], 0),
        ] {
            assert_eq!(placed(degrees, slots), (hosts.to_vec(), shared), "{degrees:?} on {slots:?}");
        }
    }

    #[test]
    fn ranks_go_round_the_hosts() {
        let placement = place(&World::uniform(4, 2), &hosts(&[4, 4, 4, 4]), Order::Round, &[]).unwrap();
        assert_eq!(placement.hosts, [0, 1, 1, 2, 2, 3, 3, 0]);
    }

    #[test]
    fn replicas_are_in_different_racks() {
        let mut hosts = hosts(&[2, 2, 2, 2]);
        for (host, rack) in hosts.iter_mut().zip([0, 0, 1, 1]) {
            host.rack = Some(rack);
        }
        let placement = place(&World::uniform(2, 2), &hosts, Order::Fill, &[]).unwrap();
        assert_eq!((&placement.hosts[..], placement.shared_racks.len()), (&[0, 2, 0, 2][..], 0));
        // Three replicas in two racks are at least on different hosts.
        let placement = place(&World::uniform(2, 3), &hosts, Order::Fill, &[]).unwrap();
        assert_eq!((placement.shared.len(), placement.shared_racks.len()), (0, 2));
    }

    /// Places a world with fixed processes, given as rank, replica and host. Returns the hosts of all, and the number
    /// of ranks that share one.
    fn around(degree: u16, rank_count: u32, slot_counts: &[u32], fixed: &[(u32, u16, u32)]) -> (Vec<u32>, usize) {
        let fixed: Vec<_> = fixed.iter().map(|(rank, index, host)| (ReplicaId::new(*rank, *index), *host)).collect();
        let placement =
            place(&World::uniform(rank_count, degree), &hosts(slot_counts), Order::Fill, &fixed).expect("they fit");
        (placement.hosts, placement.shared.len())
    }

    #[test]
    fn the_others_find_places_around_those_that_are_fixed() {
        for (degree, rank_count, slots, fixed, hosts, shared) in [
            (1, 3, &[2, 2][..], &[(2, 0, 0)][..], &[0, 1, 0][..], 0),
            // Siblings avoid fixed replicas, whatever their index.
            (2, 2, &[2, 2], &[(0, 0, 1), (1, 0, 1)], &[1, 0, 1, 0], 0),
            (2, 2, &[2, 2], &[(0, 1, 0), (1, 1, 0)], &[1, 0, 1, 0], 0),
            (2, 2, &[2, 2], &[(0, 0, 0), (1, 0, 1)], &[0, 1, 1, 0], 0),
            // More fixed replicas than the host has places.
            (2, 3, &[1, 5], &[(0, 0, 0), (1, 0, 0), (2, 0, 0)], &[0, 1, 0, 1, 0, 1], 0),
            (2, 2, &[3, 1, 1], &[(1, 0, 0)], &[0, 1, 0, 2], 0),
            // A user who names the same host twice means it.
            (2, 1, &[1, 1], &[(0, 0, 0), (0, 1, 0)], &[0, 0], 1),
        ] {
            assert_eq!(around(degree, rank_count, slots, fixed), (hosts.to_vec(), shared), "{fixed:?} of {slots:?}");
        }
    }

    #[test]
    fn too_many_processes_are_refused() {
        let error = place(&World::uniform(3, 2), &hosts(&[2, 3]), Order::Fill, &[]).unwrap_err();
        assert_eq!(error.to_string(), "6 processes do not fit into 5 slots");
    }

    proptest! {
        /// No host exceeds its capacity, and a rank shares a host only if that is unavoidable.
        #[test]
        fn sharing_only_where_it_must_be(
            degrees in proptest::collection::vec(1u16..4, 1..8),
            slots in proptest::collection::vec(0u32..8, 1..6),
            round: bool,
        ) {
            let world = World::new(degrees.clone());
            let total: u32 = slots.iter().sum();
            let order = if round { Order::Round } else { Order::Fill };
            let result = place(&world, &hosts(&slots), order, &[]);
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
            // Gale and Ryser: sharing can be avoided if, for every k, the k largest degrees fit into min(k, slots) of
            // each host.
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
