//! A job of engines in one process, one of whose replicas is corrupt: it sends sound frames, and arbitrary ones.
//!
//! No engine may panic, write outside of a receive's buffer, or take memory that nobody sent bytes for. A sender that
//! is refused is taken out of the view, as `redrun` would do, and the others go on.

use super::link::{Identity, Links};
use super::outgoing::OutgoingId;
use super::payload::{Payload, Target};
use super::request::RequestId;
use super::send::{SendArguments, Sent};
use super::tests::{alone::Alone, replication};
use super::{Engine, Setup};
use proptest::collection::vec;
use proptest::prelude::*;
use quiesce::{Call, Claim, Decided, DecisionItem, DecisionKey, Frame, Outcome, Place, Question, Service, StreamId};
use redrt_transport::frame::{ClearToSend, FLAG_DIGEST, Fragment, FrameKind, Header, Rendezvous, Whereabouts};
use redrt_transport::shm::Segment;
use redrt_types::{
    ContextId, Incarnation, ProcessIndex, ReplicaId, ReplicaIndex, SeqNum, View, ViewNumber, VirtualRank, World,
};
use redrt_wire::card::Card;
use redrt_wire::secret::Secret;
use sdc_detect::Element;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes around each receive's buffer that must stay unchanged.
const GUARD_BYTES: usize = 64;
const PROCESSES_MAX: u32 = 6;

#[derive(Clone, Debug)]
enum Operation {
    Send { from: u8, to: u8, context: u8, tag: u8, length: u16, synchronous: bool },
    Post { rank: u8, context: u8, source: Option<u8>, tag: Option<u8>, capacity: u16 },
    Progress { place: u8 },
    Flush,
    Corrupt { from: u8, to: u8, frame: Corrupt },
}

/// A frame of a corrupt process: whole, so that it reaches the engine, but with any contents.
#[derive(Clone, Debug)]
struct Corrupt {
    kind: u8,
    flags: u8,
    index: u16,
    context: u64,
    sequence: u32,
    tag: i32,
    source: u32,
    body: Contents,
}

#[derive(Clone, Debug)]
enum Contents {
    Bytes(Vec<u8>),
    Words(Vec<u64>),
    Frame(Frame),
}

/// Numbers that are likely to be valid, and others.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0u64..12,
        2 => (0u64..3, 0u64..12).prop_map(|(slot, uses)| slot | uses << 32),
        1 => (0u32..64, any::<bool>()).prop_map(|(bit, less)| (1u64 << bit).wrapping_sub(u64::from(less))),
        1 => any::<u64>(),
    ]
}

fn protocol_frame() -> impl Strategy<Value = Frame> {
    let context = || number().prop_map(ContextId);
    let sequence = || number().prop_map(SeqNum);
    let key = || {
        (any::<bool>(), number(), number()).prop_map(|(is_match, stream, index)| DecisionKey {
            stream: if is_match { StreamId::Match(ContextId(stream)) } else { StreamId::Thread(stream) },
            index,
        })
    };
    let outcome = prop_oneof![
        Just(Outcome::NotReady),
        (0u32..4).prop_map(Outcome::Source),
        any::<u32>().prop_map(Outcome::Source),
        Just(Outcome::Flag(true)),
        Just(Outcome::Retracted),
    ];
    let question = || {
        (0u8..4, number(), number()).prop_map(|(call, arguments, calls)| Question {
            call: [Call::Test, Call::Receive, Call::Change, Call::Clock][usize::from(call)],
            arguments,
            data: 0,
            place: Place { thread: arguments % 3, calls, kind: 0 },
        })
    };
    let item = (key(), 0u32..3, outcome, question(), 0u16..4);
    let item = item.prop_map(|(key, repeat, outcome, question, by)| DecisionItem {
        repeat,
        ..DecisionItem::new(key, question, outcome, ReplicaIndex(by))
    });
    let claim = prop_oneof![
        question().prop_map(Claim::Asks),
        question().prop_map(|question| Claim::At(question.place)),
        Just(Claim::Taken)
    ];
    let decided = proptest::option::of((0u16..4, question()));
    let decided = decided.prop_map(|decided| decided.map(|(by, question)| Decided { by: ReplicaIndex(by), question }));
    let items = vec(item, 0..4).boxed();
    let service = prop_oneof![Just(Service::None), Just(Service::Digests), Just(Service::Payload)];
    prop_oneof![
        (service, vec((context(), sequence()), 0..4), number())
            .prop_map(|(service, bookmarks, view)| { Frame::Resume { service, bookmarks, view: ViewNumber(view) } }),
        (context(), sequence()).prop_map(|(context, sequence)| Frame::Fetch { context, sequence }),
        (number(), items.clone()).prop_map(|(first, items)| Frame::Decisions { first, items }),
        number().prop_map(|upto| Frame::DecisionAck { upto }),
        number().prop_map(|upto| Frame::Stable { upto }),
        vec(key(), 0..3).prop_map(|keys| Frame::Behind { streams: keys.into_iter().map(|key| key.stream).collect() }),
        (key(), question(), any::<u64>()).prop_map(|(key, question, says)| Frame::Ballot { key, question, says }),
        (number(), items).prop_map(|(first, items)| Frame::DecisionSync { first, items }),
        (key(), claim, decided).prop_map(|(key, claim, decided)| Frame::Claim { key, claim, decided }),
        (context(), sequence()).prop_map(|(context, upto)| Frame::Ack { context, upto }),
    ]
}

fn corrupt() -> impl Strategy<Value = Corrupt> {
    let body = prop_oneof![
        2 => vec(any::<u8>(), 0..60).prop_map(Contents::Bytes),
        4 => vec(number(), 0..5).prop_map(Contents::Words),
        3 => protocol_frame().prop_map(Contents::Frame),
    ];
    let head = (
        1u8..11,
        prop_oneof![Just(0), Just(FLAG_DIGEST), any::<u8>()],
        prop_oneof![4 => Just(0u16), 1 => any::<u16>()],
    );
    let numbers = (number(), number(), 0i32..3, prop_oneof![4 => 0u32..3, 1 => any::<u32>()]);
    (head, numbers, body).prop_map(|((kind, flags, index), (context, sequence, tag, source), body)| {
        // Protocol contents mostly go in protocol frames.
        let kind =
            if matches!(body, Contents::Frame(_)) && flags != FLAG_DIGEST { FrameKind::Protocol as u8 } else { kind };
        Corrupt { kind, flags, index, context, sequence: sequence as u32, tag, source, body }
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (any::<u8>(), any::<u8>(), 0u8..2, 0u8..3, prop_oneof![0u16..100, any::<u16>()], any::<bool>())
            .prop_map(|(from, to, context, tag, length, synchronous)| {
                Operation::Send { from, to, context, tag, length, synchronous }
            }),
        4 => (any::<u8>(), 0u8..2, proptest::option::of(any::<u8>()), proptest::option::of(0u8..3), any::<u16>())
            .prop_map(|(rank, context, source, tag, capacity)| {
                Operation::Post { rank, context, source, tag, capacity }
            }),
        6 => any::<u8>().prop_map(|place| Operation::Progress { place }),
        1 => Just(Operation::Flush),
        5 => (any::<u8>(), any::<u8>(), corrupt()).prop_map(|(from, to, frame)| Operation::Corrupt { from, to, frame }),
    ]
}

/// Seed of the digests.
const SEED: u64 = 1;

/// Runs with a segment that all cases use in turn: mappings are never removed.
fn with_segment<T>(run: impl FnOnce(Segment) -> T) -> T {
    static SEGMENT: Mutex<Option<Segment>> = Mutex::new(None);
    let mut segment = SEGMENT.lock().unwrap_or_else(PoisonError::into_inner);
    let segment = *segment.get_or_insert_with(|| Segment::fresh(PROCESSES_MAX));
    // SAFETY: - the mapping has this length, and no engine of an earlier case uses it any more.
    unsafe { std::ptr::write_bytes(segment.start(), 0, Segment::bytes(PROCESSES_MAX)) };
    run(segment)
}

struct Job {
    world: World,
    view: View,
    engines: Vec<Option<Engine>>,
    requests: Vec<(usize, RequestId)>,
    /// The receives' buffers with their guards; they outlive the engines.
    buffers: Vec<Box<[u8]>>,
}

fn engine(me: ReplicaId, world: &World, segment: Segment) -> Engine {
    let process = world.process(me);
    let identity = Identity {
        job: 1,
        me: process,
        incarnation: Incarnation(0),
        host_number: 0,
        secret: Secret::new([0; 32]),
        segment: Some(segment),
        networks: Arc::new([]),
    };
    let mut links = Links::new(identity, world.process_count());
    let pid = std::process::id() as i32;
    for process in (0..world.process_count()).map(ProcessIndex) {
        links.set_card(Card {
            process,
            host_number: 0,
            host: String::new(),
            pid,
            endpoints: Vec::new(),
            early_threads: Vec::new(),
        });
    }
    let replication = world.is_replicated().then(|| Box::new(replication(world, me, SEED)));
    let (shares_core, injection, traces, traffic) = (false, None, None, None);
    let (runtime, world) = (&Alone, world.clone());
    Engine::new(Setup { runtime, me, world, links, shares_core, replication, injection, traces, traffic })
}

impl Job {
    fn new(world: World, segment: Segment) -> Self {
        let engines = world.replicas().map(|me| Some(engine(me, &world, segment))).collect();
        Self { view: View::initial(&world), engines, world, requests: Vec::new(), buffers: Vec::new() }
    }

    fn place(&self, number: u8) -> usize {
        usize::from(number) % self.engines.len()
    }

    fn rank(&self, number: u8) -> u32 {
        u32::from(number) % self.world.rank_count()
    }

    fn sphere(&self, rank: u32) -> Vec<usize> {
        self.world.sphere(VirtualRank(rank)).map(|replica| self.world.process(replica).0 as usize).collect()
    }

    fn do_one(&mut self, operation: Operation) {
        match operation {
            Operation::Send { from, to, context, tag, length, synchronous } => {
                let (from, to) = (self.rank(from), self.rank(to));
                for place in self.sphere(from) {
                    let Some(engine) = &mut self.engines[place] else { continue };
                    let arguments = SendArguments {
                        context: u64::from(context),
                        source: from,
                        to: VirtualRank(to),
                        tag: i32::from(tag),
                        payload: Payload::Owned(vec![tag; usize::from(length)].into()),
                        element: Element::U8,
                        synchronous,
                    };
                    if let sent @ Sent::Pending(OutgoingId(_)) = engine.send(arguments) {
                        let request = engine.send_request(sent);
                        self.requests.push((place, request));
                    }
                }
            }
            Operation::Post { rank, context, source, tag, capacity } => {
                let source = source.map(|source| self.rank(source));
                for place in self.sphere(self.rank(rank)) {
                    let Some(engine) = &mut self.engines[place] else { continue };
                    let mut buffer = vec![0xaa; usize::from(capacity) + 2 * GUARD_BYTES].into_boxed_slice();
                    let start = buffer[GUARD_BYTES..].as_mut_ptr();
                    self.buffers.push(buffer);
                    let target = Target { start, capacity: u64::from(capacity), scatter: None };
                    let request = engine.post(u64::from(context), source, tag.map(i32::from), target);
                    self.requests.push((place, request));
                }
            }
            Operation::Progress { place } => self.progress(self.place(place)),
            Operation::Flush => self.engines.iter_mut().flatten().for_each(Engine::flush),
            Operation::Corrupt { from, to, frame } => {
                let (from, to) = (self.place(from), self.place(to));
                if let Some(engine) = self.engines[from].as_mut().filter(|_| from != to) {
                    send_corrupt(engine, ProcessIndex(to as u32), frame);
                }
            }
        }
    }

    fn progress(&mut self, place: usize) {
        let Some(engine) = &mut self.engines[place] else { return };
        engine.progress(1);
        let refused: Vec<_> = self.view_of_closed(place);
        for replica in refused {
            self.lose(replica);
        }
    }

    /// Replicas in the view to which this engine has closed its links.
    fn view_of_closed(&self, place: usize) -> Vec<ReplicaId> {
        let Some(engine) = &self.engines[place] else { return Vec::new() };
        let is_closed = |replica: &ReplicaId| engine.links.is_closed(self.world.process(*replica));
        self.world.replicas().filter(|replica| self.view.is_live(*replica)).filter(is_closed).collect()
    }

    fn lose(&mut self, replica: ReplicaId) {
        if !self.view.is_live(replica) || self.view.live(replica.rank).count() < 2 {
            return;
        }
        self.engines[self.world.process(replica).0 as usize] = None;
        self.view = self.view.without(&[replica]);
        for place in 0..self.engines.len() {
            if let Some(engine) = &mut self.engines[place] {
                engine.apply_view(self.view.clone());
            }
            for replica in self.view_of_closed(place) {
                self.lose(replica);
            }
        }
    }

    fn check(&mut self) {
        for buffer in &self.buffers {
            let inside = GUARD_BYTES..buffer.len() - GUARD_BYTES;
            let guards = buffer[..inside.start].iter().chain(&buffer[inside.end..]);
            assert!(guards.copied().all(|byte| byte == 0xaa), "written beside a buffer");
        }
        for (place, request) in &self.requests {
            if let Some(engine) = &mut self.engines[*place] {
                engine.requests.is_complete(*request);
            }
        }
    }
}

fn send_corrupt(engine: &mut Engine, to: ProcessIndex, frame: Corrupt) {
    // A frame that can be decoded must not be refused for its checksum.
    let is_sealed = matches!(frame.body, Contents::Frame(_)) && frame.kind == FrameKind::Protocol as u8;
    let mut body = match frame.body {
        Contents::Bytes(bytes) => bytes,
        Contents::Words(words) => words.iter().flat_map(|word| word.to_le_bytes()).collect(),
        Contents::Frame(frame) => postcard::to_stdvec(&frame).unwrap(),
    };
    let kind = FrameKind::from_u8(frame.kind).expect("the strategy makes no others");
    // Lengths are right, so that the contents are examined.
    let length = match kind {
        FrameKind::Offer => Some(Rendezvous::BYTES),
        FrameKind::ClearToSend => Some(ClearToSend::BYTES),
        FrameKind::Data => Some(body.len().max(Fragment::BYTES)),
        FrameKind::Whereabouts if !body.is_empty() => Some(Whereabouts::BYTES),
        FrameKind::Done | FrameKind::Digest | FrameKind::Ack | FrameKind::AckOne | FrameKind::Moved => Some(0),
        _ => None,
    };
    if let Some(length) = length {
        body.resize(length, 0);
    }
    if kind == FrameKind::Offer {
        // The address would be read in this test's own process, which all engines share.
        body[8..16].fill(0);
    }
    let mut header = Header::new(kind, frame.context);
    header.index = frame.index;
    header.sequence = frame.sequence;
    header.tag = frame.tag;
    header.source = frame.source;
    header.flags = if is_sealed { FLAG_DIGEST } else { frame.flags };
    let right = || sdc_detect::digest(SEED, redrt_types::Tag(header.tag), &body).0;
    let digest = if is_sealed { Some(right()) } else { (frame.flags & FLAG_DIGEST != 0).then_some(5) };
    engine.links.send(to, header, digest, &body);
}

fn run(degrees: Vec<u16>, operations: Vec<Operation>) {
    with_segment(|segment| {
        let mut job = Job::new(World::new(degrees), segment);
        for operation in operations {
            job.do_one(operation);
        }
        for _ in 0..40 {
            for place in 0..job.engines.len() {
                job.progress(place);
            }
            job.do_one(Operation::Flush);
        }
        job.check();
        job.engines.clear();
    });
}

proptest! {
    /// Engines of a replicated job take any frame, or refuse it.
    #[test]
    fn any_frame_in_a_replicated_job_is_heeded_or_refused(
        // At least one rank is replicated.
        degrees in (2u16..=3, 1u16..=3, any::<bool>()).prop_map(|(one, other, swaps)| if swaps { vec![other, one] } else { vec![one, other] }),
        operations in vec(operation(), 0..80),
    ) {
        run(degrees, operations);
    }

    /// Engines of a job without replicas take any frame, or refuse it.
    #[test]
    fn any_frame_in_a_plain_job_is_heeded_or_refused(
        count in 2usize..4,
        operations in vec(operation(), 0..80),
    ) {
        run(vec![1; count], operations);
    }

    /// Sound jobs refuse nobody: every message arrives, at any degree.
    #[test]
    fn sound_frames_are_never_refused(
        degrees in vec(1u16..=3, 2),
        lengths in vec(prop_oneof![0u16..100, any::<u16>()], 1..12),
        order in vec(any::<u8>(), 0..60),
    ) {
        with_segment(|segment| {
            let mut job = Job::new(World::new(degrees), segment);
            for (number, length) in lengths.iter().enumerate() {
                let (from, synchronous) = ((number % 2) as u8, number % 3 == 0);
                job.do_one(Operation::Send { from, to: 1 - from, context: 0, tag: 1, length: *length, synchronous });
                let capacity = *length;
                job.do_one(Operation::Post { rank: 1 - from, context: 0, source: None, tag: Some(1), capacity });
                for place in order.iter().skip(number * 5).take(5) {
                    job.do_one(Operation::Progress { place: *place });
                }
            }
            for _ in 0..400 {
                (0..job.engines.len()).for_each(|place| job.progress(place));
                job.do_one(Operation::Flush);
            }
            job.check();
            for (place, request) in &job.requests {
                let engine = job.engines[*place].as_mut().expect("nobody is refused");
                prop_assert!(engine.requests.is_complete(*request), "request {} of {place}", request.0);
            }
            job.engines.clear();
            Ok(())
        })?;
    }
}
