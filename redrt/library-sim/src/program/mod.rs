//! Programs with known results: every process computes the expected result of each operation by itself.

mod collectives;
mod communicators;
mod files;
pub mod leaving;
mod messages;
pub(crate) mod mpi;
mod saving;
mod updates;
mod windows;

use mpi::mpi;
use redrt::exports::*;
use redrt_abi::handle::CommHandle;
use simulation_kit::Named;
use simulation_kit::random::{Random, mix};

simulation_kit::named! {
    /// Work of a program.
    pub enum ProgramKind {
        /// Messages from named sources, blocking and not.
        Messages,
        /// Receives from any source, waits for any of several.
        Wildcards,
        /// Tests and probes in loops.
        Polls,
        /// Receives from any source, tests and readings of clocks in one loop; what is left is cancelled.
        Updates,
        /// Blocking collectives.
        Collectives,
        /// Collectives that are begun, several at a time.
        Nonblocking,
        /// Communicators that are made, used and freed.
        Communicators,
        /// One-sided communication: fences, locks, and epochs of groups.
        Windows,
        /// Checkpoints that the program asks for.
        Saving,
        /// Changes outside, of which each is made by one replica.
        Files,
        /// Some of all.
        Mixed,
    }
}

/// The program of a run, the same in all processes.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Seed from which the operations are drawn.
    pub seed: u64,
    /// Kind of the operations.
    pub kind: ProgramKind,
}

/// A process in a communicator, with numbers that all members share.
pub struct Member {
    /// `MPI_COMM_WORLD`, or a communicator of some of its processes.
    pub comm: CommHandle,
    /// Rank of the process in the communicator.
    pub rank: usize,
    /// Number of processes in the communicator.
    pub size: usize,
    /// Random numbers, the same in all members.
    pub common: Random,
    /// Results that MPI leaves open, the same in all replicas of this process.
    pub output: Vec<u64>,
}

impl Member {
    /// Word `number` of the contribution of `rank` to an operation.
    pub fn word(operation: u64, rank: usize, number: usize) -> u64 {
        mix(operation ^ (rank as u64) << 40 ^ number as u64)
    }

    /// The first `length` words of the contribution of `rank`.
    pub fn words(operation: u64, rank: usize, length: usize) -> Vec<u64> {
        (0..length).map(|number| Self::word(operation, rank, number)).collect()
    }

    /// A length in words: mostly short, sometimes of several frames.
    pub fn length(&mut self) -> usize {
        match self.common.below(10) {
            0 => 0,
            1..=5 => 1 + self.common.below(8),
            6..=8 => self.common.below(80),
            _ => self.common.below(2000),
        }
    }
}

/// Runs a program to its end as `rank` of `size`. Returns the results that MPI leaves open.
pub fn run(plan: Plan, rank: u32, size: u32) -> Vec<u64> {
    let mut member = Member {
        comm: CommHandle::WORLD,
        rank: rank as usize,
        size: size as usize,
        common: Random::new(plan.seed),
        output: Vec::new(),
    };
    let phases = 1 + member.common.below(4);
    for _ in 0..phases {
        let kind =
            if plan.kind == ProgramKind::Mixed { member.common.pick(&ProgramKind::ALL[..10]) } else { plan.kind };
        phase(&mut member, kind);
    }
    mpi!(call_finalize());
    member.output
}

/// Fails the run unless a result is the expected one.
#[track_caller]
fn same(found: &[u64], expected: &[u64], what: &str) {
    if let Some(at) = (0..found.len().max(expected.len())).find(|at| found.get(*at) != expected.get(*at)) {
        panic!("{what}: word {at} of {} is {:?} and not {:?}", expected.len(), found.get(at), expected.get(at));
    }
}

fn phase(member: &mut Member, kind: ProgramKind) {
    match kind {
        ProgramKind::Messages => messages::named(member),
        ProgramKind::Wildcards => messages::from_any(member),
        ProgramKind::Polls => messages::polled(member),
        ProgramKind::Updates => updates::exchanged(member),
        ProgramKind::Collectives => collectives::blocking(member),
        ProgramKind::Nonblocking => collectives::begun(member),
        ProgramKind::Communicators => communicators::made_and_freed(member),
        ProgramKind::Windows => windows::epochs(member),
        ProgramKind::Saving => saving::asked_for(member),
        ProgramKind::Files => files::changed(member),
        ProgramKind::Mixed => unreachable!("a phase is of one kind"),
    }
}
