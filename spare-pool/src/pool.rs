//! The pool: hosts, who has them, who waits.
//!
//! ```text
//!                   lease               failed, too often
//!          idle ───────────▶ leased ─────────────────────▶ bad ◀── a person says so
//!          ▲  ▲                │ │                          │
//!          │  └── rest over ── resting ◀── failed           │
//!          │                   │                            │
//!          └── looked at ◀── released, or the job vanished  └──▶ idle, when a person says so
//! ```
//! Draining, which a person asks for: what is leased stays so, nothing more is lent.
//!
//! A host belongs to one job at a time, which may have several of its places. What a job gets is its own until it gives
//! it back, it fails, or is not heard of for the lease's time: clones live there. So being fair can only mean who gets
//! what becomes free: the job that has the least, and of those the request that has waited longest. A request that was
//! overtaken `overtaken_max` times for hosts that would have suited it comes first, so that nobody waits for ever.
//!
//! `now` is the time since any moment that stays the same. Take all outputs after each call: changes are to be stored
//! before anybody is told what follows from them.

mod choice;
mod entry;
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
use entry::Entry;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How a pool behaves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// How long a job may not be heard of before it loses its leases; absent where the pool is part of the job.
    pub lease_time: Option<Duration>,
    /// The rest of a host after the first failure; it doubles with each.
    pub rest_first: Duration,
    /// The longest rest.
    pub rest_max: Duration,
    /// Number of failures that make a host bad.
    pub strikes_max: u32,
    /// How idle hosts are watched; absent where somebody else does and removes those that die.
    pub watch: Option<Watch>,
    /// How many places one job may have.
    pub places_per_job_max: Option<u32>,
    /// How often a request may be overtaken.
    pub overtaken_max: u32,
    /// Whether [`Output::Store`] is wanted.
    pub is_stored: bool,
}

/// How idle hosts are watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Watch {
    /// How often each is looked at.
    pub interval: Duration,
    /// How long the time between looks at one that does not answer grows.
    pub interval_max: Duration,
    /// A look that takes longer has failed.
    pub answer_time_max: Duration,
}

impl Settings {
    /// For a pool inside a job: leases last until they are given back, hosts are taken to be there until they are
    /// removed.
    #[must_use]
    pub fn embedded() -> Self {
        Self { lease_time: None, watch: None, is_stored: false, ..Self::shared() }
    }

    /// For a pool that jobs share.
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

/// Why a lease ended without its job's doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ended {
    /// The job was not heard of.
    Expired,
    /// The host was removed.
    Removed,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Output {
    /// Store this, before anybody is told of what follows.
    Store(Change),
    /// A request that waited has got its lease.
    Granted(Ticket, Lease),
    /// A lease is over.
    Ended(Lease, Ended),
    /// Look at this host, then say [`Pool::seen`].
    Look(Spare),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Waiting {
    request: Request,
    overtaken_count: u32,
}

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pool {
    settings: Settings,
    hosts: BTreeMap<String, Entry>,
    /// The host of each lease.
    leases: BTreeMap<LeaseId, String>,
    /// When jobs that hold leases were last heard of.
    heard: BTreeMap<JobId, Duration>,
    /// In the order of their arrival.
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

    /// The pool that was stored. All leases run for their full time from now.
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
            let entry = Entry::new(record, health, pool.settings.watch.is_some(), now);
            pool.hosts.insert(name, entry);
        }
        for (id, lease) in leases {
            // A lease of a host that is not there can only come from a damaged store.
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

    /// What is to be stored of it. All [`Change`]s so far, made one after the other, come to the same.
    #[must_use]
    pub fn stored(&self) -> Stored {
        let leases = self.hosts.values().flat_map(|entry| &entry.leases);
        Stored {
            hosts: self.hosts.iter().map(|(name, entry)| (name.clone(), entry.record())).collect(),
            leases: leases.map(|(id, lease)| (*id, lease.clone())).collect(),
            next_lease: self.next_lease,
        }
    }

    /// How it behaves.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether it has this host.
    #[must_use]
    pub fn has_host(&self, name: &str) -> bool {
        self.hosts.contains_key(name)
    }

    /// All hosts, by name.
    pub fn hosts(&self, now: Duration) -> impl Iterator<Item = HostStatus> + '_ {
        self.hosts.values().map(move |entry| entry.status(now))
    }

    /// The leases of a job.
    pub fn leases(&self, job: JobId) -> impl Iterator<Item = &Lease> + '_ {
        let held = self.hosts.values().filter(move |entry| entry.job() == Some(job));
        held.flat_map(|entry| entry.leases.values())
    }

    /// The leases of a job on hosts that it should leave: they are to become free, or bad.
    pub fn leaving(&self, job: JobId) -> impl Iterator<Item = LeaseId> + '_ {
        let held = self.hosts.values().filter(move |entry| entry.job() == Some(job));
        held.filter(|entry| entry.admission != Admission::Open).flat_map(|entry| entry.leases.keys().copied())
    }

    /// The requests that wait, in the order of their arrival.
    pub fn waiting(&self) -> impl Iterator<Item = (Ticket, &Request)> + '_ {
        self.waiting.iter().map(|(ticket, waiting)| (*ticket, &waiting.request))
    }

    /// Why each host that cannot be given for a request cannot.
    pub fn explain<'a>(&'a self, request: &'a Request, now: Duration) -> impl Iterator<Item = (&'a str, Unfit)> + 'a {
        self.hosts.iter().filter_map(move |(name, entry)| Some((name.as_str(), unfit(entry, request, now)?)))
    }

    /// Adds a host, or takes what is said now of one that is there. It may be leased from now on, whatever was before.
    pub fn add(&mut self, spare: Spare, now: Duration) {
        let record = HostRecord { spare, admission: Admission::Open, strikes: 0 };
        let name = record.spare.name.clone();
        let mut entry = Entry::new(record, Health::default(), self.settings.watch.is_some(), now);
        if let Some(before) = self.hosts.remove(&name) {
            entry.sight.asked_at = before.sight.asked_at;
            entry.leases = before.leases;
        }
        let record = entry.record();
        self.store(Change::Host(record));
        self.hosts.insert(name, entry);
        self.advance(now);
    }

    /// Removes a host, with its leases. `false` if it is not there.
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

    /// Lends no more of a host: it is to become free. `false` if it is not there.
    pub fn drain(&mut self, name: &str, now: Duration) -> bool {
        self.admit(name, Admission::Draining, now)
    }

    /// Marks a host as bad. `false` if it is not there.
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

    /// Somebody looked at a host, because of [`Output::Look`] or unasked.
    pub fn seen(&mut self, name: &str, found: Result<Facts, Unseen>, now: Duration) {
        if let Some(entry) = self.hosts.get_mut(name) {
            entry.seen(found, self.settings.watch.as_ref(), now);
        }
        self.advance(now);
    }

    /// A place for this at once, or none: nobody waits. Others who wait and are before this one go first.
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

    /// Waits for a place; [`Output::Granted`] tells, at once if there is one.
    pub fn request(&mut self, request: Request, now: Duration) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.waiting.insert(ticket, Waiting { request, overtaken_count: 0 });
        self.advance(now);
        ticket
    }

    /// Waits no more. `false` if it did not.
    pub fn withdraw(&mut self, ticket: Ticket) -> bool {
        self.waiting.remove(&ticket).is_some()
    }

    /// A job was heard of: its leases run for their full time again.
    pub fn renew(&mut self, job: JobId, now: Duration) {
        if let Some(heard) = self.heard.get_mut(&job) {
            *heard = now.max(*heard);
        }
        self.advance(now);
    }

    /// A clone runs: its host is good, and rests no more. `false` if there is no such lease.
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

    /// A place is given back. `false` if there is no such lease.
    pub fn release(&mut self, id: LeaseId, now: Duration) -> bool {
        let had = self.end(id, now).is_some();
        self.advance(now);
        had
    }

    /// A place is given back because the clone to it failed, for a reason that may lie with the host. `false` if there
    /// is no such lease.
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

    /// A job is over: it waits for nothing and has nothing.
    pub fn release_all(&mut self, job: JobId, now: Duration) {
        self.waiting.retain(|_, waiting| waiting.request.job != job);
        let ids: Vec<_> = self.leases(job).map(|lease| lease.id).collect();
        for id in ids {
            self.end(id, now);
        }
        self.advance(now);
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Pool::advance`] has something to do, if nothing else happens before.
    #[must_use]
    pub fn next_event(&self, now: Duration) -> Option<Duration> {
        let ends = self.settings.lease_time.into_iter().flat_map(|time| self.heard.values().map(move |at| *at + time));
        let rests = self.hosts.values().map(|entry| entry.health.rests_until).filter(|until| *until > now);
        let watch = self.settings.watch;
        let looks = watch.iter().flat_map(|watch| self.hosts.values().filter_map(move |entry| entry.look_at(watch)));
        ends.chain(rests).chain(looks).min().map(|at| at.max(now))
    }

    fn store(&mut self, change: Change) {
        if self.settings.is_stored {
            self.outputs.push_back(Output::Store(change));
        }
    }

    /// Time has passed.
    pub fn advance(&mut self, now: Duration) {
        self.expire(now);
        self.look(now);
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

    fn look(&mut self, now: Duration) {
        let Some(watch) = self.settings.watch else { return };
        for entry in self.hosts.values_mut() {
            if entry.look_at(&watch).is_some_and(|at| at <= now) {
                if entry.sight.asked_at.is_some() {
                    entry.seen(Err(Unseen::NoAnswer), Some(&watch), now);
                } else {
                    entry.sight.asked_at = Some(now);
                    self.outputs.push_back(Output::Look(entry.spare.clone()));
                }
            }
        }
    }

    /// Ends a lease. The host's facts are of before the job used it.
    fn end(&mut self, id: LeaseId, now: Duration) -> Option<Lease> {
        let name = self.leases.remove(&id)?;
        let entry = self.hosts.get_mut(&name).expect("a lease is of a host");
        let lease = entry.leases.remove(&id).expect("the host knows its leases");
        if entry.leases.is_empty() {
            entry.look_again(now);
        }
        if !self.hosts.values().any(|entry| entry.job() == Some(lease.job)) {
            self.heard.remove(&lease.job);
        }
        self.store(Change::LeaseEnded(id));
        Some(lease)
    }

    /// Gives what is free to those who wait, as long as something fits.
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
        // Only those count as overtaken who came before and could have had this very host.
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
