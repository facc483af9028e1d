use super::*;
use crate::Program;
use std::time::Duration;

fn trial(place: FlipSite, degree: u16, fault: &str, options: &[&'static str]) -> Trial {
    let program = Program::named("heat").unwrap();
    Trial { program, degree, place, target: (1, 0), fault: fault.into(), options: options.to_vec() }
}

fn ended(out: &str, code: i32, summary: Value, audit: &[Value]) -> Ended {
    Ended {
        command: String::new(),
        code: Some(code),
        out: out.into(),
        err: String::new(),
        took: Duration::ZERO,
        summary,
        audit: audit.to_vec(),
        log: String::new(),
        verified: (Some(0), String::new()),
        stuck: Vec::new(),
        left: Vec::new(),
    }
}

fn sums(first: u64, second: Option<u64>) -> Value {
    json!({ "exits": [{ "replica": "1.0", "sent_sum": first }, { "replica": "1.1", "sent_sum": second }], "lost": [] })
}

fn injected(fault: &str) -> Value {
    json!({ "event": "injected", "replica": "1.0", "fault": fault })
}

fn heap() -> Value {
    injected("bit 3 of the word at 0x1 (heap) flipped before send 2")
}

#[track_caller]
fn fate(trial: &Trial, ended: &Ended) -> (Fate, bool, bool) {
    let record = judge(trial, 1, ended, "right\n");
    assert_eq!(Record::from_json(&record.to_json()), Some(record.clone()));
    (record.fate, record.reached, record.corrected)
}

#[test]
fn nothing_wrong_sent_or_printed_is_masked() {
    let trial = trial(FlipSite::Heap, 2, "heap:1.0@#2", &[]);
    assert_eq!(fate(&trial, &ended("right\n", 0, sums(5, Some(5)), &[heap()])), (Fate::Masked, false, false));
    assert_eq!(fate(&trial, &ended("right\n", 0, sums(5, Some(5)), &[])), (Fate::NotInjected, false, false));
}

#[test]
fn silence_about_something_wrong_is_a_miss() {
    let trial = trial(FlipSite::Heap, 2, "heap:1.0@#2", &[]);
    assert_eq!(fate(&trial, &ended("right\n", 0, sums(5, Some(6)), &[heap()])), (Fate::Missed, true, true));
    assert_eq!(fate(&trial, &ended("wrong\n", 0, sums(5, Some(5)), &[heap()])), (Fate::Missed, true, false));
    // A lost replica reports no sum.
    assert_eq!(fate(&trial, &ended("right\n", 0, sums(5, None), &[heap()])), (Fate::Masked, false, false));
}

#[test]
fn an_end_aloud_is_no_miss() {
    let trial = trial(FlipSite::Heap, 2, "heap:1.0@#2", &[]);
    let mut summary = sums(5, None);
    summary["lost"] = json!(["1.0"]);
    assert_eq!(fate(&trial, &ended("right\n", 0, summary, &[heap()])), (Fate::Ended, false, false));
    assert_eq!(fate(&trial, &ended("", 9, sums(5, None), &[heap()])), (Fate::Ended, false, false));
}

#[test]
fn a_sound_replica_that_is_lost_with_the_struck_one_is_lost() {
    let three = trial(FlipSite::Thread, 3, "thread:1.0@#2", &[]);
    let flip = injected("bit 3 of rax flipped 17 instructions after send 2, at app+0x10");
    let judged = |lost: &[&str]| {
        let mut summary = sums(5, Some(5));
        summary["lost"] = json!(lost);
        fate(&three, &ended("right\n", 0, summary, std::slice::from_ref(&flip))).0
    };
    assert_eq!(judged(&[]), Fate::Masked);
    assert_eq!(judged(&["1.0"]), Fate::Ended);
    assert_eq!(judged(&["1.0", "2.1"]), Fate::Lost);
}

#[test]
fn a_payload_damaged_by_the_flipped_replica_is_detected() {
    let three = trial(FlipSite::Thread, 3, "thread:1.0@#2", &[]);
    let flip = injected("bit 3 of rax flipped 17 instructions after send 2, at app+0x10");
    let of = |supplier: &str, receiver: &str| {
        let damaged = json!({
            "event": "mismatch", "finding": "transport-corrupt", "supplier": supplier, "receiver": receiver, "sender": 1
        });
        fate(&three, &ended("right\n", 0, sums(5, Some(5)), &[flip.clone(), damaged])).0
    };
    assert_eq!(of("1.0", "2.0"), Fate::Detected);
    assert_eq!(of("2.0", "1.0"), Fate::Detected);
    assert_eq!(of("2.0", "2.1"), Fate::False);
}

#[test]
fn the_right_replica_must_be_named_and_no_other() {
    let three = trial(FlipSite::Received, 3, "recv:1.0@#2", &[]);
    let flip = injected("bit 3 of received message 2 flipped in its buffer");
    let names =
        |culprit: &str| json!({ "event": "mismatch", "finding": "replica-corrupt", "culprit": culprit, "sender": 1 });
    let judged = |audit: &[Value]| fate(&three, &ended("right\n", 0, sums(5, Some(5)), audit));
    assert_eq!(judged(&[flip.clone(), names("1.0")]), (Fate::Detected, true, true));
    assert_eq!(judged(&[flip.clone(), names("1.0"), names("2.1")]).0, Fate::False);
    assert_eq!(judged(&[names("1.0")]).0, Fate::False);
    let deferred = trial(FlipSite::Received, 3, "recv:1.0@#2", &["--verify", "deferred"]);
    let both = ended("right\n", 0, sums(5, Some(5)), &[flip, names("1.0"), names("2.0")]);
    assert_eq!(fate(&deferred, &both).0, Fate::Detected);
}

#[test]
fn at_two_replicas_the_votes_must_be_those_of_the_rank() {
    let two = trial(FlipSite::Payload, 2, "flip:1.0@#2", &[]);
    let flip = injected("bit 3 of the payload of send 2 flipped in memory");
    let open = |voter: &str| json!({ "event": "mismatch", "finding": "undecidable", "votes": [{ "replica": voter }] });
    let judged = |audit: &[Value]| fate(&two, &ended("wrong\n", 0, sums(5, Some(6)), audit));
    assert_eq!(judged(&[flip.clone(), open("1.0")]), (Fate::Detected, true, false));
    assert_eq!(judged(&[flip.clone(), open("2.0")]).0, Fate::Missed);
    assert_eq!(judged(&[flip]).0, Fate::Missed);
}

#[test]
fn a_line_that_is_printed_wrong_must_be_told() {
    let printed = trial(FlipSite::Output, 3, "stdout:1.0@#2", &[]);
    let flip = injected("bit 3 of a byte of line 2 of standard output flipped");
    let names = |culprit: &str| json!({ "event": "output-mismatch", "rank": 1, "culprit": culprit });
    let judged = |audit: &[Value]| fate(&printed, &ended("right\n", 0, sums(5, Some(5)), audit));
    assert_eq!(judged(&[flip.clone(), names("1.0")]), (Fate::Detected, true, true));
    assert_eq!(judged(&[flip.clone(), names("1.1")]).0, Fate::False);
    assert_eq!(judged(&[flip]), (Fate::Missed, true, true));
}

#[test]
fn a_replica_on_another_path_is_named_and_two_of_three_go_on() {
    let (two, three) = (trial(FlipSite::Path, 2, "path:1.0@#2", &[]), trial(FlipSite::Path, 3, "path:1.0@#2", &[]));
    let fault = injected("outcome falsified at MPI call 2: a clock is an hour late");
    let path = |culprits: &[&str]| json!({ "event": "path", "rank": 1, "culprits": culprits });
    let judged = |trial: &Trial, out: &str, audit: &[Value]| fate(trial, &ended(out, 0, sums(5, Some(5)), audit)).0;
    assert_eq!(judged(&three, "right\n", &[fault.clone(), path(&["1.0"])]), Fate::Detected);
    assert_eq!(judged(&three, "right\n", &[fault.clone(), path(&["1.1"])]), Fate::False);
    assert_eq!(judged(&three, "wrong\n", &[fault.clone(), path(&["1.0"])]), Fate::Lost);
    assert_eq!(judged(&two, "wrong\n", &[fault.clone(), path(&[])]), Fate::Detected);
    let retired = json!({ "event": "retired", "replica": "1.1", "reason": "diverged" });
    assert_eq!(judged(&three, "right\n", &[fault, path(&["1.0"]), retired]), Fate::False);
}

#[test]
fn the_trigger_of_a_resend_is_no_detection_of_the_flip() {
    let log = trial(FlipSite::Log, 2, "log:1.0@#2,wire:1.1@#2", &[]);
    let flip = injected("bit 3 of a payload of 8 bytes flipped in the retention log");
    let of = |supplier: &str| json!({ "event": "mismatch", "finding": "transport-corrupt", "supplier": supplier, "sender": 1 });
    let judged = |audit: &[Value]| fate(&log, &ended("right\n", 0, sums(5, Some(5)), audit));
    assert_eq!(judged(&[flip.clone(), of("1.1")]), (Fate::Masked, false, false));
    assert_eq!(judged(&[flip.clone(), of("1.1"), of("1.0")]), (Fate::Detected, true, true));
    let mut taken = sums(5, Some(5));
    (taken["exits"][0]["received_sum"], taken["exits"][1]["received_sum"]) = (json!(7), json!(8));
    assert_eq!(fate(&log, &ended("right\n", 0, taken, &[flip, of("1.1")])), (Fate::Missed, true, true));
}
