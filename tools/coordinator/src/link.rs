//! Connections that break between two processes. As a rule one of the two has died, and a view will say so. If both
//! still live after the time in which any death is found, the messages in flight between them are lost for good, and
//! the processes that need them would wait for ever.
//!
//! If the peer's host did not answer either, the two hosts cannot reach each other, though others reach both. No
//! process of one host can then go on with a process of the other, so one host must go. The choice is the host without
//! which each rank still has a replica; of two such hosts, the one with fewer replicas. Otherwise the process goes
//! whose end is said to be broken, if its rank can do without it; else the other one; else the job ends.

use super::{Coordinator, EndReason, KILL_GRACE, Output, Report, RetireReason};
use redrt_types::{Incarnation, ReplicaId};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::time::Duration;

/// A report of a broken connection between two living processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct BrokenLink {
    /// The time at which one of the two must go.
    at: Duration,
    suspect: ReplicaId,
    by: ReplicaId,
    /// The incarnations of the two. A copy in the place of one has connections of its own.
    lives: (Incarnation, Incarnation),
    host_is_silent: bool,
    /// The host that was already ordered out because of this link.
    expelled: Option<u32>,
}

impl Coordinator {
    /// Records that `by` reports a broken connection with `suspect`, and whether the suspect's host has not answered.
    pub(super) fn suspected(&mut self, now: Duration, suspect: ReplicaId, by: ReplicaId, host_is_silent: bool) {
        self.report(Report::Suspected { replica: suspect, by });
        // Reports about a life that is over are ignored. The copy that is to follow it has the next incarnation
        // already.
        let are_live = self.process(suspect).counts() && self.process(by).counts();
        if !self.released && suspect != by && are_live {
            let at = now + self.settings.death_time_max;
            let lives = self.lives(suspect, by);
            self.broken_links.push(BrokenLink { at, suspect, by, lives, host_is_silent, expelled: None });
        }
    }

    fn lives(&mut self, suspect: ReplicaId, by: ReplicaId) -> (Incarnation, Incarnation) {
        (self.process(suspect).incarnation, self.process(by).incarnation)
    }

    /// The time at which [`Coordinator::judge_links`] is due.
    pub(super) fn next_link_deadline(&self) -> Option<Duration> {
        self.broken_links.iter().map(|link| link.at).min()
    }

    /// Judges the links that no death has explained in time.
    pub(super) fn judge_links(&mut self, now: Duration) {
        let (due, later): (Vec<_>, Vec<_>) = self.broken_links.iter().partition(|link| link.at <= now);
        self.broken_links = later;
        for link in due {
            let BrokenLink { suspect, by, lives, .. } = link;
            if self.released
                || lives != self.lives(suspect, by)
                || !self.process(suspect).counts()
                || !self.process(by).counts()
            {
                continue;
            }
            if let Some((host, by)) = self.host_to_expel(&link) {
                self.outputs.push_back(Output::Expel { host, by });
                // The order to expel is repeated at this time. A root that was restarted in between may not have
                // carried it out.
                let at = now + self.settings.death_time_max;
                self.broken_links.push(BrokenLink { at, expelled: Some(host), ..link });
                continue;
            }
            let reason = || RetireReason::BrokenLink { suspect, by };
            if !self.retire(suspect, reason(), 1) && !self.retire(by, reason(), 1) {
                self.end(EndReason::BrokenLink { suspect, by }, Some(1), now + KILL_GRACE);
            }
        }
    }

    /// The host that is to go, and the one that cannot reach it. None if the hosts are not the cause, or the job can do
    /// without neither.
    fn host_to_expel(&self, link: &BrokenLink) -> Option<(u32, u32)> {
        let hosts = [self.host_of(link.suspect)?, self.host_of(link.by)?];
        let [one, other] = hosts;
        if !link.host_is_silent || one == other {
            return None;
        }
        // All links between the two hosts get the same answer.
        let is_expelled = |host: &u32| {
            let expelled = |link: &BrokenLink| link.expelled == Some(*host);
            expelled(link) || self.broken_links.iter().any(expelled)
        };
        let has_line = self.line.as_ref().is_some_and(|line| line.usable().is_some());
        let may_go = |host: &u32| has_line || self.can_do_without(*host);
        let cost = |host: &u32| (!self.can_do_without(*host), self.replica_count(*host), Reverse(*host));
        let chosen = hosts.into_iter().find(is_expelled);
        let host = chosen.or_else(|| hosts.into_iter().filter(may_go).min_by_key(cost))?;
        Some((host, if host == one { other } else { one }))
    }

    /// All replicas that count, each with true if it is on this host.
    fn counting(&self, host: u32) -> impl Iterator<Item = (ReplicaId, bool)> {
        let world = self.world();
        let counts = |replica: &ReplicaId| self.processes[world.process(*replica).0 as usize].counts();
        world.replicas().filter(counts).map(move |replica| (replica, self.host_of(replica) == Some(host)))
    }

    fn replica_count(&self, host: u32) -> usize {
        self.counting(host).filter(|(_, is_there)| *is_there).count()
    }

    /// Returns true if each rank with replicas on this host has one elsewhere that can go on.
    fn can_do_without(&self, host: u32) -> bool {
        let goes_on = |replica: ReplicaId| {
            self.counting(host)
                .any(|(other, is_there)| other.rank == replica.rank && !is_there && self.is_in_step(other))
        };
        self.counting(host).filter(|(_, is_there)| *is_there).all(|(replica, _)| goes_on(replica))
    }
}
