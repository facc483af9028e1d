//! The end of the job: finds a replica that goes on long after its siblings have ended well.
//!
//! After `MPI_Finalize` a program may run as long as it likes, so time alone proves nothing. But replicas do the same
//! work. A replica that goes on for several times as long as two siblings took computes with other data than they had.
//! It answers no more waves (`pace` asks only replicas that are in the job), and the job would wait for it for ever.

use super::effect::{Effect, Effects};
use super::facts::Facts;
use super::{Laggard, OnStall, Report, RetireReason, SIBLINGS_BELIEVED};
use redrt_types::{ReplicaId, ReplicaSet, VirtualRank};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Minimum patience with any replica.
const FLOOR: Duration = Duration::from_secs(30);

/// The patience is this many times the time that the last sibling took.
const FACTOR: u32 = 4;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Stragglers {
    /// Time of the release.
    released: Duration,
    /// By rank, the replicas that ended with status 0, and the time of the last such end.
    ended: BTreeMap<VirtualRank, (ReplicaSet, Duration)>,
    /// Replicas that were reported, with the siblings that had ended then.
    told: BTreeMap<ReplicaId, ReplicaSet>,
}

impl Stragglers {
    /// Starts the clock at `Release`.
    pub(super) fn begin(&mut self, now: Duration) {
        self.released = now;
    }

    /// Records an end with status 0.
    pub(super) fn ended(&mut self, now: Duration, replica: ReplicaId) {
        let (indices, last) = self.ended.entry(replica.rank).or_insert((ReplicaSet::EMPTY, now));
        indices.insert(replica.index);
        *last = now;
    }

    /// The end of the patience with this replica, and its siblings that have ended. None while no sibling has ended
    /// that was not reported. A `limit` replaces the patience that the siblings' time gives.
    fn deadline(&self, replica: ReplicaId, limit: Option<Duration>) -> Option<(Duration, ReplicaSet)> {
        let told = self.told.get(&replica).copied().unwrap_or(ReplicaSet::EMPTY);
        let (indices, last) = self.ended.get(&replica.rank).filter(|(indices, _)| !indices.is_subset(told))?;
        let patience = limit.unwrap_or_else(|| FLOOR.max(last.saturating_sub(self.released) * FACTOR));
        Some((*last + patience, *indices))
    }
    /// The replicas that still run after `Release`, each with the end of the patience and its siblings that have ended.
    fn lingering(&self, facts: Facts<'_>) -> impl Iterator<Item = (ReplicaId, Duration, ReplicaSet)> {
        let is_waited_for = facts.course.is_released() && !facts.course.is_ending();
        let running = facts.members.all().filter(move |(_, process)| is_waited_for && process.counts());
        running.filter_map(move |(replica, _)| {
            let (at, ended) = self.deadline(replica, facts.settings.stall_time)?;
            Some((replica, at, ended))
        })
    }

    pub(super) fn next_deadline(&self, facts: Facts<'_>) -> Option<Duration> {
        self.lingering(facts).map(|(_, at, _)| at).min()
    }

    /// Reports replicas that run for too long, and ends them if the policy says so.
    pub(super) fn judge(&mut self, facts: Facts<'_>, out: &mut Effects) {
        let late: Vec<_> = self.lingering(facts).filter(|(_, at, _)| facts.now >= *at).collect();
        for (replica, _, ahead) in late {
            self.told.insert(replica, ahead);
            let stood = facts.now.saturating_sub(self.released);
            let kinship = facts.members.view().kinship(replica.rank);
            let weight = kinship.weight(ahead, ahead.union(ReplicaSet::only(replica.index)));
            let is_retired = match facts.settings.on_stall {
                OnStall::Majority => weight >= SIBLINGS_BELIEVED,
                OnStall::Retire => true,
                OnStall::Wait => false,
            };
            out.report(Report::Lingers { laggard: Laggard { replica, ahead, stood, is_silent: true }, is_retired });
            if is_retired {
                out.push(Effect::Kill { replica, reason: RetireReason::Lagging });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_late_replica_gets_four_times_its_siblings_time() {
        let mut stragglers = Stragglers::default();
        let deadline = |stragglers: &Stragglers, limit| stragglers.deadline(ReplicaId::new(0, 2), limit);
        stragglers.begin(100 * SECOND);
        assert_eq!(deadline(&stragglers, None), None);
        stragglers.ended(101 * SECOND, ReplicaId::new(0, 0));
        stragglers.ended(101 * SECOND, ReplicaId::new(1, 1));
        assert_eq!(deadline(&stragglers, None).map(|(at, ended)| (at, ended.len())), Some((131 * SECOND, 1)));
        stragglers.ended(120 * SECOND, ReplicaId::new(0, 1));
        assert_eq!(deadline(&stragglers, None).map(|(at, ended)| (at, ended.len())), Some((200 * SECOND, 2)));
        assert_eq!(deadline(&stragglers, Some(5 * SECOND)).map(|(at, _)| at), Some(125 * SECOND));
    }
}
