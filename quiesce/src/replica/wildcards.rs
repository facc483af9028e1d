//! Receives from any source: the leader decides their sources, each for one particular receive.
//!
//! A receive does not wait for its source when it is posted, so a source is not the answer to a thread's question
//! ([`Replica::lookup`]). But a source is of use only for the receive that the leader had posted at that index. If the
//! leader posts one more, or another, its later receives belong to other places in the program. So receives are
//! compared like questions: by tag, by the place where they were posted, and by a digest of all that were posted in the
//! context before (`Question::receive_after`). A source that was decided for another receive is not taken. Instead
//! replicas claim the receives they have posted, and vote. If the leader that decided it is gone, the next one decides
//! anew.

use super::Replica;
use crate::outcome::{Decided, DecisionKey, Outcome, Question, StreamId};
use redrt_types::ContextId;

fn key_of(context: ContextId, index: u64) -> DecisionKey {
    DecisionKey { stream: StreamId::Match(context), index }
}

impl Replica {
    /// Posts the next wildcard receive of the program. Returns its source if that was decided before. Otherwise it
    /// follows as [`Output::WildcardDecided`](crate::Output::WildcardDecided), or this process decides.
    pub fn post_wildcard(&mut self, context: ContextId, index: u64, question: Question) -> Option<u32> {
        let source = self.decisions.post(key_of(context, index), question, &mut self.outputs);
        self.record_sources();
        source
    }

    /// Withdraws a wildcard receive that was cancelled before it had a source.
    pub fn withdraw_wildcard(&mut self, context: ContextId, index: u64) {
        self.decisions.withdraw(key_of(context, index));
    }

    /// Decides the source of a wildcard receive that was matched in this process.
    ///
    /// # Panics
    /// When this process does not decide.
    pub fn decide_source(&mut self, context: ContextId, index: u64, source: u32) {
        let key = key_of(context, index);
        let question = self.decisions.posted(key).unwrap_or_default();
        self.paths.decided_anew(key, self.me.index);
        self.compare_received(key, Decided { by: self.me.index, question });
        self.decide(key, question, Outcome::Source(source));
    }

    /// Number of wildcard receives of a context that have a source and are not posted yet.
    #[must_use]
    pub fn early_count(&self, context: ContextId) -> usize {
        self.decisions.known_count(StreamId::Match(context))
    }

    /// Acts on sources that were taken, or were decided for other receives.
    pub(super) fn record_sources(&mut self) {
        for (key, taken_from) in self.decisions.news_of_sources() {
            if let Some(by) = taken_from {
                self.paths.decided_anew(key, by);
                if let Some(received) = self.decisions.received(key) {
                    self.compare_received(key, received);
                }
                self.outcome_passed(key);
            } else if let (Some(question), Some(decided)) = (self.decisions.posted(key), self.decisions.decided(key)) {
                self.contradict_source(key, question, decided);
            }
        }
    }

    fn contradict_source(&mut self, key: DecisionKey, question: Question, decided: Decided) {
        self.paths.open(key, Some(decided), self.siblings());
        self.claim_posted(key, question, Some(decided));
        self.judge_path(key);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::talk::talk;
    use super::*;
    use crate::outcome::DecisionItem;
    use crate::outcome::{Call, Place};
    use crate::path::{Claim, PathFinding};
    use crate::{Config, Frame, Lookup, Output, Protocol, Verification};
    use redrt_types::{ReplicaId, ReplicaIndex, ReplicaSet, View, World};

    const CONTEXT: ContextId = ContextId(7);

    fn trio() -> Vec<Replica> {
        let world = World::uniform(1, 3);
        let start = |index| {
            let (protocol, verification) = (Protocol::Hash, Verification::Strict);
            let (me, view) = (ReplicaId::new(0, index), View::initial(&world));
            Replica::new(Config { me, view, world: world.clone(), protocol, verification })
        };
        (0..3).map(start).collect()
    }

    fn at(calls: u64) -> Question {
        let place = Place { thread: 0, calls, kind: 2 };
        Question { call: Call::Receive, arguments: 1, place, ..Question::default() }
    }

    /// Lets replicas exchange frames until none are left. Returns the outvoted replicas, and the sources that each has
    /// learned.
    fn speak(replicas: &mut [Replica]) -> (ReplicaSet, Vec<(u16, u32)>) {
        let (mut outvoted, mut sources) = (ReplicaSet::EMPTY, Vec::new());
        talk(replicas, |me, output| match output {
            Output::Parted(report) => match report.finding {
                PathFinding::Outvoted(culprits) => outvoted = outvoted.union(culprits),
                _ => panic!("two of three agree"),
            },
            Output::WildcardDecided { source, .. } => sources.push((me.index.0, source)),
            _ => {}
        });
        (outvoted, sources)
    }

    /// Loses the leader. The others apply the view without it.
    fn lose_leader(replicas: &mut Vec<Replica>) {
        let view = replicas[0].view().without(&[replicas[0].me()]);
        replicas.remove(0);
        for replica in replicas {
            replica.apply_view(view.clone()).unwrap();
        }
    }

    /// Its choice is decided anew.
    #[test]
    fn a_leader_with_another_receive_is_outvoted() {
        let mut all = trio();
        for (replica, calls) in all.iter_mut().zip([8, 7, 7]) {
            assert_eq!(replica.post_wildcard(CONTEXT, 0, at(calls)), None);
        }
        all[0].decide_source(CONTEXT, 0, 5);
        assert_eq!(speak(&mut all), (ReplicaSet::only(ReplicaIndex(0)), vec![]));
        lose_leader(&mut all);
        speak(&mut all);
        all[0].decide_source(CONTEXT, 0, 3);
        assert_eq!(speak(&mut all), (ReplicaSet::EMPTY, vec![(2, 3)]));
    }

    /// By then the leader's places are the same as its siblings', and so are the receives.
    #[test]
    fn a_leader_with_one_receive_more_is_outvoted_at_a_decision() {
        let mut all = trio();
        for (replica, calls) in all.iter_mut().zip([3, 7, 7]) {
            assert_eq!(replica.post_wildcard(CONTEXT, 0, at(calls)), None);
            assert_eq!(replica.post_wildcard(CONTEXT, 1, at(8)), None);
        }
        all[0].decide_source(CONTEXT, 1, 5);
        assert_eq!(speak(&mut all), (ReplicaSet::only(ReplicaIndex(0)), vec![]));
    }

    #[test]
    fn a_follower_with_another_receive_is_outvoted_at_any_time() {
        for posts_first in [true, false] {
            let mut all = trio();
            all[0].post_wildcard(CONTEXT, 0, at(8));
            let post = |all: &mut [Replica]| {
                assert!(all[1].post_wildcard(CONTEXT, 0, at(8)).is_none_or(|source| source == 5));
                assert_eq!(all[2].post_wildcard(CONTEXT, 0, at(9)), None);
            };
            if posts_first {
                post(&mut all);
            }
            all[0].decide_source(CONTEXT, 0, 5);
            let (early, _) = speak(&mut all);
            if !posts_first {
                post(&mut all);
            }
            assert_eq!(early.union(speak(&mut all).0), ReplicaSet::only(ReplicaIndex(2)), "{posts_first}");
        }
    }

    /// Seed 34114 of path-arbitration. The replica that differs knows of no decision yet, and claims its receive once.
    #[test]
    fn a_replica_with_a_source_answers_one_with_another_receive() {
        for posts_late in [false, true] {
            let mut all = trio();
            all[0].post_wildcard(CONTEXT, 0, at(7));
            all[2].post_wildcard(CONTEXT, 0, at(8));
            all[2].state_waits();
            if posts_late {
                assert_eq!(speak(&mut all).0, ReplicaSet::EMPTY);
            } else {
                all[1].post_wildcard(CONTEXT, 0, at(7));
            }
            all[0].decide_source(CONTEXT, 0, 5);
            let (mut outvoted, _) = speak(&mut all);
            if posts_late {
                assert_eq!(all[1].post_wildcard(CONTEXT, 0, at(7)), Some(5));
                outvoted = outvoted.union(speak(&mut all).0);
            }
            assert_eq!(outvoted, ReplicaSet::only(ReplicaIndex(2)), "{posts_late}");
        }
    }

    /// Seed 208159 of path-arbitration. Which of the leaders has left the path is not known at that time.
    #[test]
    fn a_later_leaders_decision_does_not_undo_the_first_source() {
        let world = World::uniform(1, 4);
        let [first, later] = [3, 0].map(|index| ReplicaId::new(0, index));
        let view = View::initial(&world).without(&[first]);
        let start = |index| {
            let (protocol, verification) = (Protocol::Hash, Verification::Strict);
            let (me, view) = (ReplicaId::new(0, index), view.clone());
            Replica::new(Config { me, view, world: world.clone(), protocol, verification })
        };
        let mut all: Vec<_> = (1..3).map(start).collect();
        let (right, wrong) = (at(7).receive_after(0), at(8).receive_after(0));
        let key = key_of(CONTEXT, 0);
        let decide = |all: &mut [Replica], number, question, by: ReplicaId, source| {
            let items = vec![DecisionItem::new(key, question, Outcome::Source(source), by.index)];
            for replica in all {
                replica.handle(later, Frame::Decisions { first: number, items: items.clone() }).unwrap();
            }
        };
        decide(&mut all, 0, right, first, 5);
        assert_eq!(all[0].post_wildcard(CONTEXT, 0, at(7)), Some(5));
        decide(&mut all, 1, wrong, later, 3);
        assert_eq!(all[1].post_wildcard(CONTEXT, 0, at(7)), Some(5));
        let decided = Some(Decided { by: later.index, question: wrong });
        let claim = Frame::Claim { key, claim: Claim::Asks(right), decided };
        all[0].handle(ReplicaId::new(0, 2), claim).unwrap();
        assert_eq!(speak(&mut all), (ReplicaSet::only(later.index), vec![]));
    }

    #[test]
    fn an_ended_leader_is_outvoted_by_waiters_for_a_source() {
        let mut all = trio();
        all[1..].iter_mut().for_each(|replica| _ = replica.post_wildcard(CONTEXT, 0, at(8)));
        all[1..].iter_mut().for_each(Replica::state_waits);
        assert_eq!(speak(&mut all), (ReplicaSet::EMPTY, vec![]));
        assert_eq!(all[0].questions().collect::<Vec<_>>(), [0, 0]);
        all[0].record_place(Place { thread: 0, calls: u64::MAX, kind: 9 });
        assert_eq!(speak(&mut all).0, ReplicaSet::only(ReplicaIndex(0)));
    }

    #[test]
    fn sources_decided_after_a_lost_leader_parted_are_void() {
        let mut all = trio();
        let key = DecisionKey { stream: StreamId::Thread(0), index: 0 };
        all[0].decide(key, Question { call: Call::Clock, ..at(8) }, Outcome::Clock { clock: 0, ns: 1 });
        for (index, calls) in [(0, 6), (1, 12)] {
            all[0].post_wildcard(CONTEXT, index, at(calls));
            all[0].decide_source(CONTEXT, index, 5);
        }
        speak(&mut all);
        for replica in &mut all[1..] {
            assert_eq!(replica.post_wildcard(CONTEXT, 0, at(6)), Some(5), "that was before");
            assert_eq!(replica.lookup(key, Question { call: Call::Observe, ..at(8) }), Lookup::Wait);
        }
        assert_eq!(speak(&mut all).0, ReplicaSet::only(ReplicaIndex(0)));
        lose_leader(&mut all);
        speak(&mut all);
        assert_eq!(all[0].lookup(key, Question { call: Call::Observe, ..at(8) }), Lookup::MustDecide);
        speak(&mut all);
        for replica in &mut all {
            assert_eq!(replica.post_wildcard(CONTEXT, 1, at(12)), None);
        }
    }
}
