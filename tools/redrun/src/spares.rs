//! Places for copies: the job's own hosts, and the site's pool.

use super::Shell;
use super::launching::for_daemons;
use anyhow::Result;
use coordinator::Recovery;
use job_options::Job;
use job_root::{Input, Rooms};
use pool_client::{Client, facts};
use redrt_types::VirtualRank;
use spare_pool::{JobId, News, Request, SiteOrder, Spares as _};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Client of the site's pool. Without `--pool` it does nothing.
pub(super) struct SitePool {
    client: Option<Client>,
    /// Time zero of leases: the job's time begins anew at its launch.
    begun_at: Instant,
}

/// The request to the site's pool. `None` without `--pool`.
pub(super) fn site_request(job: &Job, job_number: u64) -> Result<Option<Request>> {
    let request = |_| -> Result<Request> {
        Ok(Request {
            cpu_features: facts::here()?.cpu_features,
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            ..Request::new(JobId(job_number))
        })
    };
    job.pool.as_ref().map(request).transpose()
}

impl SitePool {
    /// Connects to the site's pool, if the job uses it.
    pub fn new(job: &Job, job_number: u64) -> Result<Self> {
        let connect =
            |pool: &job_options::Pool| Client::connect(pool.address, &pool.secret, JobId(job_number), Duration::ZERO);
        Ok(Self { client: job.pool.as_ref().map(connect).transpose()?, begun_at: Instant::now() })
    }

    /// Client for a life that began before. Messages to and from the pool are replayed, then it [goes
    /// on](SitePool::go_on).
    pub fn of_past(job: &Job, job_number: u64) -> Result<Self> {
        let client =
            |pool: &job_options::Pool| Client::of_past(pool.address, &pool.secret, JobId(job_number), Duration::ZERO);
        Ok(Self { client: job.pool.as_ref().map(client).transpose()?, begun_at: Instant::now() })
    }

    /// Replays a message of the pool.
    pub fn heard_before(&mut self, news: &News) {
        self.client.iter_mut().for_each(|client| client.heard_before(news));
    }

    /// Connects after the replay.
    pub fn go_on(&mut self) {
        let now = self.now();
        self.client.iter_mut().for_each(|client| client.go_on(now));
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.client.as_ref().map(Client::fd)
    }

    fn now(&self) -> Duration {
        self.begun_at.elapsed()
    }

    /// Time until the client has work.
    pub fn next_wait(&self) -> Option<Duration> {
        let now = self.now();
        self.client.as_ref()?.next_event(now).map(|at| at.saturating_sub(now))
    }

    pub fn leave(&mut self) {
        if let Some(client) = &mut self.client {
            client.leave();
        }
    }

    /// Does due work, and returns the pool's messages.
    fn work(&mut self) -> Vec<News> {
        let now = self.now();
        let Some(client) = &mut self.client else { return Vec::new() };
        client.work(now);
        std::iter::from_fn(|| client.poll_news()).collect()
    }

    /// Gives the pool an order of the root.
    pub fn tell(&mut self, order: SiteOrder) {
        let now = self.now();
        if let Some(client) = &mut self.client {
            order.give_to(client, now);
        }
    }
}

impl Shell<'_> {
    /// The coordinator's settings for replacing lost replicas.
    pub(super) fn recovery(&self, placement: &[Option<u32>]) -> Recovery {
        let job = self.job;
        let hosts = (0..self.fleet.plan().hosts.len() as u32).map(|host| self.fleet.name(host).to_owned()).collect();
        let degrees = (0..job.world.rank_count()).map(|rank| job.degree(VirtualRank(rank))).collect();
        let recovery = Recovery::new(hosts, degrees, for_daemons(placement), job.clone_count_max);
        match job.arbitration_interval {
            Some(interval) => recovery.arbitrating(interval),
            None => recovery,
        }
    }

    /// Places of each host that are free for copies.
    pub(super) fn rooms(&self, placement: &[Option<u32>]) -> Vec<Rooms> {
        let room = |host| Rooms {
            name: self.fleet.name(host).to_owned(),
            count: self.places_kept_free(host) + self.places_to_judge(host, placement),
        };
        (0..self.fleet.plan().hosts.len() as u32).map(room).collect()
    }

    /// Places on a host beyond the launched processes.
    fn places_kept_free(&self, number: u32) -> u32 {
        let plan = self.fleet.plan();
        let host = &plan.hosts[number as usize];
        match (host.spare, plan.is_remote()) {
            (true, _) => host.slot_count.unwrap_or_else(|| self.fair_count(number)),
            (false, false) => plan.spare_places,
            (false, true) => 0,
        }
    }

    /// Places on a host for arbiters: one for each replica launched there in a rank with two. They serve where no spare
    /// host does.
    fn places_to_judge(&self, number: u32, placement: &[Option<u32>]) -> u32 {
        if self.job.arbitration_interval.is_none() {
            return 0;
        }
        let world = &self.job.world;
        let has_two = |rank: VirtualRank| self.job.degree(rank) == 2;
        let launched = world.replicas().zip(placement).filter(|(replica, host)| {
            **host == Some(number) && self.job.view.is_live(*replica) && has_two(replica.rank)
        });
        launched.count() as u32
    }

    /// Number of places of a host if the user gave none.
    pub(super) fn fair_count(&self, number: u32) -> u32 {
        let used = self.fleet.plan().hosts.iter().filter(|host| !host.spare).count().max(1) as u32;
        let degrees = (0..self.job.world.rank_count()).map(|rank| u32::from(self.job.degree(VirtualRank(rank))));
        degrees.sum::<u32>().div_ceil(used).max(self.fleet.cpu_count(number))
    }

    /// Passes the pool's messages to the root.
    pub(super) fn hear_of_site(&mut self) {
        for news in self.site.work() {
            self.handle(Input::Site(news));
        }
    }
}
