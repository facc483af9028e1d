//! Keeps every rank at its degree. Missing replicas are made good by copies of living ones, and a replica that is to
//! leave does so when another has its part.
//!
//! ```text
//!  missing ──a place is granted──▶ opening ──▶ copying ──▶ ready ──▶ pinning ──▶ cutting ──▶ joining ──▶ in step
//!    ▲                                │           │          └ waits until no other clone is in these two
//!    └───── after a rest ─────────────┴── its source or host is lost, something failed
//! ```
//! One rule drives all of it ([`missing`]): a rank's replicas that stay, and the copies under way, are to be as many as
//! its degree. A loss, a greater degree, and a replica that is told to leave each make one missing. A replica that is
//! to leave goes when enough others are in step ([`leaving`]), so redundancy never suffers from a move.
//!
//! Only one clone at a time is between *pinning* and the view with its copy. The trap: a process that is copied then
//! would have an image from before it was asked to pin for the other clone, and would keep nothing for it.
//!
//! A view with the copy is made only while its source is live. Otherwise the source's siblings may have gone on without
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

use super::{CloneFailure, Coordinator, Output, Report};
use attempt::{Attempt, PIN_TIME_MAX, Stage, Untold};
use holding::Holding;
use missing::{Missing, Seat};
use redrt_types::{Incarnation, ReplicaId, VirtualRank};
use redrt_wire::clone::{CloneId, CloneOrder, Cost, Newcomer};
use redrt_wire::daemon::ToDaemon;
use serde::{Deserialize, Serialize};
use spare_pool::PlaceOrder;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The purpose of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Purpose {
    /// It replaces a lost replica.
    Loss,
    /// It takes the part of a replica that is to leave.
    Move,
    /// Its rank is to have more replicas.
    Growth,
    /// It stands ready to judge if its siblings differ.
    Arbitration,
}

/// The making of one copy, for the user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recovered {
    /// The place that the copy fills.
    pub replica: ReplicaId,
    /// The replica that was copied.
    pub source: ReplicaId,
    /// The purpose of the copy.
    pub purpose: Purpose,
    /// Time from the loss, or the wish, until the copy was in step. After a loss this is the vulnerability window.
    pub window: Duration,
    /// Part of `window` before a clone was begun.
    pub waited: Duration,
    /// Part of `window` from then until the source could be stopped.
    pub copied: Duration,
    /// The cost of the clone. None if its source or the job ended before its daemon reported it.
    pub cost: Option<Cost>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Host {
    name: String,
    is_alive: bool,
    /// True if it is to become free, and gets no more copies.
    is_closed: bool,
    /// True if the user was told that it has become free.
    is_told_free: bool,
    /// True if memory ran out there. A copy must then find more than it needs now.
    is_short: bool,
}

impl Host {
    fn new(name: String) -> Self {
        Self { name, is_alive: true, is_closed: false, is_told_free: false, is_short: false }
    }
}

/// The means to replace the lost replicas of a job.
#[derive(Clone, Debug)]
pub struct Recovery {
    hosts: Vec<String>,
    degrees: Vec<u16>,
    host_of: Vec<u32>,
    clone_count_max: usize,
    /// Interval of renewing the copies that arbitrate. None without them.
    arbitration_interval: Option<Duration>,
}

impl Recovery {
    /// A job on these hosts. `degrees` are by rank, `host_of` is by process, and `clone_count_max` bounds the clones at
    /// a time.
    #[must_use]
    pub fn new(hosts: Vec<String>, degrees: Vec<u16>, host_of: Vec<u32>, clone_count_max: usize) -> Self {
        Self { hosts, degrees, host_of, clone_count_max, arbitration_interval: None }
    }

    /// Keeps a copy of both replicas of each rank with two, to judge when the two differ. Copies are renewed after
    /// `interval`.
    #[must_use]
    pub fn arbitrating(self, interval: Duration) -> Self {
        Self { arbitration_interval: Some(interval), ..self }
    }
}

/// The hosts of a job, its missing replicas and the clones under way; see the module for the rule.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Copies {
    hosts: BTreeMap<u32, Host>,
    /// Replicas in places of a pool, with the numbers of the requests.
    places: BTreeMap<ReplicaId, u64>,
    missing: BTreeMap<ReplicaId, Missing>,
    leaving: BTreeMap<ReplicaId, Move>,
    attempts: BTreeMap<CloneId, Attempt>,
    /// Copies in step that were not reported yet, because their cost is unknown.
    untold: BTreeMap<CloneId, Untold>,
    /// Incarnations that can never be copied.
    unfit: BTreeSet<(ReplicaId, Incarnation)>,
    /// Incarnations whose memory others contradicted when they were to be copied.
    distrusted: BTreeSet<(ReplicaId, Incarnation)>,
    /// None without `redrun --arbitrate`.
    holding: Option<Holding>,
    next_number: u64,
    /// Number of cuts so far. Orders them against comparisons of memory.
    pub(super) cut_count: u64,
    clone_count_max: usize,
    /// The user was told that ranks which share memory are not copied.
    pub(super) was_told_of_planes: bool,
}

impl Copies {
    /// A job in which `cut_count` cuts were made before.
    fn new(recovery: Recovery, cut_count: u64) -> Self {
        let Recovery { hosts, clone_count_max, arbitration_interval, .. } = recovery;
        Self {
            hosts: (0..).zip(hosts.into_iter().map(Host::new)).collect(),
            places: BTreeMap::new(),
            missing: BTreeMap::new(),
            leaving: BTreeMap::new(),
            attempts: BTreeMap::new(),
            untold: BTreeMap::new(),
            unfit: BTreeSet::new(),
            distrusted: BTreeSet::new(),
            holding: arbitration_interval.map(Holding::new),
            next_number: 0,
            cut_count,
            clone_count_max,
            was_told_of_planes: false,
        }
    }

    /// Places that are to be filled, and for which no clone is under way.
    pub(super) fn empty_places(&self) -> impl Iterator<Item = ReplicaId> + '_ {
        self.missing.keys().copied()
    }

    fn name(&self, host: u32) -> &str {
        &self.hosts[&host].name
    }

    fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// Returns true if a clone is between its pins and the view with its copy.
    pub(super) fn is_cutting(&self) -> bool {
        self.attempts.values().any(|attempt| matches!(attempt.stage, Stage::Pinning { .. } | Stage::Cutting))
    }

    /// Returns true if no clone is under way, apart from copies that stand ready to judge.
    pub(super) fn is_idle(&self) -> bool {
        self.attempts.values().all(|attempt| attempt.stage == Stage::Held)
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
    /// Replaces lost replicas by copies from now on.
    pub fn recover_with(&mut self, recovery: Recovery) {
        self.members.launch(recovery.host_of.clone());
        self.members.ranks().zip(&recovery.degrees).for_each(|(rank, degree)| self.members.want(rank, *degree));
        // A job that goes on from a checkpoint has made cuts before.
        let cut_count = self.members.view().latest_cut().0;
        self.recovery = Some(Copies::new(recovery, cut_count));
    }

    /// Allows copies on this host: it is new, or it was closed before.
    pub fn open_host(&mut self, number: u32, name: String) {
        if let Some(recovery) = &mut self.recovery {
            recovery.hosts.insert(number, Host::new(name));
        }
    }

    /// Marks a host as gone. It has no replicas any more, and gets no more copies.
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

    /// Acts on the loss of a host: plans that need it are given up.
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
        recovery.places.retain(|replica, _| self.members.host_of(*replica) != Some(number));
        self.give_up_on_host(now, number, &CloneFailure::HostLost);
        self.tell_recovered(|untold| untold.source_host == number);
        self.cancel_moves_to(number);
    }

    /// Drops all plans and clones, because the job ends or all its processes finalize.
    pub(super) fn end_recovery(&mut self, now: Duration) {
        let Some(recovery) = &mut self.recovery else { return };
        let ids: Vec<_> = recovery.attempts.keys().copied().collect();
        self.members.end_joining();
        recovery.leaving.clear();
        recovery.holding = None;
        let missing = std::mem::take(&mut recovery.missing);
        missing.into_values().for_each(|missing| self.give_seat_back(missing.seat));
        for id in ids {
            self.withdraw(now, id, None);
        }
        self.tell_recovered(|_| true);
    }

    /// Does all that is due by `now`.
    pub(super) fn pass_recovery_time(&mut self, now: Duration) {
        if !self.course.is_under_way() || self.recovery.is_none() {
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

    /// Marks a host where memory ran out.
    pub(super) fn memory_ran_out(&mut self, host: u32) {
        if let Some(host) = self.recovery.as_mut().and_then(|recovery| recovery.hosts.get_mut(&host)) {
            host.is_short = true;
        }
    }

    /// Bytes that a copy of this rank needs on a host, as far as known. Where memory ran out before, an eighth is added
    /// for growth, so that the kernel's next victim is not the source.
    fn memory_for(&self, rank: VirtualRank, host: u32) -> u64 {
        let of = |replica: ReplicaId| self.members.of(replica).latest.resident_bytes;
        let bytes = self.members.world().sphere(rank).map(of).max().unwrap_or(0);
        let is_short = self.recovery.as_ref().is_some_and(|recovery| recovery.hosts[&host].is_short);
        if is_short { bytes.saturating_add(bytes / 8) } else { bytes }
    }

    /// Frees the place of a process that has ended and whose output is complete.
    pub(super) fn place_freed(&mut self, replica: ReplicaId) {
        let is_under_way = self.course.is_under_way();
        let Some(host) = self.members.host_of(replica).filter(|_| is_under_way) else { return };
        let Some(recovery) = &mut self.recovery else { return };
        let number = recovery.places.remove(&replica);
        let host = &recovery.hosts[&host];
        match number {
            Some(number) => self.place(PlaceOrder::Release(number)),
            None if host.is_alive => {
                let host = host.name.clone();
                self.place(PlaceOrder::Freed(host));
            }
            None => {}
        }
    }

    /// Returns true if a replica of this rank is about to be stopped for a copy, or was, and the copy is not in the
    /// view yet.
    #[must_use]
    pub fn is_cutting(&self, rank: VirtualRank) -> bool {
        let attempts = self.recovery.iter().flat_map(|recovery| recovery.attempts.values());
        let mut of_rank = attempts.filter(|attempt| attempt.newcomer.replica.rank == rank);
        of_rank.any(|attempt| matches!(attempt.stage, Stage::Pinning { .. } | Stage::Cutting))
    }

    /// Returns true if copies may be put on another host than this one.
    pub(super) fn has_open_host_besides(&self, host: u32) -> bool {
        let hosts = self.recovery.iter().flat_map(|recovery| &recovery.hosts);
        let mut others = hosts.filter(|(number, _)| **number != host);
        others.any(|(_, other)| other.is_alive && !other.is_closed)
    }

    /// The clones under way, without copies that stand ready.
    pub fn attempts(&self) -> impl Iterator<Item = (CloneId, Newcomer)> + '_ {
        let attempts = self.recovery.iter().flat_map(|recovery| &recovery.attempts);
        attempts.filter(|(_, attempt)| attempt.stage != Stage::Held).map(|(id, attempt)| (*id, attempt.newcomer))
    }
}

impl Coordinator {
    /// Reports once in a job that places stay empty because their ranks share memory.
    fn tell_of_planes(&mut self) {
        let Some(recovery) = self.recovery.as_ref().filter(|recovery| !recovery.was_told_of_planes) else { return };
        let in_plane = |place: ReplicaId| self.view().live(place.rank).find(|source| self.members.is_in_plane(*source));
        let found = recovery.empty_places().find_map(|place| Some((place, in_plane(place)?)));
        let Some((replica, source)) = found else { return };
        if let Some(recovery) = &mut self.recovery {
            recovery.was_told_of_planes = true;
        }
        let (host, why) = (String::new(), CloneFailure::SharesMemory);
        self.report(Report::CloneFailed { replica, source, host, why });
    }
}
