//! A whole job on one thread from one seed: spheres of replicas that run MPI programs over an asynchronous network,
//! with deaths, fencing, late views and flipped bits.
//!
//! [`Replica`](crate::Replica), [`matching`](crate::matching) and digests are real. Programs ([`program`]), network,
//! coordinator and faults are simulated. The same seed and options give the same run on any machine.

mod app;
mod arbitration;
mod broken;
mod check;
mod checkpoints;
mod collectors;
mod joins;
#[cfg(test)]
mod model;
mod paths;
mod process;
pub mod program;
mod resets;
mod rest;
#[cfg(test)]
mod tests;
mod world;

pub use broken::{Broken, FalseReport};

use crate::view::Protocol;
use simulation_kit::{Refusal, Setup, Simulator, Violation, parsed};
use std::fmt;

simulation_kit::named! {
    /// The kind of faults in a run.
    pub enum Faults {
        /// No faults at all.
        None,
        /// Replicas die or are fenced.
        Deaths,
        /// Connections break between processes that live, and replicas may die too.
        Resets,
        /// A payload is corrupted on the way, and a replica may die.
        Wire,
        /// A replica sends a payload that its memory corrupted.
        Memory,
        /// A payload is corrupted in the log from which it is sent again, and replicas die to make that happen.
        Log,
        /// Copies are made, several at a time. Sources, spares and partners die at every step, and replicas are
        /// retired.
        Clones,
        /// Ranks have two replicas, and copies of both that wait until the two differ. A replica sends a payload that
        /// its memory corrupted, before or after it was copied. Any process dies at any time.
        Arbitration,
        /// Images are taken of one replica of each rank, and all go on from them. Replicas die before and after.
        Checkpoints,
        /// One replica's program makes one call more, or less, or another, or goes on with other data. A replica may
        /// die.
        Path,
        /// Ranks have two replicas, and copies of both that wait until the two differ. One replica's program leaves the
        /// path of the other, or has the cause of it in its memory when it is copied. Any process dies at any time.
        PathArbitration,
        /// The program reads a clock. So does its runtime, at moments of its own in each replica, like a garbage
        /// collector. Replicas die, and copies join.
        Collectors,
        /// Memory is corrupted at rest in one replica of three or more, which is copied before and after. Replicas die,
        /// and those that are named are replaced.
        Rest,
    }
}

impl Faults {
    /// The kinds that a seed chooses from. Those that need more runs are listed more often. In some of the runs with
    /// deaths or without faults, connections break too.
    pub const DRAWN: [Self; 6] = [Self::None, Self::Deaths, Self::Deaths, Self::Deaths, Self::Wire, Self::Memory];
}

/// Fixed properties of a run. The seed chooses those that are absent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    /// Calls are not counted where outcomes are asked for, as in jobs whose replicas need not make the same. No program
    /// leaves its path then.
    pub uncounted: bool,
    /// Number of virtual ranks.
    pub rank_count: Option<u32>,
    /// Degree of every rank.
    pub degree: Option<u16>,
    /// The way in which payloads are compared.
    pub protocol: Option<Protocol>,
}

/// Counts of the events in a run that was right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// The kind of faults the seed chose.
    pub faults: Option<Faults>,
    /// Number of events in the run.
    pub steps: u64,
    /// Sends of all processes.
    pub messages: u64,
    /// Sum of the decisions that each process knows.
    pub decisions: u64,
    /// Number of replicas lost.
    pub deaths: u64,
    /// Number of connections that broke.
    pub resets: u64,
    /// Number of copies that joined.
    pub joins: u64,
    /// Copies that were given up before they had joined.
    pub abandoned: u64,
    /// Replicas that left because they were not wanted any more.
    pub retired: u64,
    /// Members of `retired` that were the only replicas of their ranks, and whose copies took their parts.
    pub moved: u64,
    /// Number of checkpoints that were taken.
    pub checkpoints: u64,
    /// Number of returns of all processes to a checkpoint.
    pub returns: u64,
    /// Number of mismatches reported.
    pub reports: u64,
    /// Replicas that were ended because a message for them was corrupt in every log.
    pub withheld: u64,
    /// Copies that were let in to judge.
    pub arbiters: u64,
    /// Runs in which the corrupt replica of two, or the one that had left its path, was named.
    pub named: u64,
    /// Runs in which the verdict stayed undecidable.
    pub open: u64,
    /// Sound replicas that were outvoted, without blame, after a message that no vote could decide.
    pub misnamed: u64,
    /// Readings of clocks that a runtime made alone.
    pub alone: u64,
    /// Comparisons of memory after which replicas no longer counted as kin.
    pub proven: u64,
}

/// The failure of a run.
#[derive(Clone, Debug, thiserror::Error)]
#[error("after {step} events: {broken}{state}")]
pub struct Failure {
    /// Number of events before it.
    pub step: u64,
    /// The property that does not hold.
    pub broken: Broken,
    /// The state of all processes, a line each.
    pub state: String,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { steps, messages, decisions, deaths, resets, joins, reports, .. } = self;
        let faults = self.faults.unwrap_or(Faults::None);
        write!(f, "faults {faults:?}, {steps} events, {messages} messages, {decisions} decisions, {deaths} deaths, ")?;
        write!(f, "{resets} resets, {joins} joins, {reports} reports")
    }
}

/// The simulator of the protocol.
pub enum ProtocolSimulator {}

impl Simulator for ProtocolSimulator {
    const NAME: &'static str = "protocol";
    const ABOUT: &'static str = "The replication protocol: spheres of replicas with deaths, joins and flipped bits";
    type Faults = Faults;
    type Mistake = crate::Mutation;
    type Shape = Shape;
    type Summary = Summary;

    fn run(seed: u64, setup: &Setup<Self>) -> Result<Summary, Violation> {
        world::Simulation::new(seed, setup).run().map_err(Violation::of)
    }

    fn fix(shape: &mut Shape, option: &str, value: &str) -> Result<(), Refusal> {
        match (option, value) {
            ("rank-count", _) => shape.rank_count = Some(parsed(option, value)?),
            ("degree", _) => shape.degree = Some(parsed(option, value)?),
            ("protocol", "hash") => shape.protocol = Some(Protocol::Hash),
            ("protocol", "all-to-all") => shape.protocol = Some(Protocol::AllToAll),
            ("protocol", _) => {
                let (option, value, of) = (option.to_owned(), value.to_owned(), "hash, all-to-all".to_owned());
                return Err(Refusal::Value { option, value, of });
            }
            ("uncounted", _) => shape.uncounted = true,
            _ => return Err(Refusal::NoOption { simulator: Self::NAME, option: option.to_owned() }),
        }
        Ok(())
    }

    fn options(shape: &Shape) -> String {
        let option = |name, value: Option<String>| value.map(|value| format!(" --{name} {value}"));
        let protocol = shape.protocol.map(|protocol| match protocol {
            Protocol::Hash => "hash".to_owned(),
            Protocol::AllToAll => "all-to-all".to_owned(),
        });
        let options = [
            option("rank-count", shape.rank_count.map(|count| count.to_string())),
            option("degree", shape.degree.map(|degree| degree.to_string())),
            option("protocol", protocol),
            shape.uncounted.then(|| " --uncounted".to_owned()),
        ];
        options.into_iter().flatten().collect()
    }
}
