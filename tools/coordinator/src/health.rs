//! What is done about replicas that are known to be wrong, and about the hosts they ran on.
//!
//! | `--on-sdc` | what the receivers take | the replica that is wrong |
//! |---|---|---|
//! | report | what arrived | stays |
//! | correct | what the majority sent | stays, until it leaves the path of its siblings |
//! | heal, abort | what the majority sent | is ended; a copy of a sound sibling takes its place if there is a spare |
//!
//! Each replica that is ended like this is a strike against its host, and so is that it is slow (`slowness`). A host
//! with `--strikes` of them gets nothing more, its other replicas move away, each as soon as another has its part (as
//! by `redctl drain`), and the command for the batch system is shown. A receiver that has taken a wrong payload is
//! wrong as well, but its host is not to blame. One that could not be given a right one goes, too.
//!
//! Where a rank has taken a message that nobody could judge, some of its replicas may have the one payload and some the
//! other. Which of them are right is not known, and not what the majority says from then on: a replica that is outvoted
//! there goes, so that those that are left agree, but it is not called corrupt, and its host gets no strike. A line of
//! standard output counts as a message, but what is shown of it is what the majority printed, whatever the policy is.

use super::{Coordinator, EndReason, KILL_GRACE, Laggard, OnStall, Report, RetireReason, SIBLINGS_BELIEVED};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::control::OnSdc;
use redrt_wire::event::{Action, Event, Finding, Mismatch, OutcomeId, PathMismatch, PathStack};
use replica_output::mismatch::OutputMismatch;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// By host: replicas that were ended there because they were wrong, and once when it was slow.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Strikes(BTreeMap<u32, u32>);

/// Outcomes about which it was told that replicas have parted there, and what.
type PathsTold = BTreeSet<(OutcomeId, PathTold)>;

/// As many of them are remembered. More are told twice at worst.
const PATHS_TOLD_MAX: usize = 1 << 14;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
enum PathTold {
    /// Copies are asked.
    Disputed,
    /// Nobody can say who is right.
    Open,
    Outvoted,
    /// Where this replica was.
    Stack(ReplicaId),
}

/// Ranks of which a replica has computed with a message that nobody could judge; and what was told of paths.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Doubts {
    ranks: BTreeSet<VirtualRank>,
    paths: PathsTold,
}

impl Doubts {
    /// Whether this was not told yet of an outcome.
    fn is_news(&mut self, outcome: OutcomeId, told: PathTold) -> bool {
        if self.paths.len() >= PATHS_TOLD_MAX {
            self.paths.clear();
        }
        self.paths.insert((outcome, told))
    }

    /// All memory of a rank's replicas was found to be the same.
    pub(super) fn settle(&mut self, rank: VirtualRank) {
        self.ranks.remove(&rank);
    }
}

impl Coordinator {
    /// Takes note of a message that nobody could judge. If that was in the rank of the one who is named here, nobody
    /// is: returns it.
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

    /// Ends a replica that its siblings contradict where nobody knows which of them are right.
    pub(super) fn part(&mut self, replica: Option<ReplicaId>) {
        if let Some(replica) = replica.filter(|_| self.ends_corrupt()) {
            self.retire(replica, RetireReason::Parted, SIBLINGS_BELIEVED);
        }
    }

    /// A comparison was not unanimous: a replica that is known to be wrong goes.
    pub(super) fn heal(&mut self, now: Duration, mismatch: &Mismatch) {
        if mismatch.action == Action::Withheld {
            // Its sibling may have the message. If there is none any more, the view says so, and it goes on with what
            // it has.
            self.retire(mismatch.receiver, RetireReason::Withheld, 1);
        }
        if mismatch.finding != Finding::ReplicaCorrupt {
            return;
        }
        // Reports come late: another may be in that place by now.
        let is_its =
            |culprit: &ReplicaId| self.view.member(*culprit).is_none_or(|member| mismatch.view >= member.joined);
        if let Some(culprit) = mismatch.culprit.filter(is_its) {
            self.evict(now, culprit);
        }
        if mismatch.action == Action::Delivered && self.ends_corrupt() {
            // Nobody doubts which is wrong, so that one sound sibling is enough.
            self.retire(mismatch.receiver, RetireReason::Tainted, 1);
        }
    }

    /// Replicas have printed different things, which counts as if it had been a message.
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

    /// Replicas of one rank asked for different things at one place of their programs, says one of them. One that was
    /// outvoted goes, as after a message; so does one that cannot go on beside its leader, whatever the policy is.
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
        // Reports come late: another may be in that place by now.
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

    /// Replicas of a rank differ in their paths, and copies of them are asked.
    fn path_disputed(&mut self, now: Duration, by: ReplicaId, mut path: PathMismatch) {
        self.dispute(now, path.outcome.rank, by);
        if self.doubts.is_news(path.outcome, PathTold::Disputed) {
            (path.action, path.parted) = (Action::Disputed, Vec::new());
            self.report(Report::DisputedPath(Box::new(path)));
        }
    }

    /// A replica tells where it asked for an outcome in which it differs from its siblings.
    pub(super) fn path_located(&mut self, stack: Box<PathStack>) {
        if self.doubts.is_news(stack.outcome, PathTold::Stack(stack.replica)) {
            if let Some(check) = &mut self.check {
                check.locate(&stack);
            }
            self.report(Report::Event(Event::PathStack(stack)));
        }
    }

    /// A replica's siblings contradict it.
    pub(super) fn evict(&mut self, now: Duration, replica: ReplicaId) {
        self.end_outvoted(now, replica, false);
    }

    /// The same; `has_parted`: they do not go its way, so that it goes whatever the policy is.
    pub(super) fn end_outvoted(&mut self, now: Duration, replica: ReplicaId, has_parted: bool) {
        let goes = self.ends_corrupt() || has_parted;
        let was_retired = !self.process(replica).counts();
        if goes && self.retire(replica, RetireReason::Outvoted, SIBLINGS_BELIEVED) && !was_retired {
            self.strike(now, replica);
        }
    }

    /// Whose pace is watched: all that take part.
    pub(super) fn paced_replicas(&self) -> Vec<ReplicaId> {
        let counts = |replica: &ReplicaId| self.processes[self.world().process(*replica).0 as usize].counts();
        let live = self.world().replicas().filter(|replica| self.view.is_live(*replica) && self.is_in_step(*replica));
        live.filter(counts).collect()
    }

    /// A replica stands still, and its siblings wait for it: they may go on without it.
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

    /// Hosts that have turned out slow: the job runs at the pace of the slowest.
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

    /// The host is sick: nothing more is put there, and what is there moves away, if there is another.
    fn condemn(&mut self, now: Duration, host: u32, last: ReplicaId, strikes: u32) {
        let is_drained = self.has_open_host_besides(host);
        self.report(Report::HostBad { last, strikes, is_drained });
        if is_drained {
            self.free_host(now, host);
        }
    }
}
