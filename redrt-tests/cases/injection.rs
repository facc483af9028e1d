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
        fault_count: breadth(5, 16),
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
        fault_count: breadth(2, 8),
        seed: Random::from_environment().draw() >> 32,
        parallel: 2,
        limit: Duration::from_secs(90),
        records: None,
    };
    campaign.run(&|_, _| {}).assert_right();
}

/// The flip comes from outside while the thread runs: seeds are tried until it met the program's code and a library's.
///
/// No seed alone says which of them it meets, since a thread that waits for a message executes as many instructions as
/// the wait is long.
#[test]
fn three_replicas_survive_a_flip_in_a_register_or_on_a_stack() {
    let program = Program::named("heat").expect("a test program");
    let alone = Job::of(&program).run().ended_well();
    let (mut program_is_met, mut library_is_met) = (false, false);
    for seed in 1..=20 {
        let seed = seed.to_string();
        let job = Job::of(&program).degree(3).inject("thread:1.1@#9").options(&["--seed", &seed, "--inject-required"]);
        let ended = job.run().ended_with(0).printed(&alone.out);
        let fault = ended.events("injected").find(|record| record["replica"] == "1.1");
        let fault = fault.and_then(|record| record["fault"].as_str().map(str::to_owned)).unwrap_or_default();
        let place = fault.split_once("instructions after send 9, at ").map(|(_, place)| place);
        assert!(place.is_some_and(|place| place.contains('+')), "{ended}");
        let is_program = place.is_some_and(|place| place.starts_with("heat+"));
        (program_is_met, library_is_met) = (program_is_met | is_program, library_is_met | !is_program);
        if program_is_met && library_is_met {
            return;
        }
    }
    panic!("of 20 flips none met {}", if program_is_met { "a library" } else { "the program" });
}
