//! A whole job in one process of the system, from one seed: the real library in each of its processes, over a network
//! that delays, orders between pairs as it likes, fills up and breaks; with losses of processes at any step, and lines
//! to which the job goes back.
//!
//! Real are the API, communicators, collectives, windows, decisions, engine and protocol. Simulated are the network
//! and time (`world`), `redrun` and the daemons (`job`), and the programs (`program`), which know the results that MPI
//! promises and check them.
//!
//! Each process has a thread and what a process has once (`redrt_process`). One of the threads runs at a time, and
//! which one does the seed says: a thread hands over where the library would sleep or yield (`world::actor`). So the
//! same seed is the same run, nothing sleeps, and a second of the job takes no time.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[macro_use]
extern crate redrt_process;

mod job;
mod program;
#[cfg(test)]
mod tests;
mod world;
mod wrong;

pub use job::{Failure, Options, Summary, run};
pub use program::Kind;
pub use redrt_runtime::mutation::Mutation;
pub use wrong::Wrong;

use job::signals;
use redrt_process::simulation::Simulation;
use world::actor;

/// What the library's processes ask of it.
static SIMULATION: Simulation = Simulation {
    now_ns: || world::with_current(world::World::tick),
    sleep: |limit| actor::sleep(limit.map(|limit| limit.as_nanos() as u64)),
    say: |line| world::with_current(|world| world.lines.push(line.to_string())).is_some(),
    step: actor::step,
    is_over: actor::is_over,
    end: actor::end,
    raise: signals::raise,
};
