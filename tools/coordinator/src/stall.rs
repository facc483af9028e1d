//! Finds out that a job will never go on: every process waits in MPI, and nothing is under way.
//!
//! All live processes are asked in waves whether they can do anything by themselves. Two waves in a row in which all
//! were passive, with the same counts of bytes, as many received as sent, prove it (Mattern 1987, the four-counter
//! method); how far apart they are does not matter. What is sent is counted before it goes and received after it came,
//! so what was under way at the first wave shows in a count at the second.
//!
//! Counts that are not equal and stay as they are mean that something was sent that does not come: a process whose
//! memory is damaged may put a message where nobody looks for it. Networks take their time, so that is believed when
//! several waves in a row have said so, for longer than it takes until a connection is opened again on which nothing is
//! acknowledged, or given up (`redrt-engine`'s `reset`).

use super::SIBLINGS_BELIEVED;
use redrt_types::{ReplicaId, ReplicaSet, View};
use redrt_wire::control::Passive;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Between one question that found work being done and the next, if nothing else is said (`--look-interval`).
pub const INTERVAL_USUAL: Duration = Duration::from_secs(2);

/// The same for each process of the job: all answers go to one place.
const INTERVAL_OF_A_PROCESS: Duration = Duration::from_millis(1);

/// Number of intervals after which a wave that not all have answered is given up, and another begins: who is stopped
/// answers none.
const WAVE_INTERVALS: u32 = 4;

/// Number of waves in a row that have to say the same before what was sent and has not come is lost.
const LOST_WAVES: u32 = 6;
/// The time that they have to span in a job with replicas.
const LOST_AFTER: Duration = Duration::from_secs(12);
/// The time that they have to span in a job without replicas.
const LOST_AFTER_ALONE: Duration = Duration::from_secs(40);

/// What each process waits for, in a job that does not go on.
pub type Stall = BTreeMap<ReplicaId, Passive>;

/// The state machine.
#[derive(Debug, Serialize, Deserialize)]
pub struct StallWatch {
    interval: Duration,
    wave: u64,
    /// Answers to the wave under way.
    answers: Option<Stall>,
    /// What all answered to the wave before, if all were passive.
    before: Option<Stall>,
    /// What all have answered in several waves, though more was sent than came.
    missing: Option<Missing>,
    lost_after: Duration,
    next: Duration,
}

/// All are passive, and something that was sent has not come.
#[derive(Debug, Serialize, Deserialize)]
struct Missing {
    answers: Stall,
    since: Duration,
    waves: u32,
}

/// What follows from an answer.
#[derive(PartialEq, Eq, Debug)]
pub enum Finding {
    /// Nothing yet.
    Open,
    /// Ask all processes, with this number.
    Ask(u64),
    /// Nothing will ever move again.
    Stalled(Stall),
}

impl StallWatch {
    /// For a job with this number of processes, which are asked no more often than `interval_min`.
    pub fn new(process_count: u32, interval_min: Duration, is_replicated: bool) -> Self {
        let lost_after = if is_replicated { LOST_AFTER } else { LOST_AFTER_ALONE };
        let interval = interval_min.max(INTERVAL_OF_A_PROCESS * process_count);
        Self { interval, wave: 0, answers: None, before: None, missing: None, lost_after, next: Duration::ZERO }
    }

    /// When a wave is due. One that is under way is given time: a process may compute with its agent starved.
    pub fn next_deadline(&self) -> Duration {
        self.next
    }

    /// Begins a wave if one is due: its number.
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

    /// The membership changed, or something moves: what was answered is void.
    pub fn reset(&mut self, now: Duration) {
        self.missing = None;
        self.pause(now);
    }

    fn pause(&mut self, now: Duration) {
        (self.answers, self.before, self.next) = (None, None, now + self.interval);
    }

    /// All are passive, and not all that was sent has come. Whether that is how it has been for long.
    fn is_lost(&mut self, now: Duration, answers: &Stall) -> bool {
        let before = self.missing.take().filter(|missing| stand_alike(&missing.answers, answers));
        let missing = before.unwrap_or_else(|| Missing { answers: answers.clone(), since: now, waves: 0 });
        let Missing { since, waves, .. } = self.missing.insert(Missing { waves: missing.waves + 1, ..missing });
        *waves >= LOST_WAVES && now.saturating_sub(*since) >= self.lost_after
    }

    /// Takes one answer. `live`: all processes that have to answer, as of `view`.
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

/// How many more bytes were sent than came.
#[must_use]
pub fn missing_bytes(stall: &Stall) -> u64 {
    let missing = |passive: &Passive| passive.sent_bytes.wrapping_sub(passive.received_bytes);
    stall.values().fold(0, |sum, passive| sum.wrapping_add(missing(passive)))
}

/// Whether all stand where they stood and wait for what they waited for, and as much is missing. They may have asked
/// each other for what is overdue meanwhile.
fn stand_alike(one: &Stall, other: &Stall) -> bool {
    fn says<'a>((replica, passive): (&'a ReplicaId, &'a Passive)) -> (&'a ReplicaId, u64, &'a [String]) {
        (replica, passive.places, &passive.waits_for)
    }
    missing_bytes(one) == missing_bytes(other) && one.iter().map(says).eq(other.iter().map(says))
}

/// In a stalled job, the replicas that stand somewhere else than most of their rank do, where two or more agree that
/// have no image in common: the others have left the path of their siblings, and without them these may go on.
///
/// Only where all stand at the same calls, what they wait for there counts: a sound replica may lack a payload of one
/// that has left its path, where its siblings have theirs and wait for a digest.
pub fn strays(stall: &Stall, view: &View) -> Vec<ReplicaId> {
    let elsewhere = differing(stall, view, |passive| passive.places);
    if elsewhere.is_empty() { differing(stall, view, |passive| &passive.waits_for) } else { elsewhere }
}

/// The replicas that say something else than a majority of their rank.
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

    /// One that is stopped does not keep the others from being asked.
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

    /// What each says in one wave after another, 3 s apart. After how many the job is taken for stalled.
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

    /// A flipped bit in a sender: it put a message where its receiver does not look.
    #[test]
    fn what_is_sent_and_does_not_come_for_long_is_lost() {
        assert_eq!(waves_until_stalled(|_| [Some(passive(10, 5)), Some(passive(5, 6))]), Some(6));
        let ask_again = |wave| [Some(passive(10 + u64::from(wave), 5)), Some(passive(5, 6 + u64::from(wave)))];
        assert_eq!(waves_until_stalled(ask_again), Some(6));
    }

    #[test]
    fn what_may_be_under_way_is_waited_for_as_long_as_anything_moves() {
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
        // The wave is over; the next is due after a while.
        assert_eq!(rig.answer(1, wave, Some(passive(0, 0))), Finding::Open);
        assert_eq!(rig.watch.pass_time(NOW), None);
        assert!(rig.watch.pass_time(NOW + INTERVAL_USUAL).is_some());
    }

    #[test]
    fn one_that_lacks_what_a_stray_has_not_sent_is_no_stray() {
        let entry = |rank: u32, index: u16, places: u64, what: &str| {
            (ReplicaId::new(rank, index), Passive { places, waits_for: vec![what.into()], ..passive(0, 0) })
        };
        // 1.2 has left out a send, to which 0.2 listens; its siblings are further.
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
