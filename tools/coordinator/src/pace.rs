//! Finds a replica that stands still while its siblings have gone on, so that the job does not wait for it for ever and
//! in silence.
//!
//! Processes are asked again and again how far they are and whether they wait in MPI (the stall detector's waves). A
//! replica *lags* when for the whole patience of its rank
//!
//! - it has not answered at all, while its siblings have: it is stopped, or its host gives it no processor; or
//! - it has answered that it is at work, at the same MPI call, while siblings that have begun later calls wait in MPI.
//!
//! The patience is a multiple of the longest time for which any replica of that rank has stood at one call and then
//! gone on, and no less than a floor; or what `--stall-timeout` says. A program that computes for an hour between two
//! calls has shown that it does, except the first time: then its siblings compute as long, and do not wait.
//!
//! What follows is not decided here (`health`): at r ≥ 3 two siblings are believed, at r = 2 nobody knows which of the
//! two is right.

use redrt_types::{ReplicaId, ReplicaSet, VirtualRank};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Nobody is said to lag before that.
const FLOOR: Duration = Duration::from_secs(30);

/// How many looks have to fit into `--stall-timeout`.
pub const STALL_LOOKS_MIN: f64 = 2.5;

/// How many times as long as any replica of its rank a replica may stand at one call.
const FACTOR: u32 = 4;

/// When a look comes so much later than it was due, it was this process that stood still.
const GAP_MAX: Duration = Duration::from_secs(2);

/// What a replica has said last.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Stand {
    calls: u64,
    /// Since when it has been at this call.
    since: Duration,
    /// The first question that it has not answered.
    asked: Option<Duration>,
    heard: Duration,
    /// When it said last whether it waits in MPI.
    answered: Duration,
    /// Since when it has waited in MPI, if it does.
    waits_since: Option<Duration>,
}

impl Stand {
    fn new(now: Duration, calls: u64) -> Self {
        Self { calls, since: now, asked: None, heard: now, answered: now, waits_since: None }
    }
}

/// A replica that others may be waiting for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Laggard {
    /// The replica.
    pub replica: ReplicaId,
    /// Siblings that are ahead of it, or that answer when it does not.
    pub ahead: ReplicaSet,
    /// For how long it has not moved.
    pub stood: Duration,
    /// Whether it does not even answer.
    pub is_silent: bool,
}

impl Laggard {
    /// The names of those that are ahead.
    pub fn ahead_names(&self) -> Vec<String> {
        let name = |index| ReplicaId { rank: self.replica.rank, index }.to_string();
        self.ahead.iter().map(name).collect()
    }
}

/// The state machine.
#[derive(Debug, Serialize, Deserialize)]
pub struct PaceWatch {
    limit: Option<Duration>,
    /// [`FACTOR`], but where a test plants a mistake.
    factor: u32,
    stands: BTreeMap<ReplicaId, Stand>,
    longest: BTreeMap<VirtualRank, Duration>,
    /// Who was told of and has not moved since, and who was ahead then.
    told: BTreeMap<ReplicaId, ReplicaSet>,
    /// When it is looked again at the latest.
    due: Duration,
    /// Nobody answered when it was last looked.
    is_quiet: bool,
}

impl PaceWatch {
    /// `limit`: the patience with every rank, in place of what its own pace says.
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

    /// All these are asked.
    pub fn asked(&mut self, now: Duration, live: &[ReplicaId]) {
        self.look(now);
        for replica in live {
            let stand = self.stands.entry(*replica).or_insert(Stand::new(now, 0));
            stand.asked.get_or_insert(now);
        }
    }

    /// A replica says how many MPI calls its main thread has begun.
    pub fn heard(&mut self, now: Duration, replica: ReplicaId, calls: u64) {
        self.look(now);
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

    /// A replica says whether it waits in MPI.
    pub fn waits(&mut self, now: Duration, replica: ReplicaId, waits: bool) {
        if let Some(stand) = self.stands.get_mut(&replica) {
            (stand.answered, stand.asked) = (now, None);
            stand.waits_since = waits.then(|| stand.waits_since.unwrap_or(now));
        }
    }

    /// For how long a replica has been waiting in MPI, as far as it has said.
    pub fn waiting_time(&self, now: Duration, replica: ReplicaId) -> Duration {
        let since = self.stands.get(&replica).and_then(|stand| stand.waits_since);
        since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// What was heard of this place is not about the process that is there now.
    pub fn forget(&mut self, replica: ReplicaId) {
        self.stands.remove(&replica);
        self.told.remove(&replica);
    }

    /// For how long a replica of this rank may stand.
    fn patience(&self, rank: VirtualRank) -> Duration {
        let longest = self.longest.get(&rank).copied().unwrap_or_default();
        self.limit.unwrap_or_else(|| FLOOR.max(longest * self.factor))
    }

    /// Those of the live replicas that lag and were not told of; each is told of once, until it moves or more siblings
    /// are ahead. `due`: when it is looked again, at the latest.
    pub fn laggards(&mut self, now: Duration, due: Duration, live: &[ReplicaId]) -> Vec<Laggard> {
        self.look(now);
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

    /// Since when nobody at all has answered, told once: then it is a daemon, or the way to it, that stands still.
    pub fn quiet_since(&mut self, now: Duration, live: &[ReplicaId]) -> Option<Duration> {
        let asked = live.iter().map(|replica| self.stands.get(replica).and_then(|stand| stand.asked));
        // The latest question that somebody has not answered, if nobody has.
        let since = asked.collect::<Option<Vec<_>>>().and_then(|asked| asked.into_iter().max());
        let since = since.filter(|since| now.saturating_sub(*since) >= self.limit.unwrap_or(FLOOR));
        let was_quiet = std::mem::replace(&mut self.is_quiet, since.is_some());
        since.filter(|_| !was_quiet)
    }

    /// Time in which nobody could be heard does not count.
    fn look(&mut self, now: Duration) {
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
        // The first question that it has not answered, long ago.
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
                    // Both have said so for that long, and after that.
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

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Three replicas of rank 0; each second those that answer say where they are.
    struct Rig {
        watch: PaceWatch,
        now: Duration,
    }

    impl Rig {
        fn new(limit: Option<u64>) -> Self {
            Self { watch: PaceWatch::new(limit.map(Duration::from_secs)), now: Duration::ZERO }
        }

        /// For this many seconds each replica says this: its calls and whether it waits, or nothing. Who lags, since
        /// how many seconds.
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

    #[test]
    fn a_replica_that_never_comes_to_its_next_call_is_told_of_when_its_siblings_wait_behind_it() {
        let mut rig = Rig::new(None);
        rig.pass(2, [AT_WORK; 3]);
        assert_eq!(rig.pass(31, [AHEAD, AHEAD, AT_WORK]), [(2, vec![0, 1], 32, false)]);
        // It has moved: it is told of again when it stands again.
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
        // Ahead and at work is no reason to wait for anybody.
        assert_eq!(Rig::new(None).pass(500, [Some((6, false)), AT_WORK, Some((6, false))]), []);
    }

    /// It has shown that it computes for 50 seconds at a time.
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

    /// Questions are farther apart than the patience, and answers come one after the other.
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
