//! Records over many laps, wake-ups, and more senders than are polled.

use super::inbox::POLLED_MAX;
use super::*;
use crate::transport::frame::{HEADER_BYTES, Header, Kind};

fn send(producer: &mut Producer, tag: i32, body: &[u8]) -> bool {
    let mut header = Header::new(Kind::Eager, 9);
    header.tag = tag;
    producer
        .send(&header, None, body.len(), |to| {
            // SAFETY: - the ring gives body.len() writable bytes.
            unsafe { std::ptr::copy_nonoverlapping(body.as_ptr(), to, body.len()) }
        })
        .is_some()
}

fn receive(inbox: &mut Inbox) -> Option<(ProcessIndex, i32, Vec<u8>)> {
    let from = inbox.next_sender()?;
    let consumer = inbox.consumer(from);
    let (header, _, body) = consumer.front().unwrap().unwrap();
    // SAFETY: - the record holds header.body_bytes() body bytes until consumed.
    let bytes = unsafe { std::slice::from_raw_parts(body, header.body_bytes()) }.to_vec();
    consumer.consume();
    Some((from, header.tag, bytes))
}

#[test]
fn records_of_every_size_survive_many_laps() {
    let segment = Segment::fresh(2);
    let mut producer = Producer::new(segment, ProcessIndex(0), ProcessIndex(1));
    let mut inbox = Inbox::new(segment, ProcessIndex(1), 2);
    let mut next = 0;
    for round in 0..20_000usize {
        let body = vec![round as u8; (round * 37) % (FRAME_BYTES_MAX - HEADER_BYTES + 1)];
        while !send(&mut producer, round as i32, &body) {
            let (_, tag, bytes) = receive(&mut inbox).expect("a full ring has a record");
            assert_eq!((tag, bytes.len()), (next, (next as usize * 37) % (FRAME_BYTES_MAX - HEADER_BYTES + 1)));
            assert!(bytes.iter().all(|byte| *byte == next as u8));
            next += 1;
        }
    }
}

#[test]
fn two_threads_that_sleep_lose_no_wake_up() {
    let segment = Segment::fresh(2);
    let exchange = |me: u32, first: bool| {
        let other = ProcessIndex(1 - me);
        let me = ProcessIndex(me);
        let mut producer = Producer::new(segment, me, other);
        let mut inbox = Inbox::new(segment, me, 2);
        for round in 0..20_000 {
            if first {
                assert!(send(&mut producer, round, b"x"));
            }
            loop {
                if let Some((_, tag, _)) = receive(&mut inbox) {
                    assert_eq!(tag, round);
                    break;
                }
                let word = segment.sleep_word(me);
                word.store(ASLEEP_FUTEX, Ordering::SeqCst);
                std::sync::atomic::fence(Ordering::SeqCst);
                if !inbox.look_before_sleep() {
                    futex_wait(word, ASLEEP_FUTEX, std::time::Duration::from_secs(20));
                    assert_eq!(word.load(Ordering::SeqCst), AWAKE, "a wake-up was lost");
                }
                word.store(AWAKE, Ordering::SeqCst);
            }
            if !first {
                assert!(send(&mut producer, round, b"x"));
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(move || exchange(0, true));
        scope.spawn(move || exchange(1, false));
    });
}

#[test]
fn a_producer_that_waits_for_room_is_woken() {
    let segment = Segment::fresh(2);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut producer = Producer::new(segment, ProcessIndex(0), ProcessIndex(1));
            let word = segment.sleep_word(ProcessIndex(0));
            for round in 0..5_000 {
                loop {
                    word.store(ASLEEP_FUTEX, Ordering::SeqCst);
                    if send(&mut producer, round, &[7; 4000]) {
                        word.store(AWAKE, Ordering::SeqCst);
                        break;
                    }
                    futex_wait(word, ASLEEP_FUTEX, std::time::Duration::from_secs(20));
                    assert_eq!(word.load(Ordering::SeqCst), AWAKE, "a wake-up was lost");
                }
            }
        });
        scope.spawn(move || {
            let mut inbox = Inbox::new(segment, ProcessIndex(1), 2);
            let mut expected = 0;
            while expected < 5_000 {
                if let Some((_, tag, _)) = receive(&mut inbox) {
                    assert_eq!(tag, expected);
                    expected += 1;
                }
            }
        });
    });
}

#[test]
fn more_senders_than_polled_rings_are_all_heard() {
    let count = 3 * POLLED_MAX as u32;
    let segment = Segment::fresh(count);
    let me = ProcessIndex(0);
    let mut inbox = Inbox::new(segment, me, count);
    let mut producers: Vec<_> = (1..count).map(|n| Producer::new(segment, ProcessIndex(n), me)).collect();
    for round in 0..50 {
        for producer in &mut producers {
            assert!(send(producer, round, b"hello"));
        }
        let mut heard: Vec<_> = (1..count).map(|_| receive(&mut inbox).unwrap().0.0).collect();
        heard.sort_unstable();
        assert_eq!(heard, (1..count).collect::<Vec<_>>());
        assert!(receive(&mut inbox).is_none());
    }
}
