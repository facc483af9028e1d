//! Damaged messages of a pool to jobs and `redctl`.

use super::refusal::{Refusal, Unsound};
use super::wire::FromPool;
use damage::damage;
use proptest::prelude::*;
use redrt_wire::frame::{FrameReader, encode};
use spare_pool::{JobId, LeaseId};

fn messages() -> Vec<Vec<u8>> {
    let refusals = [
        Refusal::Version { pool: "1".into(), asker: "2".into() },
        Refusal::NoHello,
        Refusal::OtherUser(JobId(7)),
        Refusal::Unsound(Unsound::Launcher("sh".into())),
        Refusal::Leased { host: "h1".into(), job: JobId(7) },
    ];
    let all = [
        FromPool::Prove,
        FromPool::Welcome { lease_time_ms: 1000, leases: vec![LeaseId(3)], pass: None },
        FromPool::Ended { lease: LeaseId(3), why: "drained".into() },
        FromPool::EndTaken(LeaseId(3)),
        FromPool::Renewed { round: 4, leases: vec![LeaseId(3)], leaving: vec![LeaseId(3)] },
        FromPool::Left,
        FromPool::Answer(Ok("{}".into())),
        FromPool::Answer(Err(Refusal::NoHost("h9".into()))),
    ];
    refusals.map(FromPool::Refused).iter().chain(&all).map(encode).collect()
}

fn read_all(bytes: &[u8]) -> usize {
    let mut reader = FrameReader::default();
    reader.push(bytes);
    std::iter::from_fn(|| reader.next::<FromPool>().ok().flatten()).count()
}

#[test]
fn undamaged_messages_of_a_pool_are_read() {
    assert_eq!(read_all(&messages().concat()), messages().len());
}

proptest! {
    #[test]
    fn fuzz_damaged_messages_of_a_pool_are_read_or_refused(
        which in any::<prop::sample::Index>(),
        damage in damage(),
    ) {
        let bytes = damage.done_to(which.get::<Vec<u8>>(&messages()));
        prop_assert!(read_all(&bytes) <= 1);
    }
}
