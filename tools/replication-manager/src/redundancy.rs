//! Measures how long each rank had all its replicas, and how long only one.
//!
//! Enters: the time, and for each rank the number of replicas in step and its degree. Leaves ([`RankTime`]): durations.
//! The clock runs from the moment at which all replicas have met until they finalize or the job begins to end. A rank
//! of degree 1 is unprotected by intent, and counts nowhere.

use redrt_types::VirtualRank;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Times of one rank, or a sum over ranks, until a given moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RankTime {
    /// Time in which its degree was 2 or more.
    pub required: Duration,
    /// Part of `required` in which it had all replicas.
    pub whole: Duration,
    /// Part of `required` in which it had one replica at most, so that nothing it sent was compared.
    pub single: Duration,
    /// Number of replicas that are missing at that moment.
    pub missing_count: u16,
}

impl RankTime {
    /// Time in which at least one replica was missing.
    #[must_use]
    pub fn short(&self) -> Duration {
        self.required.saturating_sub(self.whole)
    }

    /// Protected part of the time, from 0 to 1. None where no redundancy was required.
    #[must_use]
    pub fn protected_share(&self) -> Option<f64> {
        (!self.required.is_zero()).then(|| self.whole.as_secs_f64() / self.required.as_secs_f64())
    }

    fn add(&mut self, other: &Self) {
        self.required += other.required;
        self.whole += other.whole;
        self.single += other.single;
        self.missing_count = self.missing_count.saturating_add(other.missing_count);
    }
}

/// A rank between two changes of its membership.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Rank {
    in_step_count: usize,
    degree: u16,
    /// Times until the latest change.
    time: RankTime,
}

impl Rank {
    /// The times when `passed` has gone by since the latest change.
    fn after(&self, passed: Duration) -> RankTime {
        let mut time = self.time;
        if self.degree >= 2 {
            time.required += passed;
            time.missing_count = self.degree.saturating_sub(self.in_step_count.try_into().unwrap_or(u16::MAX));
            if time.missing_count == 0 {
                time.whole += passed;
            }
            if self.in_step_count < 2 {
                time.single += passed;
            }
        } else {
            time.missing_count = 0;
        }
        time
    }
}

/// Measures the redundancy of all ranks over time; see the module for the rule.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Redundancy {
    ranks: Vec<Rank>,
    /// Time of the latest change.
    since: Duration,
    has_stopped: bool,
}

impl Redundancy {
    /// The times of each rank until `now`. Empty before the replicas have met.
    pub fn ranks(&self, now: Duration) -> impl Iterator<Item = (VirtualRank, RankTime)> + '_ {
        let passed = if self.has_stopped { Duration::ZERO } else { now.saturating_sub(self.since) };
        (0..).map(VirtualRank).zip(self.ranks.iter().map(move |rank| rank.after(passed)))
    }

    /// The sum over all ranks.
    #[must_use]
    pub fn total(&self, now: Duration) -> RankTime {
        let mut total = RankTime::default();
        self.ranks(now).for_each(|(_, time)| total.add(&time));
        total
    }

    /// Records for each rank, in order, the number of replicas in step and its degree from `now` on. `now` never goes
    /// back.
    pub fn observe(&mut self, now: Duration, ranks: impl IntoIterator<Item = (usize, u16)>) {
        if self.has_stopped {
            return;
        }
        let passed = now.saturating_sub(self.since);
        for (at, (in_step_count, degree)) in ranks.into_iter().enumerate() {
            let time = self.ranks.get(at).map(|rank| rank.after(passed)).unwrap_or_default();
            let rank = Rank { in_step_count, degree, time };
            match self.ranks.get_mut(at) {
                Some(known) => *known = rank,
                None => self.ranks.push(rank),
            }
        }
        self.since = now;
    }

    /// Stops the clock, because the job finalizes or ends. Later losses do not count.
    pub fn stop(&mut self) {
        self.has_stopped = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn rank(redundancy: &Redundancy, now: u64, rank: usize) -> RankTime {
        redundancy.ranks(seconds(now)).nth(rank).expect("the rank was observed").1
    }

    #[test]
    fn time_counts_as_protected_while_all_replicas_are_in_step() {
        let mut redundancy = Redundancy::default();
        redundancy.observe(seconds(10), [(2, 2), (2, 2)]);
        redundancy.observe(seconds(20), [(2, 2), (1, 2)]);
        redundancy.observe(seconds(34), [(2, 2), (2, 2)]);
        let one = RankTime { required: seconds(100), whole: seconds(86), single: seconds(14), missing_count: 0 };
        assert_eq!(rank(&redundancy, 110, 1), one);
        assert_eq!(rank(&redundancy, 110, 0).short(), Duration::ZERO);
        let total = redundancy.total(seconds(110));
        assert_eq!((total.required, total.short()), (seconds(200), seconds(14)));
        assert!((total.protected_share().unwrap() - 0.93).abs() < 1e-9);
    }

    #[test]
    fn two_of_three_replicas_are_short_and_compare_still() {
        let mut redundancy = Redundancy::default();
        redundancy.observe(seconds(0), [(2, 3)]);
        let time = rank(&redundancy, 5, 0);
        assert_eq!((time.short(), time.single, time.missing_count), (seconds(5), Duration::ZERO, 1));
    }

    #[test]
    fn a_rank_of_one_replica_requires_nothing() {
        let mut redundancy = Redundancy::default();
        redundancy.observe(seconds(0), [(1, 1)]);
        assert_eq!(rank(&redundancy, 5, 0), RankTime::default());
        assert_eq!(redundancy.total(seconds(5)).protected_share(), None);
    }

    #[test]
    fn a_replica_that_was_wished_away_is_not_missing() {
        let mut redundancy = Redundancy::default();
        redundancy.observe(seconds(0), [(1, 2)]);
        assert_eq!(rank(&redundancy, 3, 0).missing_count, 1);
        redundancy.observe(seconds(3), [(1, 1)]);
        let time = rank(&redundancy, 9, 0);
        assert_eq!((time.required, time.single, time.missing_count), (seconds(3), seconds(3), 0));
    }

    #[test]
    fn what_follows_the_end_does_not_count() {
        let mut redundancy = Redundancy::default();
        redundancy.observe(seconds(0), [(2, 2)]);
        redundancy.observe(seconds(4), [(1, 2)]);
        redundancy.stop();
        redundancy.observe(seconds(7), [(0, 2)]);
        let time = rank(&redundancy, 9, 0);
        assert_eq!((time.required, time.single, time.missing_count), (seconds(4), Duration::ZERO, 1));
    }

    #[test]
    fn nothing_is_known_before_the_replicas_have_met() {
        assert_eq!(Redundancy::default().ranks(seconds(9)).count(), 0);
        assert_eq!(Redundancy::default().total(seconds(9)).protected_share(), None);
    }
}
