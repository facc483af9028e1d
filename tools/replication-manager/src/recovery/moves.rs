//! The replicas that are to leave.

use super::clones::Clones;
use crate::facts::Facts;
use crate::process::Process;
use redrt_types::{ReplicaId, VirtualRank};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A replica that is to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Move {
    /// Number of the host of its successor. None if any host will do.
    pub to: Option<u32>,
    /// True if its rank has too many replicas, so that it has no successor.
    pub is_surplus: bool,
    /// True once it is being killed.
    pub is_ending: bool,
}

/// The replicas that are to leave; see `leaving` for when they do.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Moves(BTreeMap<ReplicaId, Move>);

impl Moves {
    /// The replicas, each with the number of its new host. None if any host will do.
    pub fn all(&self) -> impl Iterator<Item = (ReplicaId, Option<u32>)> {
        self.0.iter().map(|(replica, going)| (*replica, going.to))
    }

    pub fn contains(&self, replica: ReplicaId) -> bool {
        self.0.contains_key(&replica)
    }

    /// Returns true if a replica is to leave because its rank has too many.
    pub fn is_surplus(&self, replica: ReplicaId) -> bool {
        self.0.get(&replica).is_some_and(|going| going.is_surplus)
    }

    /// A replica is to leave when another has its part.
    pub fn add(&mut self, replica: ReplicaId, to: Option<u32>) {
        let new = Move { to, is_surplus: false, is_ending: false };
        self.0.entry(replica).or_insert(new).is_surplus = false;
    }

    /// Replicas are to leave because their ranks have too many.
    pub fn add_surplus(&mut self, replicas: impl IntoIterator<Item = ReplicaId>) {
        let surplus = Move { to: None, is_surplus: true, is_ending: false };
        self.0.extend(replicas.into_iter().map(|replica| (replica, surplus)));
    }

    pub fn remove(&mut self, replica: ReplicaId) -> Option<Move> {
        self.0.remove(&replica)
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Chooses anew which replicas of a rank with too many are to leave. The leader stays. Replicas that share their
    /// host with another leave first, then the youngest.
    pub fn choose_surplus(&mut self, facts: Facts<'_>, rank: VirtualRank) {
        let (members, view) = (facts.members, facts.members.view());
        let age = |replica: &ReplicaId| (view.member(*replica).map(|member| member.joined), replica.index);
        let mut staying: Vec<_> = view.live(rank).filter(|replica| !self.contains(*replica)).collect();
        staying.sort_by_key(age);
        let surplus = staying.len().saturating_sub(usize::from(members.degree(rank)));
        let host = |replica: &ReplicaId| members.host_of(*replica);
        let mut candidates: Vec<_> = staying.iter().skip(1).copied().collect();
        candidates.sort_by_key(|replica| staying.iter().filter(|other| host(other) == host(replica)).count());
        self.add_surplus(candidates.into_iter().rev().take(surplus));
    }

    /// Surplus replicas of a rank stay after all, unless they are being killed.
    pub fn forget_surplus(&mut self, rank: VirtualRank) {
        self.0.retain(|replica, going| replica.rank != rank || !going.is_surplus || going.is_ending);
    }

    /// Takes the replicas that their ranks can do without now, one of each rank at a time. They are to be killed.
    pub fn take_free(&mut self, facts: Facts<'_>, clones: &Clones) -> Vec<ReplicaId> {
        let members = facts.members;
        let is_whole = |process: &Process| process.counts() && !process.is_doomed && !process.joins;
        let is_free = |(replica, going): &(&ReplicaId, &Move)| {
            let rank = replica.rank;
            let count = members.view().live(rank).filter(|other| is_whole(members.of(*other))).count();
            let wanted = members.degree(rank).min(members.world().degree(rank) - 1);
            let is_first = self.0.keys().find(|other| other.rank == rank) == Some(replica);
            let is_idle = !clones.is_source(**replica) && is_whole(members.of(**replica));
            is_first && is_idle && !going.is_ending && count > usize::from(wanted)
        };
        let free: Vec<_> = self.0.iter().filter(is_free).map(|(replica, _)| *replica).collect();
        for replica in &free {
            self.0.entry(*replica).and_modify(|going| going.is_ending = true);
        }
        free
    }

    /// The replicas that are to move to a host, and are not being killed yet.
    pub fn to_host(&self, host: u32) -> Vec<ReplicaId> {
        let to_host = |going: &Move| going.to == Some(host) && !going.is_ending;
        self.0.iter().filter(|(_, going)| to_host(going)).map(|(replica, _)| *replica).collect()
    }

    /// The replica of a rank that waits for a copy on this host.
    pub fn waiting_for(&self, rank: VirtualRank, host: u32) -> Option<ReplicaId> {
        self.to_host(host).into_iter().find(|replica| replica.rank == rank)
    }
}
