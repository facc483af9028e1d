//! Bits flip in all places: a small part of `scripts/injection-campaign.sh`.

use redrt_tests::injection::{Campaign, Fate, FlipSite};
use redrt_tests::{Job, Program, Random, breadth};
use std::time::Duration;

/// All places but threads: the effect of a flip there at two replicas is not known beforehand.
fn places() -> Vec<FlipSite> {
    FlipSite::ALL.into_iter().filter(|place| *place != FlipSite::Thread).collect()
}

#[test]
fn a_flip_anywhere_that_reaches_a_message_is_reported() {
    let campaign = Campaign {
        programs: Program::ALL.to_vec(),
        degrees: vec![2, 3],
        places: places(),
        arbitrates: false,
        fault_count: breadth(10, 16),
        seed: Random::from_environment().draw() >> 32,
        parallel: 2,
        limit: Duration::from_secs(60),
        records: None,
    };
    let findings = campaign.run(&|_, _| {});
    findings.assert_right();
    // A flipped payload or line goes out, unless a check of the program or the library ends the replica first.
    let is_certain = |place| matches!(place, FlipSite::Payload | FlipSite::Output);
    let injected =
        findings.records.iter().filter(|record| record.fate != Fate::NotInjected && is_certain(record.place));
    assert!(injected.map(|record| record.fate).all(|fate| matches!(fate, Fate::Detected | Fate::Ended)));
    assert!(findings.records.iter().any(|record| record.fate == Fate::Detected), "nothing was injected");
}

/// At r = 2, with and without copies that stand ready yet, no sound replica is named.
#[test]
fn a_flip_at_two_replicas_is_judged_rightly_or_stays_open() {
    let campaign = Campaign {
        programs: Program::ALL.to_vec(),
        degrees: vec![2],
        places: places(),
        arbitrates: true,
        fault_count: breadth(4, 8),
        seed: Random::from_environment().draw() >> 32,
        parallel: 2,
        limit: Duration::from_secs(90),
        records: None,
    };
    campaign.run(&|_, _| {}).assert_right();
}

/// The flip comes from outside while the thread runs: once in the program's code, once in the library's.
#[test]
fn three_replicas_survive_a_flip_in_a_register_or_on_a_stack() {
    let program = Program::named("heat").expect("a test program");
    let alone = Job::of(&program).run().ended_well();
    for (seed, place) in [("1", "heat+"), ("3", "libmpi_abi.so.1+")] {
        let job = Job::of(&program).degree(3).inject("thread:1.1@#9").options(&["--seed", seed, "--inject-required"]);
        let ended = job.run().ended_with(0).printed(&alone.out);
        let struck = ended.events("injected").any(|record| {
            let fault = record["fault"].as_str().unwrap_or_default();
            record["replica"] == "1.1" && fault.contains("instructions after send 9") && fault.contains(place)
        });
        assert!(struck, "{ended}");
    }
}
