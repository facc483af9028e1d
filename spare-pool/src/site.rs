//! The site's pool as seen by a machine without I/O: a queue of orders to it, and one of its messages.

use crate::spares::{News, Spares};
use crate::{LeaseId, Request};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

/// Order to the site's pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SiteOrder {
    /// Requests a place under this number.
    Request(u64, Request),
    /// Withdraws the request of this number.
    Withdraw(u64),
    /// The clone on this lease succeeded.
    Succeeded(LeaseId),
    /// The job returns this lease.
    Release(LeaseId),
    /// The job returns this lease because the clone failed, for this reason.
    Failed(LeaseId, String),
}

impl SiteOrder {
    /// Passes the order on to a pool.
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

/// Queues of orders to the site's pool, and of messages from it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Site {
    orders: VecDeque<SiteOrder>,
    news: VecDeque<News>,
}

impl Site {
    /// Next order to send to the site's pool.
    pub fn poll_order(&mut self) -> Option<SiteOrder> {
        self.orders.pop_front()
    }

    /// Queues a message from the site's pool.
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
