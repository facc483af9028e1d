//! Claims that arrive in an unlucky order, each found by a seed of the simulator.

use super::talk::talk;
use super::{BAD, CONTEXT, GOOD, asks, digest, envelope, message, offer, outputs, replica, send, thread, transmit};
use crate::decision::Lookup;
use crate::outcome::{Call, DecisionItem, DecisionKey, Outcome, Place, Question, StreamId};
use crate::path::{Claim, PathFinding};
use crate::{Frame, Output, PayloadKey, Replica};
use redrt_types::{ContextId, ReplicaId, ReplicaIndex, ReplicaSet, SeqNum, VirtualRank};

fn at(call: Call, calls: u64) -> Question {
    Question { place: Place { thread: 0, calls, kind: 4 }, ..asks(call) }
}

fn trio() -> [Replica; 3] {
    [0, 1, 2].map(|index| replica((0, index), 3))
}

/// The frames of one replica for another.
fn frames_to(replica: &mut Replica, to: &Replica) -> Vec<Frame> {
    replica.flush();
    let outputs = std::iter::from_fn(|| replica.poll_output());
    let frames = outputs.filter_map(|output| match output {
        Output::Transmit { to: other, frame, .. } if other == to.me() => Some(frame),
        _ => None,
    });
    frames.collect()
}

/// Delivers the frames of one replica for another.
fn pass(from: &mut Replica, to: &mut Replica) {
    let frames = frames_to(from, to);
    handle(to, from.me(), frames);
}

fn handle(replica: &mut Replica, from: ReplicaId, frames: Vec<Frame>) {
    frames.into_iter().for_each(|frame| _ = replica.handle(from, frame).unwrap());
}

/// Lets replicas exchange frames until none are left. Returns the replicas that are outvoted.
fn outvoted(replicas: &mut [Replica]) -> ReplicaSet {
    let mut outvoted = ReplicaSet::EMPTY;
    talk(replicas, |_, output| {
        if let Output::Parted(report) = output
            && let PathFinding::Outvoted(culprits) = report.finding
        {
            outvoted = outvoted.union(culprits);
        }
    });
    outvoted
}

fn only(index: u16) -> ReplicaSet {
    ReplicaSet::only(ReplicaIndex(index))
}

/// Seed 28600: the successor of a leader that has left the path had asked before it knew of the decision, and knew of
/// the dispute by then.
#[test]
fn a_new_leader_decides_anew_after_a_void_decision() {
    let [mut leader, mut next, mut third] = trio();
    assert_eq!(leader.lookup(thread(0), at(Call::Cancel, 10)), Lookup::MustDecide);
    leader.decide(thread(0), at(Call::Cancel, 10), Outcome::Flag(false));
    pass(&mut leader, &mut third);
    assert_eq!(third.lookup(thread(0), at(Call::Cancel, 9)), Lookup::Wait);
    pass(&mut third, &mut next);
    assert_eq!(next.lookup(thread(0), at(Call::Cancel, 9)), Lookup::Wait);
    let view = leader.view().without(&[leader.me()]);
    let mut both = [next, third];
    both.iter_mut().for_each(|replica| replica.apply_view(view.clone()).unwrap());
    talk(&mut both, |_, _| {});
    assert_eq!(both[0].lookup(thread(0), at(Call::Cancel, 9)), Lookup::MustDecide);
    assert_eq!(outvoted(&mut both), only(0));
}

/// Seed 109734: a replica that waits for a later outcome has taken the earlier ones, and makes no statement about them.
#[test]
fn a_ballot_on_a_later_outcome_counts_for_earlier_ones() {
    let [mut leader, mut second, mut stray] = trio();
    leader.decide(thread(0), at(Call::Test, 17), Outcome::NotReady);
    pass(&mut leader, &mut second);
    assert_eq!(second.lookup(thread(0), at(Call::Test, 17)), Lookup::Decided(Outcome::NotReady));
    assert_eq!(second.lookup(thread(1), at(Call::Test, 18)), Lookup::Wait);
    second.state_waits();
    let later = frames_to(&mut second, &stray);
    // The leader's own claim, which the stray has by the decision, is not enough.
    leader.flush();
    let decision = Frame::Decisions { first: 0, items: vec![decided(17)] };
    handle(&mut stray, leader.me(), vec![decision]);
    let elsewhere = Question { place: Place { thread: 0, calls: 17, kind: 11 }, ..asks(Call::TestMessage) };
    assert_eq!(stray.lookup(thread(0), elsewhere), Lookup::Wait);
    pass(&mut stray, &mut second);
    assert!(frames_to(&mut second, &stray).is_empty(), "it has said that it is past it");
    handle(&mut stray, second.me(), later);
    assert_eq!(outvoted(std::slice::from_mut(&mut stray)), only(2));
}

fn decided(calls: u64) -> DecisionItem {
    DecisionItem::new(thread(0), at(Call::Test, calls).in_vain(), Outcome::NotReady, ReplicaIndex(0))
}

/// Seed 41948 of path-arbitration: two siblings answered each other's claims without end, on two messages by turns.
#[test]
fn what_is_said_of_two_messages_of_a_channel_is_said_once() {
    let [mut one, other, _] = trio();
    let key = |index| DecisionKey { stream: StreamId::Channel(VirtualRank(1), CONTEXT), index };
    for index in 0..2 {
        send(&mut one, index);
    }
    for index in 0..2 {
        let claim = Claim::Asks(at(Call::Send, 9 + index));
        handle(&mut one, other.me(), vec![Frame::Claim { key: key(index), claim, decided: None }]);
    }
    let is_claim = |frame: &Frame| matches!(frame, Frame::Claim { .. });
    let told = frames_to(&mut one, &other).into_iter().filter(is_claim).count();
    assert_eq!(told, 2, "one word on each");
    one.record_place(Place { thread: 0, calls: 30, kind: 4 });
    assert!(!frames_to(&mut one, &other).iter().any(is_claim));
}

#[test]
fn of_writes_that_always_differ_only_the_latest_is_kept() {
    let mut both = [0, 1].map(|index| replica((0, index), 2));
    for index in 0..1000 {
        let [leader, follower] = &mut both;
        let writes = |data| Question { data, ..at(Call::Change, index) };
        assert_eq!(leader.lookup(thread(index), writes(1)), Lookup::MustDecide);
        leader.decide(thread(index), writes(1), Outcome::Bytes(Vec::new()));
        pass(leader, follower);
        assert_eq!(follower.lookup(thread(index), writes(2)), Lookup::Decided(Outcome::Bytes(Vec::new())));
        talk(&mut both, |_, _| {});
    }
    for replica in &both {
        assert!(replica.paths.kept_count() < 300, "{}", replica.paths.kept_count());
    }
}

/// Seed 14801: all replicas have announced the message, and its payload was lost in corrupt memory.
#[test]
fn a_payload_that_does_not_come_is_asked_for_again() {
    let mut receiver = replica((1, 0), 3);
    let [first, second, third] = [0, 1, 2].map(|index| ReplicaId::new(0, index));
    for sender in [first, second, third] {
        receiver.handle(sender, digest(0, GOOD)).unwrap();
    }
    outputs(&mut receiver);
    let overdue = Frame::Overdue { context: CONTEXT, sequence: SeqNum(0) };
    for asks in [true, true, false, true] {
        receiver.ask_overdue();
        let asked = if asks { vec![(0, 0), (0, 1), (0, 2)] } else { Vec::new() };
        let asked: Vec<_> = asked.into_iter().map(|sender| transmit(sender, overdue.clone())).collect();
        assert_eq!(outputs(&mut receiver), asked);
    }
    receiver.handle(first, offer(0, GOOD)).unwrap();
    receiver.payload_received(first, message(0), GOOD);
    outputs(&mut receiver);
    (0..4).for_each(|_| receiver.ask_overdue());
    assert_eq!(outputs(&mut receiver), []);
}

/// Seed 373882: the same for a payload that was fetched, because its first supplier was outvoted or is gone.
#[test]
fn a_fetched_payload_that_does_not_come_is_fetched_again() {
    let mut receiver = replica((1, 0), 3);
    let [first, second, third] = [0, 1, 2].map(|index| ReplicaId::new(0, index));
    receiver.handle(first, offer(0, BAD)).unwrap();
    receiver.payload_received(first, message(0), BAD);
    receiver.handle(second, digest(0, GOOD)).unwrap();
    receiver.handle(third, digest(0, GOOD)).unwrap();
    outputs(&mut receiver);
    receiver.ask_overdue();
    assert_eq!(outputs(&mut receiver), [transmit((0, 1), Frame::Fetch { context: CONTEXT, sequence: SeqNum(0) })]);
}

/// Siblings were asked about each message of each channel at once. Where one replica lags, that made thousands of
/// claims, and the siblings did nothing else.
#[test]
fn where_many_channels_lag_a_few_messages_are_asked_about() {
    let mut receiver = replica((1, 0), 3);
    for context in (0..500).map(ContextId) {
        let said = Frame::Digest { context, sequence: SeqNum(0), digest: GOOD, core: None };
        receiver.handle(ReplicaId::new(0, 1), said).unwrap();
    }
    let mut asked = std::collections::BTreeSet::new();
    for _ in 0..16 {
        receiver.ask_overdue();
        let of = |output: &Output| match output {
            Output::Transmit { frame: Frame::Overdue { context, .. }, .. } => Some(context.0),
            _ => None,
        };
        asked.extend(outputs(&mut receiver).iter().filter_map(of));
    }
    assert_eq!(asked.len(), 4);

    let mut sender = replica((0, 1), 3);
    for context in (0..500).map(ContextId) {
        sender.send(VirtualRank(1), context, envelope(8), GOOD, (PayloadKey(context.0), Place::default()));
        sender.handle(receiver.me(), Frame::Overdue { context, sequence: SeqNum(0) }).unwrap();
    }
    let claims = outputs(&mut sender);
    let claims = claims.iter().filter(|it| matches!(it, Output::Transmit { frame: Frame::Claim { .. }, .. }));
    assert_eq!(claims.count(), 2 * 64);
}

/// In a program with a window, the leader polled once more and asked for nothing else. Its siblings served no request
/// until their threads had made as many calls, and these waited for a rank that waited to be served.
#[test]
fn the_serving_moment_of_a_thread_off_the_path_is_void() {
    let mut all = trio();
    let (served, thread) = (StreamId::Thread(1 << 60), StreamId::Thread(0));
    let [first, second, poll] =
        [(served, 0), (served, 1), (thread, 0)].map(|(stream, index)| DecisionKey { stream, index });
    let serve = Question::serve(1 << 60, 0);
    all[0].decide(first, serve, Outcome::Value(7));
    all[0].decide(poll, at(Call::Test, 8), Outcome::NotReady);
    all[0].decide(second, serve, Outcome::Value(9));
    assert_eq!(outvoted(&mut all), ReplicaSet::EMPTY);

    let here = Place { thread: 0, calls: 8, kind: 5 };
    for replica in &mut all[1..] {
        assert_eq!(replica.threads_behind(), [0]);
        replica.record_passed(here);
    }
    assert_eq!(outvoted(&mut all), only(0));
    assert_eq!(all[1].peek(second), Some(&Outcome::Value(9)), "its leader may be retired yet, or not");

    let view = all[1].view().without(&[all[0].me()]);
    let siblings = &mut all[1..];
    siblings.iter_mut().for_each(|replica| replica.apply_view(view.clone()).unwrap());
    outvoted(siblings);
    for replica in siblings {
        assert_eq!(replica.peek(first), Some(&Outcome::Value(7)), "that was before");
        assert_eq!(replica.peek(second), None);
    }
}

/// Threads end at another reading of a clock in each replica, and may go on in one when they have ended in others.
#[test]
fn a_thread_that_has_ended_holds_nothing_against_its_leader() {
    let mut all = trio();
    let poll = DecisionKey { stream: StreamId::Thread(0), index: 0 };
    all[0].decide(poll, at(Call::Test, 8), Outcome::NotReady);
    assert_eq!(outvoted(&mut all), ReplicaSet::EMPTY);
    all[1].record_passed(Place { thread: 0, calls: Place::ENDED, kind: 0 });
    assert_eq!(all[1].poll_output(), None);
}

/// Seed 19040 of the library's simulator: a replica that is further in its program cancels another receive, and cannot.
#[test]
fn a_ballot_for_another_receive_shows_who_has_parted() {
    for comes_first in [true, false] {
        let mut all = trio();
        let (theirs, own) = (at(Call::Cancel, 16), at(Call::Cancel, 15));
        if comes_first {
            all[2].cast_ballot(thread(0), theirs, 0);
            talk(&mut all, |_, _| {});
        }
        assert_eq!(all[0].lookup(thread(0), own), Lookup::MustDecide);
        assert_eq!(all[0].count_ballots(thread(0), own), None);
        for (replica, question, says) in [(1, own, 1), (2, theirs, 0)] {
            all[replica].cast_ballot(thread(0), question, says);
            assert_eq!(all[replica].lookup(thread(0), question), Lookup::Wait);
        }
        let early = outvoted(&mut all);
        assert_eq!(all[0].lookup(thread(0), own), Lookup::MustDecide);
        assert_eq!(all[0].count_ballots(thread(0), own), None, "one has yet to say what it can take");
        assert_eq!(outvoted(&mut all).union(early), only(2), "{comes_first}");
        let view = all[0].view().without(&[all[2].me()]);
        all[..2].iter_mut().for_each(|replica| replica.apply_view(view.clone()).unwrap());
        assert_eq!(all[0].count_ballots(thread(0), own), Some(true));
    }
}

/// Both have reported the difference, and the leader's side is taken.
#[test]
fn a_leader_of_two_does_not_wait_for_a_sibling_off_the_path() {
    let mut pair = [0, 1].map(|index| replica((0, index), 2));
    let (theirs, own) = (at(Call::Cancel, 16), at(Call::Cancel, 15));
    pair[1].cast_ballot(thread(0), theirs, 0);
    assert_eq!(pair[1].lookup(thread(0), theirs), Lookup::Wait);
    talk(&mut pair, |_, _| {});
    assert_eq!(pair[0].lookup(thread(0), own), Lookup::MustDecide);
    assert_eq!(pair[0].count_ballots(thread(0), own), None);
    let mut reports = 0;
    talk(&mut pair, |_, output| reports += usize::from(matches!(output, Output::Parted(_))));
    assert!(reports > 0);
    assert_eq!(pair[0].count_ballots(thread(0), own), Some(true));
}
