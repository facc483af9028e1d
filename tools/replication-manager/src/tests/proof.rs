//! Sources are compared with their siblings before they are copied, where memory is compared.

use super::*;
use redrt_wire::scrub::{Answer, Stretch};

/// A rank with `degree` replicas, whose memory was compared once and was equal.
fn compared(degree: u16) -> StepTable {
    let interval = Some(Duration::from_secs(1000));
    let mut table = recovering_with(&[degree], Settings { scrub_interval: interval, ..settings(&[degree]) });
    let words = table.step("wait 1000");
    assert!(words.contains("where 1"), "{words}");
    round(&mut table, 1, &vec![7; usize::from(degree)], degree);
    table
}

fn say(table: &mut StepTable, replica: ReplicaId, round: u64, answer: Answer) -> String {
    table.manager.handle(table.now, Input::Agent(replica, FromAgent::Scrubbed { round, answer }));
    table.places.work(table.now);
    table.said().join(", ")
}

/// Runs a round in which the first replicas have these digests of their only page. Returns the outputs.
fn round(table: &mut StepTable, round: u64, digests: &[u64], count: u16) -> String {
    let replicas: Vec<_> = (0..count).map(|index| ReplicaId::new(0, index)).collect();
    for replica in &replicas {
        let words = say(table, *replica, round, Answer::Position(round * 10));
        assert_eq!(words.contains("compare at"), replica.index.0 + 1 == count, "{words}");
    }
    let collective = round * 10 + 1;
    let mut last = String::new();
    for (replica, digest) in replicas.iter().zip(digests) {
        let stretches = vec![Stretch { start: 4096, digests: vec![*digest], plain: Vec::new() }];
        last = say(table, *replica, round, Answer::Pages { collective, stretches, next: 0 });
    }
    last
}

/// Loses the last replica and brings a copy to the point before its cut. Returns the outputs.
fn ready(table: &mut StepTable, lost: &str, source_host: u32) -> String {
    table.step(&format!("{lost} signal 9"));
    table.step("clone listening 2");
    table.step(&format!("clone ready {source_host}"))
}

#[test]
fn a_source_that_others_vouch_for_is_cut() {
    let mut table = compared(3);
    let words = ready(&mut table, "0.2", 1);
    assert!(words.contains("where 2") || table.step("wait 0").contains("where 2"), "{words}");
    assert_eq!(round(&mut table, 2, &[8, 8], 2), "pins 0.2");
}

#[test]
fn an_unproven_source_is_not_copied_if_another_is_proven() {
    let mut table = compared(4);
    ready(&mut table, "0.3", 1);
    table.step("wait 0");
    let words = round(&mut table, 2, &[7, 9, 7], 3);
    assert!(words.contains("abandon") && !words.contains("pins"), "{words}");
    let words = table.step("wait 1");
    assert!(words.contains("receive 0.3 from 0.2"), "{words}");
}

#[test]
fn of_two_that_differ_one_is_copied_and_that_is_said() {
    let mut table = compared(3);
    ready(&mut table, "0.2", 1);
    table.step("wait 0");
    assert_eq!(round(&mut table, 2, &[7, 9], 2), "0.2 unproven: Contradicted, pins 0.2");
}

#[test]
fn a_rank_that_comes_to_no_collective_does_not_wait_for_ever() {
    let mut table = compared(3);
    ready(&mut table, "0.2", 1);
    table.step("wait 0");
    let words = table.step("wait 9");
    assert!(!words.contains("pins"), "{words}");
    let words = table.step("wait 1");
    assert!(words.contains("0.2 unproven: Late(10s), pins 0.2"), "{words}");
}

#[test]
fn a_rank_whose_memory_cannot_be_compared_does_not_wait() {
    let mut table = compared(3);
    ready(&mut table, "0.2", 1);
    table.step("wait 0");
    for index in 0..2 {
        say(&mut table, ReplicaId::new(0, index), 2, Answer::Position(20));
    }
    say(&mut table, ReplicaId::new(0, 0), 2, Answer::Unfit("has threads".into()));
    let words = say(&mut table, ReplicaId::new(0, 1), 2, Answer::Unfit("has threads".into()));
    assert!(words.contains("pins 0.2"), "{words}");
}
