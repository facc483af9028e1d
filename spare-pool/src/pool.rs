//! The pool: hosts, their leases, and waiting requests.
//!
//! ```text
//!                   lease               failed, too often
//!          idle ───────────▶ leased ─────────────────────▶ bad ◀── marked by a person
//!          ▲  ▲                │ │                          │
//!          │  └── rest over ── resting ◀── failed           │
//!          │                   │                            │
//!          └── looked at ◀── released, or the job vanished  └──▶ idle, when added again
//! ```
//! Draining, on a person's request: existing leases stay, no new ones are granted.
//!
//! A host belongs to one job at a time, which may have several of its places. A job keeps a lease until it returns it,
//! a clone to it fails, or the job is silent for the lease time: copies live there. So fairness only concerns places
//! that become free. They go to the job with the fewest leases, and among equals to the oldest request. A request that
//! was overtaken `overtaken_max` times by grants of hosts that it could have used comes first, so that none waits for
//! ever.
//!
//! `now` is the time since any fixed moment. Take all outputs after each call: changes must be stored before anyone
//! learns of their consequences.

mod choice;
mod pooled_host;
#[cfg(test)]
mod properties;
mod status;
#[cfg(test)]
mod tests;

pub use choice::Unfit;
pub use status::HostStatus;

use crate::health::{BackOff, Health};
use crate::host::{Admission, Facts, Spare, Unseen};
use crate::lease::{JobId, Lease, LeaseId, Request, Ticket};
use crate::stored::{Change, HostRecord, Stored};
use choice::{cost, unfit};
use pooled_host::PooledHost;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Settings of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Time without a sign of life after which a job loses its leases; `None` for a pool that is part of the job.
    pub lease_time: Option<Duration>,
    /// Rest of a host after the first failure; it doubles with each.
    pub rest_first: Duration,
    /// Longest rest of a host after failures.
    pub rest_max: Duration,
    /// Number of failures that make a host bad.
    pub strikes_max: u32,
    /// How idle hosts are watched; `None` if somebody else watches them, and removes dead ones.
    pub watch: Option<Watch>,
    /// Most places that one job may have; `None` for no limit.
    pub places_per_job_max: Option<u32>,
    /// How often a request may be overtaken before it comes first.
    pub overtaken_max: u32,
    /// True if [`Output::Store`] is wanted.
    pub is_stored: bool,
}

/// Intervals at which idle hosts are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Watch {
    /// Time between looks at a host that answers.
    pub interval: Duration,
    /// Longest time between looks at a host that does not answer; it doubles with each failure.
    pub interval_max: Duration,
    /// Time after which a look has failed.
    pub answer_time_max: Duration,
}

impl Settings {
    /// Settings for a pool inside a job: leases last until returned, and hosts count as present until removed.
    #[must_use]
    pub fn embedded() -> Self {
        Self { lease_time: None, watch: None, is_stored: false, ..Self::shared() }
    }

    /// Settings for a pool that jobs share.
    #[must_use]
    pub fn shared() -> Self {
        Self {
            lease_time: Some(Duration::from_secs(60)),
            rest_first: Duration::from_secs(10),
            rest_max: Duration::from_secs(600),
            strikes_max: 3,
            watch: Some(Watch {
                interval: Duration::from_secs(10),
                interval_max: Duration::from_secs(300),
                answer_time_max: Duration::from_secs(10),
            }),
            places_per_job_max: None,
            overtaken_max: 8,
            is_stored: true,
        }
    }

    fn back_off(&self) -> BackOff {
        BackOff { first: self.rest_first, longest: self.rest_max }
    }
}

/// Reason why a lease ended without the job's doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ended {
    /// The job was silent for the lease time.
    Expired,
    /// The host was removed from the pool.
    Removed,
}

/// Action for the caller.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Output {
    /// Store this change, before reporting any later output.
    Store(Change),
    /// A waiting request has got its lease.
    Granted(Ticket, Lease),
    /// A lease has ended without the job's doing.
    Ended(Lease, Ended),
    /// Look at this host, then call [`Pool::seen`].
    Look(Spare),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Waiting {
    request: Request,
    overtaken_count: u32,
}

/// The pool, a state machine without I/O.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pool {
    settings: Settings,
    hosts: BTreeMap<String, PooledHost>,
    /// Host of each lease.
    leases: BTreeMap<LeaseId, String>,
    /// Last sign of life of each job with leases.
    heard: BTreeMap<JobId, Duration>,
    /// Waiting requests, by arrival.
    waiting: BTreeMap<Ticket, Waiting>,
    next_lease: u64,
    next_ticket: u64,
    outputs: VecDeque<Output>,
}

impl Pool {
    /// A pool without hosts.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self::restore(settings, Stored::default(), Duration::ZERO)
    }

    /// Restores a stored pool. All leases run for their full time from `now`.
    #[must_use]
    pub fn restore(settings: Settings, stored: Stored, now: Duration) -> Self {
        let Stored { hosts, leases, next_lease } = stored;
        let mut pool = Self {
            hosts: BTreeMap::new(),
            leases: BTreeMap::new(),
            heard: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next_lease,
            next_ticket: 0,
            outputs: VecDeque::new(),
            settings,
        };
        for (name, record) in hosts {
            let health = Health::restored(record.strikes, pool.settings.back_off(), now);
            let entry = PooledHost::new(record, health, pool.settings.watch.is_some(), now);
            pool.hosts.insert(name, entry);
        }
        for (id, lease) in leases {
            // A lease on an unknown host can only come from a damaged store.
            let Some(entry) = pool.hosts.get_mut(&lease.spare.name) else {
                pool.store(Change::LeaseEnded(id));
                continue;
            };
            pool.heard.insert(lease.job, now);
            pool.leases.insert(id, lease.spare.name.clone());
            entry.leases.insert(id, lease);
        }
        pool
    }

    /// State to be stored. All [`Change`]s so far, applied in order, yield the same.
    #[must_use]
    pub fn stored(&self) -> Stored {
        let leases = self.hosts.values().flat_map(|entry| &entry.leases);
        Stored {
            hosts: self.hosts.iter().map(|(name, entry)| (name.clone(), entry.record())).collect(),
            leases: leases.map(|(id, lease)| (*id, lease.clone())).collect(),
            next_lease: self.next_lease,
        }
    }

    /// Settings that the pool was made with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns true if the pool has a host of this name.
    #[must_use]
    pub fn has_host(&self, name: &str) -> bool {
        self.hosts.contains_key(name)
    }

    /// All hosts, by name.
    pub fn hosts(&self, now: Duration) -> impl Iterator<Item = HostStatus> + '_ {
        self.hosts.values().map(move |entry| entry.status(now))
    }

    /// Leases that a job holds, host by host.
    pub fn leases(&self, job: JobId) -> impl Iterator<Item = &Lease> + '_ {
        let held = self.hosts.values().filter(move |entry| entry.job() == Some(job));
        held.flat_map(|entry| entry.leases.values())
    }

    /// Leases of a job on hosts that it should leave, because they are draining or bad.
    pub fn leaving(&self, job: JobId) -> impl Iterator<Item = LeaseId> + '_ {
        let held = self.hosts.values().filter(move |entry| entry.job() == Some(job));
        held.filter(|entry| entry.admission != Admission::Open).flat_map(|entry| entry.leases.keys().copied())
    }

    /// Waiting requests, by arrival.
    pub fn waiting(&self) -> impl Iterator<Item = (Ticket, &Request)> + '_ {
        self.waiting.iter().map(|(ticket, waiting)| (*ticket, &waiting.request))
    }

    /// Reason for each host that cannot be granted for a request.
    pub fn explain<'a>(&'a self, request: &'a Request, now: Duration) -> impl Iterator<Item = (&'a str, Unfit)> + 'a {
        self.hosts.iter().filter_map(move |(name, entry)| Some((name.as_str(), unfit(entry, request, now)?)))
    }

    /// Adds a host, or replaces the configuration of an existing one. It may be leased from now on, whatever its state
    /// was.
    pub fn add(&mut self, spare: Spare, now: Duration) {
        let record = HostRecord { spare, admission: Admission::Open, strikes: 0 };
        let name = record.spare.name.clone();
        let mut entry = PooledHost::new(record, Health::default(), self.settings.watch.is_some(), now);
        if let Some(before) = self.hosts.remove(&name) {
            entry.sight.asked_at = before.sight.asked_at;
            entry.leases = before.leases;
        }
        let record = entry.record();
        self.store(Change::Host(record));
        self.hosts.insert(name, entry);
        self.advance(now);
    }

    /// Removes a host and ends its leases. Returns false if there is none of this name.
    pub fn remove(&mut self, name: &str, now: Duration) -> bool {
        let Some(entry) = self.hosts.get(name) else { return false };
        let ids: Vec<_> = entry.leases.keys().copied().collect();
        for id in ids {
            let lease = self.end(id, now).expect("the host has it");
            self.outputs.push_back(Output::Ended(lease, Ended::Removed));
        }
        self.hosts.remove(name);
        self.store(Change::HostRemoved(name.to_owned()));
        self.advance(now);
        true
    }

    /// Stops leasing a host, so that it becomes free. Returns false if there is none of this name.
    pub fn drain(&mut self, name: &str, now: Duration) -> bool {
        self.admit(name, Admission::Draining, now)
    }

    /// Marks a host as bad. Returns false if there is none of this name.
    pub fn mark_bad(&mut self, name: &str, why: impl Into<String>, now: Duration) -> bool {
        self.admit(name, Admission::Bad { why: why.into() }, now)
    }

    fn admit(&mut self, name: &str, admission: Admission, now: Duration) -> bool {
        let Some(entry) = self.hosts.get_mut(name) else { return false };
        entry.admission = admission;
        let record = entry.record();
        self.store(Change::Host(record));
        self.advance(now);
        true
    }

    /// Records the result of a look at a host, requested by [`Output::Look`] or not.
    pub fn seen(&mut self, name: &str, found: Result<Facts, Unseen>, now: Duration) {
        if let Some(entry) = self.hosts.get_mut(name) {
            entry.seen(found, self.settings.watch.as_ref(), now);
        }
        self.advance(now);
    }

    /// Leases a place at once. `None` if none exists, or if waiting requests take precedence.
    pub fn lease(&mut self, request: Request, now: Duration) -> Option<Lease> {
        let ticket = self.request(request, now);
        if self.withdraw(ticket) {
            return None;
        }
        let granted = |output: &Output| matches!(output, Output::Granted(to, _) if *to == ticket);
        let place = self.outputs.iter().position(granted).expect("it does not wait, so it was granted");
        match self.outputs.remove(place) {
            Some(Output::Granted(_, lease)) => Some(lease),
            other => unreachable!("{other:?} was found where the lease was"),
        }
    }

    /// Requests a place. [`Output::Granted`] follows, immediately if a place is free.
    pub fn request(&mut self, request: Request, now: Duration) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.waiting.insert(ticket, Waiting { request, overtaken_count: 0 });
        self.advance(now);
        ticket
    }

    /// Withdraws a request. Returns false if it was not waiting.
    pub fn withdraw(&mut self, ticket: Ticket) -> bool {
        self.waiting.remove(&ticket).is_some()
    }

    /// Records a sign of life of a job: its leases run for their full time again.
    pub fn renew(&mut self, job: JobId, now: Duration) {
        if let Some(heard) = self.heard.get_mut(&job) {
            *heard = now.max(*heard);
        }
        self.advance(now);
    }

    /// Records that a clone succeeded, which clears the strikes of its host. Returns false if there is no such lease.
    pub fn succeeded(&mut self, id: LeaseId, now: Duration) -> bool {
        let Some(entry) = self.leases.get(&id).and_then(|name| self.hosts.get_mut(name)) else { return false };
        if entry.health != Health::default() {
            entry.health = Health::default();
            let record = entry.record();
            self.store(Change::Host(record));
        }
        self.advance(now);
        true
    }

    /// Takes a place back. Returns false if there is no such lease.
    pub fn release(&mut self, id: LeaseId, now: Duration) -> bool {
        let had = self.end(id, now).is_some();
        self.advance(now);
        had
    }

    /// Takes a place back because the clone failed, perhaps because of the host, which gets a strike. Returns false if
    /// there is no such lease.
    pub fn failed(&mut self, id: LeaseId, why: &str, now: Duration) -> bool {
        let Some(lease) = self.end(id, now) else { return false };
        let (back_off, strikes_max) = (self.settings.back_off(), self.settings.strikes_max);
        if let Some(entry) = self.hosts.get_mut(&lease.spare.name) {
            entry.health.strike(back_off, now);
            if entry.health.strikes >= strikes_max && entry.admission == Admission::Open {
                let why = format!("{} clones to it failed, the last one: {why}", entry.health.strikes);
                entry.admission = Admission::Bad { why };
            }
            let record = entry.record();
            self.store(Change::Host(record));
        }
        self.advance(now);
        true
    }

    /// Ends all requests and leases of a job that is over.
    pub fn release_all(&mut self, job: JobId, now: Duration) {
        self.waiting.retain(|_, waiting| waiting.request.job != job);
        let ids: Vec<_> = self.leases(job).map(|lease| lease.id).collect();
        for id in ids {
            self.end(id, now);
        }
        self.advance(now);
    }

    /// Next action for the caller.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Time at which [`Pool::advance`] is due if nothing else happens before.
    #[must_use]
    pub fn next_event(&self, now: Duration) -> Option<Duration> {
        let ends = self.settings.lease_time.into_iter().flat_map(|time| self.heard.values().map(move |at| *at + time));
        let rests = self.hosts.values().map(|entry| entry.health.rests_until).filter(|until| *until > now);
        let watch = self.settings.watch;
        let looks =
            watch.iter().flat_map(|watch| self.hosts.values().filter_map(move |entry| entry.next_look_at(watch)));
        ends.chain(rests).chain(looks).min().map(|at| at.max(now))
    }

    fn store(&mut self, change: Change) {
        if self.settings.is_stored {
            self.outputs.push_back(Output::Store(change));
        }
    }

    /// Does everything that is due at `now`: expires leases, requests looks, grants free places.
    pub fn advance(&mut self, now: Duration) {
        self.expire(now);
        self.poll_hosts(now);
        self.settle(now);
    }

    fn expire(&mut self, now: Duration) {
        let Some(time) = self.settings.lease_time else { return };
        let vanished: Vec<_> =
            self.heard.iter().filter(|(_, heard)| now >= **heard + time).map(|(job, _)| *job).collect();
        for job in vanished {
            let ids: Vec<_> = self.leases(job).map(|lease| lease.id).collect();
            for id in ids {
                let lease = self.end(id, now).expect("the job had it");
                self.outputs.push_back(Output::Ended(lease, Ended::Expired));
            }
        }
    }

    fn poll_hosts(&mut self, now: Duration) {
        let Some(watch) = self.settings.watch else { return };
        for entry in self.hosts.values_mut() {
            if entry.next_look_at(&watch).is_some_and(|at| at <= now) {
                if entry.sight.asked_at.is_some() {
                    entry.seen(Err(Unseen::NoAnswer), Some(&watch), now);
                } else {
                    entry.sight.asked_at = Some(now);
                    self.outputs.push_back(Output::Look(entry.spare.clone()));
                }
            }
        }
    }

    /// Ends a lease. The host's facts were taken before the job used it, so they are discarded.
    fn end(&mut self, id: LeaseId, now: Duration) -> Option<Lease> {
        let name = self.leases.remove(&id)?;
        let entry = self.hosts.get_mut(&name).expect("a lease is of a host");
        let lease = entry.leases.remove(&id).expect("the host knows its leases");
        if entry.leases.is_empty() {
            entry.discard_facts(now);
        }
        if !self.hosts.values().any(|entry| entry.job() == Some(lease.job)) {
            self.heard.remove(&lease.job);
        }
        self.store(Change::LeaseEnded(id));
        Some(lease)
    }

    /// Grants free places to waiting requests, as long as one fits.
    fn settle(&mut self, now: Duration) {
        while let Some((ticket, name)) = self.next_grant(now) {
            self.grant(ticket, &name, now);
        }
    }

    fn next_grant(&self, now: Duration) -> Option<(Ticket, String)> {
        let mut order: Vec<_> = self.waiting.iter().collect();
        order.sort_by_key(|(ticket, waiting)| {
            let is_first = waiting.overtaken_count >= self.settings.overtaken_max;
            (!is_first, if is_first { 0 } else { self.leases(waiting.request.job).count() }, **ticket)
        });
        order.into_iter().find_map(|(ticket, waiting)| Some((*ticket, self.best(&waiting.request, now)?.to_owned())))
    }

    fn has_its_share(&self, job: JobId) -> bool {
        let count_max = self.settings.places_per_job_max;
        count_max.is_some_and(|count| self.leases(job).count() >= count as usize)
    }

    fn best(&self, request: &Request, now: Duration) -> Option<&str> {
        if self.has_its_share(request.job) {
            return None;
        }
        let fit = self.hosts.values().filter(|entry| unfit(entry, request, now).is_none());
        fit.min_by_key(|entry| cost(entry, request)).map(|entry| entry.spare.name.as_str())
    }

    fn grant(&mut self, ticket: Ticket, name: &str, now: Duration) {
        let Waiting { request, .. } = self.waiting.remove(&ticket).expect("it waits");
        // A request counts as overtaken only if it came before, and could have had this very host.
        let before: Vec<_> = self.waiting.range(..ticket).map(|(ticket, _)| *ticket).collect();
        for other in before {
            let wanted = &self.waiting[&other].request;
            let is_fit = unfit(&self.hosts[name], wanted, now).is_none();
            if wanted.job != request.job && is_fit && !self.has_its_share(wanted.job) {
                self.waiting.get_mut(&other).expect("it waits").overtaken_count += 1;
            }
        }
        let entry = self.hosts.get_mut(name).expect("it was just found");
        let id = LeaseId(self.next_lease);
        self.next_lease += 1;
        let (job, user, memory_bytes) = (request.job, request.user.clone(), request.memory_bytes);
        let lease = Lease { id, job, user, spare: entry.spare.clone(), memory_bytes };
        entry.leases.insert(id, lease.clone());
        self.leases.insert(id, name.to_owned());
        self.heard.insert(request.job, now);
        self.store(Change::Lease(lease.clone()));
        self.outputs.push_back(Output::Granted(ticket, lease));
    }
}
