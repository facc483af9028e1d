//! The state of a pool that outlives its process.
//!
//! No times are stored: they begin anew when a pool is restored. So a job does not lose a lease that it could not renew
//! while the daemon was away, and clocks of two lives need not agree.

use crate::host::{Admission, Spare};
use crate::lease::{Lease, LeaseId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// More leases than any pool grants.
const NUMBER_MAX: u64 = 1 << 62;

/// Stored state of one host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostRecord {
    /// Configuration given when it was added.
    pub spare: Spare,
    /// Decision about leasing it.
    pub admission: Admission,
    /// Failed clones since the last successful one.
    pub strikes: u32,
}

/// A change of the stored state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Change {
    /// A host was added or changed.
    Host(HostRecord),
    /// A host was removed.
    HostRemoved(String),
    /// A lease was granted.
    Lease(Lease),
    /// A lease has ended.
    LeaseEnded(LeaseId),
}

/// All stored state of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    /// Hosts, each under its own name.
    pub hosts: BTreeMap<String, HostRecord>,
    /// Leases, each under its own number.
    pub leases: BTreeMap<LeaseId, Lease>,
    /// Number for the next lease; greater than all used so far.
    pub next_lease: u64,
}

/// The entry that makes a stored state invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoredError {
    /// The host is stored under another host's name.
    #[error("the entry of host {0} is another host's")]
    HostMisnamed(String),
    /// The lease is stored under another number, or its number is not below the next one.
    #[error("the entry of lease {0} is another lease's")]
    LeaseMisnamed(LeaseId),
    /// Leases of two jobs are on one host.
    #[error("host {0} is leased to two jobs")]
    LeasedTwice(String),
    /// The number is beyond any that a pool reaches.
    #[error("the number of the next lease cannot be")]
    NextLease,
}

impl Stored {
    /// Checks that a pool can have stored this state. Anything else was damaged, or written by another program.
    ///
    /// # Errors
    /// The first invalid entry.
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

    /// Applies a change to the stored state.
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

    /// Two hosts: one job has both places of the first, and a clone to the second has failed.
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

    /// A restored pool must grant leases, and all its leases must end.
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
