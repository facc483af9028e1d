//! Counts the messages that a join takes between processes, by the size of the job and of the neighbourhood.

use super::*;
use crate::frame::PayloadKey;
use crate::outcome::Place;
use crate::view::Protocol;
use redrt_types::{Admission, ContextId, CutNumber, Digest, Envelope, Incarnation, Tag};

const CONTEXT: ContextId = ContextId(1);
const DEGREE: u16 = 2;

fn start(me: ReplicaId, rank_count: u32) -> Replica {
    let world = World::uniform(rank_count, DEGREE);
    let view = View::initial(&world);
    Replica::new(Config { me, world, view, protocol: Protocol::Hash, verification: Verification::Strict })
}

fn transmitted(replica: &mut Replica) -> u64 {
    let mut count = 0;
    while let Some(output) = replica.poll_output() {
        count += u64::from(matches!(output, Output::Transmit { .. }));
    }
    count
}

/// Receives the first message of another rank from both its replicas, after sending it one.
fn exchange(replica: &mut Replica, other: u32, live: &[u16]) {
    let (digest, sequence) = (Digest(7), SeqNum(0));
    let me = replica.me();
    let envelope = Envelope { source: me.rank.0, tag: Tag(0), length_bytes: 8 };
    replica.send(VirtualRank(other), CONTEXT, envelope, digest, (PayloadKey(u64::from(other)), Place::NOWHERE));
    for index in live {
        let from = ReplicaId::new(other, *index);
        let envelope = Envelope { source: other, tag: Tag(0), length_bytes: 8 };
        let frame = if from.index == me.index || live.len() == 1 {
            Frame::Offer { context: CONTEXT, sequence, envelope, digest, core: None }
        } else {
            Frame::Digest { context: CONTEXT, sequence, digest, core: None }
        };
        replica.handle(from, frame).expect("it is sound");
        let message = crate::frame::MessageId { sender: VirtualRank(other), context: CONTEXT, sequence };
        replica.payload_received(from, message, digest);
    }
    for index in 0..DEGREE {
        replica.handle(ReplicaId::new(other, index), Frame::Ack { context: CONTEXT, upto: SeqNum(1) }).expect("sound");
    }
}

/// Number of messages of all processes for a copy of 0.1 that takes the place of 0.0. Rank 0 has `partner_count`
/// partners.
fn join_messages(rank_count: u32, partner_count: u32) -> u64 {
    let newcomer = ReplicaId::new(0, 0);
    let world = World::uniform(rank_count, DEGREE);
    let lost = View::initial(&world).without(&[newcomer]);
    let joined = lost.with(Admission {
        replica: newcomer,
        incarnation: Incarnation(1),
        source: ReplicaIndex(1),
        cut: CutNumber(1),
    });
    let mut source = start(ReplicaId::new(0, 1), rank_count);
    source.apply_view(lost.clone()).expect("it is sound");
    source.set_pins(&[newcomer], &[]);
    (1..=partner_count).for_each(|partner| exchange(&mut source, partner, &[0, 1]));
    source.flush();
    transmitted(&mut source);
    let mut copy = source.clone();
    copy.take_place(newcomer);
    let of_sphere: u64 = [&mut source, &mut copy]
        .into_iter()
        .map(|replica| {
            replica.apply_view(joined.clone()).expect("it is sound");
            transmitted(replica)
        })
        .sum();
    // All partners are alike, and so are all other ranks.
    let others = |rank: u32, is_partner: bool| -> u64 {
        let of = |index: u16| {
            let mut replica = start(ReplicaId::new(rank, index), rank_count);
            replica.apply_view(lost.clone()).expect("it is sound");
            replica.set_pins(&[newcomer], &[]);
            if is_partner {
                exchange(&mut replica, 0, &[1]);
            }
            replica.flush();
            transmitted(&mut replica);
            replica.apply_view(joined.clone()).expect("it is sound");
            replica.set_pins(&[], &[]);
            transmitted(&mut replica)
        };
        (0..DEGREE).map(of).sum()
    };
    let strangers = u64::from(rank_count - 1 - partner_count);
    of_sphere + u64::from(partner_count) * others(1, true) + strangers * others(rank_count - 1, false)
}

#[test]
fn a_join_costs_messages_by_partners_and_not_by_job_size() {
    let mut per_partner = None;
    for rank_count in [1_000, 10_000, 100_000] {
        let counts: Vec<_> = [1, 4, 16, 64, 256].map(|partners| (partners, join_messages(rank_count, partners))).into();
        println!("{rank_count} ranks: {counts:?}");
        let first = join_messages(rank_count, 0);
        for (partners, count) in counts {
            let slope = (count - first) / u64::from(partners);
            assert_eq!(first + slope * u64::from(partners), count, "not linear at {partners} partners");
            assert_eq!(*per_partner.get_or_insert((first, slope)), (first, slope), "{rank_count} ranks change it");
        }
    }
}
