//! A whole job in one process of the system, from one seed. The real library runs in each of the job's processes, over
//! a network that delays frames, keeps the order of each pair only, fills up and breaks. Processes are lost at any
//! step, and the job goes back to checkpoints.
//!
//! Real: the API, communicators, collectives, windows, decisions, engine and protocol. Simulated: the network and time
//! (`world`), `redrun` and the daemons (`job`), and the programs (`program`), which compute the results that MPI
//! promises and check them.
//!
//! Each process is a coroutine with the state that a process of the system has once (`redrt_process`). One of them runs
//! at a time. A process hands over where the library would sleep or yield (`world::actor`), and the seed chooses the
//! next one. So a seed is a run, nothing sleeps, and a second of the job takes no time.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[macro_use]
extern crate redrt_process;

mod job;
mod program;
#[cfg(test)]
mod tests;
mod world;
mod wrong;

pub use job::{Faults, LibrarySimulator, Shape, Summary};
pub use program::ProgramKind;
pub use redrt_runtime::mutation::Mutation;
pub use wrong::Wrong;

use job::signals;
use redrt_process::simulation::Simulation;
use world::actor;

/// Functions that the library calls in simulated processes.
static SIMULATION: Simulation = Simulation {
    now_ns: || world::with_current(world::World::tick),
    sleep: |limit| actor::sleep(limit.map(|limit| limit.as_nanos() as u64)),
    say: |line| world::with_current(|world| world.lines.push(line.to_string())).is_some(),
    step: actor::step,
    is_over: actor::is_over,
    end: actor::end,
    raise: signals::raise,
};
