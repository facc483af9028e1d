//! Whole jobs on three hosts, with a replica of each rank on each. One host may be slow, one replica may stop or never
//! end a computation. The replication manager must retire and name the right one, and no other.

use super::{card, settings};
use crate::{Input, OnStall, Output, ReplicationManager, Report};
use redrt_types::{ReplicaId, View};
use redrt_wire::control::{FromAgent, Passive};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::event::Statistics;
use simulation_kit::{Named, Random, Setup, Simulator, Trace, Violation};
use std::collections::BTreeMap;
use std::time::Duration;

const RANKS: u32 = 2;
const DEGREE: u16 = 3;
const STEP: Duration = Duration::from_millis(250);

simulation_kit::named! {
    /// The fault of a job.
    pub enum Faults {
        /// There is none.
        None,
        /// A replica neither answers nor computes.
        Stops,
        /// A replica answers that it is at work, for ever.
        Loops,
        /// All computations on a host take three times as long.
        SlowHost,
    }
}

simulation_kit::named! {
    /// A mistake that a test plants, to show that the simulation finds it.
    pub enum Mistake {
        /// A replica is given up before its computation can be over.
        Impatience,
        /// Replicas of rank 1 are taken to be on other hosts than they are.
        WrongPlacement,
        /// No replica is ever retired.
        Indifference,
        /// A replica that is awake in its call, for a frame, is taken not to wait there.
        AwakeIsAtWork,
    }
}

#[derive(Default)]
struct Process {
    calls: u64,
    /// Time of its next call. None while it waits for its siblings.
    arrives: Option<Duration>,
    /// Time of its next answer, and the wave that it answers.
    answers: Option<(Duration, u64)>,
}

struct Simulation {
    manager: ReplicationManager,
    seed: u64,
    random: Random,
    trace: Trace,
    now: Duration,
    view: View,
    processes: BTreeMap<ReplicaId, Process>,
    /// The replica of rank 0 that has the fault, or whose host has it.
    victim: ReplicaId,
    fault: Faults,
    mistake: Option<Mistake>,
    retired: Vec<ReplicaId>,
    slow: Vec<ReplicaId>,
}

impl Simulation {
    fn new(seed: u64, setup: &Setup<PacesSimulator>) -> Self {
        let mut random = Random::new(seed);
        let fault = setup.faults.unwrap_or_else(|| Random::stream(seed, "faults").pick(Faults::ALL));
        let (mistake, trace) = (setup.mistake, setup.trace);
        let mut settings = settings(&[DEGREE; RANKS as usize]);
        match mistake {
            Some(Mistake::Impatience) => settings.stall_time = Some(Duration::from_secs(5)),
            Some(Mistake::Indifference) => settings.on_stall = OnStall::Wait,
            _ => {}
        }
        let (world, view) = (settings.world.clone(), settings.view.clone());
        let mut manager = ReplicationManager::new(settings);
        let host = |replica: ReplicaId| match mistake {
            Some(Mistake::WrongPlacement) => (u32::from(replica.index.0) + replica.rank.0) % u32::from(DEGREE),
            _ => u32::from(replica.index.0),
        };
        manager.launched_on(world.replicas().map(host).collect());
        let processes = world.replicas().map(|replica| (replica, Process::default())).collect();
        let victim = ReplicaId::new(0, random.below(usize::from(DEGREE)) as u16);
        let now = Duration::ZERO;
        let (retired, slow) = (Vec::new(), Vec::new());
        let mut it = Self { manager, seed, random, trace, now, view, processes, victim, fault, mistake, retired, slow };
        for replica in world.replicas() {
            it.give(Input::Agent(replica, FromAgent::Hello));
            it.give(Input::Agent(replica, FromAgent::Ready(card(world.process(replica)))));
        }
        it
    }

    fn give(&mut self, input: Input) {
        self.manager.handle(self.now, input);
        while let Some(output) = self.manager.poll_output() {
            self.trace.say(|| format!("{:>9.2} {output:?}", self.now.as_secs_f64()));
            match output {
                Output::Send(ToDaemon::View(view)) => {
                    self.processes.retain(|replica, _| view.is_live(*replica));
                    self.view = view;
                }
                Output::Send(ToDaemon::Ask { wave }) => {
                    for process in self.processes.values_mut() {
                        let delay = Duration::from_millis(self.random.within(0..500));
                        process.answers = Some((self.now + delay, wave));
                    }
                }
                Output::Report(Report::Lags { laggard, is_retired: true }) => self.retired.push(laggard.replica),
                Output::Report(Report::SlowHost(slow)) => self.slow.push(slow.replica),
                Output::Finish(code) => panic!("the job ends with exit code {code}"),
                _ => {}
            }
        }
    }

    fn has_fault(&self, replica: ReplicaId, fault: Faults) -> bool {
        self.fault == fault && replica == self.victim
    }

    /// Lets all processes compute or wait for their siblings for one step, and answer the waves.
    fn step(&mut self) {
        self.now += STEP;
        let live: Vec<_> = self.processes.keys().copied().collect();
        for replica in &live {
            let siblings = self.processes.iter().filter(|(other, _)| other.rank == replica.rank);
            let slowest = siblings.map(|(_, process)| process.calls).min().unwrap_or(0);
            let is_slow = self.fault == Faults::SlowHost && replica.index == self.victim.index;
            let stands = self.has_fault(*replica, Faults::Stops) || self.has_fault(*replica, Faults::Loops);
            let process = self.processes.get_mut(replica).expect("it is live");
            match process.arrives {
                _ if stands && process.calls > 3 => process.arrives = Some(Duration::MAX),
                Some(arrives) if self.now >= arrives => (process.calls, process.arrives) = (process.calls + 1, None),
                None if slowest >= process.calls => {
                    // Replicas of a rank do the same work.
                    let mut random = Random::new(self.seed ^ ((process.calls << 8) | u64::from(replica.rank.0)));
                    let seconds = random.pick(&[1, 2, 5, 20]) * if is_slow { 3 } else { 1 };
                    process.arrives = Some(self.now + Duration::from_secs(seconds));
                }
                _ => {}
            }
        }
        for replica in live {
            let is_stopped = self.has_fault(replica, Faults::Stops);
            let Some(process) = self.processes.get_mut(&replica) else { continue };
            let is_due = process.answers.is_some_and(|(when, _)| self.now >= when);
            if !is_due || is_stopped && process.calls > 3 {
                continue;
            }
            let (_, wave) = process.answers.take().expect("it is due");
            let (calls, waits) = (process.calls, process.arrives.is_none());
            // Frames of other processes wake a replica that waits.
            let is_asleep = waits && !self.random.one_in(3);
            let passive = is_asleep.then(|| Passive {
                view: self.view.number,
                sent_bytes: calls,
                received_bytes: calls,
                places: 0,
                waits_for: vec!["a message".into()],
                awaits_leader: false,
            });
            self.give(Input::Agent(replica, FromAgent::Pace { calls }));
            let statistics = Statistics::default();
            let waits = if self.mistake == Some(Mistake::AwakeIsAtWork) { is_asleep } else { waits };
            self.give(Input::Agent(replica, FromAgent::Answer { wave, passive, waits, statistics }));
        }
        self.give(Input::Tick);
    }
}

/// The simulator of jobs in which a replica or a host falls behind.
pub enum PacesSimulator {}

impl Simulator for PacesSimulator {
    const NAME: &'static str = "paces";
    const ABOUT: &'static str = "Jobs on three hosts, one of them slow or with a replica that stands still";
    type Faults = Faults;
    type Mistake = Mistake;
    type Shape = ();
    type Summary = String;

    /// Simulates half an hour of a job.
    fn run(seed: u64, setup: &Setup<Self>) -> Result<String, Violation> {
        let mut simulation = Simulation::new(seed, setup);
        while simulation.now < Duration::from_secs(1800) {
            simulation.step();
        }
        let Simulation { fault, victim, retired, slow, .. } = simulation;
        let told = format!("{fault:?} at {victim}: {retired:?} retired, hosts of {slow:?} slow");
        let is_right = match fault {
            Faults::None => retired.is_empty() && slow.is_empty(),
            Faults::Stops | Faults::Loops => retired == [victim],
            Faults::SlowHost => retired.is_empty() && slow.len() == 1 && slow[0].index == victim.index,
        };
        if is_right { Ok(told) } else { Err(told.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simulation_kit::sweep;

    const SEEDS: u64 = 8;

    /// A slow host is named.
    #[test]
    fn a_stopped_or_looping_replica_is_retired() {
        for faults in Faults::ALL {
            sweep::right::<PacesSimulator>(0..SEEDS, &Setup::with(*faults));
        }
    }

    #[test]
    fn the_simulation_of_paces_finds_planted_mistakes() {
        let planted = [
            (Faults::SlowHost, Mistake::Impatience),
            (Faults::SlowHost, Mistake::WrongPlacement),
            (Faults::Stops, Mistake::Indifference),
            (Faults::Loops, Mistake::Indifference),
            (Faults::Loops, Mistake::AwakeIsAtWork),
        ];
        for (faults, mistake) in planted {
            sweep::finds::<PacesSimulator>(&[mistake], 0..SEEDS, &Setup::with(faults));
        }
    }
}
