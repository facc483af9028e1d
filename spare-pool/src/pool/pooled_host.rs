//! State of one host in the pool.

use crate::health::Health;
use crate::host::{Admission, Facts, Spare, Unseen};
use crate::lease::{JobId, Lease, LeaseId};
use crate::pool::{HostStatus, Watch};
use crate::stored::HostRecord;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PooledHost {
    pub spare: Spare,
    pub admission: Admission,
    pub health: Health,
    pub facts: Option<Facts>,
    /// True if the pool has idle hosts looked at; else they count as available without facts.
    pub is_watched: bool,
    pub sight: Sight,
    /// Leases on the host, all of one job.
    pub leases: BTreeMap<LeaseId, Lease>,
}

/// Times of looks at a host.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Sight {
    pub unreachable: Option<Unseen>,
    /// Number of consecutive failed looks.
    pub failures: u32,
    pub due_at: Duration,
    /// Start of the look in progress.
    pub asked_at: Option<Duration>,
}

impl PooledHost {
    pub(crate) fn new(record: HostRecord, health: Health, is_watched: bool, now: Duration) -> Self {
        Self {
            spare: record.spare,
            admission: record.admission,
            health,
            facts: None,
            is_watched,
            sight: Sight { due_at: now, ..Sight::default() },
            leases: BTreeMap::new(),
        }
    }

    pub(crate) fn job(&self) -> Option<JobId> {
        self.leases.values().next().map(|lease| lease.job)
    }

    /// Memory found while the host was idle, minus what was leased since.
    pub(crate) fn free_bytes(&self, facts: &Facts) -> u64 {
        facts.memory_bytes.saturating_sub(self.lent_bytes())
    }

    fn lent_bytes(&self) -> u64 {
        self.leases.values().fold(0, |sum, lease| sum.saturating_add(lease.memory_bytes))
    }

    pub(crate) fn record(&self) -> HostRecord {
        HostRecord { spare: self.spare.clone(), admission: self.admission.clone(), strikes: self.health.strikes }
    }

    pub(crate) fn status(&self, now: Duration) -> HostStatus {
        HostStatus {
            spare: self.spare.clone(),
            admission: self.admission.clone(),
            job: self.job(),
            leased_count: self.leases.len() as u32,
            strikes: self.health.strikes,
            backs_off_until: self.health.is_resting(now).then_some(self.health.rests_until),
            unreachable: self.sight.unreachable.clone(),
            facts: self.facts.clone(),
        }
    }

    /// Returns true if the host should be looked at. A job watches hosts that it holds. But if nothing is known of a
    /// host, the pool must look before it leases another place of it.
    fn is_to_be_seen(&self) -> bool {
        self.is_watched && self.admission == Admission::Open && (self.leases.is_empty() || self.facts.is_none())
    }

    /// Time at which the next look is due, or the current one has failed.
    pub(crate) fn next_look_at(&self, watch: &Watch) -> Option<Duration> {
        match self.sight.asked_at {
            Some(asked) => Some(asked + watch.answer_time_max),
            None => self.is_to_be_seen().then_some(self.sight.due_at),
        }
    }

    /// Records the result of a look.
    pub(crate) fn seen(&mut self, found: Result<Facts, Unseen>, watch: Option<&Watch>, now: Duration) {
        self.sight.asked_at = None;
        // The host was leased after the look had begun, so its free memory depends on how far the clone has come.
        if self.is_watched && self.facts.is_some() && !self.leases.is_empty() {
            return;
        }
        let interval = watch.map_or(Duration::ZERO, |watch| watch.interval);
        match found {
            Ok(mut facts) => {
                facts.memory_bytes = facts.memory_bytes.saturating_add(self.lent_bytes());
                self.facts = Some(facts);
                self.sight.unreachable = None;
                self.sight.failures = 0;
                self.sight.due_at = now + interval;
            }
            Err(why) => {
                self.facts = None;
                self.sight.unreachable = Some(why);
                let wait = interval.saturating_mul(1 << self.sight.failures.min(8));
                self.sight.failures = self.sight.failures.saturating_add(1);
                self.sight.due_at = now + watch.map_or(wait, |watch| wait.min(watch.interval_max));
            }
        }
    }

    /// Discards the facts of a host, because a job has used it.
    pub(crate) fn discard_facts(&mut self, now: Duration) {
        if self.is_watched {
            self.facts = None;
            self.sight.due_at = now;
        }
    }
}
