//! Copies that were made earlier judge which of two replicas is wrong (`redrun --arbitrate`).

use crate::while_computing;
use redrt_tests::{Ended, Job, Running, compile_case, report};
use serde_json::Value;
use std::time::Duration;

/// Sends of a rank before its program waits, at least; they may be a few more.
const SENDS_BEFORE: usize = 44;

fn job(options: &[&str]) -> Job {
    Job::new(3, &compile_case("gated")).degree(2).options(options)
}

fn run(job: Job, disturb: impl FnOnce(&Running)) -> Ended {
    while_computing(Duration::from_secs(240), job, disturb)
}

/// Output of an undisturbed run.
fn undisturbed() -> String {
    run(job(&[]), |_| {}).ended_well().out
}

/// Waits until copies of both replicas of a rank have become ready `times` times.
fn wait_until_held(job: &Running, rank: u32, times: usize) {
    let is_of = |source: &Value, index| source.as_str() == Some(&format!("{rank}.{index}"));
    job.wait_until(&format!("copies of rank {rank}"), |job| {
        let audit = job.audit();
        let count =
            |index| audit.iter().filter(|record| record["event"] == "held" && is_of(&record["source"], index)).count();
        (0..2).all(|index| count(index) >= times)
    });
}

/// Flips a bit that a replica computes with.
fn flip(job: &Running, replica: &str) {
    job.signal_replica(replica, libc::SIGUSR1);
}

/// Rank, verdict and wrong replica of each arbitration.
fn verdicts<'a>(ended: &'a Ended) -> Vec<(u64, &'a str, Option<&'a str>)> {
    let verdict =
        |record: &'a Value| Some((record["rank"].as_u64()?, record["verdict"].as_str()?, record["culprit"].as_str()));
    ended.events("arbitration").filter_map(verdict).collect()
}

#[track_caller]
fn named(ended: &Ended, culprit: &str, out: &str) {
    let rank = culprit.split('.').next().and_then(|rank| rank.parse().ok()).unwrap();
    assert_eq!(verdicts(ended), [(rank, "named", Some(culprit))], "{ended}");
    assert_eq!(ended.out, out, "{ended}");
    let retired: Vec<_> = ended.events("retired").map(|record| &record["replica"]).collect();
    assert_eq!(retired, [culprit], "{ended}");
    assert!(ended.mismatches().iter().all(|mismatch| mismatch.action != "delivered"), "{ended}");
    // The rank never had fewer replicas, and the report names the judged one.
    let job = &report(&[ended])["jobs"][0];
    let windows = job["windows"].as_array().unwrap();
    assert!(windows.iter().all(|window| window["to_s"].is_number()), "{windows:?}");
    let incidents = job["incidents"].as_array().unwrap();
    let told: Vec<_> = incidents.iter().filter(|incident| incident["event"] == "arbitration").collect();
    assert_eq!((told.len(), &told[0]["replica"]), (1, &Value::from(culprit)), "{incidents:?}");
}

#[test]
fn a_flipped_payload_is_corrected_and_its_sender_replaced() {
    let out = undisturbed();
    for transport in ["shm", "tcp"] {
        for (culprit, rank, at) in [("1.1", 1, 4), ("2.0", 2, 9)] {
            let fault = format!("flip:{culprit}@#{}", SENDS_BEFORE + at);
            let job = job(&["--arbitrate", "--transport", transport]).inject(&fault);
            let ended = run(job, |job| wait_until_held(job, rank, 1)).ended_with(0);
            named(&ended, culprit, &out);
        }
    }
}

#[test]
fn what_flips_in_memory_after_the_copies_were_made_is_named() {
    let out = undisturbed();
    let ended = run(job(&["--arbitrate"]), |job| {
        wait_until_held(job, 1, 1);
        flip(job, "1.0");
    });
    named(&ended.ended_with(0), "1.0", &out);
}

/// The culprit is the leader of its rank, and then a follower: it asks for an outcome that its sibling does not ask
/// for.
#[test]
fn a_replica_that_parts_after_the_copies_were_made_is_named() {
    let out = undisturbed();
    for culprit in ["1.0", "1.1"] {
        let ended = run(job(&["--arbitrate"]), |job| {
            wait_until_held(job, 1, 1);
            job.signal_replica(culprit, libc::SIGALRM);
        });
        named(&ended.ended_with(0), culprit, &out);
    }
}

/// Two of the four then have the flip.
#[test]
fn what_flipped_before_they_were_made_stays_open() {
    let ended = run(job(&["--arbitrate=3"]), |job| {
        wait_until_held(job, 1, 1);
        flip(job, "1.1");
        // One copy may be under way at the flip; another is made after it.
        wait_until_held(job, 1, 3);
    });
    assert!(verdicts(&ended).iter().all(|(_, verdict, culprit)| *verdict == "open" && culprit.is_none()), "{ended}");
    // Copies of receivers that took both forms of the message may have left.
    assert!(ended.events("retired").all(|record| record["reason"] == "withheld"), "{ended}");
    assert_eq!(ended.events("strike").count(), 0, "{ended}");
    assert!(ended.mismatches().iter().any(|mismatch| mismatch.finding == "undecidable"), "{ended}");
}

#[test]
fn before_anything_is_held_a_difference_stays_open() {
    let ended = run(job(&["--arbitrate"]).inject("flip:1.1@#3"), |_| {});
    assert_eq!(ended.events("retired").count(), 0, "{ended}");
    assert!(verdicts(&ended).iter().all(|(_, _, culprit)| culprit.is_none()), "{ended}");
    assert!(ended.mismatches().iter().any(|mismatch| mismatch.action == "delivered"), "{ended}");
}

/// Long sends complete although copies that stand ready may ask for them, and the job ends like any other.
#[test]
fn copies_that_nobody_needs_are_in_nobodys_way() {
    let out = undisturbed();
    for transport in ["shm", "tcp"] {
        let ended = run(job(&["--arbitrate", "--transport", transport]), |job| {
            (0..3).for_each(|rank| wait_until_held(job, rank, 1))
        });
        assert_eq!(ended.ended_well().out, out);
    }
}

/// Nothing hangs when any replica dies before the verdict, and no sound one is named.
#[test]
fn replicas_that_die_while_others_judge_do_no_harm() {
    for victim in ["1.0", "0.0", "2.1"] {
        let fault = format!("flip:1.1@#{},kill:{victim}@#{}", SENDS_BEFORE + 4, SENDS_BEFORE + 6);
        let ended =
            run(job(&["--arbitrate"]).inject(&fault), |job| (0..3).for_each(|rank| wait_until_held(job, rank, 1)));
        assert!(!ended.hung(), "{ended}");
        assert!(verdicts(&ended).iter().all(|(_, _, culprit)| culprit.is_none_or(|it| it == "1.1")), "{ended}");
    }
}
