//! Readings of clocks outside MPI. Replicas that make the same reading get the leader's; a reading that only one
//! replica makes is its own.
//!
//! The runtime of a language reads clocks when it collects garbage, to measure processor time and the wait for its
//! threads to stop. The moment of a collection depends on the objects it finds and on the speed of its helper threads,
//! so it differs between replicas. Such a reading may neither part replicas nor shift the positions of their other
//! questions. So readings of clocks are in no sequence. Each is identified by its *moment* (the number of MPI calls
//! that the thread has begun, and the number of other outcomes it has had) and by its asker.
//!
//! ```text
//!   leader     call 7 ── main ── collector ── call 8 ── main        decided: (7, main) (7, collector) (8, main)
//!   follower   call 7 ── main ── call 8 ── collector ── main
//!                         │                   │           └ takes (8, main)
//!                         │                   └ passes over (7, collector); the leader is past it: alone
//!                         └ takes (7, main)
//! ```
//! The trap is a leader that has not come to the moment: it may still make the reading there, and then its reading
//! holds. So a follower waits until it knows that its leader is past the moment, from the leader's decisions or because
//! the leader says so ([`Decisions::record_apart`]). That would delay a collection by the follower's lead. So an asker
//! that has made a reading alone once, in this process or in the leader, is *apart*: its readings are not awaited any
//! more, and are taken only where they are known already.
//!
//! Counters of the system (memory, faults, load) are read in the same way, since they differ between replicas as a
//! clock does.
//!
//! An asker may not be known in full. Code that a runtime generates while the program runs has no names, and is
//! generated sooner in one replica than in another. Then the innermost function must do as the asker
//! ([`Question::asker`]).

use super::{DecisionItem, DecisionKey, Decisions, Outcome, Output, Place, Question, Stream, StreamId};
use std::collections::VecDeque;

/// Maximum number of askers that are known to be apart. The readings of further ones are awaited each time.
const APART_MAX: usize = 1 << 10;

/// The answer to a question for a reading of a clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Timed {
    /// Take this reading of the leader.
    Decided(Outcome),
    /// This process decides: read the clock and call `Replica::decide_time`.
    MustDecide,
    /// No sibling that counts makes this reading, so it is this process's own.
    Alone {
        /// True if the asker was not known to be apart before.
        is_news: bool,
    },
    /// The leader's decision is not known yet: handle frames and ask again.
    Wait,
}

impl Stream {
    /// Drops the readings before this moment. Calls `pass` with the asker of each.
    fn pass_times(&mut self, moment: (u64, u64), mut pass: impl FnMut(u64)) {
        while let Some(item) = self.waiting.front().filter(|item| item.question.moment() < moment) {
            pass(item.question.arguments);
            self.passed = self.passed.max(item.end());
            self.waiting.pop_front();
        }
    }
}

impl Decisions {
    /// Asks for a reading by the thread of the question's place. The same reading is asked for until there is an
    /// answer, and not again.
    pub(crate) fn ask_time(&mut self, question: &Question, outputs: &mut VecDeque<Output>) -> Timed {
        let thread = question.place.thread;
        let stream = StreamId::Readings(thread);
        let mut passed = Vec::new();
        #[cfg(any(test, feature = "simulation"))]
        let any_asker = self.askers_ignored;
        #[cfg(not(any(test, feature = "simulation")))]
        let any_asker = false;
        let times = self.streams.get_or_insert_with(stream, Stream::default);
        times.pass_times(question.moment(), |asker| passed.push(asker));
        let now = |item: &&DecisionItem| item.question.moment() == question.moment();
        let at_once = || times.waiting.iter().take_while(now);
        let found = at_once().position(|item| any_asker || item.question == *question);
        let is_apart = |asker| self.apart.contains_key(&asker);
        let is_like_it = |item: &DecisionItem| {
            let asker = item.question.arguments;
            question.may_be(&item.question) && !is_apart(asker) && !is_apart(question.arguments)
        };
        let found = found.or_else(|| at_once().position(is_like_it));
        let is_past = times.waiting.back().is_some_and(|last| last.question.moment() > question.moment());
        // Readings before it stay. A collection may read at the same moment too, earlier or later within it.
        let taken = found.and_then(|at| times.waiting.remove(at));
        times.passed = taken.as_ref().map_or(times.passed, |item| times.passed.max(item.end()));
        let waiting = times.waiting.len() as u64;
        passed.into_iter().for_each(|asker| _ = self.record_apart(asker));
        if self.lag.asked(stream, waiting) {
            self.report_lag(outputs);
        }
        if let Some(item) = taken {
            return Timed::Decided(item.outcome);
        }
        let asker = question.arguments;
        if is_past || self.has_outcome_after(question) {
            Timed::Alone { is_news: self.record_apart(asker) }
        } else if self.is_deciding() {
            Timed::MustDecide
        } else if self.apart.contains_key(&asker) {
            Timed::Alone { is_news: false }
        } else {
            Timed::Wait
        }
    }

    /// Returns true if the leader is known to have had another outcome of the thread, at this place or later.
    fn has_outcome_after(&self, question: &Question) -> bool {
        let next = DecisionKey { stream: StreamId::Thread(question.place.thread), index: question.data };
        self.decided(next).is_some_and(|decided| decided.question.place.calls >= question.place.calls)
    }

    /// Marks an asker as apart. Returns true if it was not.
    pub(crate) fn record_apart(&mut self, asker: u64) -> bool {
        self.apart.len() < APART_MAX && self.apart.insert(asker, ()).is_none()
    }

    /// Decides the reading of [`Decisions::ask_time`].
    pub(crate) fn decide_time(&mut self, question: &Question, outcome: Outcome, outputs: &mut VecDeque<Output>) {
        let stream = StreamId::Readings(question.place.thread);
        let times = self.streams.get_or_insert_with(stream, Stream::default);
        // A reading that an earlier leader made at this moment, for another asker, may still be asked for, so its index
        // is kept.
        let known = times.waiting.back().map_or(0, DecisionItem::end);
        let key = DecisionKey { stream, index: times.passed.max(known) };
        self.decide(key, question, outcome, outputs);
    }

    /// Drops the leader's readings before this place, since the thread has passed them.
    pub(crate) fn pass_times(&mut self, place: Place, outputs: &mut VecDeque<Output>) {
        let stream = StreamId::Readings(place.thread);
        let Some(times) = self.streams.get_mut(stream) else { return };
        let mut passed = Vec::new();
        times.pass_times((place.calls, 0), |asker| passed.push(asker));
        let waiting = times.waiting.len() as u64;
        passed.into_iter().for_each(|asker| _ = self.record_apart(asker));
        if self.lag.asked(stream, waiting) {
            self.report_lag(outputs);
        }
    }

    /// Voids the leader's readings after this outcome of a thread, which is void itself.
    pub(super) fn forget_times_from(&mut self, key: DecisionKey) {
        if let StreamId::Thread(thread) = key.stream
            && let Some(times) = self.streams.get_mut(StreamId::Readings(thread))
        {
            times.waiting.retain(|item| item.question.data <= key.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrt_types::{ReplicaId, ReplicaIndex, ReplicaSet};

    const MAIN: u64 = 1 << 32 | 2;
    const COLLECTOR: u64 = 2 << 32 | 2;

    /// A leader and its follower, which receives the leader's decisions.
    struct Pair {
        leader: Decisions,
        follower: Decisions,
        outputs: VecDeque<Output>,
    }

    impl Pair {
        fn new() -> Self {
            let live: ReplicaSet = [ReplicaIndex(0), ReplicaIndex(1)].into_iter().collect();
            let member = |index| Decisions::new(ReplicaId::new(0, index), 2, live, ReplicaIndex(0));
            Self { leader: member(0), follower: member(1), outputs: VecDeque::new() }
        }

        /// The leader makes a reading of this value.
        fn leader_reads(&mut self, question: Question, ns: u64) {
            assert_eq!(self.leader.ask_time(&question, &mut self.outputs), Timed::MustDecide);
            self.leader.decide_time(&question, shows(ns), &mut self.outputs);
            self.announce();
        }

        fn announce(&mut self) {
            self.leader.announce(&mut self.outputs);
            for output in std::mem::take(&mut self.outputs) {
                if let Output::Transmit { frame: crate::Frame::Decisions { first, items }, .. } = output {
                    let from = ReplicaIndex(0);
                    self.follower.handle_decisions(from, first, items, &mut self.outputs).expect("it is sound");
                }
            }
        }

        fn follower_reads(&mut self, question: Question) -> Timed {
            self.follower.ask_time(&question, &mut self.outputs)
        }
    }

    fn at(calls: u64, outcomes: u64, asker: u64) -> Question {
        Question::reading(asker, Place { thread: 0, calls, kind: 3 }, outcomes)
    }

    fn shows(ns: u64) -> Outcome {
        Outcome::Clock { clock: 2, ns }
    }

    #[test]
    fn followers_get_the_leaders_readings_and_await_later_ones() {
        let mut pair = Pair::new();
        assert_eq!(pair.follower_reads(at(7, 0, MAIN)), Timed::Wait);
        pair.leader_reads(at(7, 0, MAIN), 10);
        pair.leader_reads(at(7, 0, MAIN), 20);
        pair.leader_reads(at(9, 0, MAIN), 30);
        let read: Vec<_> = [7, 7, 9].map(|calls| pair.follower_reads(at(calls, 0, MAIN))).into();
        assert_eq!(read, [10, 20, 30].map(|ns| Timed::Decided(shows(ns))));
    }

    #[test]
    fn a_collectors_readings_do_not_move_the_programs() {
        let mut pair = Pair::new();
        for (question, ns) in [(at(7, 0, COLLECTOR), 1), (at(7, 0, MAIN), 2), (at(8, 0, MAIN), 3)] {
            pair.leader_reads(question, ns);
        }
        assert_eq!(pair.follower_reads(at(7, 0, MAIN)), Timed::Decided(shows(2)));
        assert_eq!(pair.follower_reads(at(8, 0, COLLECTOR)), Timed::Alone { is_news: false });
        assert_eq!(pair.follower_reads(at(8, 0, MAIN)), Timed::Decided(shows(3)));
    }

    /// It comes at the same moment in all replicas.
    #[test]
    fn a_collection_takes_no_reading_from_the_program() {
        let mut pair = Pair::new();
        for (asker, ns) in [(MAIN, 1), (COLLECTOR, 2), (MAIN, 3)] {
            pair.leader_reads(at(7, 0, asker), ns);
        }
        let read: Vec<_> = [COLLECTOR, MAIN, MAIN].map(|asker| pair.follower_reads(at(7, 0, asker))).into();
        assert_eq!(read, [2, 1, 3].map(|ns| Timed::Decided(shows(ns))));
    }

    #[test]
    fn code_generated_later_in_one_replica_reads_the_same() {
        let (interpreted, generated) =
            (Question::asker(7 << 32, 1 << 40, false), Question::asker(7 << 32, 2 << 40, true));
        let mut pair = Pair::new();
        pair.leader_reads(at(7, 0, interpreted), 1);
        pair.leader_reads(at(8, 0, COLLECTOR), 2);
        pair.leader_reads(at(8, 0, interpreted), 3);
        let read: Vec<_> = [7, 8].map(|calls| pair.follower_reads(at(calls, 0, generated))).into();
        assert_eq!(read, [1, 3].map(|ns| Timed::Decided(shows(ns))));
        assert_eq!(pair.follower_reads(at(8, 0, COLLECTOR)), Timed::Decided(shows(2)));
        // Two askers that are both known in full are different.
        pair.leader_reads(at(9, 0, interpreted), 4);
        assert_eq!(pair.follower_reads(at(9, 0, Question::asker(7 << 32, 2 << 40, false))), Timed::Wait);
    }

    /// Its thread is not awaited again.
    #[test]
    fn a_reading_that_the_leader_has_passed_is_alone() {
        let mut pair = Pair::new();
        assert_eq!(pair.follower_reads(at(7, 0, COLLECTOR)), Timed::Wait);
        pair.leader_reads(at(8, 0, MAIN), 1);
        assert_eq!(pair.follower_reads(at(7, 0, COLLECTOR)), Timed::Alone { is_news: true });
        assert_eq!(pair.follower_reads(at(8, 0, COLLECTOR)), Timed::Alone { is_news: false });
        assert_eq!(pair.follower_reads(at(8, 0, MAIN)), Timed::Decided(shows(1)));
        // A reading that it makes together with its siblings still holds.
        pair.leader_reads(at(9, 0, COLLECTOR), 2);
        assert_eq!(pair.follower_reads(at(9, 0, COLLECTOR)), Timed::Decided(shows(2)));
        assert_eq!(pair.follower_reads(at(9, 0, MAIN)), Timed::Wait);
    }

    #[test]
    fn what_the_system_counts_is_never_taken_for_a_clock() {
        let cut = Question::asker(7 << 32, 1 << 40, true);
        let counts = |asker| Question::facts(asker, at(7, 0, 0).place, 0);
        let mut pair = Pair::new();
        pair.leader_reads(at(7, 0, cut), 1);
        assert_eq!(pair.leader.ask_time(&counts(cut), &mut pair.outputs), Timed::MustDecide);
        pair.leader.decide_time(&counts(cut), Outcome::Bytes(vec![2]), &mut pair.outputs);
        pair.announce();
        let whole = Question::asker(7 << 32, 1 << 40, false);
        assert_eq!(pair.follower_reads(counts(whole)), Timed::Decided(Outcome::Bytes(vec![2])));
        assert_eq!(pair.follower_reads(at(7, 0, whole)), Timed::Decided(shows(1)));
        // A decision that contradicts that is refused when it arrives.
        let key = DecisionKey { stream: StreamId::Readings(0), index: 9 };
        let told = |question, outcome| DecisionItem::new(key, question, outcome, ReplicaIndex(0)).is_possible();
        assert!(told(counts(cut), Outcome::Bytes(vec![])) && told(at(7, 0, cut), shows(1)));
        assert!(!told(counts(cut), shows(1)) && !told(at(7, 0, cut), Outcome::Bytes(vec![])));
    }

    #[test]
    fn another_outcome_of_the_thread_says_that_the_leader_is_past() {
        let mut pair = Pair::new();
        let key = DecisionKey { stream: StreamId::Thread(0), index: 0 };
        let probe = Question { call: crate::Call::Number, place: at(7, 0, 0).place, ..Question::default() };
        pair.leader.decide(key, &probe, Outcome::Value(1), &mut pair.outputs);
        pair.announce();
        assert_eq!(pair.follower_reads(at(7, 0, COLLECTOR)), Timed::Alone { is_news: true });
        // Nothing is known after that outcome.
        assert_eq!(pair.follower_reads(at(7, 1, MAIN)), Timed::Wait);
    }

    #[test]
    fn what_a_thread_has_passed_is_not_kept_and_puts_nobody_behind() {
        let mut pair = Pair::new();
        for calls in 0..300 {
            pair.leader_reads(at(calls, 0, COLLECTOR), calls);
            let place = at(calls + 1, 0, 0).place;
            pair.follower.pass_times(place, &mut pair.outputs);
        }
        let stream = StreamId::Readings(0);
        assert_eq!(pair.follower.known_count(stream), 0);
        assert!(!pair.follower.lag.is_behind());
        for calls in 300..600 {
            pair.leader_reads(at(calls, 0, COLLECTOR), calls);
        }
        assert!(pair.follower.lag.is_behind());
        pair.follower.pass_times(at(600, 0, 0).place, &mut pair.outputs);
        assert!(!pair.follower.lag.is_behind());
    }

    /// Siblings get its own later readings.
    #[test]
    fn a_new_leader_goes_on_after_its_predecessors_readings() {
        let mut pair = Pair::new();
        pair.leader_reads(at(7, 0, COLLECTOR), 1);
        pair.leader_reads(at(9, 0, MAIN), 2);
        let live = ReplicaSet::only(ReplicaIndex(1));
        let Pair { follower, outputs, .. } = &mut pair;
        follower.apply_view(live, ReplicaIndex(1), outputs).expect("it is sound");
        // Siblings know that the lost leader passed that moment without a reading, so the new leader does not decide
        // one there.
        assert_eq!(follower.ask_time(&at(8, 0, COLLECTOR), outputs), Timed::Alone { is_news: false });
        assert_eq!(follower.ask_time(&at(9, 0, COLLECTOR), outputs), Timed::MustDecide);
        follower.decide_time(&at(9, 0, COLLECTOR), shows(3), outputs);
        assert_eq!(follower.ask_time(&at(9, 0, MAIN), outputs), Timed::Decided(shows(2)));
        assert_eq!(follower.streams.get(StreamId::Readings(0)).map(|times| times.passed), Some(3));
    }

    #[test]
    fn what_a_leader_read_behind_a_place_that_is_retracted_is_void() {
        let mut pair = Pair::new();
        for (calls, outcomes) in [(7, 2), (8, 3), (9, 3)] {
            pair.leader_reads(at(calls, outcomes, MAIN), calls);
        }
        pair.follower.forget_from(DecisionKey { stream: StreamId::Thread(0), index: 2 });
        assert_eq!(pair.follower.known_count(StreamId::Readings(0)), 1);
        pair.leader_reads(at(9, 3, MAIN), 9);
        pair.follower.forget_after(at(7, 2, 0).place);
        assert_eq!(pair.follower.known_count(StreamId::Readings(0)), 1);
        assert_eq!(pair.follower_reads(at(7, 2, MAIN)), Timed::Decided(shows(7)));
    }
}
