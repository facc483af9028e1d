//! What of a pool outlives the process that holds it.
//!
//! No times are stored: restoring a pool begins them anew, so a lease whose job could not renew it while the
//! daemon was away is not lost, and clocks of two lives need not agree.

use crate::host::{Admission, Spare};
use crate::lease::{Lease, LeaseId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// More leases than any pool gives.
const NUMBER_MAX: u64 = 1 << 62;

/// One host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostRecord {
    /// What was said when it was added.
    pub spare: Spare,
    /// Whether it may be leased.
    pub admission: Admission,
    /// Failures that were not made up for.
    pub strikes: u32,
}

/// A change of what is stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Change {
    /// A host is there, or is different.
    Host(HostRecord),
    /// A host is gone.
    HostRemoved(String),
    /// A lease was given.
    Lease(Lease),
    /// A lease has ended.
    LeaseEnded(LeaseId),
}

/// All that is stored.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    /// The hosts by name.
    pub hosts: BTreeMap<String, HostRecord>,
    /// The leases by number.
    pub leases: BTreeMap<LeaseId, Lease>,
    /// The number of the next lease.
    pub next_lease: u64,
}

/// An entry that no pool has stored.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoredError {
    /// Below the name of another.
    #[error("the entry of host {0} is another host's")]
    HostMisnamed(String),
    /// Below the number of another.
    #[error("the entry of lease {0} is another lease's")]
    LeaseMisnamed(LeaseId),
    /// A host has one job at a time.
    #[error("host {0} is leased to two jobs")]
    LeasedTwice(String),
    /// Numbers do not get that far.
    #[error("the number of the next lease cannot be")]
    NextLease,
}

impl Stored {
    /// Whether a pool can have been stored so. What does not fit was damaged, or written by somebody else.
    ///
    /// # Errors
    /// The entry that cannot be.
    pub fn check(&self) -> Result<(), StoredError> {
        if let Some((name, _)) = self.hosts.iter().find(|(name, record)| record.spare.name != **name) {
            return Err(StoredError::HostMisnamed(name.clone()));
        }
        if self.next_lease > NUMBER_MAX {
            return Err(StoredError::NextLease);
        }
        let mut jobs = BTreeMap::new();
        for (id, lease) in &self.leases {
            if lease.id != *id || id.0 >= self.next_lease {
                return Err(StoredError::LeaseMisnamed(*id));
            }
            let name = &lease.spare.name;
            if *jobs.entry(name).or_insert(lease.job) != lease.job {
                return Err(StoredError::LeasedTwice(name.clone()));
            }
        }
        Ok(())
    }

    /// Makes a change.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Host(record) => drop(self.hosts.insert(record.spare.name.clone(), record)),
            Change::HostRemoved(name) => drop(self.hosts.remove(&name)),
            Change::Lease(lease) => {
                self.next_lease = self.next_lease.max(lease.id.0 + 1);
                self.leases.insert(lease.id, lease);
            }
            Change::LeaseEnded(id) => drop(self.leases.remove(&id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{JobId, Request};
    use crate::pool::{Output, Pool, Settings};
    use proptest::prelude::*;
    use std::time::Duration;

    /// Two hosts, of which a job has both places of one, and one has failed.
    fn sound() -> Stored {
        let mut pool = Pool::new(Settings { watch: None, ..Settings::shared() });
        pool.add(Spare { rack: Some("r1".into()), ..Spare::new("a", 2) }, Duration::ZERO);
        pool.add(Spare::new("b", 1), Duration::ZERO);
        let leases: Vec<_> =
            (0..3).map(|_| pool.lease(Request::new(JobId(1)).with_memory(7), Duration::ZERO).unwrap()).collect();
        pool.failed(leases[2].id, "it broke", Duration::ZERO);
        pool.mark_bad("b", "it burns", Duration::ZERO);
        pool.stored()
    }

    #[test]
    fn what_a_pool_stores_can_be() {
        sound().check().unwrap();
    }

    type Edit = fn(&mut Stored);

    #[test]
    fn what_no_pool_stores_is_refused() {
        let edits: [(Edit, &str); 4] = [
            (|stored| stored.hosts.get_mut("a").unwrap().spare.name = "c".into(), "another host's"),
            (|stored| stored.next_lease = u64::MAX, "next lease"),
            (|stored| stored.next_lease = 1, "another lease's"),
            (|stored| stored.leases.get_mut(&LeaseId(0)).unwrap().job = JobId(2), "two jobs"),
        ];
        for (edit, why) in edits {
            let mut stored = sound();
            edit(&mut stored);
            assert!(stored.check().unwrap_err().to_string().contains(why), "{why}");
        }
    }

    /// Any pool that is restored lends, and all its leases end.
    fn live_on(stored: Stored) {
        let settings = Settings { watch: None, ..Settings::shared() };
        let mut pool = Pool::restore(settings.clone(), stored, Duration::ZERO);
        pool.request(Request::new(JobId(77)), Duration::ZERO);
        let mut now = Duration::ZERO;
        while let Some(at) = pool.next_event(now) {
            assert!(at > now, "time goes on");
            now = at;
            pool.advance(now);
            assert!(now < Duration::from_secs(100_000), "it comes to rest");
        }
        let is_of_another = |output: Output| matches!(output, Output::Granted(_, lease) if lease.job != JobId(77));
        assert!(!std::iter::from_fn(|| pool.poll_output()).any(is_of_another));
        assert_eq!(pool.stored().leases.len(), 0);
    }

    proptest! {
        #[test]
        fn fuzz_damaged_rows_are_refused_or_restored(
            damage in prop::collection::vec((any::<prop::sample::Index>(), "[0-9a-z\"{}:,-]"), 1..4),
        ) {
            let mut text = serde_json::to_string(&sound()).unwrap();
            for (place, by) in damage {
                let at = place.index(text.len());
                if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
                    text.replace_range(at..=at, &by);
                }
            }
            if let Ok(stored) = serde_json::from_str::<Stored>(&text)
                && stored.check().is_ok()
            {
                live_on(stored);
            }
        }
    }
}
