//! What a job needs of a pool, wherever it is.
//!
//! `now` is the time since the start of the job, or any other moment that stays the same.

use crate::{Ended, JobId, Lease, LeaseId, Output, Pool, Request, Ticket};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// What a pool tells a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum News {
    /// The place that was asked for by this number.
    Granted {
        /// As given to [`Spares::request`].
        number: u64,
        /// The place.
        lease: Lease,
    },
    /// The place is the job's no more; another job may get it.
    Lost {
        /// The lease.
        lease: Lease,
        /// Why, in words.
        why: String,
    },
    /// The host is to become free: the job should move away. Said once for each lease.
    Leave(Lease),
    /// Something the user should know, in one line.
    Note(String),
}

/// A pool of spare hosts.
pub trait Spares {
    /// Asks for a place; [`News::Granted`] with the same number follows as soon as there is one. A number is used once.
    fn request(&mut self, number: u64, request: Request, now: Duration);

    /// The place is not needed any more. If it was granted meanwhile, it is given back.
    fn withdraw(&mut self, number: u64, now: Duration);

    /// A clone runs there: the host is good.
    fn succeeded(&mut self, lease: LeaseId, now: Duration);

    /// A place is given back: not needed, or the copy there has ended.
    fn release(&mut self, lease: LeaseId, now: Duration);

    /// A place is given back because the clone failed for a reason that may lie with the host.
    fn failed(&mut self, lease: LeaseId, why: &str, now: Duration);

    /// Does what is due: when something was heard of the pool, and at [`Spares::next_event`].
    fn work(&mut self, now: Duration);

    /// What the job has not been told yet.
    fn poll_news(&mut self) -> Option<News>;

    /// When [`Spares::work`] is to be called though nothing has happened.
    fn next_event(&self, now: Duration) -> Option<Duration>;

    /// Why there is no place for such a request now, in words, if that is known here.
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
    /// Takes over a pool.
    #[must_use]
    pub fn new(pool: Pool, job: JobId) -> Self {
        Self { pool, job, numbers: BTreeMap::new(), told_to_leave: Vec::new(), news: VecDeque::new() }
    }

    /// Changes the pool: hosts come, go, or are found to be bad.
    pub fn change<T>(&mut self, change: impl FnOnce(&mut Pool) -> T) -> T {
        let result = change(&mut self.pool);
        self.hear();
        result
    }

    /// The pool, to be looked at.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    fn hear(&mut self) {
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

/// Why a lease ended, in words.
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
        self.hear();
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
        self.hear();
    }

    fn release(&mut self, lease: LeaseId, now: Duration) {
        self.pool.release(lease, now);
        self.hear();
    }

    fn failed(&mut self, lease: LeaseId, why: &str, now: Duration) {
        self.pool.failed(lease, why, now);
        self.hear();
    }

    fn work(&mut self, now: Duration) {
        self.pool.advance(now);
        self.hear();
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
