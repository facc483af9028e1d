//! Finds hosts that are slower than others, from the answers to the stall detector's waves.
//!
//! Replicas of a rank do the same work, and a message is delivered when all of them have sent it. So the job runs at
//! the pace of the slowest. A replica on a slow host is found at work in most looks and its siblings in few, because
//! they wait for it in MPI. The ratio is the factor by which the host is slower.
//!
//! The trap: a follower that waits for its leader's decision counts as at work, since the leader may be reading a file
//! for both.
//!
//! All looks of a window are judged together. Three conditions exclude chance: twice as long, a fifth of the time, and
//! more than four standard deviations of the counts.

use super::Report;
use super::effect::{Effect, Effects};
use super::facts::Facts;
use redrt_types::{ReplicaId, VirtualRank};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Looks in a window: four minutes at the default of `--look-interval`.
const WINDOW: u32 = 120;

/// Factor at which a host counts as slow.
const FACTOR_MIN: f64 = 2.0;
/// Factor below which a slow host has recovered.
const FACTOR_OVER: f64 = 1.5;
/// Minimum part of the time that a slow host must be at work more than its peers.
const SHARE_MIN: f64 = 0.2;
/// Minimum distance of the counts, in standard deviations.
const SIGNIFICANT: f64 = 4.0;

/// Looks at a replica in a window.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct SampleCounts {
    all: u32,
    at_work: u32,
}

impl SampleCounts {
    fn share(self) -> f64 {
        f64::from(self.at_work) / f64::from(self.all.max(1))
    }
}

/// A host that holds up others.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SlowHost {
    /// One of its replicas.
    pub replica: ReplicaId,
    /// Factor by which it is slower.
    pub factor: f64,
    /// Part of the looks in which its replicas were at work, from 0 to 1.
    pub at_work: f64,
    /// The same for their siblings on other hosts.
    pub peers_at_work: f64,
}

/// Finds slow hosts from looks at their replicas; see the module for the rule.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SlownessWatch {
    looks: BTreeMap<ReplicaId, SampleCounts>,
    /// Hosts that were reported and have not recovered.
    slow: BTreeSet<u32>,
}

impl SlownessWatch {
    /// Records a look at a replica.
    pub fn looked(&mut self, replica: ReplicaId, is_at_work: bool) {
        let looks = self.looks.entry(replica).or_default();
        looks.all += 1;
        looks.at_work += u32::from(is_at_work);
    }

    /// Discards the looks at this place, which will have another process.
    pub fn forget(&mut self, replica: ReplicaId) {
        self.looks.remove(&replica);
    }

    /// Reports hosts that turned out slow, and counts a strike. The job runs at the pace of the slowest host.
    pub(super) fn judge(&mut self, facts: Facts<'_>, out: &mut Effects) {
        for slow in self.slow_hosts(|replica| facts.members.host_of(replica)) {
            out.report(Report::SlowHost(slow));
            out.push(Effect::Strike(slow.replica));
        }
    }

    /// Returns hosts that turned out slow, at the end of a window and once until they recover.
    pub fn slow_hosts(&mut self, host_of: impl Fn(ReplicaId) -> Option<u32>) -> Vec<SlowHost> {
        if self.looks.values().all(|looks| looks.all < WINDOW) {
            return Vec::new();
        }
        let looks = std::mem::take(&mut self.looks);
        // A replica that joined in the middle of the window has too few looks.
        let looks = looks.into_iter().filter(|(_, looks)| looks.all >= WINDOW / 2);
        let mut by_rank: BTreeMap<VirtualRank, Vec<(ReplicaId, u32, SampleCounts)>> = BTreeMap::new();
        for (replica, looks) in looks {
            if let Some(host) = host_of(replica) {
                by_rank.entry(replica.rank).or_default().push((replica, host, looks));
            }
        }
        let mut by_host: BTreeMap<u32, Vec<(ReplicaId, f64, f64)>> = BTreeMap::new();
        for sphere in by_rank.values() {
            for (replica, host, looks) in sphere {
                let peers: Vec<_> = sphere.iter().filter(|(_, other, _)| other != host).collect();
                if !peers.is_empty() {
                    let share = peers.iter().map(|(_, _, looks)| looks.share()).sum::<f64>() / peers.len() as f64;
                    by_host.entry(*host).or_default().push((*replica, looks.share(), share));
                }
            }
        }
        let judged: Vec<_> = by_host.iter().map(|(host, replicas)| (*host, judge(replicas))).collect();
        self.slow.retain(|host| judged.iter().all(|(other, it)| other != host || it.factor >= FACTOR_OVER));
        let found = judged.into_iter().filter(|(host, it)| is_slow(it) && self.slow.insert(*host));
        found.map(|(_, slow)| slow).collect()
    }
}

/// Averages a host's replicas. Each has an id, its share of looks at work, and the mean share of its siblings
/// elsewhere.
fn judge(replicas: &[(ReplicaId, f64, f64)]) -> SlowHost {
    let mean = |of: fn(&(ReplicaId, f64, f64)) -> f64| replicas.iter().map(of).sum::<f64>() / replicas.len() as f64;
    let (at_work, peers_at_work) = (mean(|it| it.1), mean(|it| it.2));
    // A window cannot tell a share of zero from one of a single look.
    let factor = at_work / peers_at_work.max(1.0 / f64::from(WINDOW));
    SlowHost { replica: replicas[0].0, factor, at_work, peers_at_work }
}

fn is_slow(host: &SlowHost) -> bool {
    // All replicas of a host are looked at together, so many of them are no more evidence than one.
    let (own, peers) = (host.at_work * f64::from(WINDOW), host.peers_at_work * f64::from(WINDOW));
    host.factor >= FACTOR_MIN
        && host.at_work - host.peers_at_work >= SHARE_MIN
        && own - peers > SIGNIFICANT * (own + peers).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ranks, with a replica of each on each host.
    fn host_of(replica: ReplicaId) -> Option<u32> {
        Some(u32::from(replica.index.0))
    }

    /// A window in which the replicas of host `n` were at work in `at_work[n]` of 120 looks.
    fn window(watch: &mut SlownessWatch, at_work: &[u32]) -> Vec<SlowHost> {
        let mut found = Vec::new();
        for look in 0..WINDOW {
            for rank in 0..2 {
                for (index, at_work) in (0..).zip(at_work) {
                    watch.looked(ReplicaId::new(rank, index), look < *at_work);
                }
            }
            found.extend(watch.slow_hosts(host_of));
        }
        found
    }

    #[test]
    fn a_host_that_takes_three_times_as_long_is_told_of_once() {
        let mut watch = SlownessWatch::default();
        let found = window(&mut watch, &[36, 108, 36]);
        let [slow] = found[..] else { panic!("{found:?}") };
        assert_eq!((slow.replica.index.0, (slow.factor * 10.0).round()), (1, 30.0));
        assert_eq!(window(&mut watch, &[36, 108, 36]), [], "it is known");
        assert_eq!(window(&mut watch, &[36, 40, 36]), [], "it has recovered");
        assert_eq!(window(&mut watch, &[36, 108, 36]).len(), 1, "it is slow again");
    }

    #[test]
    fn of_two_hosts_the_one_whose_sibling_waits_is_slow() {
        let found = window(&mut SlownessWatch::default(), &[114, 30]);
        assert_eq!(found.iter().map(|slow| slow.replica.index.0).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn hosts_that_differ_little_or_work_little_are_not_slow() {
        for at_work in [[110, 100, 105], [60, 110, 70], [2, 20, 3], [0, 0, 0], [120, 120, 120]] {
            assert_eq!(window(&mut SlownessWatch::default(), &at_work), [], "{at_work:?}");
        }
    }

    #[test]
    fn replicas_on_one_host_tell_nothing_of_it() {
        let mut watch = SlownessWatch::default();
        for look in 0..2 * WINDOW {
            watch.looked(ReplicaId::new(0, 0), true);
            watch.looked(ReplicaId::new(0, 1), look % 10 == 0);
            assert_eq!(watch.slow_hosts(|_| Some(0)), []);
        }
    }

    /// Random looks at hosts of equal speed: chance makes none of them slow.
    #[test]
    fn equal_hosts_are_never_slow_by_chance() {
        let mut state = 1_u64;
        let mut draw = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / f64::from(1_u32 << 31)
        };
        let mut watch = SlownessWatch::default();
        for window in 0..2_000 {
            let share = f64::from(window % 20) / 20.0;
            for _ in 0..WINDOW {
                for index in 0..2 {
                    watch.looked(ReplicaId::new(0, index), draw() < share);
                }
                assert_eq!(watch.slow_hosts(host_of), [], "window {window}");
            }
        }
    }
}
