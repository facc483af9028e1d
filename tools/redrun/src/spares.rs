//! Places for copies: the job's own hosts, and the site's pool.

use anyhow::Result;
use job_options::Job;
use pool_client::{Client, facts};
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
    pub fn work(&mut self) -> Vec<News> {
        let now = self.now();
        let Some(client) = &mut self.client else { return Vec::new() };
        client.work(now);
        std::iter::from_fn(|| client.poll_news()).collect()
    }

    /// Gives the pool an order of the coordinator.
    pub fn send(&mut self, order: SiteOrder) {
        let now = self.now();
        if let Some(client) = &mut self.client {
            order.give_to(client, now);
        }
    }
}
