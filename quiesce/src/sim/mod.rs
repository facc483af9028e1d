//! A whole job on one thread from one seed: spheres of replicas that run MPI programs over an asynchronous network,
//! with deaths, fencing, late views and flipped bits.
//!
//! What is real: [`Replica`](crate::Replica), [`matching`](crate::matching), digests. What is simulated: programs
//! ([`program`]), network, coordinator, faults. The same seed and options give the same run on any machine.

mod app;
mod arbitration;
mod broken;
mod check;
mod collectors;
mod joins;
mod lines;
#[cfg(test)]
mod model;
mod paths;
mod process;
pub mod program;
pub mod random;
mod resets;
mod rest;
#[cfg(test)]
mod tests;
mod world;

pub use broken::{Broken, FalseReport};

use crate::view::Protocol;

/// What kind of faults a run has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Faults {
    /// None.
    None,
    /// Replicas die or are fenced.
    Deaths,
    /// Connections break between processes that live; replicas may die, too.
    Resets,
    /// A payload is corrupted on the way; a replica may die.
    Wire,
    /// A replica sends a payload that its memory corrupted.
    Memory,
    /// A payload is corrupted where it is kept to be sent again; replicas die, so that it is.
    Log,
    /// Copies are made, several at a time; sources, spares and partners die at every step; replicas are retired.
    Clones,
    /// Ranks have two replicas, and copies of both that wait until the two differ; a replica sends a payload that its
    /// memory corrupted, before or after it was copied; anybody dies at any time.
    Arbitration,
    /// Images are taken of one replica of each rank, and all go on from them; replicas die before and after.
    Lines,
    /// One replica's program makes one call more, or less, or another, or goes on with other data; a replica may die.
    Path,
    /// Ranks have two replicas, and copies of both that wait until the two differ. One replica's program leaves the
    /// path of the other, or what makes it do so is in its memory when it is copied; anybody dies at any time.
    PathArbitration,
    /// The program reads a clock, and so does its runtime, at moments of its own in each replica, as when it
    /// collects garbage; replicas die, and copies join.
    Collectors,
    /// Memory is corrupted at rest in one replica of three or more, which is copied before and after; replicas die, and
    /// who is named is replaced.
    Rest,
}

impl Faults {
    /// Every kind that a seed chooses from, those that need more runs more often. In some of the runs with deaths or
    /// nothing, connections break, too.
    pub const ALL: [Self; 6] = [Self::None, Self::Deaths, Self::Deaths, Self::Deaths, Self::Wire, Self::Memory];
}

/// What is fixed about a run; the seed chooses the rest.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Calls are not counted where outcomes are asked for, as in jobs whose replicas need not make the same. No program
    /// leaves its path then.
    pub uncounted: bool,
    /// Number of virtual ranks.
    pub rank_count: Option<u32>,
    /// Degree of every rank.
    pub degree: Option<u16>,
    /// How payloads are compared.
    pub protocol: Option<Protocol>,
    /// What goes wrong.
    pub faults: Option<Faults>,
    /// Is called with each line of the log.
    pub trace: Option<fn(&str)>,
    /// A bug in every process.
    #[cfg(any(test, feature = "mutation"))]
    pub mutation: Option<crate::Mutation>,
}

/// What happened in a run that was right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// The kind of faults the seed chose.
    pub faults: Option<Faults>,
    /// Events in all.
    pub steps: u64,
    /// Sends of all processes.
    pub messages: u64,
    /// Decisions known, over all processes.
    pub decisions: u64,
    /// Replicas lost.
    pub deaths: u64,
    /// Connections that broke.
    pub resets: u64,
    /// Copies that joined.
    pub joins: u64,
    /// Copies that were given up before they had joined.
    pub abandoned: u64,
    /// Replicas that left because they were not wanted any more.
    pub retired: u64,
    /// Of these, the only replicas of their ranks, whose copies took their parts.
    pub moved: u64,
    /// Lines that were taken.
    pub lines: u64,
    /// How often all went back to one.
    pub returns: u64,
    /// Mismatches reported.
    pub reports: u64,
    /// Replicas that were ended because a message for them was corrupt wherever it was kept.
    pub withheld: u64,
    /// Copies that were let in to judge.
    pub arbiters: u64,
    /// Runs in which a corrupt replica of two, or one that had left its path, was named, and in which the verdict
    /// stayed open.
    pub named: u64,
    /// See above.
    pub open: u64,
    /// Sound replicas that were outvoted after a message that nobody could judge, and not blamed.
    pub misnamed: u64,
    /// Readings of clocks that a runtime made alone.
    pub alone: u64,
    /// Comparisons of memory after which replicas were not kin any more.
    pub proven: u64,
}

/// What went wrong in a run.
#[derive(Clone, Debug, thiserror::Error)]
#[error("after {step} events: {broken}{state}")]
pub struct Failure {
    /// After how many events.
    pub step: u64,
    /// What does not hold.
    pub broken: Broken,
    /// The state of all processes, a line each.
    pub state: String,
}

/// Runs one seed to its end.
///
/// # Errors
/// When a property does not hold.
///
/// # Panics
/// When an assertion in the machines fails.
pub fn run(seed: u64, options: &Options) -> Result<Summary, Failure> {
    world::Simulation::new(seed, options).run()
}
