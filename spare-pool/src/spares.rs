//! Interface of a pool to a job, wherever the pool is.
//!
//! `now` is the time since the start of the job, or since any other fixed moment.

use crate::{Ended, JobId, Lease, LeaseId, Output, Pool, Request, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Message of a pool to a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum News {
    /// A request is granted.
    Granted {
        /// Number of the request, as given to [`Spares::request`].
        number: u64,
        /// The lease that was granted.
        lease: Lease,
    },
    /// The job has lost a lease; another job may get the place.
    Lost {
        /// The lease that has ended.
        lease: Lease,
        /// Reason of the loss, for messages.
        why: String,
    },
    /// The job should leave this host, because it is to become free. Sent once for each lease.
    Leave(Lease),
    /// A message for the user, of one line.
    Note(String),
}

/// A pool of spare hosts, as one job uses it.
pub trait Spares {
    /// Requests a place. [`News::Granted`] with the same number follows as soon as there is one. A number is used once.
    fn request(&mut self, number: u64, request: Request, now: Duration);

    /// Withdraws a request. If it was granted meanwhile, the lease is returned.
    fn withdraw(&mut self, number: u64, now: Duration);

    /// Reports that a clone succeeded, so the host is good.
    fn succeeded(&mut self, lease: LeaseId, now: Duration);

    /// Returns a place: it is not needed, or the copy there has ended.
    fn release(&mut self, lease: LeaseId, now: Duration);

    /// Returns a place because the clone failed, perhaps because of the host.
    fn failed(&mut self, lease: LeaseId, why: &str, now: Duration);

    /// Does everything that is due. To be called after messages of the pool, and at [`Spares::next_event`].
    fn work(&mut self, now: Duration);

    /// Next message for the job.
    fn poll_news(&mut self) -> Option<News>;

    /// Time at which [`Spares::work`] is due even if nothing else happens.
    fn next_event(&self, now: Duration) -> Option<Duration>;

    /// Reasons why no place can be granted for such a request now, one line each. Empty if unknown here.
    fn why_none(&self, request: &Request, now: Duration) -> Vec<String>;
}

/// A pool inside `redrun`, for one job.
#[derive(Debug, Serialize, Deserialize)]
pub struct Embedded {
    pool: Pool,
    job: JobId,
    numbers: BTreeMap<Ticket, u64>,
    told_to_leave: Vec<LeaseId>,
    news: VecDeque<News>,
}

impl Embedded {
    /// Wraps a pool for the job of this id.
    #[must_use]
    pub fn new(pool: Pool, job: JobId) -> Self {
        Self { pool, job, numbers: BTreeMap::new(), told_to_leave: Vec::new(), news: VecDeque::new() }
    }

    /// Changes the pool, such as its hosts, and queues the resulting messages.
    pub fn change<T>(&mut self, change: impl FnOnce(&mut Pool) -> T) -> T {
        let result = change(&mut self.pool);
        self.handle();
        result
    }

    /// The pool, for reading.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    fn handle(&mut self) {
        while let Some(output) = self.pool.poll_output() {
            match output {
                Output::Granted(ticket, lease) => {
                    let number = self.numbers.remove(&ticket).expect("each ticket has a number");
                    self.news.push_back(News::Granted { number, lease });
                }
                Output::Ended(lease, why) => {
                    self.news.push_back(News::Lost { lease, why: ended(why).into() });
                }
                Output::Store(_) | Output::Look(_) => {}
            }
        }
        let leaving: Vec<_> = self.pool.leaving(self.job).collect();
        for id in &leaving {
            if !self.told_to_leave.contains(id) {
                let lease = self.pool.leases(self.job).find(|lease| lease.id == *id).cloned();
                self.news.extend(lease.map(News::Leave));
            }
        }
        self.told_to_leave = leaving;
    }
}

/// Explanation of why a lease ended, for messages.
#[must_use]
pub fn ended(why: Ended) -> &'static str {
    match why {
        Ended::Expired => "the pool has not heard of the job for too long",
        Ended::Removed => "the host was removed from the pool",
    }
}

impl Spares for Embedded {
    fn request(&mut self, number: u64, request: Request, now: Duration) {
        let ticket = self.pool.request(request, now);
        self.numbers.insert(ticket, number);
        self.handle();
    }

    fn withdraw(&mut self, number: u64, now: Duration) {
        let ticket = self.numbers.iter().find(|(_, other)| **other == number).map(|(ticket, _)| *ticket);
        if let Some(ticket) = ticket {
            self.numbers.remove(&ticket);
            self.pool.withdraw(ticket);
        }
        let granted = |news: &News| matches!(news, News::Granted { number: other, .. } if *other == number);
        if let Some(place) = self.news.iter().position(granted)
            && let Some(News::Granted { lease, .. }) = self.news.remove(place)
        {
            self.release(lease.id, now);
        }
    }

    fn succeeded(&mut self, lease: LeaseId, now: Duration) {
        self.pool.succeeded(lease, now);
        self.handle();
    }

    fn release(&mut self, lease: LeaseId, now: Duration) {
        self.pool.release(lease, now);
        self.handle();
    }

    fn failed(&mut self, lease: LeaseId, why: &str, now: Duration) {
        self.pool.failed(lease, why, now);
        self.handle();
    }

    fn work(&mut self, now: Duration) {
        self.pool.advance(now);
        self.handle();
    }

    fn poll_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    fn next_event(&self, now: Duration) -> Option<Duration> {
        self.pool.next_event(now)
    }

    fn why_none(&self, request: &Request, now: Duration) -> Vec<String> {
        let reasons = self.pool.explain(request, now);
        reasons.map(|(host, unfit)| format!("{host}: {unfit}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Settings, Spare};

    #[test]
    fn a_job_hears_of_its_spares() {
        let job = JobId(1);
        let now = Duration::from_secs(1);
        let mut spares = Embedded::new(Pool::new(Settings::embedded()), job);
        spares.request(7, Request::new(job), now);
        assert_eq!(spares.poll_news(), None);
        spares.change(|pool| pool.add(Spare::new("a", 1), now));
        let Some(News::Granted { number: 7, lease }) = spares.poll_news() else { panic!("nothing was granted") };
        assert_eq!(spares.why_none(&Request::new(job), now), ["a: all its places are taken"]);
        spares.change(|pool| pool.drain("a", now));
        assert_eq!(spares.poll_news(), Some(News::Leave(lease.clone())));
        spares.change(|pool| pool.remove("a", now));
        assert!(matches!(spares.poll_news(), Some(News::Lost { lease: lost, .. }) if lost == lease));
        assert_eq!(spares.poll_news(), None);
    }

    #[test]
    fn what_was_withdrawn_is_given_back() {
        let job = JobId(1);
        let now = Duration::from_secs(1);
        let mut spares = Embedded::new(Pool::new(Settings::embedded()), job);
        spares.change(|pool| pool.add(Spare::new("a", 1), now));
        spares.request(1, Request::new(job), now);
        spares.request(2, Request::new(job), now);
        spares.withdraw(1, now);
        assert!(matches!(spares.poll_news(), Some(News::Granted { number: 2, .. })));
        spares.withdraw(3, now);
        assert_eq!(spares.poll_news(), None);
    }
}
