//! One machine by itself, with partners played by the test: the effect of single frames.

mod paths;
pub mod talk;

use super::*;
use crate::decision::Lookup;
use crate::frame::{Action, Finding, MessageId, Outbound, PayloadKey};
use crate::outcome::{Call, DecisionItem, Place, StreamId};
use crate::path::Claim;
use redrt_types::{Admission, ContextId, CutNumber, Digest, Envelope, Incarnation, Tag};

const CONTEXT: ContextId = ContextId(9);
const GOOD: Digest = Digest(1);
const BAD: Digest = Digest(2);

fn envelope(length_bytes: u64) -> Envelope {
    Envelope { source: 0, tag: Tag(4), length_bytes }
}

fn replica(me: (u32, u16), degree: u16) -> Replica {
    let world = World::uniform(2, degree);
    let me = ReplicaId::new(me.0, me.1);
    let (protocol, verification) = (Protocol::Hash, Verification::Strict);
    Replica::new(Config { me, view: View::initial(&world), world, protocol, verification })
}

fn asks(call: Call) -> Question {
    Question { call, ..Question::default() }
}

fn outputs(replica: &mut Replica) -> Vec<Output> {
    std::iter::from_fn(|| replica.poll_output()).collect()
}

fn offer(sequence: u64, digest: Digest) -> Frame {
    Frame::Offer { context: CONTEXT, sequence: SeqNum(sequence), envelope: envelope(8), digest, core: None }
}

fn digest(sequence: u64, digest: Digest) -> Frame {
    Frame::Digest { context: CONTEXT, sequence: SeqNum(sequence), digest, core: None }
}

fn message(sequence: u64) -> MessageId {
    MessageId { sender: VirtualRank(0), context: CONTEXT, sequence: SeqNum(sequence) }
}

fn transmit(to: (u32, u16), frame: Frame) -> Output {
    Output::Transmit { to: ReplicaId::new(to.0, to.1), frame, payload: None }
}

fn send(replica: &mut Replica, key: u64) -> Outbound {
    replica.send(VirtualRank(1), CONTEXT, envelope(8), GOOD, (PayloadKey(key), Place::default()))
}

fn thread(index: u64) -> DecisionKey {
    DecisionKey { stream: StreamId::Thread(0), index }
}

/// A copy of the sibling at `source` for a place, in its first life there.
fn copy(replica: ReplicaId, source: u16) -> Admission {
    Admission { replica, incarnation: Incarnation(1), source: ReplicaIndex(source), cut: CutNumber(1) }
}

#[test]
fn payload_goes_to_the_own_plane_and_a_digest_to_the_other() {
    let mut sender = replica((0, 1), 2);
    let [other, own] = [0, 1].map(|index| ReplicaSet::only(ReplicaIndex(index)));
    for number in 0..2 {
        let outbound = send(&mut sender, 5 + number);
        assert_eq!(outbound, Outbound { sequence: SeqNum(number), offer_to: own, digest_to: other });
    }
    assert_eq!(outputs(&mut sender), []);
}

#[test]
fn payload_is_released_when_all_live_receivers_acknowledged() {
    let mut sender = replica((0, 0), 2);
    for key in 0..3 {
        send(&mut sender, key);
    }
    outputs(&mut sender);
    sender.handle(ReplicaId::new(1, 0), Frame::Ack { context: CONTEXT, upto: SeqNum(3) }).unwrap();
    assert_eq!(outputs(&mut sender), [], "1.1 may still ask");
    sender.handle(ReplicaId::new(1, 1), Frame::AckOne { context: CONTEXT, sequence: SeqNum(1) }).unwrap();
    assert_eq!(outputs(&mut sender), [Output::Release { payload: PayloadKey(1) }]);
    assert_eq!(sender.counters().retained_bytes, 16);
    sender.apply_view(sender.view().without(&[ReplicaId::new(1, 1)])).unwrap();
    let released = [0, 2].map(|key| Output::Release { payload: PayloadKey(key) });
    assert_eq!(outputs(&mut sender)[..2], released);
    assert_eq!(sender.retained_count(), 0);
}

#[test]
fn new_supplier_resumes_at_the_bookmark_before_the_view() {
    let mut sender = replica((0, 1), 2);
    for key in 0..3 {
        send(&mut sender, key);
    }
    outputs(&mut sender);
    let bookmarks = vec![(CONTEXT, SeqNum(1))];
    let view = sender.view().number;
    sender.handle(ReplicaId::new(1, 0), Frame::Resume { service: Service::Payload, bookmarks, view }).unwrap();
    let offers = [1, 2].map(|number| Output::Transmit {
        to: ReplicaId::new(1, 0),
        frame: offer(number, GOOD),
        payload: Some(PayloadKey(number)),
    });
    assert_eq!(outputs(&mut sender), offers);
    assert_eq!(sender.counters().messages_resent, 2);
}

#[test]
fn receiver_asks_the_next_supplier_and_absorbs_what_it_has() {
    let mut receiver = replica((1, 0), 2);
    let (lost, next) = (ReplicaId::new(0, 0), ReplicaId::new(0, 1));
    receiver.handle(lost, offer(0, GOOD)).unwrap();
    receiver.handle(lost, offer(1, GOOD)).unwrap();
    receiver.payload_received(lost, message(0), GOOD);
    outputs(&mut receiver);
    let view = receiver.view().without(&[lost]);
    receiver.apply_view(view.clone()).unwrap();
    let bookmarks = vec![(CONTEXT, SeqNum(0))];
    let resume = Frame::Resume { service: Service::Payload, bookmarks, view: view.number };
    assert_eq!(outputs(&mut receiver), [transmit((0, 1), resume)]);
    receiver.handle(lost, offer(2, GOOD)).unwrap();
    assert_eq!(outputs(&mut receiver), [], "the lost are not heard");
    assert_eq!(receiver.handle(next, offer(0, GOOD)), Ok(Arrival::Nothing), "it had the payload");
    assert_eq!(outputs(&mut receiver), [Output::Verified { message: message(0), place: 0 }]);
    let arrival = receiver.handle(next, offer(1, GOOD)).unwrap();
    assert_eq!(arrival, Arrival::Again { place: 0 }, "its payload was not complete");
    receiver.payload_received(lost, message(1), BAD);
    assert_eq!(outputs(&mut receiver), [], "what the lost sent of it is void");
}

#[test]
fn outvoted_payload_is_fetched_and_its_sender_named_once() {
    let mut receiver = replica((1, 0), 3);
    let [first, second, third] = [0, 1, 2].map(|index| ReplicaId::new(0, index));
    receiver.handle(first, offer(0, BAD)).unwrap();
    receiver.payload_received(first, message(0), BAD);
    receiver.handle(second, digest(0, GOOD)).unwrap();
    outputs(&mut receiver);
    receiver.handle(third, digest(0, GOOD)).unwrap();
    let [Output::Mismatch(report), fetch] = &outputs(&mut receiver)[..] else { panic!("a report and a fetch") };
    assert_eq!((report.finding, report.culprit), (Finding::ReplicaCorrupt, Some(first)));
    assert_eq!((report.action, report.votes.len()), (Action::Refetched, 3));
    assert_eq!(*fetch, transmit((0, 1), Frame::Fetch { context: CONTEXT, sequence: SeqNum(0) }));
    assert_eq!(receiver.handle(second, offer(0, GOOD)), Ok(Arrival::Again { place: 0 }));
    receiver.payload_received(second, message(0), GOOD);
    let agreed = Output::Agreed { message: message(0), place: 0 };
    assert_eq!(outputs(&mut receiver), [agreed, Output::Verified { message: message(0), place: 0 }]);
}

#[test]
fn payload_that_stays_corrupt_is_delivered_at_last() {
    let mut receiver = replica((1, 0), 1);
    let supplier = ReplicaId::new(0, 0);
    let mut reports = Vec::new();
    for attempt in 0..10 {
        receiver.handle(supplier, offer(0, GOOD)).unwrap();
        receiver.payload_received(supplier, message(0), BAD);
        for output in outputs(&mut receiver) {
            match output {
                Output::Mismatch(report) => reports.push(report.action),
                Output::Verified { .. } => {
                    assert_eq!(attempt + 1, reports.len());
                    assert_eq!(reports.pop(), Some(Action::Delivered));
                    assert!(reports.iter().all(|action| *action == Action::Refetched));
                    return;
                }
                _ => {}
            }
        }
    }
    panic!("it is fetched for ever");
}

#[test]
fn acknowledgements_are_batched_and_flushed() {
    let mut receiver = replica((1, 0), 2);
    let mut acks = Vec::new();
    for number in 0..20 {
        receiver.handle(ReplicaId::new(0, 1), digest(number, GOOD)).unwrap();
        receiver.handle(ReplicaId::new(0, 0), offer(number, GOOD)).unwrap();
        receiver.payload_received(ReplicaId::new(0, 0), message(number), GOOD);
        let is_ack = |output: &Output| matches!(output, Output::Transmit { .. });
        acks.extend(outputs(&mut receiver).into_iter().filter(is_ack));
    }
    let ack = |upto| [0, 1].map(|index| transmit((0, index), Frame::Ack { context: CONTEXT, upto: SeqNum(upto) }));
    assert_eq!(acks, ack(16));
    receiver.flush();
    assert_eq!(outputs(&mut receiver), ack(20));
    receiver.flush();
    assert_eq!(outputs(&mut receiver), []);
}

#[test]
fn send_waits_until_its_decisions_are_stable() {
    let mut leader = replica((0, 0), 2);
    leader.decide(thread(0), Question::default(), Outcome::Flag(true));
    let held = Outbound { sequence: SeqNum(0), offer_to: ReplicaSet::EMPTY, digest_to: ReplicaSet::EMPTY };
    assert_eq!(send(&mut leader, 0), held);
    let items = vec![DecisionItem::new(thread(0), Question::default(), Outcome::Flag(true), ReplicaIndex(0))];
    assert_eq!(outputs(&mut leader), [transmit((0, 1), Frame::Decisions { first: 0, items })]);
    assert_eq!(leader.held_count(), 1);
    leader.handle(ReplicaId::new(0, 1), Frame::DecisionAck { upto: 1 }).unwrap();
    assert_eq!(outputs(&mut leader).len(), 2, "payload and digest go out");
    let Outbound { offer_to, digest_to, .. } = send(&mut leader, 1);
    assert_eq!((offer_to.len(), digest_to.len()), (1, 1), "nothing new was decided");
    assert_eq!(outputs(&mut leader), []);
}

#[test]
fn polls_in_vain_take_one_place_and_follow_in_order() {
    let mut leader = replica((0, 0), 2);
    for index in 0..40 {
        assert_eq!(leader.lookup(thread(index), Question::default()), Lookup::MustDecide);
        leader.decide(thread(index), Question::default(), Outcome::NotReady);
    }
    leader.decide(thread(40), asks(Call::TestAny), Outcome::Index(3));
    leader.flush();
    let [Output::Transmit { frame, .. }] = &outputs(&mut leader)[..] else { panic!("one frame") };
    let Frame::Decisions { items, .. } = frame else { panic!("{frame:?}") };
    assert_eq!(items.iter().map(|item| item.repeat).collect::<Vec<_>>(), [40, 1]);
    let mut follower = replica((0, 1), 2);
    assert_eq!(follower.lookup(thread(0), Question::default()), Lookup::Wait);
    follower.handle(ReplicaId::new(0, 0), frame.clone()).unwrap();
    for index in 0..40 {
        assert_eq!(follower.lookup(thread(index), Question::default()), Lookup::Decided(Outcome::NotReady));
    }
    assert_eq!(follower.lookup(thread(40), asks(Call::TestAny)), Lookup::Decided(Outcome::Index(3)));
    assert_eq!(follower.lookup(thread(41), Question::default()), Lookup::Wait);
}

/// Gives a follower all frames that the leader has for it.
fn follow(leader: &mut Replica, follower: &mut Replica) {
    leader.flush();
    for output in outputs(leader) {
        let Output::Transmit { frame, .. } = output else { continue };
        follower.handle(ReplicaId::new(0, 0), frame).unwrap();
    }
}

/// A follower's reports of being behind.
fn behind(follower: &mut Replica) -> Vec<Frame> {
    let frames = outputs(follower).into_iter().filter_map(|output| match output {
        Output::Transmit { to, frame: frame @ Frame::Behind { .. }, .. } if to == ReplicaId::new(0, 0) => Some(frame),
        _ => None,
    });
    frames.collect()
}

#[test]
fn polling_leader_is_far_ahead_until_its_follower_catches_up() {
    let stream = StreamId::Thread(0);
    let (mut leader, mut follower) = (replica((0, 0), 2), replica((0, 1), 2));
    let mut index = 0;
    let told = loop {
        assert!(!leader.is_far_ahead(stream));
        leader.decide(thread(index), Question::default(), Outcome::NotReady);
        index += 1;
        follow(&mut leader, &mut follower);
        if let Some(told) = behind(&mut follower).pop() {
            break told;
        }
    };
    assert_eq!((&told, index), (&Frame::Behind { streams: vec![stream] }, 257));
    leader.handle(ReplicaId::new(0, 1), told.clone()).unwrap();
    assert!(leader.is_far_ahead(stream) && !leader.is_far_ahead(StreamId::Thread(1)));
    let taken = (0..index).position(|index| {
        assert_eq!(follower.lookup(thread(index), Question::default()), Lookup::Decided(Outcome::NotReady));
        behind(&mut follower) == [Frame::Behind { streams: vec![] }]
    });
    assert_eq!(taken, Some(193), "64 are left");
    // The leader waits until the follower reports that it has caught up, or is lost.
    assert!(leader.is_far_ahead(stream));
    let mut heir = leader.clone();
    leader.handle(ReplicaId::new(0, 1), Frame::Behind { streams: vec![] }).unwrap();
    assert!(!leader.is_far_ahead(stream));
    heir.apply_view(heir.view().without(&[ReplicaId::new(0, 1)])).unwrap();
    assert!(!heir.is_far_ahead(stream));
}

/// The question of all wildcard receives here.
fn receive() -> Question {
    Question { call: Call::Receive, arguments: 1, ..Question::default() }
}

/// A sibling that reports again counts again.
#[test]
fn leader_ahead_of_one_sibling_waits_for_the_other() {
    let stream = StreamId::Thread(0);
    let says = |sibling: u16, leader: &mut Replica| {
        leader.handle(ReplicaId::new(0, sibling), Frame::Behind { streams: vec![stream] }).unwrap();
    };
    let mut leader = replica((0, 0), 3);
    says(1, &mut leader);
    says(2, &mut leader);
    leader.go_ahead(ReplicaIndex(1), stream);
    assert_eq!(leader.sibling_behind(stream), Some(ReplicaIndex(2)));
    leader.go_ahead(ReplicaIndex(2), stream);
    assert!(!leader.is_far_ahead(stream));
    says(1, &mut leader);
    assert!(leader.is_far_ahead(stream));
}

#[test]
fn leader_does_not_wait_for_an_ended_thread_of_its_follower() {
    let stream = StreamId::Thread(0);
    let (mut leader, mut follower) = (replica((0, 0), 2), replica((0, 1), 2));
    let mut read = |indices: std::ops::Range<u64>, follower: &mut Replica| {
        for index in indices {
            leader.decide(thread(index), asks(Call::Clock), Outcome::Clock { clock: 0, ns: index });
        }
        follow(&mut leader, follower);
    };
    read(0..300, &mut follower);
    assert_eq!(behind(&mut follower), [Frame::Behind { streams: vec![stream] }]);
    follower.end_thread(stream);
    assert_eq!(behind(&mut follower), [Frame::Behind { streams: vec![] }]);
    // Further decisions of the leader's thread put no follower behind, and are no difference of paths.
    read(300..1300, &mut follower);
    let said = outputs(&mut follower);
    assert!(!said.iter().any(|output| matches!(output, Output::Parted(_))), "{said:?}");
    assert!(!said.iter().any(|output| matches!(output, Output::Transmit { frame: Frame::Behind { .. }, .. })));
}

#[test]
fn leader_is_far_ahead_until_most_decided_receives_are_posted() {
    let (context, other) = (ContextId(7), ContextId(8));
    let (mut leader, mut follower) = (replica((0, 0), 2), replica((0, 1), 2));
    let (mut decided, mut posted) = (0, 0);
    for (early, is_behind) in
        [(200, false), (256, false), (257, true), (300, true), (65, true), (64, false), (0, false)]
    {
        while decided < posted + early {
            assert_eq!(leader.post_wildcard(context, decided, receive()), None);
            leader.decide_source(context, decided, 1);
            decided += 1;
        }
        follow(&mut leader, &mut follower);
        while posted + early < decided {
            assert_eq!(follower.post_wildcard(context, posted, receive()), Some(1));
            posted += 1;
        }
        for frame in behind(&mut follower) {
            leader.handle(ReplicaId::new(0, 1), frame).unwrap();
        }
        assert_eq!(leader.is_far_ahead(StreamId::Match(context)), is_behind, "{early}");
        assert!(!leader.is_far_ahead(StreamId::Match(other)));
    }
}

#[test]
fn new_leader_hears_again_who_is_behind() {
    let (mut leader, mut follower) = (replica((0, 0), 3), replica((0, 2), 3));
    (0..2000).for_each(|index| leader.decide(thread(index), Question::default(), Outcome::Flag(true)));
    follow(&mut leader, &mut follower);
    outputs(&mut follower);
    follower.apply_view(follower.view().without(&[ReplicaId::new(0, 0)])).unwrap();
    let said = transmit((0, 1), Frame::Behind { streams: vec![StreamId::Thread(0)] });
    assert!(outputs(&mut follower).contains(&said));
}

#[test]
fn new_leader_merges_what_its_siblings_hold_before_it_decides() {
    let mut heir = replica((0, 1), 3);
    let sibling = ReplicaId::new(0, 2);
    let items = vec![DecisionItem::new(thread(0), asks(Call::Number), Outcome::Value(7), ReplicaIndex(0))];
    // The sibling has applied the view already, and has a decision that this process lacks.
    heir.handle(sibling, Frame::DecisionSync { first: 0, items }).unwrap();
    heir.apply_view(heir.view().without(&[ReplicaId::new(0, 0)])).unwrap();
    assert!(outputs(&mut heir).contains(&Output::BecameLeader));
    assert_eq!(heir.lookup(thread(0), asks(Call::Number)), Lookup::Decided(Outcome::Value(7)));
    assert_eq!(heir.lookup(thread(1), Question::default()), Lookup::MustDecide);
    let mut waiting = replica((0, 1), 3);
    waiting.apply_view(waiting.view().without(&[ReplicaId::new(0, 0)])).unwrap();
    assert!(!waiting.is_deciding(), "its sibling has not spoken");
    assert_eq!(waiting.lookup(thread(0), Question::default()), Lookup::Wait);
    waiting.apply_view(waiting.view().without(&[sibling])).unwrap();
    assert!(waiting.is_deciding(), "it is alone");
}

/// A receiver of a rank with three replicas. 0.`lost` has said the first of these frames, and the others not yet the
/// `rest`. Then 0.`lost` is lost, and a copy takes its place.
fn receiver_after_a_copy(lost: u16, said: Frame) -> Replica {
    let mut receiver = replica((1, 0), 3);
    let lost = ReplicaId::new(0, lost);
    receiver.handle(lost, said).unwrap();
    if lost.index.0 == 0 {
        receiver.payload_received(lost, message(0), BAD);
    }
    let without = receiver.view().without(&[lost]);
    receiver.apply_view(without.clone()).unwrap();
    receiver.apply_view(without.with(copy(lost, 1 - lost.index.0))).unwrap();
    outputs(&mut receiver);
    receiver
}

#[test]
fn a_copy_does_not_answer_for_what_was_said_in_its_place_before() {
    let mut receiver = receiver_after_a_copy(1, digest(0, BAD));
    receiver.handle(ReplicaId::new(0, 0), offer(0, GOOD)).unwrap();
    receiver.payload_received(ReplicaId::new(0, 0), message(0), GOOD);
    receiver.handle(ReplicaId::new(0, 2), digest(0, GOOD)).unwrap();
    let is_verdict = |output: &Output| matches!(output, Output::Verified { .. } | Output::Mismatch(_));
    assert!(!outputs(&mut receiver).iter().any(is_verdict), "the copy has not spoken");
    receiver.handle(ReplicaId::new(0, 1), digest(0, GOOD)).unwrap();
    let verdict: Vec<_> = outputs(&mut receiver).into_iter().filter(is_verdict).collect();
    assert_eq!(verdict, [Output::Verified { message: message(0), place: 0 }]);
}

#[test]
fn a_payload_of_one_that_was_lost_is_not_taken_for_its_copys() {
    // The others have not come so far when the sender is lost and its copy has joined.
    let mut receiver = receiver_after_a_copy(0, offer(0, BAD));
    for index in [1, 2] {
        receiver.handle(ReplicaId::new(0, index), digest(0, GOOD)).unwrap();
    }
    assert_eq!(receiver.handle(ReplicaId::new(0, 0), offer(0, GOOD)), Ok(Arrival::Again { place: 0 }));
    outputs(&mut receiver);
    receiver.payload_received(ReplicaId::new(0, 0), message(0), GOOD);
    let found = outputs(&mut receiver);
    assert!(found.contains(&Output::Verified { message: message(0), place: 0 }), "{found:?}");
    assert!(!found.iter().any(|output| matches!(output, Output::Mismatch(_))), "{found:?}");
}

/// Lets 0.0 and 0.1 differ on a message. Returns the receiver's reports, and true if it delivers the message.
fn differing(mut receiver: Replica) -> (Replica, Vec<(Finding, Action)>, bool) {
    let sound = receiver.handle(ReplicaId::new(0, 0), offer(0, GOOD));
    receiver.payload_received(ReplicaId::new(0, 0), message(0), GOOD);
    sound.and(receiver.handle(ReplicaId::new(0, 1), digest(0, BAD))).unwrap();
    let (said, is_delivered) = said(&mut receiver);
    (receiver, said, is_delivered)
}

fn said(receiver: &mut Replica) -> (Vec<(Finding, Action)>, bool) {
    let mut said = Vec::new();
    let mut is_delivered = false;
    for output in outputs(receiver) {
        match output {
            Output::Mismatch(report) => said.push((report.finding, report.action)),
            Output::Verified { .. } => is_delivered = true,
            _ => {}
        }
    }
    (said, is_delivered)
}

/// 1.0, of two ranks with two replicas each and places for two copies.
fn receiver_of_two() -> Replica {
    let world = World::uniform(2, 4);
    let view = View::with_degrees(&world, &[2, 2]);
    let (protocol, verification) = (Protocol::Hash, Verification::Strict);
    Replica::new(Config { me: ReplicaId::new(1, 0), view, world, protocol, verification })
}

#[test]
fn a_tie_waits_only_while_somebody_may_judge() {
    let open = (Finding::Undecidable, Action::Delivered);
    let (_, at_once, is_delivered) = differing(receiver_of_two());
    assert_eq!((at_once, is_delivered), (vec![open], true), "nobody stands ready");
    let mut receiver = receiver_of_two();
    receiver.set_pins(&[], &[ReplicaId::new(0, 2)]);
    let (mut receiver, first, is_delivered) = differing(receiver);
    assert_eq!((first, is_delivered), (vec![(Finding::Undecidable, Action::Disputed)], false));
    receiver.set_pins(&[], &[]);
    assert_eq!(said(&mut receiver), (vec![open], true));
}

#[test]
fn an_arbiter_that_says_what_its_original_says_names_nobody() {
    for (vote, culprit, expected) in [(GOOD, None, Action::Delivered), (BAD, Some(0), Action::Refetched)] {
        let mut receiver = receiver_of_two();
        let newcomer = ReplicaId::new(0, 2);
        receiver.set_pins(&[], &[newcomer]);
        let (mut receiver, _, _) = differing(receiver);
        let view = receiver.view().with_arbiters(&[copy(newcomer, 0)]);
        receiver.apply_view(view).unwrap();
        receiver.handle(newcomer, digest(0, vote)).unwrap();
        let reports = outputs(&mut receiver).into_iter().filter_map(|output| match output {
            Output::Mismatch(report) => Some((report.culprit.map(|culprit| culprit.index.0), report.action)),
            _ => None,
        });
        assert_eq!(reports.collect::<Vec<_>>(), [(culprit, expected)]);
    }
}

#[test]
fn an_arbiter_takes_nothing_that_nobody_can_judge() {
    let mut original = receiver_of_two();
    let arbiter = ReplicaId::new(1, 2);
    original.set_pins(&[arbiter], &[]);
    original.flush();
    outputs(&mut original);
    let view = original.view().with_arbiters(&[copy(arbiter, 0)]);
    original.take_place(arbiter);
    original.apply_view(view).unwrap();
    outputs(&mut original);
    let (_, reports, is_delivered) = differing(original);
    assert_eq!((reports, is_delivered), (vec![(Finding::Undecidable, Action::Withheld)], false));
}

/// Between its cut and its view a copy receives nothing. Its receiver has moved in between, and the new one wants
/// messages that the old one had not settled by its own cut.
#[test]
fn a_copy_keeps_messages_for_the_successor_of_a_receiver() {
    let world = World::uniform(2, 2);
    let view = View::with_degrees(&world, &[1, 1]);
    let (protocol, verification) = (Protocol::Hash, Verification::Strict);
    let [source, place, old, new] = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(rank, index)| ReplicaId::new(rank, index));
    let mut sender = Replica::new(Config { me: source, view: view.clone(), world, protocol, verification });
    for key in 0..3 {
        send(&mut sender, key);
    }
    sender.set_pins(&[place], &[]);
    sender.flush();
    outputs(&mut sender);
    let mut copied = sender.clone();
    copied.take_place(place);
    let moved = view.with(copy(new, 0)).without(&[old]);
    copied.apply_view(moved.with(copy(place, 0))).unwrap();
    outputs(&mut copied);
    let (service, bookmarks) = (Service::Payload, vec![(CONTEXT, SeqNum(0))]);
    copied.handle(new, Frame::Resume { service, bookmarks, view: copied.view().number }).unwrap();
    let offered = outputs(&mut copied).into_iter().filter_map(|output| match output {
        Output::Transmit { to, frame: Frame::Offer { sequence, .. }, .. } => Some((to, sequence.0)),
        _ => None,
    });
    assert_eq!(offered.collect::<Vec<_>>(), [(new, 0), (new, 1), (new, 2)]);
}

#[test]
fn a_sibling_may_name_any_number_of_channels_during_a_job() {
    let mut sender = replica((0, 1), 3);
    let sibling = ReplicaId::new(0, 0);
    for number in 0..6000 {
        let context = ContextId(number);
        sender.send(VirtualRank(1), context, envelope(8), GOOD, (PayloadKey(number), Place::default()));
        let key = DecisionKey { stream: StreamId::Channel(VirtualRank(1), context), index: 0 };
        let claim = Claim::Asks(Question { data: GOOD.0 as u64, ..asks(Call::Send) });
        sender.handle(sibling, Frame::Claim { key, claim, decided: None }).unwrap();
        for index in 0..3 {
            sender.handle(ReplicaId::new(1, index), Frame::Ack { context, upto: SeqNum(1) }).unwrap();
        }
        outputs(&mut sender);
    }
    sender.forget_settled_claims();
    assert!(!sender.has_questions());
}
