//! Connections between two processes that break. As a rule one of the two has died, and a view will say so. If both are
//! still there after the time in which any death is found, what was on its way between them is lost for good, and
//! others would wait for it for ever.
//!
//! Where a host did not answer, the two hosts do not hear each other, though others hear both, and no process of the
//! one can go on with one of the other: one of the hosts goes. That is the one without which each rank has a replica,
//! of two such the one with fewer replicas. Else the process goes whose connection is said to be broken, if its rank
//! can do without it, else the other, else the job ends.

use super::{Coordinator, EndReason, KILL_GRACE, Output, Report, RetireReason};
use redrt_types::{Incarnation, ReplicaId};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::time::Duration;

/// A connection that is said to be broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct BrokenLink {
    /// When one of the two must go.
    at: Duration,
    suspect: ReplicaId,
    by: ReplicaId,
    /// Which lives of the two: a copy in the place of one has connections of its own.
    lives: (Incarnation, Incarnation),
    host_is_silent: bool,
    /// The host that was to go for it.
    expelled: Option<u32>,
}

impl Coordinator {
    /// `by` says that a connection with `suspect` broke, and whether its host has not answered.
    pub(super) fn suspected(&mut self, now: Duration, suspect: ReplicaId, by: ReplicaId, host_is_silent: bool) {
        self.report(Report::Suspected { replica: suspect, by });
        // One of a life that is over is no news. The copy that is to follow it has its number already.
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

    /// When [`Coordinator::judge_links`] has something to do.
    pub(super) fn next_link_deadline(&self) -> Option<Duration> {
        self.broken_links.iter().map(|link| link.at).min()
    }

    /// Decides what was not decided by a death meanwhile.
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
                // A root that comes back after this, and has not expelled it, does so then.
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

    /// Which of the hosts of two processes is to go, and which one does not hear it. None when it is not the hosts that
    /// are parted, or the job can do without neither.
    fn host_to_expel(&self, link: &BrokenLink) -> Option<(u32, u32)> {
        let hosts = [self.host_of(link.suspect)?, self.host_of(link.by)?];
        let [one, other] = hosts;
        if !link.host_is_silent || one == other {
            return None;
        }
        // All connections between the two are judged alike.
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

    /// The replicas that count, each with whether it is on this host.
    fn counting(&self, host: u32) -> impl Iterator<Item = (ReplicaId, bool)> {
        let world = self.world();
        let counts = |replica: &ReplicaId| self.processes[world.process(*replica).0 as usize].counts();
        world.replicas().filter(counts).map(move |replica| (replica, self.host_of(replica) == Some(host)))
    }

    fn replica_count(&self, host: u32) -> usize {
        self.counting(host).filter(|(_, is_there)| *is_there).count()
    }

    /// Whether each rank that has replicas on this host has one elsewhere that can go on.
    fn can_do_without(&self, host: u32) -> bool {
        let goes_on = |replica: ReplicaId| {
            self.counting(host)
                .any(|(other, is_there)| other.rank == replica.rank && !is_there && self.is_in_step(other))
        };
        self.counting(host).filter(|(_, is_there)| *is_there).all(|(replica, _)| goes_on(replica))
    }
}
