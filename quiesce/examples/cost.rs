//! Prints what the hot paths cost: `cargo run --release -p quiesce --example cost`.

use quiesce::matching::{MatchQueues, Order, Pattern};
use quiesce::{Arrival, Config, Frame, MessageId, PayloadKey, Protocol, Replica, Verification};
use redrt_types::{ContextId, Digest, Envelope, ReplicaId, SeqNum, Tag, View, VirtualRank, World};
use std::hint::black_box;
use std::time::Instant;

fn measure(name: &str, count: u64, mut each: impl FnMut(u64)) {
    (0..count / 10).for_each(&mut each);
    let start = Instant::now();
    (count / 10..count / 10 + count).for_each(&mut each);
    println!("{name:<58} {:>7.1} ns", start.elapsed().as_nanos() as f64 / count as f64);
}

fn matching() {
    for depth in [0_u32, 10, 1_000, 100_000] {
        let mut queues = MatchQueues::new(Order::Deciding);
        for number in 0..depth {
            queues.post(Pattern::exact(1 + number % 1_000, Tag(1 + number as i32)), number);
        }
        measure(&format!("post and arrive, {depth} receives before it"), 1_000_000, |number| {
            black_box(queues.post(Pattern::exact(0, Tag(0)), number as u32));
            black_box(queues.arrive(0, Tag(0), number as u32));
        });
        let mut queues = MatchQueues::<u32, u32>::new(Order::Deciding);
        for number in 0..depth {
            queues.arrive(1 + number % 1_000, Tag(1 + number as i32), number);
        }
        measure(&format!("arrive and wildcard post, {depth} messages before it"), 1_000_000, |number| {
            black_box(queues.arrive(0, Tag(0), number as u32));
            black_box(queues.post(Pattern { source: None, tag: Some(Tag(0)) }, number as u32));
        });
    }
}

fn machine(rank: u32) -> Replica {
    let world = World::uniform(64, 2);
    let view = View::initial(&world);
    let (protocol, verification) = (Protocol::Hash, Verification::Strict);
    Replica::new(Config { me: ReplicaId::new(rank, 0), world, view, protocol, verification })
}

fn drain(replica: &mut Replica) {
    while let Some(output) = replica.poll_output() {
        black_box(&output);
    }
}

/// The two ends by themselves: frames are made here, not carried.
fn protocol() {
    let context = ContextId(7);
    let envelope = Envelope { source: 0, tag: Tag(0), length_bytes: 8 };
    let digest = Digest(0x1234);
    let mut sender = machine(0);
    measure("send at r = 2, its share of acknowledgements included", 1_000_000, |number| {
        let outbound = sender.send(VirtualRank(1), context, envelope, digest, PayloadKey(number));
        let sequence = black_box(outbound).sequence;
        if sequence.0 % 16 == 15 {
            let upto = sequence.next();
            sender.handle(ReplicaId::new(1, 0), Frame::Ack { context, upto }).expect("it is sound");
            sender.handle(ReplicaId::new(1, 1), Frame::Ack { context, upto }).expect("it is sound");
        }
        drain(&mut sender);
    });
    let mut receiver = machine(1);
    let (supplier, other) = (ReplicaId::new(0, 0), ReplicaId::new(0, 1));
    measure("receive at r = 2: offer, payload, digest, verdict", 1_000_000, |number| {
        let sequence = SeqNum(number);
        let arrival = receiver.handle(supplier, Frame::Offer { context, sequence, envelope, digest, core: None });
        assert_eq!(arrival, Ok(Arrival::New { is_agreed: true }));
        let message = MessageId { sender: supplier.rank, context, sequence };
        receiver.payload_received(supplier, message, digest);
        receiver.handle(other, Frame::Digest { context, sequence, digest, core: None }).expect("it is sound");
        drain(&mut receiver);
    });
}

fn main() {
    matching();
    protocol();
}
