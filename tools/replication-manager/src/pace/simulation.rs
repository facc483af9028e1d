//! Simulates a rank whose replicas compute at their own speeds and wait for each other. One of them may stop, or never
//! end a computation.

use super::*;
use simulation_kit::{Named, Random, Setup, Simulator, Violation};

const DEGREE: usize = 3;

simulation_kit::named! {
    /// The fault of one of the replicas.
    pub enum Faults {
        /// No replica has one.
        None,
        /// The replica neither answers nor computes.
        Stopped,
        /// The replica answers that it is at work, for ever.
        Loops,
    }
}

simulation_kit::named! {
    /// A planted mistake.
    pub enum Mistake {
        /// With a factor of 1, a slow replica is taken for one that stands still.
        Impatience,
    }
}

/// Milliseconds.
type Time = u64;

struct Replica {
    /// Time for a computation, in percent of the fastest replica's.
    slowness: u64,
    calls: u64,
    /// Time of its next call. None while it waits for its siblings.
    arrives: Option<Time>,
    fault: Faults,
    /// Time of its next answer. None if it was not asked.
    answers: Option<Time>,
}

/// The longest computation of the slowest replica.
const LONGEST: Time = 900_000;

/// The simulator of one rank's pace.
pub enum PaceSimulator {}

impl Simulator for PaceSimulator {
    const NAME: &'static str = "pace";
    const ABOUT: &'static str = "A rank whose replicas compute at their own speeds: which of them lags";
    type Faults = Faults;
    type Mistake = Mistake;
    type Shape = ();
    type Summary = String;

    fn run(seed: u64, setup: &Setup<Self>) -> Result<String, Violation> {
        let mut random = Random::stream(seed, "faults");
        let fault = setup.faults.unwrap_or_else(|| random.pick(Faults::ALL));
        let when = random.within(1_000..LONGEST);
        // The siblings of a replica at fault come to their next call, and then wait for four times the longest
        // computation.
        let end = if fault == Faults::None { 2_000_000 } else { when + 5 * LONGEST + 60_000 };
        let told = play(seed, setup, (fault, when), end)?;
        match (fault, told) {
            (Faults::None, _) => Ok("no replica lags".into()),
            (_, Some((replica, at))) => Ok(format!("{fault:?} at {when} ms, replica {replica} lags at {at} ms")),
            (_, None) => Err(format!("{fault:?} at {when} ms is not found within {end} ms").into()),
        }
    }
}

/// Simulates until `end`, or until a replica is said to lag behind two siblings. Returns that replica and the time.
fn play(
    seed: u64,
    setup: &Setup<PaceSimulator>,
    (fault, when): (Faults, Time),
    end: Time,
) -> Result<Option<(u16, Time)>, String> {
    let mut random = Random::new(seed);
    let replicas: Vec<_> = (0..DEGREE as u16).map(|index| ReplicaId::new(0, index)).collect();
    let victim = random.below(DEGREE);
    let mut rank: Vec<_> = (0..DEGREE)
        .map(|_| random.pick(&[100, 100, 150, 300]))
        .map(|slowness| Replica { slowness, calls: 0, arrives: Some(0), fault: Faults::None, answers: None })
        .collect();
    let factor = if setup.has(Mistake::Impatience) { 1 } else { FACTOR };
    let mut watch = PaceWatch { factor, ..PaceWatch::new(None) };
    let (mut next_wave, mut now) = (0, 0);
    let mut compute = 10;
    while now < end {
        now += 250;
        let clock = Duration::from_millis(now);
        if now >= when {
            rank[victim].fault = fault;
        }
        // Now and then a computation is much longer than all before.
        if random.one_in(400) {
            compute = random.pick(&[10, 500, 20_000, 300_000]);
            setup.trace.say(|| format!("{now:>8} computations take {compute} ms"));
        }
        let slowest = rank.iter().map(|replica| replica.calls).min().unwrap_or(0);
        for replica in rank.iter_mut().filter(|replica| replica.fault == Faults::None) {
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
                let late = if random.one_in(20) { 5_000 } else { 500 };
                replica.answers.get_or_insert(now + random.within(0..late));
            }
            next_wave = now + 8_000;
        }
        for (replica, id) in rank.iter_mut().zip(&replicas) {
            if replica.answers.is_some_and(|when| now >= when) && replica.fault != Faults::Stopped {
                replica.answers = None;
                let waits = replica.arrives.is_none() && replica.fault == Faults::None;
                setup.trace.say(|| format!("{now:>8} {id} is at call {}, waits: {waits}", replica.calls));
                watch.heard(clock, *id, replica.calls);
                watch.waits(clock, *id, waits);
            }
        }
        if rank.iter().all(|replica| replica.answers.is_none()) {
            next_wave = next_wave.min(now + 2_000);
        }
        let due = Duration::from_millis(next_wave);
        let found = watch.laggards(clock, due, &replicas).into_iter().filter(|laggard| laggard.ahead.len() > 1);
        let found: Vec<_> = found.map(|laggard| laggard.replica.index.0).collect();
        if let Some(wrong) = found.iter().find(|index| rank[usize::from(**index)].fault == Faults::None) {
            return Err(format!("replica {wrong} is said to lag at {now} ms, {fault:?}"));
        }
        if let Some(index) = found.first() {
            return Ok(Some((*index, now)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use simulation_kit::sweep;

    #[test]
    fn slow_replicas_are_not_said_to_lag() {
        sweep::right::<PaceSimulator>(0..60, &Setup::with(Faults::None));
    }

    #[test]
    fn too_little_patience_is_found() {
        sweep::finds::<PaceSimulator>(Mistake::ALL, 0..60, &Setup::with(Faults::None));
    }

    #[test]
    fn a_replica_that_stops_or_loops_is_found_in_time() {
        sweep::right::<PaceSimulator>(0..60, &Setup::with(Faults::Stopped));
        sweep::right::<PaceSimulator>(0..60, &Setup::with(Faults::Loops));
    }
}
