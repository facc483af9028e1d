//! Connections between two processes that break. As a rule one of the two has died, and a view will say so. If both are
//! still there after the time in which any death is found, what was on its way between them is lost for good, and
//! others would wait for it for ever: the one whose connection is said to be broken goes, if its rank can do without
//! it, else the other, else the job ends.

use super::{Coordinator, EndReason, KILL_GRACE, Report, RetireReason};
use redrt_types::{Incarnation, ReplicaId};
use serde::{Deserialize, Serialize};
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
}

impl Coordinator {
    /// `by` says that a connection with `suspect` broke.
    pub(super) fn suspected(&mut self, now: Duration, suspect: ReplicaId, by: ReplicaId) {
        self.report(Report::Suspected { replica: suspect, by });
        // One of a life that is over is no news. The copy that is to follow it has its number already.
        let are_live = self.process(suspect).counts() && self.process(by).counts();
        if !self.released && suspect != by && are_live {
            let at = now + self.settings.death_time_max;
            let lives = self.lives(suspect, by);
            self.broken_links.push(BrokenLink { at, suspect, by, lives });
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
        for BrokenLink { suspect, by, lives, .. } in due {
            if self.released
                || lives != self.lives(suspect, by)
                || !self.process(suspect).counts()
                || !self.process(by).counts()
            {
                continue;
            }
            let reason = || RetireReason::BrokenLink { suspect, by };
            if !self.retire(suspect, reason(), 1) && !self.retire(by, reason(), 1) {
                self.end(EndReason::BrokenLink { suspect, by }, Some(1), now + KILL_GRACE);
            }
        }
    }
}
