//! Corrupt frames: a small job runs, and frames between its replicas are damaged on the way.
//!
//! Whatever the frames, machines must never panic. They must name the sender of an impossible frame, and keep every
//! promise on which the engine's own safety rests. A right answer is not promised, since a damaged frame may be one
//! that a sound replica could have sent.

use super::*;
use crate::decision::Lookup;
use crate::frame::{MessageId, Outbound, PayloadKey};
use crate::outcome::{Call, DecisionItem, Place, StreamId};
use proptest::collection::vec;
use proptest::prelude::*;
use redrt_types::{Admission, ContextId, CutNumber, Digest, Envelope, Incarnation, ProcessIndex, SeqNum, Tag};
use std::collections::{BTreeMap, BTreeSet};

/// The damage to a frame on its way.
#[derive(Clone, Debug)]
enum Damage {
    /// The frame arrives intact.
    None,
    /// A bit of the encoded frame is flipped.
    Flip(u16),
    /// A byte of it is replaced.
    Byte(u16, u8),
    /// It is cut short at this byte.
    Cut(u16),
    /// The frame arrives twice.
    Twice,
    /// It does not arrive.
    Lost,
    /// Other bytes arrive in its place.
    Other(Vec<u8>),
    /// It arrives as if from another replica.
    From(u8),
}

#[derive(Clone, Debug)]
enum Operation {
    Send { from: u8, to: u8, context: u8, length_bytes: u16 },
    Deliver { link: u8, damage: Damage },
    DeliverAll { link: u8 },
    Decide { place: u8, stream: u8 },
    Lookup { place: u8, stream: u8 },
    Tell { place: u8, stream: u8, calls: u8 },
    Ballot { place: u8, agrees: bool },
    Flush { place: u8 },
    Lose { place: u8 },
    Pin { place: u8 },
    Unpin { place: u8 },
    Join { place: u8 },
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        6 => Just(Damage::None),
        3 => any::<u16>().prop_map(Damage::Flip),
        2 => any::<(u16, u8)>().prop_map(|(at, byte)| Damage::Byte(at, byte)),
        1 => any::<u16>().prop_map(Damage::Cut),
        1 => Just(Damage::Twice),
        1 => Just(Damage::Lost),
        1 => vec(any::<u8>(), 1..24).prop_map(Damage::Other),
        1 => any::<u8>().prop_map(Damage::From),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => any::<(u8, u8, u8, u16)>().prop_map(|(from, to, context, length_bytes)| {
            Operation::Send { from, to, context, length_bytes }
        }),
        8 => (any::<u8>(), damage()).prop_map(|(link, damage)| Operation::Deliver { link, damage }),
        6 => any::<u8>().prop_map(|link| Operation::DeliverAll { link }),
        4 => any::<(u8, u8)>().prop_map(|(place, stream)| Operation::Decide { place, stream }),
        2 => any::<(u8, u8)>().prop_map(|(place, stream)| Operation::Lookup { place, stream }),
        1 => any::<(u8, u8, u8)>().prop_map(|(place, stream, calls)| Operation::Tell { place, stream, calls }),
        1 => any::<(u8, bool)>().prop_map(|(place, agrees)| Operation::Ballot { place, agrees }),
        2 => any::<u8>().prop_map(|place| Operation::Flush { place }),
        1 => any::<u8>().prop_map(|place| Operation::Lose { place }),
        1 => any::<u8>().prop_map(|place| Operation::Pin { place }),
        1 => any::<u8>().prop_map(|place| Operation::Unpin { place }),
        1 => any::<u8>().prop_map(|place| Operation::Join { place }),
    ]
}

/// The question of a thread. Most replicas ask the same one, some another.
fn question(number: u8) -> Question {
    let call = [Call::WaitAny, Call::WaitAny, Call::TestAny, Call::TestAny][usize::from(number >> 6)];
    let place = Place { thread: u64::from(number % 3), calls: u64::from(number % 16), kind: 0 };
    Question { call, arguments: 1, data: u64::from(number % 5), place }
}

/// An engine's record of its machine's promises.
#[derive(Clone, Default)]
struct Promises {
    arrived: BTreeSet<MessageId>,
    agreed: BTreeSet<MessageId>,
    verified: BTreeSet<MessageId>,
    payloads: BTreeSet<PayloadKey>,
    frames: u64,
}

struct Job {
    world: World,
    view: View,
    machines: Vec<Option<Replica>>,
    promises: Vec<Promises>,
    links: BTreeMap<(ProcessIndex, ProcessIndex), VecDeque<Frame>>,
    asked: BTreeMap<(usize, u64), u64>,
    payload_count: u64,
    pinned: BTreeSet<ReplicaId>,
    lives: u32,
    refusals: usize,
}

impl Job {
    fn new(degrees: Vec<u16>, protocol: Protocol, verification: Verification) -> Self {
        let world = World::new(degrees);
        let view = View::initial(&world);
        let machine = |me| {
            let config = Config { me, world: world.clone(), view: view.clone(), protocol, verification };
            Some(Replica::new(config))
        };
        Self {
            machines: world.replicas().map(machine).collect(),
            promises: vec![Promises::default(); world.process_count() as usize],
            links: BTreeMap::new(),
            asked: BTreeMap::new(),
            payload_count: 0,
            pinned: BTreeSet::new(),
            lives: 0,
            refusals: 0,
            view,
            world,
        }
    }

    fn place(&self, number: u8) -> usize {
        usize::from(number) % self.machines.len()
    }

    fn do_one(&mut self, operation: Operation) {
        match operation {
            Operation::Send { from, to, context, length_bytes } => {
                let place = self.place(from);
                let to = VirtualRank(u32::from(to) % self.world.rank_count());
                self.payload_count += 1;
                let key = PayloadKey(self.payload_count);
                let Some(machine) = self.machines[place].as_mut().filter(|machine| machine.me.rank != to) else {
                    return;
                };
                let envelope =
                    Envelope { source: machine.me.rank.0, tag: Tag(1), length_bytes: u64::from(length_bytes) };
                self.promises[place].payloads.insert(key);
                let (context, digest) = (ContextId(u64::from(context % 3)), Digest(7));
                let Outbound { sequence, offer_to, digest_to } =
                    machine.send(to, context, envelope, digest, (key, Place::default()));
                assert!(offer_to.intersection(digest_to).is_empty());
                for index in offer_to.iter() {
                    let frame = Frame::Offer { context, sequence, envelope, digest, core: None };
                    self.transmit(place, ReplicaId { rank: to, index }, frame);
                }
                for index in digest_to.iter() {
                    let frame = Frame::Digest { context, sequence, digest, core: None };
                    self.transmit(place, ReplicaId { rank: to, index }, frame);
                }
                self.carry_out(place);
            }
            Operation::Deliver { link, damage } => self.deliver(link, damage),
            Operation::DeliverAll { link } => {
                let Some(link) = self.link(link) else { return };
                while let Some(frame) = self.links.get_mut(&link).and_then(VecDeque::pop_front) {
                    self.hand_over(link.0, link.1, frame);
                }
            }
            Operation::Decide { place, stream } => self.decide(place, stream),
            Operation::Lookup { place, stream } => {
                let question = question(stream);
                let (place, stream) = (self.place(place), u64::from(stream % 3));
                let index = self.asked.entry((place, stream)).or_default();
                let key = DecisionKey { stream: StreamId::Thread(stream), index: *index };
                if let Some(machine) = &mut self.machines[place] {
                    let _ = machine.peek(key);
                    *index += u64::from(matches!(machine.lookup(key, question), Lookup::Decided(_)));
                    let _ = machine.is_backed(key);
                }
                self.carry_out(place);
            }
            Operation::Tell { place, stream, calls } => {
                let place = self.place(place);
                let Some(machine) = &mut self.machines[place] else { return };
                machine.record_place(Place { thread: u64::from(stream % 3), calls: u64::from(calls), kind: 0 });
                machine.state_waits();
                self.carry_out(place);
            }
            Operation::Ballot { place, agrees } => {
                let place = self.place(place);
                let key = DecisionKey { stream: StreamId::Thread(9), index: 0 };
                let Some(machine) = &mut self.machines[place] else { return };
                let question = Question { call: Call::Cancel, arguments: 0, data: 0, place: Place::NOWHERE };
                machine.cast_ballot(key, question, agrees.into());
                let _ = machine.count_ballots(key, question);
                self.carry_out(place);
            }
            Operation::Flush { place } => {
                let place = self.place(place);
                let Some(machine) = &mut self.machines[place] else { return };
                machine.flush();
                self.carry_out(place);
            }
            Operation::Lose { place } => self.lose(self.world.replica(ProcessIndex(self.place(place) as u32))),
            Operation::Pin { place } => {
                let newcomer = self.world.replica(ProcessIndex(self.place(place) as u32));
                if !self.view.is_live(newcomer) && self.pinned.insert(newcomer) {
                    self.announce_pins();
                }
            }
            Operation::Unpin { place } => self.unpin(self.world.replica(ProcessIndex(self.place(place) as u32))),
            Operation::Join { place } => self.join(self.world.replica(ProcessIndex(self.place(place) as u32))),
        }
    }

    fn decide(&mut self, place: u8, stream: u8) {
        let asked = question(stream);
        let (place, stream) = (self.place(place), u64::from(stream % 3));
        let Some(machine) = self.machines[place].as_mut().filter(|machine| machine.is_deciding()) else { return };
        let index = self.asked.entry((place, stream)).or_default();
        let key = DecisionKey { stream: StreamId::Thread(stream), index: *index };
        // The decisions of the previous leader come first.
        let asked = if stream == 0 { asked } else { Question { call: Call::WaitAny, ..asked } };
        let found = machine.lookup(key, asked);
        if found == Lookup::MustDecide {
            machine.decide(key, asked, if stream == 0 { Outcome::NotReady } else { Outcome::Index(3) });
        }
        *index += u64::from(found != Lookup::Wait);
        self.carry_out(place);
    }

    fn link(&self, number: u8) -> Option<(ProcessIndex, ProcessIndex)> {
        let busy: Vec<_> = self.links.iter().filter(|(_, link)| !link.is_empty()).map(|(ends, _)| *ends).collect();
        (!busy.is_empty()).then(|| busy[usize::from(number) % busy.len()])
    }

    fn deliver(&mut self, link: u8, damage: Damage) {
        let Some((from, to)) = self.link(link) else { return };
        let frame = self.links.get_mut(&(from, to)).and_then(VecDeque::pop_front).expect("it is busy");
        let mut bytes = postcard::to_stdvec(&frame).unwrap();
        let at = |at: u16| usize::from(at) % bytes.len();
        match damage {
            Damage::None => return self.hand_over(from, to, frame),
            Damage::Lost => return,
            Damage::Twice => {
                self.hand_over(from, to, frame.clone());
                return self.hand_over(from, to, frame);
            }
            Damage::From(place) => {
                let from = ProcessIndex(self.place(place) as u32);
                if from != to {
                    self.hand_over(from, to, frame);
                }
                return;
            }
            Damage::Flip(bit) => {
                let place = at(bit / 8);
                bytes[place] ^= 1 << (bit % 8);
            }
            Damage::Byte(place, byte) => {
                let place = at(place);
                bytes[place] = byte;
            }
            Damage::Cut(place) => bytes.truncate(at(place)),
            Damage::Other(other) => bytes = other,
        }
        // Bytes that are no frame are dropped by the decoder.
        if let Ok(frame) = postcard::from_bytes(&bytes) {
            self.hand_over(from, to, frame);
        }
    }

    fn hand_over(&mut self, from: ProcessIndex, to: ProcessIndex, frame: Frame) {
        let place = to.0 as usize;
        let from = self.world.replica(from);
        let Some(machine) = self.machines[place].as_mut().filter(|machine| !machine.is_joining()) else { return };
        let is_of_a_channel = matches!(frame, Frame::Offer { .. } | Frame::Digest { .. } | Frame::Fetch { .. });
        let offered = match frame {
            Frame::Offer { context, sequence, .. } => Some(MessageId { sender: from.rank, context, sequence }),
            _ => None,
        };
        self.promises[place].frames += match &frame {
            Frame::Decisions { items, .. } | Frame::DecisionSync { items, .. } => 1 + items.len() as u64,
            _ => 1,
        };
        let handled = machine.handle(from, frame);
        if is_of_a_channel && handled.is_err() {
            assert!(machine.outputs.is_empty(), "a frame was refused and heeded");
        }
        let arrival = handled.as_ref().ok().copied().filter(|arrival| *arrival != Arrival::Nothing);
        if let Some(arrival) = arrival {
            self.take_offer(place, from, offered.expect("only offers are worth a payload"), arrival);
        }
        self.carry_out(place);
        self.blame(handled.map(|_| ()));
        let Some(machine) = &self.machines[place] else { return };
        let frames = self.promises[place].frames;
        assert!(machine.unsettled_count() as u64 <= frames, "memory for what nobody sent");
        assert!(machine.decision_count() <= frames + self.asked.values().sum::<u64>());
    }

    fn transmit(&mut self, place: usize, to: ReplicaId, frame: Frame) {
        assert!(self.world.contains(to));
        let link = (ProcessIndex(place as u32), self.world.process(to));
        self.links.entry(link).or_default().push_back(frame);
    }

    /// Carries out a machine's task for an offer, and checks that it is allowed.
    fn take_offer(&mut self, place: usize, from: ReplicaId, message: MessageId, arrival: Arrival) {
        let machine = self.machines[place].as_mut().expect("it has spoken");
        let promises = &mut self.promises[place];
        match arrival {
            Arrival::Nothing => return,
            Arrival::New { is_agreed } => {
                assert!(promises.arrived.insert(message), "{message:?} arrives twice");
                assert!(!is_agreed || promises.agreed.insert(message), "{message:?} is matched twice");
            }
            Arrival::Again { .. } => {
                assert!(promises.arrived.contains(&message) && !promises.verified.contains(&message));
            }
            Arrival::Shadow => return machine.shadow_received(from, message, Digest(7)),
        }
        machine.payload_received(from, message, Digest(7));
    }

    /// Carries out a machine's outputs, and checks that they are allowed.
    fn carry_out(&mut self, place: usize) {
        while let Some(output) = self.machines[place].as_mut().and_then(Replica::poll_output) {
            let promises = &mut self.promises[place];
            match output {
                Output::Transmit { to, frame, payload } => {
                    assert_eq!(matches!(frame, Frame::Offer { .. }), payload.is_some());
                    assert!(payload.is_none_or(|key| promises.payloads.contains(&key)), "a released payload is sent");
                    self.transmit(place, to, frame);
                }
                Output::Agreed { message, .. } => {
                    assert!(promises.arrived.contains(&message), "{message:?} is matched before it arrives");
                    assert!(promises.agreed.insert(message), "{message:?} is matched twice");
                }
                Output::Verified { message, .. } => {
                    assert!(promises.arrived.contains(&message), "{message:?} is verified before it arrives");
                    assert!(promises.verified.insert(message), "{message:?} is verified twice");
                }
                Output::Detach { payload } => {
                    assert!(promises.payloads.contains(&payload), "detached after its release")
                }
                Output::Release { payload } => assert!(promises.payloads.remove(&payload), "released twice"),
                Output::Mismatch(_)
                | Output::Parted(_)
                | Output::WildcardDecided { .. }
                | Output::Decided { .. }
                | Output::BecameLeader => {}
            }
        }
    }

    /// Loses a replica that sent an impossible frame, if its sphere can do without it.
    fn blame(&mut self, handled: Result<(), ProtocolError>) {
        if let Err(error) = handled {
            self.refusals += 1;
            assert!(error.to_string().starts_with(&error.by.to_string()), "{error}");
            self.lose(error.by);
        }
    }

    fn lose(&mut self, victim: ReplicaId) {
        if self.view.is_live(victim) && self.view.live(victim.rank).count() > 1 {
            self.machines[self.world.process(victim).0 as usize] = None;
            self.new_view(self.view.without(&[victim]));
            self.unpin(victim);
        }
    }

    fn new_view(&mut self, view: View) {
        self.view = view.clone();
        self.notify_all(|machine| machine.apply_view(view.clone()));
    }

    fn notify_all(&mut self, notify: impl Fn(&mut Replica) -> Result<(), ProtocolError>) {
        for place in 0..self.machines.len() {
            let Some(machine) = &mut self.machines[place] else { continue };
            let told = notify(machine);
            self.carry_out(place);
            self.blame(told);
        }
    }

    fn unpin(&mut self, newcomer: ReplicaId) {
        let is_joining = self.machines[self.world.process(newcomer).0 as usize].as_ref();
        if is_joining.is_none_or(Replica::is_in_step) && self.pinned.remove(&newcomer) {
            self.announce_pins();
        }
    }

    fn announce_pins(&mut self) {
        let pins: Vec<_> = self.pinned.iter().copied().collect();
        self.notify_all(|machine| {
            machine.set_pins(&pins, &[]);
            Ok(())
        });
    }

    fn join(&mut self, newcomer: ReplicaId) {
        if !self.pinned.contains(&newcomer) || self.view.is_live(newcomer) {
            return;
        }
        let source = self.view.live(newcomer.rank).next().expect("no sphere is lost");
        let (source, place) = (self.world.process(source).0 as usize, self.world.process(newcomer).0 as usize);
        if let Some(original) = &mut self.machines[source] {
            original.flush();
        }
        self.carry_out(source);
        let Some(mut copy) = self.machines[source].clone() else { return };
        copy.take_place(newcomer);
        self.machines[place] = Some(copy);
        self.promises[place] = self.promises[source].clone();
        let number = ProcessIndex(place as u32);
        self.links.retain(|(from, to), _| *from != number && *to != number);
        for stream in 0..3 {
            let asked = self.asked.get(&(source, stream)).copied().unwrap_or(0);
            self.asked.insert((place, stream), asked);
        }
        self.lives += 1;
        let source = self.world.replica(ProcessIndex(source as u32)).index;
        let cut = CutNumber(u64::from(self.lives));
        let admission = Admission { replica: newcomer, incarnation: Incarnation(self.lives), source, cut };
        self.new_view(self.view.with(admission));
    }
}

/// Runs a job to its end. Returns the numbers of refused frames and of messages that are still kept.
fn run(
    degrees: Vec<u16>,
    protocol: Protocol,
    verification: Verification,
    operations: Vec<Operation>,
) -> (usize, usize) {
    let mut job = Job::new(degrees, protocol, verification);
    for operation in operations {
        job.do_one(operation);
    }
    // Remaining frames arrive undamaged.
    for round in 0..10_000 {
        for place in 0..job.machines.len() as u8 {
            job.do_one(Operation::Flush { place });
            job.do_one(Operation::Unpin { place });
        }
        let Some(link) = job.link(round as u8) else { break };
        while let Some(frame) = job.links.get_mut(&link).and_then(VecDeque::pop_front) {
            job.hand_over(link.0, link.1, frame);
        }
    }
    (job.refusals, job.machines.iter().flatten().map(Replica::retained_count).sum())
}

proptest! {
    /// Whatever the damage, no machine panics, breaks a promise to its engine, or uses memory for messages that were
    /// never sent.
    #[test]
    fn damaged_frames_are_refused_or_heeded_and_break_nothing(
        degrees in vec(1u16..=3, 1..=3),
        protocol in prop_oneof![Just(Protocol::Hash), Just(Protocol::AllToAll)],
        verification in prop_oneof![Just(Verification::Strict), Just(Verification::Deferred)],
        operations in vec(operation(), 0..160),
    ) {
        run(degrees, protocol, verification, operations);
    }

    /// The same job without damage refuses nothing, and all messages are acknowledged.
    #[test]
    fn sound_frames_are_never_refused(
        degrees in vec(1u16..=3, 1..=3),
        protocol in prop_oneof![Just(Protocol::Hash), Just(Protocol::AllToAll)],
        operations in vec(operation(), 0..160),
    ) {
        let count = degrees.iter().sum::<u16>() as u8;
        let sound = |operation| match operation {
            Operation::Deliver { link, .. } => vec![Operation::Deliver { link, damage: Damage::None }],
            // All replicas run the same program.
            Operation::Send { to, context, length_bytes, .. } => {
                (0..count).map(|from| Operation::Send { from, to, context, length_bytes }).collect()
            }
            // They follow their leader, which this program does not ask.
            Operation::Decide { .. } | Operation::Lookup { .. } => Vec::new(),
            other => vec![other],
        };
        let operations = operations.into_iter().flat_map(sound).collect();
        let (refusals, retained) = run(degrees, protocol, Verification::Strict, operations);
        prop_assert_eq!((refusals, retained), (0, 0));
    }
}

/// Each breach can happen, and its text names the culprit.
#[test]
fn every_breach_names_its_sender() {
    let world = World::new(vec![3, 2]);
    let config = |me| Config {
        me,
        world: world.clone(),
        view: View::initial(&world),
        protocol: Protocol::Hash,
        verification: Verification::Strict,
    };
    let (leader, follower, sender) = (ReplicaId::new(0, 0), ReplicaId::new(0, 1), ReplicaId::new(1, 0));
    let context = ContextId(5);
    let envelope = Envelope { source: 1, tag: Tag(0), length_bytes: 1 };
    let key = |index| DecisionKey { stream: StreamId::Thread(0), index };
    let any_of = Question { call: Call::WaitAny, ..Question::default() };
    let item = |index| DecisionItem::new(key(index), any_of, Outcome::Index(0), ReplicaIndex(0));
    let run_of = |repeat, outcome| {
        let item = DecisionItem::new(key(0), any_of, outcome, ReplicaIndex(0));
        DecisionItem { repeat, ..item }
    };
    let offer = Frame::Offer { context, sequence: SeqNum(1), envelope, digest: Digest(0), core: None };
    let digest = Frame::Digest { context, sequence: SeqNum(1 << 40), digest: Digest(0), core: None };
    let decisions = |first, items| Frame::Decisions { first, items };
    let far_sync = Frame::DecisionSync { first: u64::MAX, items: vec![item(0)] };
    for (me, from, frame, says) in [
        (leader, sender, offer, "offers message 1"),
        (leader, sender, digest, "nobody has spoken of 0 yet"),
        (follower, leader, decisions(1, vec![]), "from number 1 on"),
        (follower, leader, decisions(0, vec![run_of(0, Outcome::NotReady)]), "decision number 0"),
        (follower, leader, decisions(0, vec![run_of(2, Outcome::Index(1))]), "decision number 0"),
        (follower, leader, decisions(0, vec![item(0), item(2)]), "outcome 2"),
        (follower, leader, Frame::Stable { upto: 1 }, "before 1"),
        (leader, follower, Frame::DecisionAck { upto: 1 }, "before 1"),
    ] {
        let mut machine = Replica::new(config(me));
        let line = machine.handle(from, frame).unwrap_err().to_string();
        assert!(line.contains(says) && line.starts_with(&from.to_string()), "{line}");
    }
    let mut machine = Replica::new(config(sender));
    machine.send(VirtualRank(0), context, envelope, Digest(0), (PayloadKey(0), Place::default()));
    let fetch = Frame::Fetch { context, sequence: SeqNum(0) };
    assert_eq!(machine.handle(leader, fetch.clone()), Ok(Arrival::Nothing));
    machine.handle(leader, Frame::AckOne { context, sequence: SeqNum(0) }).unwrap();
    assert!(machine.handle(leader, fetch).unwrap_err().to_string().contains("has acknowledged"));
    let mut machine = Replica::new(config(follower));
    machine.handle(ReplicaId::new(0, 2), far_sync).unwrap();
    let view = View::initial(&world).without(&[leader]);
    assert!(machine.apply_view(view).unwrap_err().to_string().starts_with("0.2 tells decisions from"));
}
