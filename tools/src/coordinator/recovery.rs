//! Lost replicas are replaced: a healthy sibling is copied while it runs, and the copy takes the free place.
//!
//! ```text
//!  wanted ──a place is leased──▶ opening ──▶ copying ──▶ ready ──▶ pinning ──▶ cutting ──▶ joining ──▶ done
//!    ▲                              │           │          └ waits until no other clone is in these two
//!    └───── after a rest ───────────┴── its source or host is lost, something failed
//! ```
//! Only one clone is between *pinning* and the view with its copy at a time. A process that is copied then would have an
//! image from before it was asked to pin for the other, and would keep nothing for it.
//!
//! A view with the copy is made only while its source is live: else the source's siblings may have gone on without decisions
//! that the copy alone has (`quiesce`'s join).

use super::{Coordinator, Exit, Output, Phase, Process, Report};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::clone::{CloneId, CloneOrder, CloneStep, Cost, Newcomer, Position};
use redrt_wire::control::Card;
use redrt_wire::daemon::ToDaemon;
use spare_pool::{JobId, LeaseId, Pool, Request, Settings, Spare};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Every process answers at once that it keeps what a copy may need. One that was stopped does not, and the source is not
/// kept ready for it for ever.
const PIN_TIME_MAX: Duration = Duration::from_secs(20);
/// The rest after a first failure that was not the spare's fault; it doubles with each.
const REST_FIRST: Duration = Duration::from_millis(250);
/// The longest rest.
const REST_MAX: Duration = Duration::from_secs(60);

/// A host and what may be put there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostRoom {
    /// Its name.
    pub name: String,
    /// Places for copies.
    pub spare_places: u32,
}

/// A place that has lost its replica.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    lost_at: Duration,
    not_before: Duration,
    failure_count: u32,
    /// The user was told that there is no spare.
    was_told: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Stage {
    Opening,
    Copying,
    Ready,
    Pinning { missing: BTreeSet<ReplicaId>, since: Duration },
    Cutting,
    Joining,
}

/// One attempt.
#[derive(Clone, Debug)]
struct Attempt {
    newcomer: Newcomer,
    wanted: Wanted,
    /// Where the copy is to be, and the lease of that place.
    host: u32,
    lease: LeaseId,
    /// Where its source is.
    source_host: u32,
    stage: Stage,
    begun_at: Duration,
    ready_at: Duration,
    position: Option<Position>,
    is_running: bool,
    card: Option<Card>,
    cost: Option<Cost>,
}

/// What a recovery took, for the user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// The place.
    pub replica: ReplicaId,
    /// Who was copied.
    pub source: ReplicaId,
    /// From the loss to the copy in step: the vulnerability window.
    pub window: Duration,
    /// Of it, until a clone was begun.
    pub waited: Duration,
    /// Then, until the source could be stopped.
    pub copied: Duration,
    /// What the clone cost, when that is known already.
    pub cost: Option<Cost>,
}

/// See the module.
#[derive(Debug)]
pub struct Recovery {
    pool: Pool,
    job: JobId,
    hosts: Vec<HostRoom>,
    /// By process: the number of its host.
    host_of: Vec<u32>,
    /// By process: the place that it has leased, if it is a copy.
    leases: BTreeMap<ReplicaId, LeaseId>,
    wanted: BTreeMap<ReplicaId, Wanted>,
    attempts: BTreeMap<CloneId, Attempt>,
    next_id: u64,
    clone_count_max: usize,
}

impl Recovery {
    /// A job with these hosts, whose processes are placed so.
    #[must_use]
    pub fn new(job: u64, hosts: Vec<HostRoom>, host_of: Vec<u32>, clone_count_max: usize) -> Self {
        let mut pool = Pool::new(Settings { rest_first: REST_FIRST, ..Settings::embedded() });
        for host in hosts.iter().filter(|host| host.spare_places > 0) {
            pool.add(Spare::new(&host.name, host.spare_places), Duration::ZERO);
        }
        Self {
            pool,
            job: JobId(job),
            hosts,
            host_of,
            leases: BTreeMap::new(),
            wanted: BTreeMap::new(),
            attempts: BTreeMap::new(),
            next_id: 0,
            clone_count_max,
        }
    }

    fn host_number(&self, name: &str) -> u32 {
        self.hosts.iter().position(|host| host.name == name).expect("only these hosts are in the pool") as u32
    }

    /// One more place is free on a host on which a process has ended.
    fn free_place(&mut self, replica: ReplicaId, host: u32, now: Duration) {
        if let Some(lease) = self.leases.remove(&replica) {
            self.pool.release(lease, now);
            return;
        }
        let room = &mut self.hosts[host as usize];
        room.spare_places += 1;
        self.pool.add(Spare::new(&room.name, room.spare_places), now);
    }

    /// Whether a clone is between its pins and the view with its copy.
    fn is_cutting(&self) -> bool {
        self.attempts.values().any(|attempt| matches!(attempt.stage, Stage::Pinning { .. } | Stage::Cutting))
    }

    pub(super) fn next_deadline(&self, now: Duration) -> Option<Duration> {
        let rests = self.wanted.values().map(|wanted| wanted.not_before).filter(|at| *at > now);
        let pins = self.attempts.values().filter_map(|attempt| match attempt.stage {
            Stage::Pinning { since, .. } => Some(since + PIN_TIME_MAX),
            _ => None,
        });
        let pool = if self.wanted.is_empty() { None } else { self.pool.next_event(now) };
        rests.chain(pins).chain(pool).min()
    }
}

impl Coordinator {
    /// Lost replicas are to be replaced from now on.
    pub fn recover_with(&mut self, recovery: Recovery) {
        self.recovery = Some(recovery);
    }

    fn order(&mut self, host: u32, id: CloneId, order: CloneOrder) {
        self.outputs.push_back(Output::SendTo(host, ToDaemon::Clone { id, order }));
    }

    /// Replicas are not in the view any more: clones that need them end, and they are to be replaced.
    pub(super) fn replace(&mut self, now: Duration, lost: &[ReplicaId]) {
        let Some(recovery) = &mut self.recovery else { return };
        for replica in lost {
            let wanted = Wanted { lost_at: now, not_before: now, failure_count: 0, was_told: false };
            recovery.wanted.insert(*replica, wanted);
        }
        let mut given_up = Vec::new();
        for (id, attempt) in &mut recovery.attempts {
            if attempt.stage == Stage::Joining {
                if lost.contains(&attempt.newcomer.replica) {
                    given_up.push((*id, None));
                }
                continue;
            }
            if lost.contains(&attempt.newcomer.source) {
                given_up.push((*id, Some("its source was lost")));
            }
            if let Stage::Pinning { missing, .. } = &mut attempt.stage {
                missing.retain(|replica| !lost.contains(replica));
            }
        }
        for (id, why) in given_up {
            match why {
                Some(why) => self.give_up(now, id, why, false),
                None => self.forget(id),
            }
        }
        self.cut_when_pinned(now);
    }

    /// A newcomer was in the view, and is lost like any other.
    fn forget(&mut self, id: CloneId) {
        let Some(attempt) = self.recovery.as_mut().and_then(|recovery| recovery.attempts.remove(&id)) else { return };
        self.send(ToDaemon::Unpin(attempt.newcomer.replica));
    }

    /// A host is gone: nothing can be put there.
    pub(super) fn host_lost(&mut self, now: Duration, name: &str) {
        let Some(recovery) = &mut self.recovery else { return };
        recovery.pool.remove(name, now);
        let Some(number) = recovery.hosts.iter().position(|host| host.name == name) else { return };
        recovery.hosts[number].spare_places = 0;
        let concerned = recovery.attempts.iter().filter(|(_, attempt)| attempt.host == number as u32);
        let concerned: Vec<_> =
            concerned.filter(|(_, attempt)| attempt.stage != Stage::Joining).map(|(id, _)| *id).collect();
        for id in concerned {
            self.give_up(now, id, "its host was lost", false);
        }
    }

    /// The job is over, or all leave it: nobody needs copies.
    pub(super) fn end_recovery(&mut self, now: Duration) {
        let Some(recovery) = &mut self.recovery else { return };
        let ids: Vec<_> = recovery.attempts.keys().copied().collect();
        recovery.wanted.clear();
        for id in ids {
            self.withdraw(now, id, false);
        }
    }

    /// An attempt ends without a copy in the view; tells everybody who has done something for it.
    fn withdraw(&mut self, now: Duration, id: CloneId, blames_host: bool) -> Option<Attempt> {
        let recovery = self.recovery.as_mut()?;
        let attempt = recovery.attempts.remove(&id)?;
        if blames_host {
            recovery.pool.failed(attempt.lease, "a clone to it failed", now);
        } else if attempt.stage != Stage::Joining {
            recovery.pool.release(attempt.lease, now);
        }
        if matches!(attempt.stage, Stage::Pinning { .. } | Stage::Cutting | Stage::Joining) {
            self.send(ToDaemon::Unpin(attempt.newcomer.replica));
        }
        if attempt.stage != Stage::Joining {
            self.order(attempt.source_host, id, CloneOrder::Abandon);
            self.order(attempt.host, id, CloneOrder::Abandon);
        }
        Some(attempt)
    }

    fn give_up(&mut self, now: Duration, id: CloneId, why: &str, blames_host: bool) {
        let Some(attempt) = self.withdraw(now, id, blames_host) else { return };
        let Some(recovery) = &mut self.recovery else { return };
        let failure_count = attempt.wanted.failure_count + 1;
        let rest = REST_FIRST.saturating_mul(1 << (failure_count - 1).min(16)).min(REST_MAX);
        let not_before = now + rest;
        let replica = attempt.newcomer.replica;
        recovery.wanted.insert(replica, Wanted { not_before, failure_count, ..attempt.wanted });
        let host = recovery.hosts[attempt.host as usize].name.clone();
        self.report(Report::CloneFailed { replica, source: attempt.newcomer.source, host, what: why.to_owned() });
        self.pin_next(now);
    }

    /// Begins what can be begun.
    pub(super) fn pass_recovery_time(&mut self, now: Duration) {
        if !self.is_under_way() {
            return;
        }
        let Some(recovery) = &mut self.recovery else { return };
        let late = recovery.attempts.iter().filter_map(|(id, attempt)| match attempt.stage {
            Stage::Pinning { since, .. } if now >= since + PIN_TIME_MAX => Some(*id),
            _ => None,
        });
        for id in late.collect::<Vec<_>>() {
            self.give_up(now, id, "a process does not answer", false);
        }
        let Some(recovery) = &self.recovery else { return };
        let due: Vec<_> = recovery
            .wanted
            .iter()
            .filter(|(_, wanted)| now >= wanted.not_before)
            .map(|(replica, _)| *replica)
            .collect();
        for replica in due {
            self.begin_clone(now, replica);
        }
    }

    /// Whom to copy: a sibling that is at work and is not being copied; the longest-serving of several is left alone if it can
    /// be, because it decides for the others.
    fn source_for(&self, replica: ReplicaId) -> Option<ReplicaId> {
        let recovery = self.recovery.as_ref()?;
        let seniority = |sibling: &ReplicaId| (self.view.member(*sibling).map(|member| member.joined), sibling.index);
        let leader = self.view.live(replica.rank).min_by_key(seniority);
        let is_fit = |source: &ReplicaId| {
            let process = &self.processes[self.world().process(*source).0 as usize];
            process.counts()
                && process.phase == Phase::Ready
                && !recovery
                    .attempts
                    .values()
                    .any(|attempt| attempt.newcomer.source == *source || attempt.newcomer.replica == *source)
        };
        self.view.live(replica.rank).filter(is_fit).min_by_key(|source| (Some(*source) == leader, source.index))
    }

    fn begin_clone(&mut self, now: Duration, replica: ReplicaId) {
        // What the dead one printed must have arrived before another speaks in its name.
        if !self.process(replica).is_gone() {
            return;
        }
        let Some(source) = self.source_for(replica) else { return };
        let world = self.settings.world.clone();
        let siblings: Vec<_> = self.view.live(replica.rank).collect();
        let Some(recovery) = &mut self.recovery else { return };
        if recovery.attempts.len() >= recovery.clone_count_max {
            return;
        }
        let host = |replica: ReplicaId| recovery.host_of[world.process(replica).0 as usize];
        // Not where a sibling is, and rather not where it was lost.
        let apart = siblings.into_iter().chain([replica]);
        let apart = apart.map(|other| recovery.hosts[host(other) as usize].name.clone());
        let request = Request::new(recovery.job).apart_from(apart.collect::<Vec<_>>());
        let source_host = host(source);
        let Some(lease) = recovery.pool.lease(request, now) else {
            let wanted = recovery.wanted.get_mut(&replica).expect("it is due");
            if !std::mem::replace(&mut wanted.was_told, true) {
                self.report(Report::NoSpare { replica });
            }
            return;
        };
        let wanted = recovery.wanted.remove(&replica).expect("it is due");
        let number = recovery.host_number(&lease.spare.name);
        let id = CloneId(recovery.next_id);
        recovery.next_id += 1;
        recovery.host_of[world.process(replica).0 as usize] = number;
        let process = &mut self.processes[world.process(replica).0 as usize];
        process.incarnation.0 += 1;
        let newcomer = Newcomer { replica, incarnation: process.incarnation, source };
        let attempt = Attempt {
            newcomer,
            wanted,
            host: number,
            lease: lease.id,
            source_host,
            stage: Stage::Opening,
            begun_at: now,
            ready_at: now,
            position: None,
            is_running: false,
            card: None,
            cost: None,
        };
        recovery.attempts.insert(id, attempt);
        self.outputs.push_back(Output::Moved { replica, host: number });
        self.report(Report::CloneBegun { replica, source, host: lease.spare.name });
        self.order(number, id, CloneOrder::Receive(newcomer));
    }

    /// A daemon says how far a clone has come.
    pub(super) fn clone_step(&mut self, now: Duration, host: u32, id: CloneId, step: CloneStep) {
        let Some(attempt) = self.recovery.as_mut().and_then(|recovery| recovery.attempts.get_mut(&id)) else { return };
        let (is_source, is_destination) = (host == attempt.source_host, host == attempt.host);
        let newcomer = attempt.newcomer;
        match (step, attempt.stage.clone()) {
            (CloneStep::Listening(address), Stage::Opening) if is_destination => {
                attempt.stage = Stage::Copying;
                let source_host = attempt.source_host;
                self.order(source_host, id, CloneOrder::Send { newcomer, address });
            }
            (CloneStep::Progress(progress), Stage::Copying) if is_source => {
                self.outputs.push_back(Output::Progress { newcomer, progress });
            }
            (CloneStep::Ready, Stage::Copying) if is_source => {
                attempt.stage = Stage::Ready;
                attempt.ready_at = now;
                self.pin_next(now);
            }
            (CloneStep::Stopped(position), Stage::Cutting) if is_source => {
                attempt.position = Some(position);
                self.admit_when_complete(now, id);
            }
            (CloneStep::Running { pid }, Stage::Cutting) if is_destination => {
                attempt.is_running = true;
                self.report(Report::CopyRuns { replica: newcomer.replica, pid });
                self.admit_when_complete(now, id);
            }
            (CloneStep::Sent(cost), _) if is_source => attempt.cost = Some(cost),
            (CloneStep::Failed { what }, Stage::Joining) if is_destination => {
                // It ended before it was known here that it has its place.
                self.report(Report::CloneFailed {
                    replica: newcomer.replica,
                    source: newcomer.source,
                    host: String::new(),
                    what,
                });
                self.handle_end_of_newcomer(now, newcomer.replica);
            }
            (CloneStep::Failed { what }, stage) if stage != Stage::Joining && (is_source || is_destination) => {
                self.give_up(now, id, &what, is_destination && !is_source);
            }
            // Out of turn: it is about what has been given up already, or changes nothing.
            _ => {}
        }
    }

    fn handle_end_of_newcomer(&mut self, now: Duration, replica: ReplicaId) {
        self.process(replica).drained = true;
        self.exited(now, replica, Exit::Signal(super::SIGKILL));
        self.place_freed(now, replica);
    }

    /// The next clone whose source can be stopped may do so, when no other is about to.
    fn pin_next(&mut self, now: Duration) {
        let live: BTreeSet<_> =
            (0..self.world().rank_count()).flat_map(|rank| self.view.live(VirtualRank(rank))).collect();
        let Some(recovery) = &mut self.recovery else { return };
        if recovery.is_cutting() {
            return;
        }
        let next = recovery.attempts.values_mut().find(|attempt| attempt.stage == Stage::Ready);
        let Some(attempt) = next else { return };
        attempt.stage = Stage::Pinning { missing: live, since: now };
        let newcomer = attempt.newcomer.replica;
        self.send(ToDaemon::Pin(newcomer));
    }

    /// A process keeps what this newcomer may ask for.
    pub(super) fn pinned(&mut self, now: Duration, by: ReplicaId, newcomer: ReplicaId) {
        let Some(recovery) = &mut self.recovery else { return };
        for attempt in recovery.attempts.values_mut().filter(|attempt| attempt.newcomer.replica == newcomer) {
            if let Stage::Pinning { missing, .. } = &mut attempt.stage {
                missing.remove(&by);
            }
        }
        self.cut_when_pinned(now);
    }

    fn cut_when_pinned(&mut self, now: Duration) {
        let Some(recovery) = &mut self.recovery else { return };
        let pinned = recovery
            .attempts
            .iter_mut()
            .find(|(_, attempt)| matches!(&attempt.stage, Stage::Pinning { missing, .. } if missing.is_empty()));
        match pinned {
            Some((id, attempt)) => {
                attempt.stage = Stage::Cutting;
                let (id, host) = (*id, attempt.source_host);
                self.order(host, id, CloneOrder::Cut);
            }
            None => self.pin_next(now),
        }
    }

    /// A copy says how it can be reached. `false` when the process is none that is awaited.
    pub(super) fn copy_ready(&mut self, now: Duration, replica: ReplicaId, card: &Card) -> bool {
        let Some(recovery) = &mut self.recovery else { return false };
        let waits = |attempt: &Attempt| attempt.newcomer.replica == replica && attempt.stage == Stage::Cutting;
        let Some((id, attempt)) = recovery.attempts.iter_mut().find(|(_, attempt)| waits(attempt)) else {
            return false;
        };
        attempt.card = Some(card.clone());
        let id = *id;
        self.admit_when_complete(now, id);
        true
    }

    /// The copy runs and can be reached: it gets its place.
    fn admit_when_complete(&mut self, now: Duration, id: CloneId) {
        let Some(recovery) = &mut self.recovery else { return };
        let attempt = recovery.attempts.get_mut(&id).expect("the caller has seen it");
        let (Some(position), Some(card), true) = (&attempt.position, &attempt.card, attempt.is_running) else { return };
        let (newcomer, position, card, host) = (attempt.newcomer, position.clone(), card.clone(), attempt.host);
        if !self.view.is_live(newcomer.source) || !self.process(newcomer.source).counts() {
            return self.give_up(now, id, "its source was lost", false);
        }
        let Some(recovery) = &mut self.recovery else { return };
        let attempt = recovery.attempts.get_mut(&id).expect("as above");
        attempt.stage = Stage::Joining;
        recovery.leases.insert(newcomer.replica, attempt.lease);
        let incarnation = newcomer.incarnation;
        *self.process(newcomer.replica) =
            Process { phase: Phase::Ready, card: Some(card.clone()), incarnation, ..Process::new() };
        self.view = self.view.with(newcomer.replica, incarnation);
        self.stall.reset(now);
        let processes = self.settings.world.replicas().zip(&self.processes);
        let live = processes.filter(|(replica, _)| self.view.is_live(*replica));
        let cards = live.filter_map(|(_, process)| process.card.clone()).collect();
        let offset = position.output_bytes;
        self.order(host, id, CloneOrder::Meet { cards, position });
        self.outputs.push_back(Output::StreamJoined { replica: newcomer.replica, source: newcomer.source, offset });
        self.send(ToDaemon::Cards(vec![card]));
        self.send(ToDaemon::View(self.view.clone()));
        self.pin_next(now);
    }

    /// A copy has heard its leader: redundancy is back.
    pub(super) fn in_step(&mut self, now: Duration, replica: ReplicaId) {
        let Some(recovery) = &mut self.recovery else { return };
        let joins = |attempt: &Attempt| attempt.newcomer.replica == replica && attempt.stage == Stage::Joining;
        let Some(id) = recovery.attempts.iter().find(|(_, attempt)| joins(attempt)).map(|(id, _)| *id) else { return };
        let attempt = recovery.attempts.remove(&id).expect("it was just found");
        recovery.pool.succeeded(attempt.lease, now);
        self.send(ToDaemon::Unpin(replica));
        self.report(Report::Recovered(Recovered {
            replica,
            source: attempt.newcomer.source,
            window: now.saturating_sub(attempt.wanted.lost_at),
            waited: attempt.begun_at.saturating_sub(attempt.wanted.lost_at),
            copied: attempt.ready_at.saturating_sub(attempt.begun_at),
            cost: attempt.cost,
        }));
    }

    /// A process has ended and its output is complete: what it occupied is free.
    pub(super) fn place_freed(&mut self, now: Duration, replica: ReplicaId) {
        let number = self.world().process(replica).0 as usize;
        let is_under_way = self.is_under_way();
        let Some(recovery) = &mut self.recovery else { return };
        let host = recovery.host_of[number];
        if is_under_way && recovery.wanted.contains_key(&replica) {
            recovery.free_place(replica, host, now);
        }
    }

    /// Whether a replica of this rank is about to be stopped, or has been, and its copy has no place yet.
    #[must_use]
    pub fn is_cutting(&self, rank: VirtualRank) -> bool {
        let attempts = self.recovery.iter().flat_map(|recovery| recovery.attempts.values());
        let mut of_rank = attempts.filter(|attempt| attempt.newcomer.replica.rank == rank);
        of_rank.any(|attempt| matches!(attempt.stage, Stage::Pinning { .. } | Stage::Cutting))
    }

    /// Whether it has all that its sphere has decided. A copy that has not heard its leader yet does not: it cannot go on alone.
    pub(super) fn is_in_step(&self, replica: ReplicaId) -> bool {
        let attempts = self.recovery.iter().flat_map(|recovery| recovery.attempts.values());
        let mut its = attempts.filter(|attempt| attempt.newcomer.replica == replica);
        its.all(|attempt| attempt.stage != Stage::Joining)
    }

    /// The clones that are under way.
    pub fn attempts(&self) -> impl Iterator<Item = (CloneId, Newcomer)> + '_ {
        let attempts = self.recovery.iter().flat_map(|recovery| &recovery.attempts);
        attempts.map(|(id, attempt)| (*id, attempt.newcomer))
    }
}
