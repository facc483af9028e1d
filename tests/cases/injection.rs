//! A bit flips anywhere: a small part of what `scripts/injection-campaign.sh` runs.

use redrt_tests::injection::{Campaign, Fate, FlipSite};
use redrt_tests::{Program, Random};
use std::time::Duration;

#[test]
fn a_flip_anywhere_that_reaches_a_message_is_reported() {
    let campaign = Campaign {
        programs: Program::ALL.to_vec(),
        degrees: vec![2, 3],
        places: FlipSite::ALL.to_vec(),
        arbitrates: false,
        fault_count: 16,
        seed: Random::from_environment().draw() >> 32,
        parallel: 2,
        limit: Duration::from_secs(60),
        records: None,
    };
    let findings = campaign.run(&|_, _| {});
    findings.assert_right();
    // What is flipped in a payload or a line goes out, unless a check of the program or the library ends the replica
    // before.
    let is_certain = |place| matches!(place, FlipSite::Payload | FlipSite::Output);
    let injected =
        findings.records.iter().filter(|record| record.fate != Fate::NotInjected && is_certain(record.place));
    assert!(injected.map(|record| record.fate).all(|fate| matches!(fate, Fate::Detected | Fate::Ended)));
    assert!(findings.records.iter().any(|record| record.fate == Fate::Detected), "nothing was injected");
}

/// At r = 2, where copies stand ready to judge or do not yet: nobody is named who is sound.
#[test]
fn a_flip_at_two_replicas_is_judged_rightly_or_stays_open() {
    let campaign = Campaign {
        programs: Program::ALL.to_vec(),
        degrees: vec![2],
        places: FlipSite::ALL.to_vec(),
        arbitrates: true,
        fault_count: 8,
        seed: Random::from_environment().draw() >> 32,
        parallel: 2,
        limit: Duration::from_secs(90),
        records: None,
    };
    campaign.run(&|_, _| {}).assert_right();
}
