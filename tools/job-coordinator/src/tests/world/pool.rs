//! A site's pool of spare hosts.

use super::JOB;
use spare_pool::{JobId, Lease, LeaseId, News, SiteOrder, Spare};
use std::collections::BTreeSet;

/// A pool that has one host, with two places.
#[derive(Default)]
pub struct SitePool {
    waiting: Vec<u64>,
    pub leases: BTreeSet<LeaseId>,
    lease_count: u64,
}

impl SitePool {
    pub fn obey(&mut self, order: SiteOrder) {
        match order {
            SiteOrder::Request(number, _) => self.waiting.push(number),
            SiteOrder::Withdraw(number) => self.waiting.retain(|other| *other != number),
            SiteOrder::Succeeded(_) => {}
            SiteOrder::Release(lease) | SiteOrder::Failed(lease, _) => {
                self.leases.remove(&lease);
            }
        }
    }

    pub fn grant(&mut self) -> Option<News> {
        let number = self.waiting.pop().filter(|_| self.leases.len() < 2)?;
        self.lease_count += 1;
        let id = LeaseId(self.lease_count);
        self.leases.insert(id);
        let lease = Lease { id, job: JobId(JOB), user: None, spare: Spare::new("site", 2), memory_bytes: 0 };
        Some(News::Granted { number, lease })
    }
}
