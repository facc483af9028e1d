//! Effect of `--on-sdc` on a wrong replica.

use crate::reasons;
use redrt_tests::{Ended, Job, Program};
use std::time::Duration;

/// A job at r = 3 in which a bit of a message of 1.1 flips; `options` come last. Its output must be that of an
/// undisturbed run.
#[track_caller]
fn flipped(name: &str, arguments: &'static [&'static str], options: &[&str]) -> Ended {
    let program = Program { arguments, ..Program::named(name).expect("a test program") };
    let out = Job::of(&program).run().ended_well().out;
    let job = Job::of(&program).degree(3).inject("flip:1.1@#40").options(options).limit(Duration::from_secs(180));
    let ended = job.run().ended_with(0).printed(&out);
    if ended.events("mismatch").all(|mismatch| mismatch["culprit"] != "1.1") {
        ended.fail("1.1 is not named");
    }
    ended
}

#[test]
fn what_is_wrong_is_replaced_by_a_copy_of_a_sound_sibling() {
    let ended = flipped("heat", &["32", "5000"], &["--spares", "2"]);
    assert_eq!(reasons(&ended), [("1.1", "outvoted")], "{ended}");
    assert!(ended.number("recovered") == 1 && ended.events("strike").count() == 1, "{ended}");
}

/// Receivers take the majority's message.
#[test]
fn with_correct_a_wrong_replica_stays() {
    let ended = flipped("heat", &["32", "40"], &["--on-sdc", "correct", "--spares", "2"]);
    assert_eq!(reasons(&ended), [], "{ended}");
    assert!(ended.mismatches().iter().all(|mismatch| mismatch.action != "delivered"), "{ended}");
}

#[test]
fn with_report_it_stays_and_its_receiver_takes_what_came() {
    let ended = flipped("heat", &["32", "40"], &["--on-sdc", "report"]);
    assert_eq!(reasons(&ended), [], "{ended}");
    let mismatches = ended.mismatches();
    assert!(mismatches.iter().any(|mismatch| mismatch.action == "delivered"), "{mismatches:?}");
    assert!(mismatches.iter().all(|mismatch| mismatch.action != "refetched"), "{mismatches:?}");
}

#[test]
fn a_receiver_that_computed_with_it_before_the_verdict_goes_too() {
    let ended = flipped("heat", &["32", "5000"], &["--verify", "deferred", "--spares", "4"]);
    let reasons = reasons(&ended);
    // 1.1 may have received from a replica that sent wrong values before it was found out; such a replica is outvoted
    // itself, perhaps before 1.1.
    assert!(reasons.iter().all(|(_, reason)| matches!(*reason, "tainted" | "outvoted")), "{reasons:?}");
    assert!(reasons.iter().any(|(_, reason)| *reason == "outvoted"), "{reasons:?}");
    assert!(reasons.iter().any(|(replica, _)| *replica == "1.1"), "{reasons:?}");
    assert!(reasons.iter().any(|(replica, _)| *replica != "1.1"), "{reasons:?}");
    assert!(reasons.iter().all(|(replica, _)| replica.ends_with(".1")), "{reasons:?}");
}
