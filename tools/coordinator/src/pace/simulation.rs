//! Simulates a rank whose replicas compute at their own speeds and wait for each other. One of them may stop, or never
//! end a computation.

use super::*;
use fastrand::Rng;

const DEGREE: usize = 3;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    /// The replica neither answers nor computes.
    Stopped,
    /// The replica answers that it is at work, for ever.
    Loops,
}

/// Milliseconds.
type Time = u64;

struct Replica {
    /// Time for a computation, in percent of the fastest replica's.
    slowness: u64,
    calls: u64,
    /// Time of its next call. None while it waits for its siblings.
    arrives: Option<Time>,
    fault: Option<Fault>,
    /// Time of its next answer. None if it was not asked.
    answers: Option<Time>,
}

/// Simulates until `end`, or until a replica is said to lag behind two siblings. Returns that replica and the time.
fn run(seed: u64, factor: u32, fault: Option<(Fault, Time)>, end: Time) -> Result<Vec<(u16, Time)>, String> {
    let mut random = Rng::with_seed(seed);
    let replicas: Vec<_> = (0..DEGREE as u16).map(|index| ReplicaId::new(0, index)).collect();
    let victim = random.usize(..DEGREE);
    let slowness = |random: &mut Rng| [100, 100, 150, 300][random.usize(..4)];
    let mut rank: Vec<_> = (0..DEGREE)
        .map(|_| Replica { slowness: slowness(&mut random), calls: 0, arrives: Some(0), fault: None, answers: None })
        .collect();
    let mut watch = PaceWatch { factor, ..PaceWatch::new(None) };
    let (mut told, mut next_wave, mut now) = (Vec::new(), 0, 0);
    let mut compute = 10;
    while now < end && told.is_empty() {
        now += 250;
        let clock = Duration::from_millis(now);
        if let Some((what, when)) = fault
            && now >= when
        {
            rank[victim].fault = Some(what);
        }
        // Now and then a computation is much longer than all before.
        if random.u32(..400) == 0 {
            compute = [10, 500, 20_000, 300_000][random.usize(..4)];
        }
        let slowest = rank.iter().map(|replica| replica.calls).min().unwrap_or(0);
        for replica in rank.iter_mut().filter(|replica| replica.fault.is_none()) {
            match replica.arrives {
                Some(arrives) if now >= arrives => (replica.calls, replica.arrives) = (replica.calls + 1, None),
                // Its messages are compared when all siblings have sent them, and it goes on then.
                None if slowest >= replica.calls => replica.arrives = Some(now + compute * replica.slowness / 100),
                _ => {}
            }
        }
        if now >= next_wave {
            watch.asked(clock, &replicas);
            for replica in &mut rank {
                let late = if random.u32(..20) == 0 { 5_000 } else { 500 };
                replica.answers.get_or_insert(now + random.u64(..late));
            }
            next_wave = now + 8_000;
        }
        for (replica, id) in rank.iter_mut().zip(&replicas) {
            let answers = replica.answers.is_some_and(|when| now >= when) && replica.fault != Some(Fault::Stopped);
            if answers {
                replica.answers = None;
                watch.heard(clock, *id, replica.calls);
                watch.waits(clock, *id, replica.arrives.is_none() && replica.fault.is_none());
            }
        }
        if rank.iter().all(|replica| replica.answers.is_none()) {
            next_wave = next_wave.min(now + 2_000);
        }
        let due = Duration::from_millis(next_wave);
        let found = watch.laggards(clock, due, &replicas).into_iter().filter(|laggard| laggard.ahead.len() > 1);
        told.extend(found.map(|laggard| (laggard.replica.index.0, now)));
    }
    let is_right = |(index, _): &(u16, Time)| rank[usize::from(*index)].fault.is_some();
    if told.iter().all(is_right) { Ok(told) } else { Err(format!("seed {seed}: {told:?} lag, {fault:?}")) }
}

#[test]
fn slow_replicas_are_not_said_to_lag() {
    for seed in 0..60 {
        assert_eq!(run(seed, FACTOR, None, 2_000_000), Ok(Vec::new()));
    }
}

/// A planted mistake, a factor of 1, takes a slow replica for one that stands still.
#[test]
fn too_little_patience_is_found() {
    assert!((0..60).any(|seed| run(seed, 1, None, 2_000_000).is_err()));
}

#[test]
fn a_replica_that_stops_or_loops_is_found_in_time() {
    for seed in 0..120 {
        let fault = if seed % 2 == 0 { Fault::Stopped } else { Fault::Loops };
        let when = 1_000 + seed * 7_919 % 900_000;
        // Four times the longest computation of the slowest replica, and the time in which its siblings come to their
        // next call.
        let limit = when + 4 * 900_000 + 900_000 + 60_000;
        let told = run(seed, FACTOR, Some((fault, when)), limit);
        assert!(
            told.as_ref().is_ok_and(|told| !told.is_empty()),
            "{told:?}, seed {seed}: {fault:?} at {when} ms is not found within {limit} ms"
        );
    }
}
