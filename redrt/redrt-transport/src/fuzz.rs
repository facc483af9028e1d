//! Transports with arbitrary input: rubbish over a socket in pieces, and shared memory that is overwritten.

use super::frame::{FLAG_DIGEST, Fragment, FrameKind, HEADER_BYTES, Header};
use super::network::{Incoming, Name, Received};
use super::shm::{FRAME_BYTES_MAX, Inbox, Producer, Segment};
use super::tcp::{self, Connection};
use super::{RendezvousBufferId, RendezvousBuffers};
use proptest::collection::vec;
use proptest::prelude::*;
use redrt_types::{Incarnation, ProcessIndex};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;

const PEER: ProcessIndex = ProcessIndex(0);
const ME: ProcessIndex = ProcessIndex(1);

/// A peer's piece of a stream.
#[derive(Clone, Debug)]
enum Piece {
    Rubbish(Vec<u8>),
    Frame { kind: u8, digest: bool, length: u16 },
    Data { rendezvous_buffer: bool, offset: Option<u16>, length: u16 },
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        1 => vec(any::<u8>(), 0..80).prop_map(Piece::Rubbish),
        4 => (0u8..12, any::<bool>(), 0u16..2000).prop_map(|(kind, digest, length)| Piece::Frame { kind, digest, length }),
        4 => (any::<bool>(), proptest::option::weighted(0.2, any::<u16>()), 0u16..3000)
            .prop_map(|(rendezvous_buffer, offset, length)| Piece::Data { rendezvous_buffer, offset, length }),
    ]
}

/// Bytes of a frame whose header is sound, unless its kind cannot have this body.
fn frame(kind: u8, digest: bool, body: &[u8]) -> Vec<u8> {
    let mut header = Header::new(FrameKind::Eager, 7);
    (header.kind, header.flags) = (kind, if digest { FLAG_DIGEST } else { 0 });
    header.size = (HEADER_BYTES + header.digest_bytes() + body.len()) as u32;
    let digest = vec![1; header.digest_bytes()];
    [&header.to_bytes()[..], &digest, body].concat()
}

/// Makes both ends of a connection. The listener is made once.
fn connection() -> (TcpStream, Incoming) {
    static LISTENER: Mutex<Option<TcpListener>> = Mutex::new(None);
    let mut listener = LISTENER.lock().unwrap();
    let listener = listener.get_or_insert_with(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let accepted = listener.accept().unwrap().0;
    accepted.set_nonblocking(true).unwrap();
    let name = Name { job: 0, from: PEER, incarnation: Incarnation(0), to: ME, epoch: 0 };
    (stream, tcp::accepted(name, Connection::make(|| Ok(accepted)).unwrap(), None))
}

proptest! {
    /// Any bytes in any pieces give frames, payload bytes within their rendezvous buffer, or an end; and nothing after
    /// the end.
    #[test]
    fn any_bytes_over_a_stream_are_frames_or_refused(
        pieces in vec(piece(), 0..12),
        flips in vec(any::<u32>(), 0..3),
        steps in vec(1usize..4000, 1..6),
    ) {
        let mut place = vec![0xaa_u8; 8 + 4096 + 8];
        let mut rendezvous_buffers = RendezvousBuffers::default();
        // SAFETY: - place outlives the rendezvous buffer.
        let rendezvous_buffer = unsafe { rendezvous_buffers.insert(place[8..].as_mut_ptr(), 4096, 5, PEER) };
        let (mut next, mut bytes) = (0, Vec::new());
        for piece in pieces {
            match piece {
                Piece::Rubbish(rubbish) => bytes.extend(rubbish),
                Piece::Frame { kind, digest, length } => {
                    bytes.extend(frame(kind, digest, &vec![kind; usize::from(length)]));
                }
                Piece::Data { rendezvous_buffer: exists, offset, length } => {
                    let id = if exists { rendezvous_buffer.0 } else { rendezvous_buffer.0 ^ 1 };
                    let head = Fragment { rendezvous_buffer: id, offset: offset.map_or(next, u64::from) };
                    next += u64::from(length);
                    let body = [&head.to_bytes()[..], &vec![0x55; usize::from(length)]].concat();
                    bytes.extend(frame(FrameKind::Data as u8, false, &body));
                }
            }
        }
        for flip in flips {
            if let Some(byte) = bytes.get_mut(flip as usize / 8 % 70_000) {
                *byte ^= 1 << (flip % 8);
            }
        }
        let (mut stream, mut receiver) = connection();
        let (mut at, mut turn, mut landed, mut ended) = (0, 0, 0, false);
        while !ended {
            let step = steps[turn % steps.len()].min(bytes.len() - at);
            turn += 1;
            if step > 0 {
                stream.write_all(&bytes[at..at + step]).unwrap();
                at += step;
            } else {
                stream.shutdown(std::net::Shutdown::Write).unwrap();
            }
            loop {
                match receiver.next(&mut rendezvous_buffers) {
                    Received::Frame(header, kind, _, body) => {
                        prop_assert_eq!(header.check(), Ok(kind));
                        prop_assert_eq!(body.bytes().len(), header.body_bytes());
                        std::hint::black_box(body.bytes().iter().map(|byte| u64::from(*byte)).sum::<u64>());
                    }
                    Received::Landed(id, count) => {
                        prop_assert_eq!(id, rendezvous_buffer);
                        landed += count;
                        rendezvous_buffers.advance(id, count);
                    }
                    Received::Nothing => break,
                    Received::Closed | Received::Rubbish(_) => {
                        ended = true;
                        break;
                    }
                }
            }
        }
        prop_assert!(landed <= 4096);
        prop_assert!(place[..8].iter().chain(&place[8 + 4096..]).all(|byte| *byte == 0xaa), "written beside the rendezvous buffer");
        prop_assert!(place[8 + landed..8 + 4096].iter().all(|byte| *byte == 0xaa), "written and not counted");
    }
}

/// An event on a ring.
#[derive(Clone, Debug)]
enum Operation {
    Send {
        length: u16,
    },
    Receive,
    /// Overwrites a word anywhere in the segment.
    Scribble {
        at: u32,
        value: Value,
    },
    /// Overwrites the first word of a record, or of a place where one may begin.
    ScribbleRecord {
        at: u16,
        value: Value,
    },
    /// Overwrites the consumer's count, or a flag beside it.
    ScribbleControl {
        at: u8,
        value: Value,
    },
}

#[derive(Clone, Debug)]
enum Value {
    Any(u64),
    Flip(u8),
    /// A frame of this size and kind.
    Frame(u32, u8),
    Wrap,
    Zero,
}

impl Value {
    fn on(&self, old: u64) -> u64 {
        match self {
            Self::Any(word) => *word,
            Self::Flip(bit) => old ^ 1 << (bit % 64),
            Self::Frame(size, kind) => u64::from(*size) | u64::from(*kind) << 32,
            Self::Wrap => u64::MAX,
            Self::Zero => 0,
        }
    }
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(Value::Any),
        any::<u8>().prop_map(Value::Flip),
        (0u32..40_000, 0u8..12).prop_map(|(size, kind)| Value::Frame(size, kind)),
        Just(Value::Wrap),
        Just(Value::Zero),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => (0u16..8000).prop_map(|length| Operation::Send { length }),
        8 => Just(Operation::Receive),
        1 => (any::<u32>(), value()).prop_map(|(at, value)| Operation::Scribble { at, value }),
        1 => (any::<u16>(), value()).prop_map(|(at, value)| Operation::ScribbleRecord { at, value }),
        1 => (any::<u8>(), value()).prop_map(|(at, value)| Operation::ScribbleControl { at, value }),
    ]
}

/// Runs with a segment of two processes that all cases use in turn: mappings are never removed.
fn with_segment<T>(run: impl FnOnce(Segment, &mut [u64]) -> T) -> T {
    struct Shared(Segment, *mut u64);
    // SAFETY: - used by one test at a time, under the mutex.
    unsafe impl Send for Shared {}
    static SEGMENT: Mutex<Option<Shared>> = Mutex::new(None);
    // A failed case may have left anything in it.
    let mut segment = SEGMENT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let words = Segment::bytes(2) / 8;
    let Shared(segment, start) = segment.get_or_insert_with(|| {
        let segment = Segment::fresh(2);
        Shared(segment, segment.start().cast())
    });
    // SAFETY: - the mapping has that many words and is never removed; the machines under test touch it only through
    //           atomics and raw pointers, on this thread, never while the slice is used.
    let all = unsafe { std::slice::from_raw_parts_mut(*start, words) };
    all.fill(0);
    run(*segment, all)
}

fn send(producer: &mut Producer, length: usize) -> bool {
    let header = Header::new(FrameKind::Eager, 9);
    let body = vec![length as u8; length];
    producer
        .send(&header, None, length, |to| {
            // SAFETY: - the ring gives length writable bytes.
            unsafe { std::ptr::copy_nonoverlapping(body.as_ptr(), to, length) }
        })
        .is_some()
}

/// Takes one frame, if any, and reads all of it. `Some(false)` when the ring was refused.
fn receive(inbox: &mut Inbox, bounds: std::ops::Range<usize>) -> Option<bool> {
    let from = inbox.next_sender()?;
    assert_eq!(from, PEER, "nobody else is there");
    let consumer = inbox.consumer(from);
    let Ok(Some((header, kind, start))) = consumer.front() else {
        inbox.close(from);
        return Some(false);
    };
    assert_eq!(header.check(), Ok(kind));
    let length = header.digest_bytes() + header.body_bytes();
    assert!(length <= FRAME_BYTES_MAX && bounds.contains(&(start as usize)) && start as usize + length <= bounds.end);
    // SAFETY: - the record holds that many bytes, as was just checked against the mapping.
    let bytes = unsafe { std::slice::from_raw_parts(start, length) };
    std::hint::black_box(bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>());
    consumer.consume();
    Some(true)
}

proptest! {
    /// With any words overwritten in shared memory, both ends stay within their ring, and go on or close it.
    #[test]
    fn an_overwritten_segment_is_refused_or_read_within_bounds(operations in vec(operation(), 0..120)) {
        with_segment(|segment, words| {
            let ring = segment.ring_words(ME, PEER);
            let bounds = words.as_ptr_range();
            let bounds = bounds.start as usize..bounds.end as usize;
            let mut producer = Producer::new(segment, PEER, ME);
            let mut inbox = Inbox::new(segment, ME, 2);
            for operation in operations {
                match operation {
                    Operation::Send { length } => {
                        send(&mut producer, usize::from(length));
                    }
                    Operation::Receive => {
                        receive(&mut inbox, bounds.clone());
                    }
                    Operation::Scribble { at, value } => {
                        let at = at as usize % words.len();
                        words[at] = value.on(words[at]);
                    }
                    Operation::ScribbleRecord { at, value } => {
                        let at = ring.start + 16 + usize::from(at) * 8 % (ring.len() - 16);
                        words[at] = value.on(words[at]);
                    }
                    Operation::ScribbleControl { at, value } => {
                        let at = ring.start + usize::from(at % 16);
                        words[at] = value.on(words[at]);
                    }
                }
                prop_assert!(!producer.is_broken() || !send(&mut producer, 1), "a broken ring takes frames");
            }
            // The rest of the ring must have an end.
            let mut count = 0;
            while receive(&mut inbox, bounds.clone()).is_some() {
                count += 1;
                prop_assert!(count < 10_000, "the same records come again and again");
            }
            Ok(())
        })?;
    }
}

/// The zero behind the last record is overwritten with the old record of the previous lap.
#[test]
fn records_of_the_lap_before_are_not_read_again() {
    with_segment(|segment, words| {
        let ring = segment.ring_words(ME, PEER);
        let bounds = words.as_ptr_range();
        let bounds = bounds.start as usize..bounds.end as usize;
        let mut producer = Producer::new(segment, PEER, ME);
        let mut inbox = Inbox::new(segment, ME, 2);
        // Records start at multiples of 64 bytes, behind the control words.
        let mut before = words[ring.clone()].to_vec();
        for _ in 0..2000 {
            before.copy_from_slice(&words[ring.clone()]);
            assert!(send(&mut producer, 40) && receive(&mut inbox, bounds.clone()) == Some(true));
            assert!(receive(&mut inbox, bounds.clone()).is_none());
        }
        for (word, old) in words[ring].iter_mut().zip(&before).skip(16) {
            if *word == 0 {
                *word = *old;
            }
        }
        assert_eq!(receive(&mut inbox, bounds), Some(false), "an old record is not refused");
    });
}

/// A scribbler writes while both ends work: checks and uses must be of one copy.
#[test]
fn a_ring_is_written_over_while_it_is_read() {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    let segment = Segment::fresh(2);
    let ring = segment.ring_words(ME, PEER);
    let start = segment.start() as usize;
    let bounds = start..start + Segment::bytes(2);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = 1u64;
            while !done.load(Ordering::Relaxed) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = ring.start + (random >> 33) as usize % ring.len();
                // SAFETY: - a word of the segment, which is never unmapped.
                let word = unsafe { &*(start as *const AtomicU64).add(at) };
                word.fetch_xor(1 << (random >> 20 & 63), Ordering::Relaxed);
                std::hint::spin_loop();
            }
        });
        let mut refused = 0;
        while refused < 40 {
            for word in ring.clone() {
                // SAFETY: - a word of the segment, which is never unmapped.
                unsafe { &*(start as *const AtomicU64).add(word) }.store(0, Ordering::Relaxed);
            }
            let mut producer = Producer::new(segment, PEER, ME);
            let mut inbox = Inbox::new(segment, ME, 2);
            for round in 0..2_000 {
                send(&mut producer, round % 3000);
                if receive(&mut inbox, bounds.clone()) == Some(false) {
                    break;
                }
            }
            refused += 1;
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Any identity of a rendezvous buffer is checked before bytes are written.
#[test]
fn rendezvous_buffers_of_others_are_left_alone() {
    let mut rendezvous_buffers = RendezvousBuffers::default();
    for id in [0, 1, u64::MAX, 1 << 32] {
        assert!(rendezvous_buffers.write(PEER, RendezvousBufferId(id), 0, &[1]).is_err());
        assert_eq!(rendezvous_buffers.advance(RendezvousBufferId(id), usize::MAX), None);
    }
}
