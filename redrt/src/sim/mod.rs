//! A whole job in one process of the system, from one seed: the real library in each of its processes, over a network
//! that delays, orders between pairs as it likes, fills up and breaks; with losses of processes at any step.
//!
//! Real are the API, communicators, collectives, windows, decisions, engine and protocol. Simulated are the network
//! (`network`), `redrun` and the daemons (`job`), time, and the programs (`program`), which know the results that
//! MPI promises and check them.
//!
//! Each process has a thread and what a process has once (`process`). One of the threads runs at a time, and
//! which one does the seed says: a thread hands over where the library would sleep or yield (`actor`). So the same
//! seed is the same run, nothing sleeps, and a second of the job takes no time.

mod actor;
mod job;
mod network;
mod program;
#[cfg(test)]
mod tests;
mod world;

pub use crate::mutation::Mutation;
#[cfg(test)]
pub(crate) use job::welcome;
pub use job::{Failure, Options, Summary, run};
pub use program::Kind;

use std::time::Duration;

/// The time in a process that is simulated, in nanoseconds; `None` elsewhere.
pub(crate) fn now_ns() -> Option<u64> {
    world::with_current(world::World::tick)
}

/// Lets the calling process sleep until it is woken, at most so long. `false` where it is not simulated.
pub(crate) fn sleep(limit: Option<Duration>) -> bool {
    actor::sleep(limit.map(|limit| limit.as_nanos() as u64))
}

/// Takes a line for the user. `false` where the process is not simulated.
pub(crate) fn say(line: &dyn std::fmt::Display) -> bool {
    world::with_current(|world| world.lines.push(line.to_string())).is_some()
}

/// Something that a process does which it may be lost before; at some of them others may run first.
#[inline]
pub(crate) fn step(may_pause: bool) {
    actor::step(may_pause);
}

/// Ends the calling process, if it is simulated.
pub(crate) fn end_process() {
    actor::end();
}
