//! Every rank is to have as many replicas as was said: what is missing is made good by copies of living ones, and who
//! is to leave does so when others have its part.
//!
//! ```text
//!  missing ──a place is granted──▶ opening ──▶ copying ──▶ ready ──▶ pinning ──▶ cutting ──▶ joining ──▶ in step
//!    ▲                                │           │          └ waits until no other clone is in these two
//!    └───── after a rest ─────────────┴── its source or host is lost, something failed
//! ```
//! One rule makes all the moves ([`missing`]): a rank's replicas that stay, and the copies that are under way, are to
//! be as many as its degree. A loss, a greater degree, and a replica that is told to leave each make one missing. A
//! replica that is to leave goes when enough others are in step ([`leaving`]), so redundancy is never less than without
//! it.
//!
//! Only one clone is between *pinning* and the view with its copy at a time. A process that is copied then would have
//! an image from before it was asked to pin for the other, and would keep nothing for it.
//!
//! A view with the copy is made only while its source is live: else the source's siblings may have gone on without
//! decisions that the copy alone has (`quiesce`'s join).

mod attempt;
mod holding;
mod judging;
mod leaving;
mod missing;
mod proof;
mod wish;

pub use judging::{Arbiter, Arbitration};
pub use leaving::Move;
pub use proof::Unproven;
pub use wish::{Wish, WishError};

use super::{CloneFailure, Coordinator, Output};
use attempt::{Attempt, PIN_TIME_MAX, Stage, Untold};
use holding::Holding;
use missing::{Missing, Seat};
use redrt_types::{Incarnation, ReplicaId, VirtualRank, World};
use redrt_wire::clone::{CloneId, CloneOrder, Cost, Newcomer};
use redrt_wire::daemon::ToDaemon;
use serde::{Deserialize, Serialize};
use spare_pool::PlaceOrder;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Why a copy is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Purpose {
    /// A replica was lost.
    Loss,
    /// One is to leave.
    Move,
    /// The rank is to have more.
    Growth,
    /// It is to stand ready, and judge if its siblings differ.
    Arbitration,
}

/// What it took to make a copy, for the user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recovered {
    /// The place.
    pub replica: ReplicaId,
    /// Who was copied.
    pub source: ReplicaId,
    /// What for.
    pub purpose: Purpose,
    /// From the loss, or the wish, to the copy in step. After a loss: the vulnerability window.
    pub window: Duration,
    /// Of it, until a clone was begun.
    pub waited: Duration,
    /// Then, until the source could be stopped.
    pub copied: Duration,
    /// What the clone cost. Absent when its source, or the job, ended before it was said.
    pub cost: Option<Cost>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Host {
    name: String,
    is_alive: bool,
    /// It is to become free, and nothing is put there.
    is_closed: bool,
    /// It was said that it is.
    is_told_free: bool,
    /// Memory has run out there: a copy must find more than it needs now.
    is_short: bool,
}

impl Host {
    fn new(name: String) -> Self {
        Self { name, is_alive: true, is_closed: false, is_told_free: false, is_short: false }
    }
}

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recovery {
    hosts: BTreeMap<u32, Host>,
    /// By process: the number of its host.
    host_of: Vec<u32>,
    /// By rank: how many replicas it is to have.
    degrees: Vec<u16>,
    /// Replicas that are in places of a pool, and the numbers by which these were asked for.
    places: BTreeMap<ReplicaId, u64>,
    missing: BTreeMap<ReplicaId, Missing>,
    leaving: BTreeMap<ReplicaId, Move>,
    attempts: BTreeMap<CloneId, Attempt>,
    /// Copies in step that wait to be told of, until the hosts of their sources say what they cost.
    untold: BTreeMap<CloneId, Untold>,
    /// Replicas that cannot be copied as long as they live.
    unfit: BTreeSet<(ReplicaId, Incarnation)>,
    /// Replicas that were to be copied, and whose memory others have contradicted.
    distrusted: BTreeSet<(ReplicaId, Incarnation)>,
    /// Absent where no copies stand ready to judge.
    holding: Option<Holding>,
    next_number: u64,
    /// Cuts and comparisons of memory so far.
    pub(super) cut_count: u64,
    clone_count_max: usize,
    /// The user was told that ranks which share memory are not copied.
    pub(super) was_told_of_planes: bool,
}

impl Recovery {
    /// A job on these hosts, with the degrees of its ranks and the places of its processes.
    #[must_use]
    pub fn new(hosts: Vec<String>, degrees: Vec<u16>, host_of: Vec<u32>, clone_count_max: usize) -> Self {
        Self {
            hosts: (0..).zip(hosts.into_iter().map(Host::new)).collect(),
            host_of,
            degrees,
            places: BTreeMap::new(),
            missing: BTreeMap::new(),
            leaving: BTreeMap::new(),
            attempts: BTreeMap::new(),
            untold: BTreeMap::new(),
            unfit: BTreeSet::new(),
            distrusted: BTreeSet::new(),
            holding: None,
            next_number: 0,
            cut_count: 0,
            clone_count_max,
            was_told_of_planes: false,
        }
    }

    /// Places that are to be filled, and nobody is at it.
    pub(super) fn empty_places(&self) -> impl Iterator<Item = ReplicaId> + '_ {
        self.missing.keys().copied()
    }

    /// Of each rank with two replicas, copies of both stand ready from now on to judge when the two differ, and are
    /// made anew so often.
    #[must_use]
    pub fn arbitrating(self, interval: Duration) -> Self {
        Self { holding: Some(Holding::new(interval)), ..self }
    }

    fn host(&self, world: &World, replica: ReplicaId) -> u32 {
        self.host_of[world.process(replica).0 as usize]
    }

    fn host_name(&self, world: &World, replica: ReplicaId) -> &str {
        self.name(self.host(world, replica))
    }

    fn name(&self, host: u32) -> &str {
        &self.hosts[&host].name
    }

    fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// Whether a clone is between its pins and the view with its copy.
    pub(super) fn is_cutting(&self) -> bool {
        self.attempts.values().any(|attempt| matches!(attempt.stage, Stage::Pinning { .. } | Stage::Cutting))
    }

    /// Whether no copy is under way, but for those that stand ready to judge.
    pub(super) fn is_idle(&self) -> bool {
        self.attempts.values().all(|attempt| attempt.stage == Stage::Held)
    }

    /// Copies that are in the view and have not heard their leader.
    pub(super) fn joining_count(&self) -> usize {
        self.attempts.values().filter(|attempt| attempt.stage == Stage::Joining).count()
    }

    fn is_joining(&self, replica: ReplicaId) -> bool {
        self.attempts.values().any(|attempt| attempt.newcomer.replica == replica && attempt.stage == Stage::Joining)
    }

    pub(super) fn next_deadline(&self, now: Duration) -> Option<Duration> {
        let rests = self.missing.values().map(|missing| missing.not_before).filter(|at| *at > now);
        let pins = self.attempts.values().filter_map(|attempt| match attempt.stage {
            Stage::Pinning { since, .. } => Some(since + PIN_TIME_MAX),
            _ => None,
        });
        rests.chain(pins).chain(self.proof_deadline()).chain(self.next_renewal(now)).min()
    }
}

impl Coordinator {
    /// Replicas can be copied, and lost ones are to be replaced from now on.
    pub fn recover_with(&mut self, recovery: Recovery) {
        // A job that goes on from a line has made cuts before.
        let cut_count = self.view.latest_cut().0;
        self.recovery = Some(Recovery { cut_count, ..recovery });
    }

    /// Copies may be put on this host from now on: it is new, or was to become free.
    pub fn open_host(&mut self, number: u32, name: String) {
        if let Some(recovery) = &mut self.recovery {
            recovery.hosts.insert(number, Host::new(name));
        }
    }

    /// Nothing is on this host any more, and nothing can be put there.
    pub fn dismiss_host(&mut self, number: u32) {
        if let Some(host) = self.recovery.as_mut().and_then(|recovery| recovery.hosts.get_mut(&number)) {
            host.is_alive = false;
        }
    }

    fn order(&mut self, host: u32, id: CloneId, order: CloneOrder) {
        self.outputs.push_back(Output::SendTo(host, ToDaemon::Clone { id, order }));
    }

    fn place(&mut self, order: PlaceOrder) {
        self.outputs.push_back(Output::Place(order));
    }

    /// A host is gone: nothing can be put there.
    pub(super) fn host_lost(&mut self, now: Duration, name: &str) {
        let Some(recovery) = &mut self.recovery else { return };
        let alive = recovery.hosts.iter_mut().find(|(_, host)| host.name == name && host.is_alive);
        let Some((number, host)) = alive else { return };
        host.is_alive = false;
        let number = *number;
        let there = |seat: &Seat| matches!(seat, Seat::Granted { host, .. } if *host == number);
        for missing in recovery.missing.values_mut().filter(|missing| there(&missing.seat)) {
            missing.seat = Seat::None;
        }
        let world = &self.settings.world;
        recovery.places.retain(|replica, _| recovery.host_of[world.process(*replica).0 as usize] != number);
        self.give_up_on_host(now, number, &CloneFailure::HostLost);
        self.tell_recovered(|untold| untold.source_host == number);
        self.cancel_moves_to(number);
    }

    /// The job is over, or all leave it: nobody needs copies.
    pub(super) fn end_recovery(&mut self, now: Duration) {
        let Some(recovery) = &mut self.recovery else { return };
        let ids: Vec<_> = recovery.attempts.keys().copied().collect();
        recovery.leaving.clear();
        recovery.holding = None;
        let missing = std::mem::take(&mut recovery.missing);
        missing.into_values().for_each(|missing| self.give_seat_back(missing.seat));
        for id in ids {
            self.withdraw(now, id, None);
        }
        self.tell_recovered(|_| true);
    }

    /// Does what is due.
    pub(super) fn pass_recovery_time(&mut self, now: Duration) {
        if !self.is_under_way() || self.recovery.is_none() {
            return;
        }
        self.give_up_late_pins(now);
        self.heed_vouching(now);
        self.conclude_cases(now);
        self.let_leave();
        self.hold_copies(now);
        self.tell_of_planes();
        self.fill_places(now);
    }

    /// Memory has run out on a host.
    pub(super) fn memory_ran_out(&mut self, host: u32) {
        if let Some(host) = self.recovery.as_mut().and_then(|recovery| recovery.hosts.get_mut(&host)) {
            host.is_short = true;
        }
    }

    /// What a copy of this rank needs on a host, as far as that is known. Where memory has run out before, programs
    /// that grow get an eighth more, so that the next one that the kernel kills is not the source.
    fn memory_for(&self, rank: VirtualRank, host: u32) -> u64 {
        let of = |replica: ReplicaId| self.processes[self.world().process(replica).0 as usize].latest.resident_bytes;
        let bytes = self.world().sphere(rank).map(of).max().unwrap_or(0);
        let is_short = self.recovery.as_ref().is_some_and(|recovery| recovery.hosts[&host].is_short);
        if is_short { bytes.saturating_add(bytes / 8) } else { bytes }
    }

    /// A process has ended and its output is complete: what it occupied is free.
    pub(super) fn place_freed(&mut self, replica: ReplicaId) {
        let is_under_way = self.is_under_way();
        let world = &self.settings.world;
        let Some(recovery) = &mut self.recovery else { return };
        if !is_under_way {
            return;
        }
        let number = recovery.places.remove(&replica);
        let host = &recovery.hosts[&recovery.host(world, replica)];
        match number {
            Some(number) => self.place(PlaceOrder::Release(number)),
            None if host.is_alive => {
                let host = host.name.clone();
                self.place(PlaceOrder::Freed(host));
            }
            None => {}
        }
    }

    /// How many replicas a rank is to have.
    #[must_use]
    pub fn degree(&self, rank: VirtualRank) -> u16 {
        match &self.recovery {
            Some(recovery) => recovery.degrees[rank.0 as usize],
            None => self.settings.view.degree(rank),
        }
    }

    /// Whether a replica of this rank is about to be stopped, or has been, and its copy has no place yet.
    #[must_use]
    pub fn is_cutting(&self, rank: VirtualRank) -> bool {
        let attempts = self.recovery.iter().flat_map(|recovery| recovery.attempts.values());
        let mut of_rank = attempts.filter(|attempt| attempt.newcomer.replica.rank == rank);
        of_rank.any(|attempt| matches!(attempt.stage, Stage::Pinning { .. } | Stage::Cutting))
    }

    /// Whether it has all that its sphere has decided. A copy that has not heard its leader yet does not: it cannot go
    /// on alone.
    pub(super) fn is_in_step(&self, replica: ReplicaId) -> bool {
        self.recovery.as_ref().is_none_or(|recovery| !recovery.is_joining(replica))
    }

    /// The number of the host that a replica is on.
    pub(crate) fn host_of(&self, replica: ReplicaId) -> Option<u32> {
        match &self.recovery {
            Some(recovery) => Some(recovery.host(self.world(), replica)),
            // Nobody moves.
            None => self.placement.get(self.world().process(replica).0 as usize).copied(),
        }
    }

    /// Whether copies may be put on another host than this one.
    pub(super) fn has_open_host_besides(&self, host: u32) -> bool {
        let hosts = self.recovery.iter().flat_map(|recovery| &recovery.hosts);
        let mut others = hosts.filter(|(number, _)| **number != host);
        others.any(|(_, other)| other.is_alive && !other.is_closed)
    }

    /// The clones that are under way.
    pub fn attempts(&self) -> impl Iterator<Item = (CloneId, Newcomer)> + '_ {
        let attempts = self.recovery.iter().flat_map(|recovery| &recovery.attempts);
        attempts.filter(|(_, attempt)| attempt.stage != Stage::Held).map(|(id, attempt)| (*id, attempt.newcomer))
    }
}
