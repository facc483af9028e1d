//! The site's pool, as a machine without I/O knows it: what it is to be told waits here, and so does what it has said.

use crate::spares::{News, Spares};
use crate::{LeaseId, Request};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

/// What the site's pool is to be told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SiteOrder {
    /// A place is asked for, by this number.
    Request(u64, Request),
    /// It is not needed any more.
    Withdraw(u64),
    /// A clone runs there.
    Succeeded(LeaseId),
    /// A place is given back.
    Release(LeaseId),
    /// It is given back because the clone failed, for this reason.
    Failed(LeaseId, String),
}

impl SiteOrder {
    /// Tells it.
    pub fn give_to(self, pool: &mut impl Spares, now: Duration) {
        match self {
            Self::Request(number, request) => pool.request(number, request, now),
            Self::Withdraw(number) => pool.withdraw(number, now),
            Self::Succeeded(lease) => pool.succeeded(lease, now),
            Self::Release(lease) => pool.release(lease, now),
            Self::Failed(lease, why) => pool.failed(lease, &why, now),
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Site {
    orders: VecDeque<SiteOrder>,
    news: VecDeque<News>,
}

impl Site {
    /// What it is to be told next.
    pub fn poll_order(&mut self) -> Option<SiteOrder> {
        self.orders.pop_front()
    }

    /// It has said something.
    pub fn say(&mut self, news: News) {
        self.news.push_back(news);
    }
}

impl Spares for Site {
    fn request(&mut self, number: u64, request: Request, _: Duration) {
        self.orders.push_back(SiteOrder::Request(number, request));
    }

    fn withdraw(&mut self, number: u64, _: Duration) {
        self.orders.push_back(SiteOrder::Withdraw(number));
    }

    fn succeeded(&mut self, lease: LeaseId, _: Duration) {
        self.orders.push_back(SiteOrder::Succeeded(lease));
    }

    fn release(&mut self, lease: LeaseId, _: Duration) {
        self.orders.push_back(SiteOrder::Release(lease));
    }

    fn failed(&mut self, lease: LeaseId, why: &str, _: Duration) {
        self.orders.push_back(SiteOrder::Failed(lease, why.to_owned()));
    }

    fn work(&mut self, _: Duration) {}

    fn poll_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    fn next_event(&self, _: Duration) -> Option<Duration> {
        None
    }

    fn why_none(&self, _: &Request, _: Duration) -> Vec<String> {
        Vec::new()
    }
}
