//! Treatment of replicas that are known to be wrong, and of the hosts they run on.
//!
//! | `--on-sdc` | what the receivers take | the replica that is wrong |
//! |---|---|---|
//! | report | what arrived | stays |
//! | correct | what the majority sent | stays, until it leaves the path of its siblings |
//! | heal, abort | what the majority sent | is ended; a copy of a sound sibling takes its place if there is a spare |
//!
//! Each replica that is ended like this is a strike against its host. So is slowness (`slowness`). A host with
//! `--strikes` of them gets no more replicas. Those it has move away, each as soon as another has its part (as by
//! `redctl drain`), and the command for the batch system is shown. A receiver that computed with a wrong payload is
//! wrong as well, but its host is not to blame. A receiver that could not be given a right payload is ended too.
//!
//! Where a rank took a message that no vote could decide, some of its replicas may have one payload and some the other.
//! A majority proves nothing from then on. A replica that is outvoted there is ended so that the others agree, but it
//! is not called corrupt, and its host gets no strike. A line of standard output counts as a message, except that the
//! user sees the majority's line under every policy.

use super::{Coordinator, EndReason, KILL_GRACE, Laggard, OnStall, Report, RetireReason, SIBLINGS_BELIEVED};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::control::OnSdc;
use redrt_wire::event::{Action, Event, Finding, Mismatch, OutcomeId, PathMismatch, PathStack};
use replica_output::mismatch::OutputMismatch;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Strikes by host number: replicas that were ended there because they were wrong, and one when the host was slow.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Strikes(BTreeMap<u32, u32>);

/// The reports about outcomes at which replicas took different paths. All replicas of the rank send the same report.
type PathsTold = BTreeSet<(OutcomeId, PathTold)>;

/// Maximum number of those. Beyond it the set is cleared, and a report may be repeated.
const PATHS_TOLD_MAX: usize = 1 << 14;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
enum PathTold {
    /// Copies that stand ready are to judge.
    Disputed,
    /// No vote can decide who is right.
    Open,
    Outvoted,
    /// The stack of this replica at the outcome.
    Stack(ReplicaId),
}

/// Ranks in which a replica computed with a message that no vote could decide, and the reports about paths so far.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Doubts {
    ranks: BTreeSet<VirtualRank>,
    paths: PathsTold,
}

impl Doubts {
    /// Returns true if this was not reported yet for the outcome.
    fn is_news(&mut self, outcome: OutcomeId, told: PathTold) -> bool {
        if self.paths.len() >= PATHS_TOLD_MAX {
            self.paths.clear();
        }
        self.paths.insert((outcome, told))
    }

    /// Ends the doubt about a rank: all memory of its replicas was found to be equal.
    pub(super) fn settle(&mut self, rank: VirtualRank) {
        self.ranks.remove(&rank);
    }
}

impl Coordinator {
    /// Records a message that no vote could decide. If the culprit of this mismatch belongs to a rank in doubt, the
    /// report is changed so that it accuses no replica. Returns the former culprit.
    pub(super) fn doubt(&mut self, mismatch: &mut Mismatch) -> Option<ReplicaId> {
        let is_taken = matches!(mismatch.action, Action::Delivered | Action::Refetched);
        if mismatch.finding == Finding::Undecidable && is_taken {
            self.doubts.ranks.insert(mismatch.receiver.rank);
        }
        if mismatch.finding != Finding::ReplicaCorrupt || !self.doubts.ranks.contains(&mismatch.sender) {
            return None;
        }
        mismatch.finding = Finding::Undecidable;
        if mismatch.action == Action::Refetched {
            mismatch.action = Action::Outvoted;
        }
        mismatch.culprit.take()
    }

    /// Ends a replica that its siblings contradict, in a rank in doubt.
    pub(super) fn part(&mut self, replica: Option<ReplicaId>) {
        if let Some(replica) = replica.filter(|_| self.ends_corrupt()) {
            self.retire(replica, RetireReason::Parted, SIBLINGS_BELIEVED);
        }
    }

    /// Acts on a comparison that was not unanimous: ends a replica that is known to be wrong.
    pub(super) fn heal(&mut self, now: Duration, mismatch: &Mismatch) {
        if mismatch.action == Action::Withheld {
            // A sibling may have got the message. If there is none any more, the receiver learns that from the view,
            // and goes on with the payload it has.
            self.retire(mismatch.receiver, RetireReason::Withheld, 1);
        }
        if mismatch.finding != Finding::ReplicaCorrupt {
            return;
        }
        // Reports may be late: the place may have another process by now.
        let is_its =
            |culprit: &ReplicaId| self.view.member(*culprit).is_none_or(|member| mismatch.view >= member.joined);
        if let Some(culprit) = mismatch.culprit.filter(is_its) {
            self.evict(now, culprit);
        }
        if mismatch.action == Action::Delivered && self.ends_corrupt() {
            // The vote has a clear outcome, so one sound sibling is enough.
            self.retire(mismatch.receiver, RetireReason::Tainted, 1);
        }
    }

    /// Acts on a difference in printed output, like on a message that differs.
    pub(super) fn output_differs(&mut self, now: Duration, rank: VirtualRank, mut mismatch: OutputMismatch) {
        let doubted = mismatch.culprit.take_if(|_| self.doubts.ranks.contains(&rank));
        let is_doubted = doubted.is_some();
        self.part(doubted.map(|index| ReplicaId { rank, index }));
        let culprit = mismatch.culprit.map(|index| ReplicaId { rank, index });
        let aborts = culprit.is_none() && !is_doubted && self.settings.on_sdc == OnSdc::Abort;
        let action = match culprit {
            Some(_) => Action::Outvoted,
            None if is_doubted => Action::Outvoted,
            None if aborts => Action::Aborted,
            None => Action::Delivered,
        };
        self.have_differed = true;
        if let Some(check) = &mut self.check {
            check.line(rank, &mismatch);
        }
        self.report(Report::OutputMismatch { rank, mismatch, action });
        if let Some(culprit) = culprit {
            self.evict(now, culprit);
        }
        if aborts {
            self.end(EndReason::Corrupted, Some(1), now + KILL_GRACE);
        }
    }

    /// Acts on the report of one replica that its siblings asked for another thing at one place of the program. An
    /// outvoted replica is ended, as after a message. A replica that cannot go on beside its leader is ended under
    /// every policy.
    pub(super) fn paths_parted(&mut self, now: Duration, by: ReplicaId, mut path: PathMismatch) {
        self.have_differed = true;
        if self.has_yet_to_be_judged(&path) {
            return self.path_disputed(now, by, path);
        }
        if self.doubts.ranks.contains(&path.outcome.rank) && path.finding == Finding::ReplicaCorrupt {
            (path.finding, path.parted) = (Finding::Undecidable, std::mem::take(&mut path.culprits));
        }
        let is_outvoted = path.finding == Finding::ReplicaCorrupt;
        let told = if is_outvoted { PathTold::Outvoted } else { PathTold::Open };
        if !self.doubts.is_news(path.outcome, told) {
            return;
        }
        if let Some(check) = &mut self.check {
            check.path(by, &path);
        }
        self.report(Report::Event(Event::Path(Box::new(path.clone()))));
        // Reports may be late: the place may have another process by now.
        let is_its = |replica: &ReplicaId| self.view.member(*replica).is_none_or(|member| path.view >= member.joined);
        let culprits: Vec<_> = path.culprits.iter().copied().filter(is_its).collect();
        let parted: Vec<_> = path.parted.iter().copied().filter(is_its).collect();
        let judged = self.judged_path(now, path.outcome.rank, &culprits, &parted);
        for culprit in culprits.into_iter().filter(|culprit| Some(*culprit) != judged) {
            self.end_outvoted(now, culprit, parted.contains(&culprit));
        }
        for replica in parted.into_iter().filter(|_| !is_outvoted) {
            self.retire(replica, RetireReason::LeftPath, 1);
        }
        if path.action == Action::Aborted {
            self.end(EndReason::Corrupted, Some(1), now + KILL_GRACE);
        }
    }

    /// Lets the copies that stand ready judge which path is right.
    fn path_disputed(&mut self, now: Duration, by: ReplicaId, mut path: PathMismatch) {
        self.dispute(now, path.outcome.rank, by);
        if self.doubts.is_news(path.outcome, PathTold::Disputed) {
            (path.action, path.parted) = (Action::Disputed, Vec::new());
            self.report(Report::DisputedPath(Box::new(path)));
        }
    }

    /// Reports the stack at which a replica asked for a disputed outcome.
    pub(super) fn path_located(&mut self, stack: Box<PathStack>) {
        if self.doubts.is_news(stack.outcome, PathTold::Stack(stack.replica)) {
            if let Some(check) = &mut self.check {
                check.locate(&stack);
            }
            self.report(Report::Event(Event::PathStack(stack)));
        }
    }

    /// Ends a replica that was outvoted, if the policy says so.
    pub(super) fn evict(&mut self, now: Duration, replica: ReplicaId) {
        self.end_outvoted(now, replica, false);
    }

    /// Ends a replica that was outvoted, if the policy says so or if `has_parted`: its siblings do not follow its path.
    pub(super) fn end_outvoted(&mut self, now: Duration, replica: ReplicaId, has_parted: bool) {
        let goes = self.ends_corrupt() || has_parted;
        let was_retired = !self.process(replica).counts();
        if goes && self.retire(replica, RetireReason::Outvoted, SIBLINGS_BELIEVED) && !was_retired {
            self.strike(now, replica);
        }
    }

    /// The replicas whose pace is compared: live, in step and not being ended.
    pub(super) fn paced_replicas(&self) -> Vec<ReplicaId> {
        let counts = |replica: &ReplicaId| self.processes[self.world().process(*replica).0 as usize].counts();
        let live = self.world().replicas().filter(|replica| self.view.is_live(*replica) && self.is_in_step(*replica));
        live.filter(counts).collect()
    }

    /// Reports replicas that stand still while siblings wait for them, and ends those that enough siblings are ahead
    /// of.
    pub(super) fn judge_pace(&mut self, now: Duration) {
        if !self.is_under_way() {
            return;
        }
        let live = self.paced_replicas();
        if let Some(since) = self.pace.quiet_since(now, &live) {
            self.report(Report::Quiet { silence: now.saturating_sub(since) });
        }
        for laggard in self.pace.laggards(now, self.stall.next_deadline(), &live) {
            let Laggard { replica, ahead, .. } = laggard;
            let counting = self.view.live_set(replica.rank);
            let weight = self.view.kinship(replica.rank).weight(ahead, counting);
            let believed_min = match self.settings.on_stall {
                OnStall::Majority => SIBLINGS_BELIEVED,
                OnStall::Retire => 1,
                OnStall::Wait => usize::MAX,
            };
            let is_retired = weight >= believed_min;
            self.report(Report::Lags { laggard, is_retired });
            if is_retired {
                self.retire(replica, RetireReason::Lagging, 1);
            }
        }
    }

    /// Reports hosts that turned out slow, and counts a strike. The job runs at the pace of the slowest host.
    pub(super) fn judge_hosts(&mut self, now: Duration) {
        let mut slowness = std::mem::take(&mut self.slowness);
        let found = slowness.slow_hosts(|replica| self.host_of(replica));
        self.slowness = slowness;
        for slow in found {
            self.report(Report::SlowHost(slow));
            self.strike(now, slow.replica);
        }
    }

    fn ends_corrupt(&self) -> bool {
        matches!(self.settings.on_sdc, OnSdc::Heal | OnSdc::Abort)
    }

    fn strike(&mut self, now: Duration, replica: ReplicaId) {
        let Some(host) = self.host_of(replica) else { return };
        let count = self.strikes.0.entry(host).or_default();
        *count += 1;
        let (count, limit) = (*count, self.settings.strikes_max);
        self.report(Report::Strike { replica, count, limit });
        if count == limit {
            self.condemn(now, host, replica, count);
        }
    }

    /// Closes a host with too many strikes. Its replicas move away if another host is open.
    fn condemn(&mut self, now: Duration, host: u32, last: ReplicaId, strikes: u32) {
        let is_drained = self.has_open_host_besides(host);
        self.report(Report::HostBad { last, strikes, is_drained });
        if is_drained {
            self.free_host(now, host);
        }
    }
}
