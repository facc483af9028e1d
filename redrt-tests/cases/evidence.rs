//! The evidence about a corrupt message: the place of the difference, its bits and values, and the sender's core.

use redrt_tests::{Ended, Job, Program};
use serde_json::Value;

const OPTIONS: [&str; 4] = ["--seed", "1", "--on-sdc", "correct"];

/// A job of a test program with one flipped bit, and the evidence there must be about its message. Later values that
/// the program computes from it may differ in more bits, and be reported first. The seed flips the same bit in each
/// run: some bits are the sign of a zero, and leave the value equal. The replica lives on: a retired replica's payload
/// may never reach receivers that have nothing but its digest.
#[track_caller]
fn evidence_of(name: &str, degree: u16, fault: &str) -> (Ended, Value) {
    let program = Program::named(name).expect("a test program");
    let ended = Job::of(&program).degree(degree).inject(fault).options(&OPTIONS).run();
    let found = ended.events("evidence").find(|evidence| evidence["bits"] == 1).cloned();
    let Some(evidence) = found else { ended.fail("there is no evidence of one bit") };
    assert_eq!(evidence["xor"].as_str().map(|xor| xor.matches(|digit| digit != '0').count()), Some(1), "{evidence}");
    (ended, evidence)
}

#[test]
fn an_outvoted_payload_is_compared_with_the_right_one() {
    let (ended, evidence) = evidence_of("heat", 3, "flip:1.0@#9");
    let ended = ended.ended_with(0);
    let named = [&evidence["one"], &evidence["other_is_right"], &evidence["element"]];
    assert_eq!(named, [&Value::from("1.0"), &Value::from(true), &Value::from("f64")], "{evidence}");
    assert!(evidence["one_value"].is_string() && evidence["ulps"].as_u64().is_some_and(|ulps| ulps > 0), "{evidence}");
    let mismatches: Vec<_> = ended.events("mismatch").collect();
    let named = |mismatch: &Value| mismatch["core"].is_u64() && mismatch["element"] == "f64";
    assert!(mismatches.iter().all(|mismatch| mismatch["culprit"] == "1.0" && named(mismatch)), "{mismatches:?}");
}

#[test]
fn payloads_that_nobody_can_judge_are_compared_by_redrun() {
    let (ended, evidence) = evidence_of("heat", 2, "flip:1.1@#9");
    let named = [&evidence["one"], &evidence["other"], &evidence["other_is_right"]];
    assert_eq!(named, [&Value::from("1.0"), &Value::from("1.1"), &Value::from(false)], "{evidence}");
    assert!(evidence["one_value"] != evidence["other_value"], "{evidence}");
    let _ = ended.said(", the first in byte ");
}

#[test]
fn of_long_payloads_sketches_are_compared() {
    let (_, evidence) = evidence_of("ring", 2, "flip:0.1@#2");
    assert!(evidence["one_value"].is_null() && evidence["first_byte"].is_u64(), "{evidence}");
}

#[test]
fn what_changed_on_its_way_is_compared_with_what_was_sent() {
    for name in ["heat", "ring"] {
        let (ended, evidence) = evidence_of(name, 2, "wire:1.0@#2");
        let _ = ended.ended_with(0);
        assert_eq!((&evidence["one"], &evidence["other_is_right"]), (&Value::from("1.0"), &Value::from(true)));
    }
}
