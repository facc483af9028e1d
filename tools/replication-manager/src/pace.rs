//! Finds a replica that stands still while its siblings have gone on. Without this the job would wait for it for ever,
//! and in silence.
//!
//! The waves of the stall detector ask all processes for the number of MPI calls so far, and whether they wait in MPI.
//! A replica *lags* when one of these holds for the whole patience of its rank:
//!
//! - It has not answered at all, while its siblings have: it was stopped, or its host gives it no processor.
//! - It has answered that it is at work, at the same MPI call, while siblings that have begun later calls wait in MPI.
//!
//! The patience is a multiple of the longest time that any replica of the rank has stood at one call and then gone on,
//! but not less than a floor. `--stall-timeout` replaces it. A program that computes for an hour between two calls has
//! shown that it does. The first such time is no problem, since its siblings compute as long and do not wait.
//!
//! At r ≥ 3 two siblings are believed; at r = 2 neither of the two can be.

use super::effect::Effects;
use super::facts::Facts;
use super::{OnStall, Report, RetireReason, SIBLINGS_BELIEVED};
use redrt_types::{ReplicaId, ReplicaSet, VirtualRank};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Minimum patience with any rank.
const FLOOR: Duration = Duration::from_secs(30);

/// Minimum number of waves that must fit into `--stall-timeout`.
pub const STALL_LOOKS_MIN: f64 = 2.5;

/// The patience is this many times the longest stay of the rank at one call.
const FACTOR: u32 = 4;

/// A look that is late by more than this shows that this process itself stood still.
const GAP_MAX: Duration = Duration::from_secs(2);

/// The latest answers of a replica.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Stand {
    calls: u64,
    /// Begin of its current MPI call, as far as known.
    since: Duration,
    /// Time of the first question without an answer.
    asked: Option<Duration>,
    heard: Duration,
    /// Time of the latest answer that says if it waits in MPI.
    answered: Duration,
    /// Begin of its wait in MPI. None while it is at work.
    waits_since: Option<Duration>,
}

impl Stand {
    fn new(now: Duration, calls: u64) -> Self {
        Self { calls, since: now, asked: None, heard: now, answered: now, waits_since: None }
    }
}

/// A replica that siblings may be waiting for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Laggard {
    /// The replica that stands still.
    pub replica: ReplicaId,
    /// Siblings that have begun later calls, or that answer when this one does not.
    pub ahead: ReplicaSet,
    /// Time for which it has not moved.
    pub stood: Duration,
    /// True if it does not answer, false if it answers that it is at work.
    pub is_silent: bool,
}

impl Laggard {
    /// The names of the siblings ahead, for the user.
    pub fn ahead_names(&self) -> Vec<String> {
        let name = |index| ReplicaId { rank: self.replica.rank, index }.to_string();
        self.ahead.iter().map(name).collect()
    }
}

/// Finds replicas that lag behind their siblings; see the module for the rule.
#[derive(Debug, Serialize, Deserialize)]
pub struct PaceWatch {
    limit: Option<Duration>,
    /// [`FACTOR`], except where a test plants a mistake.
    factor: u32,
    stands: BTreeMap<ReplicaId, Stand>,
    longest: BTreeMap<VirtualRank, Duration>,
    /// Replicas that were reported and have not moved since, with the siblings that were ahead then.
    told: BTreeMap<ReplicaId, ReplicaSet>,
    /// Latest time of the next look.
    due: Duration,
    /// True if at the last look no replica had answered.
    is_quiet: bool,
}

impl PaceWatch {
    /// With a `limit`, that is the patience for every rank, whatever its pace.
    pub fn new(limit: Option<Duration>) -> Self {
        let due = Duration::MAX;
        Self {
            limit,
            factor: FACTOR,
            stands: BTreeMap::new(),
            longest: BTreeMap::new(),
            told: BTreeMap::new(),
            due,
            is_quiet: false,
        }
    }

    /// Records a question to all these replicas.
    pub fn asked(&mut self, now: Duration, live: &[ReplicaId]) {
        self.discount_standstill(now);
        for replica in live {
            let stand = self.stands.entry(*replica).or_insert(Stand::new(now, 0));
            stand.asked.get_or_insert(now);
        }
    }

    /// Records the number of MPI calls that a replica's main thread has begun.
    pub fn heard(&mut self, now: Duration, replica: ReplicaId, calls: u64) {
        self.discount_standstill(now);
        let new = Stand::new(now, calls);
        let stand = self.stands.entry(replica).or_insert(new);
        if stand.calls != calls {
            let longest = self.longest.entry(replica.rank).or_default();
            *longest = (*longest).max(now.saturating_sub(stand.since));
            *stand = new;
            self.told.remove(&replica);
        }
        (stand.heard, stand.asked) = (now, None);
    }

    /// Records if a replica waits in MPI.
    pub fn waits(&mut self, now: Duration, replica: ReplicaId, waits: bool) {
        if let Some(stand) = self.stands.get_mut(&replica) {
            (stand.answered, stand.asked) = (now, None);
            stand.waits_since = waits.then(|| stand.waits_since.unwrap_or(now));
        }
    }

    /// Time for which a replica has been waiting in MPI, as of its latest answer.
    pub fn waiting_time(&self, now: Duration, replica: ReplicaId) -> Duration {
        let since = self.stands.get(&replica).and_then(|stand| stand.waits_since);
        since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// Discards all answers from this place, which belong to a former process.
    pub fn forget(&mut self, replica: ReplicaId) {
        self.stands.remove(&replica);
        self.told.remove(&replica);
    }

    /// Maximum time that a replica of this rank may stand still.
    fn patience(&self, rank: VirtualRank) -> Duration {
        let longest = self.longest.get(&rank).copied().unwrap_or_default();
        self.limit.unwrap_or_else(|| FLOOR.max(longest * self.factor))
    }

    /// The live replicas that lag and were not reported. Each is reported once, until it moves or more siblings are
    /// ahead. `due` is the latest time of the next look.
    pub fn laggards(&mut self, now: Duration, due: Duration, live: &[ReplicaId]) -> Vec<Laggard> {
        self.discount_standstill(now);
        self.due = due;
        let found: Vec<_> = live.iter().filter_map(|replica| self.judge(now, *replica, live)).collect();
        let is_news = |laggard: &Laggard| {
            let told = self.told.entry(laggard.replica).or_default();
            let is_news = !laggard.ahead.is_subset(*told);
            *told = told.union(laggard.ahead);
            is_news
        };
        found.into_iter().filter(is_news).collect()
    }

    /// Time since which no replica at all has answered, reported once. The cause is then a daemon, or the connection to
    /// it.
    pub fn quiet_since(&mut self, now: Duration, live: &[ReplicaId]) -> Option<Duration> {
        let asked = live.iter().map(|replica| self.stands.get(replica).and_then(|stand| stand.asked));
        // If no replica has answered, the time of the latest unanswered question.
        let since = asked.collect::<Option<Vec<_>>>().and_then(|asked| asked.into_iter().max());
        let since = since.filter(|since| now.saturating_sub(*since) >= self.limit.unwrap_or(FLOOR));
        let was_quiet = std::mem::replace(&mut self.is_quiet, since.is_some());
        since.filter(|_| !was_quiet)
    }

    /// Reports replicas that stand still while siblings wait for them, and ends those that enough siblings are ahead
    /// of. `due` is the latest time of the next look.
    pub(super) fn judge_all(&mut self, facts: Facts<'_>, due: Duration, out: &mut Effects) {
        let live = facts.members.paced();
        if let Some(since) = self.quiet_since(facts.now, &live) {
            out.report(Report::Quiet { silence: facts.now.saturating_sub(since) });
        }
        for laggard in self.laggards(facts.now, due, &live) {
            let Laggard { replica, ahead, .. } = laggard;
            let view = facts.members.view();
            let weight = view.kinship(replica.rank).weight(ahead, view.live_set(replica.rank));
            let believed_min = match facts.settings.on_stall {
                OnStall::Majority => SIBLINGS_BELIEVED,
                OnStall::Retire => 1,
                OnStall::Wait => usize::MAX,
            };
            let is_retired = weight >= believed_min;
            out.report(Report::Lags { laggard, is_retired });
            if is_retired {
                out.retire(replica, RetireReason::Lagging, 1);
            }
        }
    }

    /// Discounts time in which this process stood still, and could not receive answers.
    fn discount_standstill(&mut self, now: Duration) {
        let gap = now.saturating_sub(self.due);
        if gap > GAP_MAX {
            for stand in self.stands.values_mut() {
                stand.since += gap;
                stand.heard += gap;
                stand.answered += gap;
                stand.asked = stand.asked.map(|asked| asked + gap);
                stand.waits_since = stand.waits_since.map(|since| since + gap);
            }
            self.due = now;
        }
    }

    fn judge(&self, now: Duration, replica: ReplicaId, live: &[ReplicaId]) -> Option<Laggard> {
        let patience = self.patience(replica.rank);
        let stand = self.stands.get(&replica)?;
        // The oldest unanswered question, if it is older than the patience.
        let unanswered = stand.asked.filter(|asked| now.saturating_sub(*asked) >= patience);
        let is_silent = unanswered.is_some();
        if !is_silent && stand.waits_since.is_some() {
            return None;
        }
        let siblings = live.iter().filter(|other| other.rank == replica.rank && **other != replica);
        let is_ahead = |other: &&ReplicaId| {
            let Some(other) = self.stands.get(other) else { return false };
            match unanswered {
                Some(asked) => other.heard > asked,
                None => {
                    // Both have said so for that long, and both again after it.
                    let said = other.answered.min(stand.answered);
                    let both = other.waits_since.map(|since| since.max(stand.since));
                    other.calls > stand.calls && both.is_some_and(|since| said.saturating_sub(since) >= patience)
                }
            }
        };
        let ahead: ReplicaSet = siblings.filter(is_ahead).map(|other| other.index).collect();
        let since = unanswered.unwrap_or(stand.since);
        let laggard = Laggard { replica, ahead, stood: now.saturating_sub(since), is_silent };
        (!ahead.is_empty()).then_some(laggard)
    }
}

#[cfg(any(test, feature = "simulation"))]
pub mod simulation;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Three replicas of rank 0. Each second, those that answer report their state.
    struct Rig {
        watch: PaceWatch,
        now: Duration,
    }

    impl Rig {
        fn new(limit: Option<u64>) -> Self {
            Self { watch: PaceWatch::new(limit.map(Duration::from_secs)), now: Duration::ZERO }
        }

        /// Lets time pass while each replica gives this answer: its calls and true if it waits, or nothing. Returns
        /// replica, siblings ahead, seconds and silence of those that lag.
        fn pass(&mut self, seconds: u32, says: [Option<(u64, bool)>; 3]) -> Vec<(u16, Vec<u16>, u64, bool)> {
            let live: Vec<_> = (0..3).map(|index| ReplicaId::new(0, index)).collect();
            let mut found = Vec::new();
            for _ in 0..seconds {
                self.now += SECOND;
                self.watch.asked(self.now, &live);
                for (replica, says) in live.iter().zip(says) {
                    if let Some((calls, waits)) = says {
                        self.watch.heard(self.now, *replica, calls);
                        self.watch.waits(self.now, *replica, waits);
                    }
                }
                found.extend(self.watch.laggards(self.now, self.now + SECOND, &live));
            }
            let brief = |laggard: Laggard| {
                let ahead = laggard.ahead.iter().map(|index| index.0).collect();
                (laggard.replica.index.0, ahead, laggard.stood.as_secs(), laggard.is_silent)
            };
            found.into_iter().map(brief).collect()
        }
    }

    const AT_WORK: Option<(u64, bool)> = Some((5, false));
    const WAITS: Option<(u64, bool)> = Some((5, true));
    const AHEAD: Option<(u64, bool)> = Some((6, true));

    #[test]
    fn a_replica_that_answers_nothing_is_told_of_once() {
        let mut rig = Rig::new(None);
        assert_eq!(rig.pass(2, [AT_WORK; 3]), []);
        assert_eq!(rig.pass(3, [AT_WORK, None, AT_WORK]), []);
        assert_eq!(rig.pass(60, [AHEAD, None, AHEAD]), [(1, vec![0, 2], 30, true)]);
    }

    /// It never comes to its next call, and its siblings wait behind it.
    #[test]
    fn a_replica_that_holds_up_its_siblings_is_reported() {
        let mut rig = Rig::new(None);
        rig.pass(2, [AT_WORK; 3]);
        assert_eq!(rig.pass(31, [AHEAD, AHEAD, AT_WORK]), [(2, vec![0, 1], 32, false)]);
        // It has moved. It is reported again when it stands still again.
        rig.pass(1, [AHEAD; 3]);
        let later = Some((7, true));
        assert_eq!(rig.pass(200, [later, later, Some((6, false))]).len(), 1);
    }

    #[test]
    fn a_replica_is_told_of_again_when_more_siblings_are_ahead() {
        let mut rig = Rig::new(Some(6));
        rig.pass(1, [AT_WORK; 3]);
        assert_eq!(rig.pass(8, [AHEAD, AT_WORK, AT_WORK]).len(), 2);
        assert_eq!(rig.pass(20, [AHEAD, AHEAD, AT_WORK]), [(2, vec![0, 1], 15, false)]);
    }

    #[test]
    fn nobody_lags_where_all_compute_or_all_wait() {
        for says in [[AT_WORK; 3], [WAITS; 3], [WAITS, AT_WORK, WAITS], [AHEAD, WAITS, AHEAD], [None; 3]] {
            assert_eq!(Rig::new(None).pass(500, says), [], "{says:?}");
        }
        // A sibling that is ahead and at work is not waiting.
        assert_eq!(Rig::new(None).pass(500, [Some((6, false)), AT_WORK, Some((6, false))]), []);
    }

    /// The rank has shown that it computes for 50 seconds at a time.
    #[test]
    fn patience_follows_the_pace_of_the_rank() {
        let mut rig = Rig::new(None);
        rig.pass(50, [AT_WORK; 3]);
        rig.pass(1, [AHEAD; 3]);
        let later = Some((7, true));
        assert_eq!(rig.pass(190, [later, later, Some((6, false))]), []);
        assert_eq!(rig.pass(20, [later, later, Some((6, false))]).len(), 1);
        let mut rig = Rig::new(Some(5));
        rig.pass(50, [AT_WORK; 3]);
        assert_eq!(rig.pass(6, [AHEAD, AHEAD, AT_WORK]).len(), 1);
    }

    /// Questions are farther apart than the patience, and answers arrive one by one.
    #[test]
    fn who_has_yet_to_answer_is_not_silent() {
        let live: Vec<_> = (0..3).map(|index| ReplicaId::new(0, index)).collect();
        let mut watch = PaceWatch::new(Some(5 * SECOND));
        let mut now = Duration::ZERO;
        for calls in [5, 5, 6, 6, 6] {
            now += 8 * SECOND;
            watch.asked(now, &live);
            for (place, replica) in live.iter().enumerate() {
                watch.heard(now, *replica, calls + u64::from(place == 0));
                assert_eq!(watch.laggards(now, now + 8 * SECOND, &live), []);
                watch.waits(now, *replica, calls == 5 || place > 0);
                assert_eq!(watch.laggards(now, now + 8 * SECOND, &live), []);
            }
        }
    }

    #[test]
    fn that_nobody_answers_is_told_once_until_somebody_does() {
        let live: Vec<_> = (0..3).map(|index| ReplicaId::new(0, index)).collect();
        let mut rig = Rig::new(None);
        rig.pass(2, [AT_WORK; 3]);
        rig.pass(29, [None; 3]);
        assert_eq!(rig.watch.quiet_since(rig.now, &live), None);
        rig.pass(2, [None; 3]);
        assert_eq!(rig.watch.quiet_since(rig.now, &live), Some(3 * SECOND));
        assert_eq!(rig.watch.quiet_since(rig.now, &live), None);
        rig.pass(1, [None, AT_WORK, None]);
        assert_eq!(rig.watch.quiet_since(rig.now, &live), None);
        rig.pass(40, [None; 3]);
        assert!(rig.watch.quiet_since(rig.now, &live).is_some());
        assert_eq!(rig.watch.quiet_since(rig.now, &[]), None);
    }

    #[test]
    fn time_in_which_nobody_was_listened_to_does_not_count() {
        let mut rig = Rig::new(None);
        rig.pass(10, [AT_WORK; 3]);
        rig.now += 100 * SECOND;
        assert_eq!(rig.pass(25, [AT_WORK, None, AT_WORK]), []);
    }
}
