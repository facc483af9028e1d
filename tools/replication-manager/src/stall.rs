//! Detects that a job will never go on: every process waits in MPI, and nothing is in flight.
//!
//! All live processes are asked in waves if they can do anything by themselves. Two waves in a row prove a stall if all
//! were passive in both, with the same counts of bytes, and as many bytes received as sent (Mattern 1987, the
//! four-counter method). The time between the waves does not matter. Bytes are counted before they are sent and after
//! they are received, so what was in flight at the first wave changes a count by the second.
//!
//! If the counts differ and stay as they are, a message was sent that does not arrive. A process with damaged memory
//! may put a message where no receiver looks for it. Networks may be slow, so this counts as a stall only when several
//! waves in a row agree, over a longer time than it takes to reopen or give up a connection on which nothing is
//! acknowledged (`redrt-engine`'s `reset`).

use super::SIBLINGS_BELIEVED;
use redrt_types::{ReplicaId, ReplicaSet, View};
use redrt_wire::control::Passive;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Default time from a wave that found work being done to the next one (`--look-interval`).
pub const INTERVAL_USUAL: Duration = Duration::from_secs(2);

/// Minimum interval for each process of the job, since all answers go to one place.
const INTERVAL_OF_A_PROCESS: Duration = Duration::from_millis(1);

/// Number of intervals after which a wave without all answers is given up and another begins. A stopped process never
/// answers.
const WAVE_INTERVALS: u32 = 4;

/// Number of waves in a row that must agree before missing bytes count as lost.
const LOST_WAVES: u32 = 6;
/// Time that these waves must span in a job with replicas.
const LOST_AFTER: Duration = Duration::from_secs(12);
/// Time that these waves must span in a job without replicas.
const LOST_AFTER_ALONE: Duration = Duration::from_secs(40);

/// For each process of a stalled job, its passive state: the calls it waits in.
pub type Stall = BTreeMap<ReplicaId, Passive>;

/// Detects a stalled job from waves of answers; see the module for the proof.
#[derive(Debug, Serialize, Deserialize)]
pub struct StallWatch {
    interval: Duration,
    wave: u64,
    /// Answers to the current wave. None between waves.
    answers: Option<Stall>,
    /// Answers to the wave before, if all were passive.
    before: Option<Stall>,
    /// Waves so far that agree on missing bytes.
    missing: Option<Missing>,
    lost_after: Duration,
    next: Duration,
}

/// Waves that found all processes passive, and the same bytes missing.
#[derive(Debug, Serialize, Deserialize)]
struct Missing {
    answers: Stall,
    since: Duration,
    waves: u32,
}

/// The consequence of an answer.
#[derive(PartialEq, Eq, Debug)]
pub enum Finding {
    /// The wave goes on, or has proved nothing.
    Open,
    /// All processes are to be asked in a wave with this number.
    Ask(u64),
    /// The job will never go on.
    Stalled(Stall),
}

impl StallWatch {
    /// A job with this number of processes, which are asked no more often than `interval_min`.
    pub fn new(process_count: u32, interval_min: Duration, is_replicated: bool) -> Self {
        let lost_after = if is_replicated { LOST_AFTER } else { LOST_AFTER_ALONE };
        let interval = interval_min.max(INTERVAL_OF_A_PROCESS * process_count);
        Self { interval, wave: 0, answers: None, before: None, missing: None, lost_after, next: Duration::ZERO }
    }

    /// Time of the next wave. A current wave is given several intervals, since a process that computes may starve its
    /// agent.
    pub fn next_deadline(&self) -> Duration {
        self.next
    }

    /// Begins a wave if one is due. Returns its number.
    pub fn pass_time(&mut self, now: Duration) -> Option<u64> {
        if now < self.next {
            return None;
        }
        self.before = None;
        Some(self.begin(now))
    }

    fn begin(&mut self, now: Duration) -> u64 {
        self.next = now + self.interval * WAVE_INTERVALS;
        self.wave += 1;
        self.answers = Some(Stall::new());
        self.wave
    }

    /// Discards all answers, because the membership changed or a process is at work.
    pub fn reset(&mut self, now: Duration) {
        self.missing = None;
        self.pause(now);
    }

    fn pause(&mut self, now: Duration) {
        (self.answers, self.before, self.next) = (None, None, now + self.interval);
    }

    /// Counts a wave in which all are passive and bytes are missing. Returns true if that has lasted for long enough.
    fn is_lost(&mut self, now: Duration, answers: &Stall) -> bool {
        let before = self.missing.take().filter(|missing| stand_alike(&missing.answers, answers));
        let missing = before.unwrap_or_else(|| Missing { answers: answers.clone(), since: now, waves: 0 });
        let Missing { since, waves, .. } = self.missing.insert(Missing { waves: missing.waves + 1, ..missing });
        *waves >= LOST_WAVES && now.saturating_sub(*since) >= self.lost_after
    }

    /// Takes one answer. `live` are all processes that must answer, as of `view`.
    pub fn answered(
        &mut self,
        now: Duration,
        replica: ReplicaId,
        (wave, passive): (u64, Option<Passive>),
        view: &View,
        live: impl Iterator<Item = ReplicaId>,
    ) -> Finding {
        let Some(answers) = &mut self.answers else { return Finding::Open };
        if wave != self.wave {
            return Finding::Open;
        }
        let Some(passive) = passive.filter(|passive| passive.view == view.number) else {
            self.reset(now);
            return Finding::Open;
        };
        answers.insert(replica, passive);
        if !live.into_iter().all(|replica| answers.contains_key(&replica)) {
            return Finding::Open;
        }
        let answers = self.answers.take().expect("a wave is under way");
        if missing_bytes(&answers) != 0 {
            let is_lost = self.is_lost(now, &answers);
            self.pause(now);
            return if is_lost { Finding::Stalled(answers) } else { Finding::Open };
        }
        self.missing = None;
        if self.before.as_ref() == Some(&answers) {
            self.reset(now);
            return Finding::Stalled(answers);
        }
        self.before = Some(answers);
        Finding::Ask(self.begin(now))
    }
}

/// Number of bytes that were sent and have not been received, over all processes.
#[must_use]
pub fn missing_bytes(stall: &Stall) -> u64 {
    let missing = |passive: &Passive| passive.sent_bytes.wrapping_sub(passive.received_bytes);
    stall.values().fold(0, |sum, passive| sum.wrapping_add(missing(passive)))
}

/// Returns true if both waves found all processes at the same places, waiting for the same, with as many bytes missing.
/// The counts themselves may grow, as processes ask each other for overdue messages.
fn stand_alike(one: &Stall, other: &Stall) -> bool {
    fn says<'a>((replica, passive): (&'a ReplicaId, &'a Passive)) -> (&'a ReplicaId, u64, &'a [String]) {
        (replica, passive.places, &passive.waits_for)
    }
    missing_bytes(one) == missing_bytes(other) && one.iter().map(says).eq(other.iter().map(says))
}

/// Finds the replicas of a stalled job that stand at another call than most of their rank, where at least two agree
/// that have no image in common. They have left the path of their siblings, and without them the job may go on.
///
/// Only if all stand at the same calls, the reasons why they wait there are compared. The trap: a sound replica may
/// lack a payload of one that has left its path, while its siblings have theirs and wait for a digest.
pub fn strays(stall: &Stall, view: &View) -> Vec<ReplicaId> {
    let elsewhere = differing(stall, view, |passive| passive.places);
    if elsewhere.is_empty() { differing(stall, view, |passive| &passive.waits_for) } else { elsewhere }
}

/// The replicas that differ from the majority of their rank.
fn differing<'a, T: Eq>(stall: &'a Stall, view: &View, says: impl Fn(&'a Passive) -> T) -> Vec<ReplicaId> {
    let mut differing = Vec::new();
    for (replica, passive) in stall {
        let siblings = stall.iter().filter(|(other, _)| other.rank == replica.rank);
        let said: Vec<_> = siblings.map(|(other, passive)| (other.index, says(passive))).collect();
        let kinship = view.kinship(replica.rank);
        let Some(most) = sdc_detect::agreed(&said, kinship) else { continue };
        let agreeing: ReplicaSet = said.iter().filter(|(_, other)| other == most).map(|(index, _)| *index).collect();
        let counting = said.iter().map(|(index, _)| *index).collect();
        if *most != says(passive) && kinship.weight(agreeing, counting) >= SIBLINGS_BELIEVED {
            differing.push(*replica);
        }
    }
    differing
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrt_types::{Admission, CutNumber, Incarnation, ReplicaIndex, ViewNumber, World};

    const NOW: Duration = Duration::from_secs(10);

    fn passive(sent_bytes: u64, received_bytes: u64) -> Passive {
        Passive {
            view: ViewNumber(0),
            sent_bytes,
            received_bytes,
            places: 0,
            waits_for: vec!["a message".into()],
            awaits_leader: false,
        }
    }

    struct Rig {
        world: World,
        view: View,
        watch: StallWatch,
    }

    impl Rig {
        fn new() -> Self {
            let world = World::new(vec![1, 1]);
            Self { view: View::initial(&world), world, watch: StallWatch::new(2, INTERVAL_USUAL, true) }
        }

        fn answer(&mut self, rank: u32, wave: u64, passive: Option<Passive>) -> Finding {
            let live: Vec<_> = self.world.replicas().collect();
            self.watch.answered(NOW, ReplicaId::new(rank, 0), (wave, passive), &self.view, live.into_iter())
        }
    }

    #[test]
    fn two_equal_waves_prove_it() {
        let mut rig = Rig::new();
        let wave = rig.watch.pass_time(NOW).unwrap();
        assert_eq!(rig.answer(0, wave, Some(passive(10, 5))), Finding::Open);
        let Finding::Ask(second) = rig.answer(1, wave, Some(passive(5, 10))) else { panic!("asks once more") };
        assert_eq!(rig.watch.pass_time(NOW), None);
        assert_eq!(rig.answer(1, second, Some(passive(5, 10))), Finding::Open);
        let Finding::Stalled(stall) = rig.answer(0, second, Some(passive(10, 5))) else { panic!("proved") };
        assert_eq!(stall.len(), 2);
        assert!(strays(&stall, &rig.view).is_empty());
    }

    /// A stopped process does not keep the others from being asked.
    #[test]
    fn a_wave_that_one_does_not_answer_is_given_up() {
        let mut rig = Rig::new();
        let wave = rig.watch.pass_time(NOW).unwrap();
        rig.answer(0, wave, Some(passive(10, 5)));
        let later = rig.watch.next_deadline();
        assert!(later > NOW);
        let second = rig.watch.pass_time(later).unwrap();
        assert_eq!(rig.answer(1, wave, Some(passive(5, 10))), Finding::Open);
        assert_eq!(rig.answer(0, second, Some(passive(10, 5))), Finding::Open);
        assert!(matches!(rig.answer(1, second, Some(passive(5, 10))), Finding::Ask(_)));
    }

    #[test]
    fn work_messages_under_way_and_movement_disprove_it() {
        for second_answer in [None, Some(passive(20, 5)), Some(passive(12, 7))] {
            let mut rig = Rig::new();
            let wave = rig.watch.pass_time(NOW).unwrap();
            rig.answer(0, wave, Some(passive(10, 5)));
            let Finding::Ask(second) = rig.answer(1, wave, Some(passive(5, 10))) else { panic!("asks once more") };
            rig.answer(0, second, second_answer);
            let finding = rig.answer(1, second, Some(passive(7, 12)));
            assert!(!matches!(finding, Finding::Stalled(_)), "{finding:?}");
        }
    }

    /// Waves 3 s apart in which the two processes answer this. Returns the number of waves until the job counts as
    /// stalled.
    fn waves_until_stalled(says: impl Fn(u32) -> [Option<Passive>; 2]) -> Option<u32> {
        let mut rig = Rig::new();
        let mut now = NOW;
        for count in 1..30 {
            now += Duration::from_secs(3);
            let wave = rig.watch.pass_time(now).expect("a wave is due");
            for (rank, passive) in (0..).zip(says(count)) {
                let live: Vec<_> = rig.world.replicas().collect();
                let id = ReplicaId::new(rank, 0);
                match rig.watch.answered(now, id, (wave, passive), &rig.view, live.into_iter()) {
                    Finding::Stalled(_) => return Some(count),
                    Finding::Open => {}
                    Finding::Ask(_) => return None,
                }
            }
        }
        None
    }

    /// A flipped bit in a sender put a message where its receiver does not look.
    #[test]
    fn what_is_sent_and_does_not_come_for_long_is_lost() {
        assert_eq!(waves_until_stalled(|_| [Some(passive(10, 5)), Some(passive(5, 6))]), Some(6));
        let ask_again = |wave| [Some(passive(10 + u64::from(wave), 5)), Some(passive(5, 6 + u64::from(wave)))];
        assert_eq!(waves_until_stalled(ask_again), Some(6));
    }

    #[test]
    fn a_stall_waits_for_messages_as_long_as_anything_moves() {
        let counts_up = |wave: u32| [Some(passive(10 + u64::from(wave), 5)), Some(passive(5, 6))];
        assert_eq!(waves_until_stalled(counts_up), None);
        let goes_on = |wave: u32| [Some(Passive { places: wave.into(), ..passive(10, 5) }), Some(passive(5, 6))];
        assert_eq!(waves_until_stalled(goes_on), None);
        let works_at_times =
            |wave: u32| [Some(passive(10, 5)), Some(passive(5, 6)).filter(|_| !wave.is_multiple_of(5))];
        assert_eq!(waves_until_stalled(works_at_times), None);
    }

    #[test]
    fn answers_to_other_waves_and_views_do_not_count() {
        let mut rig = Rig::new();
        let wave = rig.watch.pass_time(NOW).unwrap();
        assert_eq!(rig.answer(0, wave + 1, Some(passive(0, 0))), Finding::Open);
        rig.answer(0, wave, Some(passive(0, 0)));
        assert_eq!(rig.answer(1, wave, Some(Passive { view: ViewNumber(1), ..passive(0, 0) })), Finding::Open);
        // The wave is over, and the next is due after the interval.
        assert_eq!(rig.answer(1, wave, Some(passive(0, 0))), Finding::Open);
        assert_eq!(rig.watch.pass_time(NOW), None);
        assert!(rig.watch.pass_time(NOW + INTERVAL_USUAL).is_some());
    }

    #[test]
    fn one_that_lacks_what_a_stray_has_not_sent_is_no_stray() {
        let entry = |rank: u32, index: u16, places: u64, what: &str| {
            (ReplicaId::new(rank, index), Passive { places, waits_for: vec![what.into()], ..passive(0, 0) })
        };
        // 1.2 has left out a send, which 0.2 waits for. Its siblings are one call further.
        let stall: Stall = [
            entry(0, 0, 7, "the digests of other replicas of a message from rank 1"),
            entry(0, 1, 7, "the digests of other replicas of a message from rank 1"),
            entry(0, 2, 7, "a message from rank 1"),
            entry(1, 0, 9, "a message from rank 0"),
            entry(1, 1, 9, "a message from rank 0"),
            entry(1, 2, 8, "a message from rank 0"),
        ]
        .into();
        assert_eq!(strays(&stall, &View::initial(&World::new(vec![3, 3]))), [ReplicaId::new(1, 2)]);
    }

    #[test]
    fn a_lone_stray_is_found_where_two_others_agree() {
        let stall = |waits: &[(u32, u16, &str)]| -> Stall {
            let entry = |(rank, index, what): &(u32, u16, &str)| {
                (ReplicaId::new(*rank, *index), Passive { waits_for: vec![(*what).into()], ..passive(0, 0) })
            };
            waits.iter().map(entry).collect()
        };
        let three = stall(&[(0, 0, "a"), (0, 1, "b"), (0, 2, "a"), (1, 0, "a"), (1, 1, "b")]);
        let view = View::initial(&World::new(vec![3, 2]));
        assert_eq!(strays(&three, &view), [ReplicaId::new(0, 1)]);
        let split = stall(&[(0, 0, "a"), (0, 1, "b"), (0, 2, "c")]);
        assert!(strays(&split, &view).is_empty());
        let lost = view.without(&[ReplicaId::new(0, 2)]);
        let copy = Admission {
            replica: ReplicaId::new(0, 2),
            incarnation: Incarnation(1),
            source: ReplicaIndex(0),
            cut: CutNumber(1),
        };
        assert!(strays(&three, &lost.with(copy)).is_empty(), "0.2 is a copy of 0.0");
    }
}
