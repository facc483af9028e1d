//! A leader whose rank talks only to itself, with followers that reach the same position later, or never.

use super::super::Engine;
use super::super::payload::{Payload, Target};
use super::super::send::SendArguments;
use super::Job;
use crate::reading::{Patience, Reading};
use quiesce::StreamId;
use redrt_types::{ReplicaId, View, VirtualRank};
use sdc_detect::Element;

const CONTEXT: u64 = 7;

/// Above the lead that a leader may have: its follower's backlog, and the decisions under way.
const AHEAD_MAX: usize = 1500;

/// Sends a message to the own rank, and receives one from any source.
fn talk(engine: &mut Engine) {
    let mut place = [0; 8];
    engine.send(SendArguments {
        context: CONTEXT,
        source: 0,
        to: VirtualRank(0),
        tag: 3,
        payload: Payload::Owned(Box::new([5; 8])),
        element: Element::U8,
        synchronous: false,
    });
    let target = Target { start: place.as_mut_ptr(), capacity: 8, scatter: None };
    let request = engine.post(CONTEXT, None, None, target);
    assert!(engine.requests.is_complete(request));
    engine.requests.take(request);
    assert_eq!(place, [5; 8]);
}

fn is_crowded(engine: &mut Engine) -> bool {
    engine.agree(|sphere| sphere.is_crowded(CONTEXT))
}

fn early_count(engine: &mut Engine) -> usize {
    engine.agree(|sphere| sphere.early_count(CONTEXT))
}

/// Lets the first replica go on until it is crowded. Returns the number of its talks.
fn run_ahead(job: &mut Job, progress: fn(&mut Job)) -> usize {
    let times = (0..2 * AHEAD_MAX).position(|_| {
        progress(job);
        let is_crowded = is_crowded(&mut job.engines[0]);
        if !is_crowded {
            talk(&mut job.engines[0]);
        }
        is_crowded
    });
    times.expect("it is crowded some time")
}

#[test]
fn a_rank_that_talks_to_itself_waits_for_a_late_follower() {
    let mut job = Job::new(2);
    let ahead = run_ahead(&mut job, Job::progress);
    assert!(early_count(&mut job.engines[1]) <= ahead && ahead <= AHEAD_MAX, "{ahead}");
    let mut steps = 0;
    while is_crowded(&mut job.engines[0]) {
        assert!(steps < ahead, "its follower has come as far");
        talk(&mut job.engines[1]);
        job.progress();
        steps += 1;
    }
    assert!(steps > 0 && early_count(&mut job.engines[1]) <= 64);
    assert!(!is_crowded(&mut job.engines[1]), "a follower does not decide");
}

#[test]
fn who_talks_to_itself_waits_for_a_follower_that_hears_nothing() {
    let mut job = Job::new(2);
    // These rounds connect them.
    (0..10).for_each(|_| job.progress());
    let ahead = run_ahead(&mut job, |job| {
        job.engines[0].progress(1);
        job.engines[0].flush();
    });
    assert!(ahead <= AHEAD_MAX, "{ahead}");
    let completions = job.engines[0].requests.completions;
    (0..10).for_each(|_| job.progress());
    assert!(job.engines[0].requests.completions > completions, "who waits for that looks again");
}

#[test]
fn a_new_leader_waits_only_after_the_decided_operations() {
    let mut job = Job::new(3);
    run_ahead(&mut job, Job::progress);
    let view = View::initial(&job.engines[0].world.clone()).without(&[ReplicaId::new(0, 0)]);
    job.engines.iter_mut().skip(1).for_each(|engine| engine.apply_view(view.clone()));
    (0..100).for_each(|_| job.progress_of(1..));
    let early = early_count(&mut job.engines[1]);
    assert!(early > 256, "{early}");
    for _ in 0..early {
        assert!(!is_crowded(&mut job.engines[1]));
        talk(&mut job.engines[1]);
        job.progress_of(1..);
    }
    assert!(is_crowded(&mut job.engines[1]), "the last one has not come as far");
    while is_crowded(&mut job.engines[1]) {
        talk(&mut job.engines[2]);
        job.progress_of(1..);
    }
}

/// The leader's thread may have ended: then a vote would find two paths, and nobody to say which is right.
#[test]
fn a_follower_that_waits_for_a_reading_calls_no_vote() {
    let mut job = Job::new(2);
    let thread = StreamId::Thread(0);
    assert!(matches!(
        job.engines[1].agree(|sphere| sphere.ask_reading(thread, 1, &Patience::default())),
        Reading::Wait
    ));
    job.engines[1].agree(|sphere| sphere.announce_paths());
    (0..10).for_each(|_| job.progress());
    assert!(!job.engines[0].agree(|sphere| sphere.replica.has_questions()));
    // The follower is answered when its leader reads.
    assert!(matches!(
        job.engines[0].agree(|sphere| sphere.ask_reading(thread, 1, &Patience::default())),
        Reading::Decide
    ));
    job.engines[0].agree(|sphere| sphere.answer_reading(thread, 1, 5, 0));
    (0..10).for_each(|_| job.progress());
    assert!(matches!(
        job.engines[1].agree(|sphere| sphere.ask_reading(thread, 1, &Patience::default())),
        Reading::Decided(5)
    ));
}
