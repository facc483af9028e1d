//! The daemon's loop. Connections, looks and time go in; the pool decides; changes go to the disk, and then messages go
//! out.

use super::host_probes::HostProbes;
use super::keys::{Holder, Keys};
use super::metrics;
use super::report;
use super::store::{Store, check};
use super::users::{IdentifiedJob, Users, Verdict};
use anyhow::{Context, Result};
use control_network::hub::{Event, Hub, LinkId};
use http_pages::Pages;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use pool_client::identity::{Pass, Proof};
use pool_client::refusal::Refusal;
use pool_client::wire::{End, FromPool, Question, ToPool};
use say::Console;
use spare_pool::{JobId, Lease, LeaseId, Output, Pool, Request, Ticket, Unseen, ended};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Limit for the requests of one job. More is a mistake, or does not come from a job.
const REQUEST_COUNT_MAX: usize = 4096;

/// State of the daemon; see the module.
pub struct Server<'a> {
    hub: Hub,
    pool: Pool,
    store: Store,
    probes: HostProbes,
    console: &'a Console,
    begin: Instant,
    keys: Keys,
    /// Present where MUNGE distinguishes users.
    users: Option<Users>,
    /// Holder of the key that opened each connection, or the user whom MUNGE has named since.
    holders: BTreeMap<LinkId, Holder>,
    /// The connection of each job that has introduced itself.
    jobs: BTreeMap<JobId, LinkId>,
    /// The connection and the request that wait for each ticket.
    tickets: BTreeMap<Ticket, (LinkId, u64)>,
    /// Present with `--metrics`.
    metrics: Option<Pages<()>>,
    /// Messages that may be sent once the changes they tell of are on the disk, too.
    outgoing: Vec<(LinkId, FromPool)>,
}

impl<'a> Server<'a> {
    /// Starts to listen for jobs.
    pub fn new(
        address: SocketAddr,
        keys: Keys,
        users: Option<Users>,
        pool: Pool,
        store: Store,
        probes: HostProbes,
        console: &'a Console,
    ) -> Result<Self> {
        let hub = Hub::with_keys(address, keys.secrets())?;
        let (holders, jobs, tickets, outgoing) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), Vec::new());
        let begin = Instant::now();
        let server = Self {
            hub,
            pool,
            store,
            probes,
            console,
            begin,
            keys,
            users,
            holders,
            jobs,
            tickets,
            metrics: None,
            outgoing,
        };
        let (hosts, leases) = (server.pool.hosts(Duration::ZERO).count(), server.pool.stored().leases.len());
        server.say(&format!("listening at {}: {hosts} hosts, {leases} leases", server.hub.address()));
        Ok(server)
    }

    /// Serves the pool's metrics to Prometheus.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Option<Pages<()>>) -> Self {
        if let Some(metrics) = &metrics {
            self.say(&format!("metrics are at http://{}/metrics", metrics.address()));
        }
        self.metrics = metrics;
        self
    }

    fn say(&self, line: &str) {
        self.console.plain(line);
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Serves until a signal comes. Leases outlast the daemon.
    pub fn run(mut self, signals: &SignalFd) -> Result<()> {
        loop {
            let now = self.now();
            self.pool.advance(now);
            self.carry_out()?;
            let timeout = self.pool.next_event(now).map_or(PollTimeout::NONE, |at| {
                // Rounded up: an early wake would find nothing to do, again and again.
                let left = at.saturating_sub(now) + Duration::from_millis(1);
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            });
            let mut fds = vec![
                PollFd::new(self.hub.fd(), PollFlags::POLLIN),
                PollFd::new(self.probes.fd(), PollFlags::POLLIN),
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            ];
            fds.extend(self.users.as_ref().map(|users| PollFd::new(users.fd(), PollFlags::POLLIN)));
            fds.extend(self.metrics.as_ref().map(|metrics| PollFd::new(metrics.fd(), PollFlags::POLLIN)));
            match poll(&mut fds, timeout) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error).context("Failed to wait for events"),
            }
            if let Some(signal) = signals.read_signal()? {
                self.say(&format!("leaving because of signal {}; leases are kept", signal.ssi_signo));
                return Ok(());
            }
            for look in self.probes.found() {
                self.record_look(&look.host, look.found.as_ref().err());
                let now = self.now();
                self.pool.seen(&look.host, look.found, now);
            }
            for found in self.users.as_mut().map(Users::found).unwrap_or_default() {
                let now = self.now();
                match found {
                    Ok(known) => self.greet_known(known, now),
                    Err((link, why)) => self.answer(link, FromPool::Refused(why)),
                }
            }
            for event in self.hub.events() {
                self.happen(event)?;
            }
            while let Some(asked) = self.metrics.as_ref().and_then(Pages::next_question) {
                asked.answer(metrics::text(&self.pool, self.jobs.len(), self.now()));
            }
        }
    }

    /// Reports that a host became unreachable, or is reachable again.
    fn record_look(&self, host: &str, why: Option<&Unseen>) {
        let known = self.pool.hosts(self.now()).find(|status| status.spare.name == host);
        match (known.map(|status| status.unreachable.is_some()), why) {
            (Some(false), Some(why)) => self.console.warning(&format!("host {host}: {why}")),
            (Some(true), None) => self.say(&format!("host {host} is there again")),
            _ => {}
        }
    }

    fn happen(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Accepted(link, key) => {
                let holder = self.keys.holder(key).cloned().unwrap_or(Holder::Jobs);
                self.holders.insert(link, holder);
            }
            Event::Dialled { .. } => {}
            Event::Refused(refusal) => self.console.warning(&refusal.to_string()),
            Event::Readable(link) => self.read(link)?,
            Event::Closed(link) => {
                self.read(link)?;
                self.drop_link(link);
            }
        }
        Ok(())
    }

    fn read(&mut self, link: LinkId) -> Result<()> {
        loop {
            match self.hub.next_message::<ToPool>(link) {
                Ok(Some(message)) => {
                    self.handle(link, message);
                    self.carry_out()?;
                }
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.console.warning(&format!("closed a connection: {error:#}"));
                    self.drop_link(link);
                    return Ok(());
                }
            }
        }
    }

    /// Drops a connection. The job repeats its open requests on the next one; its leases stay.
    fn drop_link(&mut self, link: LinkId) {
        self.hub.close(link);
        self.holders.remove(&link);
        if let Some(users) = &mut self.users {
            users.forget(link);
        }
        self.jobs.retain(|_, other| *other != link);
        let gone: Vec<_> =
            self.tickets.iter().filter(|(_, (other, _))| *other == link).map(|(ticket, _)| *ticket).collect();
        for ticket in gone {
            self.tickets.remove(&ticket);
            self.pool.withdraw(ticket);
        }
    }

    fn job_of(&self, link: LinkId) -> Option<JobId> {
        self.jobs.iter().find(|(_, other)| **other == link).map(|(job, _)| *job)
    }

    fn answer(&mut self, link: LinkId, message: FromPool) {
        self.outgoing.push((link, message));
    }

    fn handle(&mut self, link: LinkId, message: ToPool) {
        let now = self.now();
        let version_is_wrong = |version: &str| {
            let pool = env!("CARGO_PKG_VERSION");
            (version != pool).then(|| Refusal::Version { pool: pool.into(), asker: version.into() })
        };
        match (message, self.job_of(link)) {
            (ToPool::Ask { version, question }, None) => {
                let answer = match version_is_wrong(&version) {
                    Some(why) => Err(why),
                    None => self.ask(link, question, now),
                };
                self.answer(link, FromPool::Answer(answer));
            }
            (ToPool::Hello { version, job, leases, proof }, None) => match version_is_wrong(&version) {
                Some(why) => self.answer(link, FromPool::Refused(why)),
                None => self.meet(link, job, leases, proof, now),
            },
            (message, Some(job)) => self.serve(link, job, message, now),
            (_, None) => self.answer(link, FromPool::Refused(Refusal::NoHello)),
        }
    }

    /// A job introduces itself. A user's key says whose job it is; a holder of the key of jobs may have to prove its
    /// user.
    fn meet(&mut self, link: LinkId, job: JobId, leases: Vec<LeaseId>, proof: Option<Proof>, now: Duration) {
        let is_anybodys = self.holders.get(&link).is_none_or(|holder| *holder == Holder::Jobs);
        let Some(users) = self.users.as_mut().filter(|_| is_anybodys) else {
            return self.greet(link, job, &leases, None, now);
        };
        match users.judge(link, job, leases, proof) {
            Verdict::Prove => self.answer(link, FromPool::Prove),
            Verdict::Wait => {}
            Verdict::Known(known) => self.greet_known(known, now),
            Verdict::Refused(why) => self.answer(link, FromPool::Refused(why)),
        }
    }

    fn greet_known(&mut self, known: IdentifiedJob, now: Duration) {
        let IdentifiedJob { link, job, leases, user, pass } = known;
        self.holders.insert(link, Holder::User(user));
        self.greet(link, job, &leases, Some(pass), now);
    }

    /// Accepts a job, or accepts it again. A lease it does not know of was granted while its connection broke.
    fn greet(&mut self, link: LinkId, job: JobId, leases: &[LeaseId], pass: Option<Pass>, now: Duration) {
        let user = self.user_of(link);
        let connected = self.jobs.get(&job).map(|other| self.user_of(*other));
        if connected.is_some_and(|other| other != user) || self.pool.leases(job).any(|lease| lease.user != user) {
            return self.answer(link, FromPool::Refused(Refusal::OtherUser(job)));
        }
        if let Some(before) = self.jobs.insert(job, link).filter(|before| *before != link) {
            self.drop_link(before);
            self.jobs.insert(job, link);
        }
        let unheard: Vec<_> = self.pool.leases(job).map(|lease| lease.id).filter(|id| !leases.contains(id)).collect();
        for id in unheard {
            self.pool.release(id, now);
        }
        self.pool.renew(job, now);
        let lease_time_ms = self.pool.settings().lease_time.map_or(u64::MAX, |time| time.as_millis() as u64);
        let leases = self.lease_ids(job);
        self.answer(link, FromPool::Welcome { lease_time_ms, leases, pass });
    }

    /// Name of the user whose job is at the other end. `None` where users are not distinguished.
    fn user_of(&self, link: LinkId) -> Option<String> {
        self.holders.get(&link).and_then(Holder::user).map(str::to_owned)
    }

    fn lease_ids(&self, job: JobId) -> Vec<LeaseId> {
        self.pool.leases(job).map(|lease| lease.id).collect()
    }

    fn has(&self, job: JobId, id: LeaseId) -> bool {
        self.pool.leases(job).any(|lease| lease.id == id)
    }

    fn serve(&mut self, link: LinkId, job: JobId, message: ToPool, now: Duration) {
        match message {
            ToPool::Request { number, request } => {
                let count = self.tickets.values().filter(|(other, _)| *other == link).count();
                if request.job != job || count >= REQUEST_COUNT_MAX {
                    return self.answer(link, FromPool::Refused(Refusal::Requests));
                }
                let request = Request { user: self.user_of(link), ..request };
                let ticket = self.pool.request(request, now);
                self.tickets.insert(ticket, (link, number));
            }
            ToPool::Withdraw { number } => {
                let found = self.tickets.iter().find(|(_, known)| **known == (link, number)).map(|(ticket, _)| *ticket);
                if let Some(ticket) = found {
                    self.tickets.remove(&ticket);
                    self.pool.withdraw(ticket);
                }
            }
            ToPool::Renew { round } => {
                self.pool.renew(job, now);
                let (leases, leaving) = (self.lease_ids(job), self.pool.leaving(job).collect());
                self.answer(link, FromPool::Renewed { round, leases, leaving });
            }
            ToPool::Succeeded(id) if self.has(job, id) => drop(self.pool.succeeded(id, now)),
            ToPool::Succeeded(_) => {}
            ToPool::End { lease, end } => {
                if self.has(job, lease) {
                    match end {
                        End::Released => self.pool.release(lease, now),
                        End::Failed(why) => self.fail(lease, &why, now),
                    };
                }
                self.answer(link, FromPool::EndTaken(lease));
            }
            ToPool::Leave => {
                self.tickets.retain(|_, (other, _)| *other != link);
                self.jobs.remove(&job);
                self.pool.release_all(job, now);
                self.answer(link, FromPool::Left);
            }
            ToPool::Hello { .. } | ToPool::Ask { .. } => {
                self.answer(link, FromPool::Refused(Refusal::HasJob));
            }
        }
    }

    fn fail(&mut self, id: LeaseId, why: &str, now: Duration) -> bool {
        let lease = self.pool.stored().leases.remove(&id);
        if let Some(Lease { spare, job, .. }) = lease {
            self.console.warning(&format!("host {}: a clone of job {job} failed: {why}", spare.name));
        }
        self.pool.failed(id, why, now)
    }

    fn ask(&mut self, link: LinkId, question: Question, now: Duration) -> Result<String, Refusal> {
        if question != Question::Status && self.holders.get(&link) != Some(&Holder::Administrator) {
            return Err(Refusal::NotAdministrator);
        }
        let known = |pool: &Pool, names: &[String]| match names.iter().find(|name| !pool.has_host(name)) {
            Some(name) => Err(Refusal::NoHost(name.clone())),
            None => Ok(()),
        };
        match question {
            Question::Status => {
                return Ok(report::status(&self.pool, &self.jobs.keys().copied().collect::<Vec<_>>(), now).to_string());
            }
            Question::Add(spares) => {
                spares.iter().try_for_each(check)?;
                for spare in spares {
                    self.say(&format!("host {} is added", spare.name));
                    self.pool.add(spare, now);
                }
            }
            Question::Remove { hosts, force } => {
                known(&self.pool, &hosts)?;
                let held =
                    self.pool.hosts(now).find(|status| hosts.contains(&status.spare.name) && status.job.is_some());
                if let Some(status) = held.filter(|_| !force) {
                    let job = status.job.expect("it has one");
                    return Err(Refusal::Leased { host: status.spare.name, job });
                }
                for name in hosts {
                    self.say(&format!("host {name} is removed"));
                    self.pool.remove(&name, now);
                }
            }
            Question::Drain(hosts) => {
                known(&self.pool, &hosts)?;
                for name in hosts {
                    self.say(&format!("host {name} is drained"));
                    self.pool.drain(&name, now);
                }
            }
            Question::Bad { hosts, why } => {
                known(&self.pool, &hosts)?;
                for name in hosts {
                    self.say(&format!("host {name} is bad: {why}"));
                    self.pool.mark_bad(&name, why.as_str(), now);
                }
            }
        }
        Ok(String::new())
    }

    /// Carries out the pool's outputs; changes are stored first.
    fn carry_out(&mut self) -> Result<()> {
        let mut changes = Vec::new();
        let mut told = Vec::new();
        while let Some(output) = self.pool.poll_output() {
            match output {
                Output::Store(change) => changes.push(change),
                Output::Look(spare) => self.probes.inspect(spare),
                Output::Granted(ticket, lease) => {
                    self.say(&format!("host {}: lease {} to job {}", lease.spare.name, lease.id, lease.job));
                    if let Some((link, number)) = self.tickets.remove(&ticket) {
                        told.push((link, FromPool::Granted { number, lease }));
                    }
                }
                Output::Ended(lease, why) => {
                    let (host, job, why) = (&lease.spare.name, lease.job, ended(why));
                    self.console.warning(&format!("host {host}: lease {} of job {job} has ended: {why}", lease.id));
                    if let Some(link) = self.jobs.get(&job) {
                        told.push((*link, FromPool::Ended { lease: lease.id, why: why.into() }));
                    }
                }
            }
        }
        if !changes.is_empty() {
            // A lease that cannot be stored must not be granted.
            self.store.commit(&changes).context("Failed to write the pool's state")?;
        }
        // Grants go out before the answers that were made after them: `Renewed` lists the lease.
        for (link, message) in told.into_iter().chain(std::mem::take(&mut self.outgoing)) {
            let is_refusal = matches!(message, FromPool::Refused(_));
            self.hub.send(link, &message);
            if is_refusal {
                self.drop_link(link);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
