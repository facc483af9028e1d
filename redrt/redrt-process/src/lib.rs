//! A process of a job, below its messages: what it has once, its clock, how its threads make room for others, and its
//! simulation.

#[macro_use]
mod local;

pub mod apart;
pub mod clock;
pub mod pause;
pub mod simulation;

use std::fmt::Display;
use std::io::{Write, stderr};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(any(test, feature = "simulation"))]
pub use local::{Local, PerThread, Process, Thread};

/// One line on standard error. `eprintln!` would end the program when nobody reads it.
pub fn say(line: impl Display) {
    if simulation::say(&line) {
        return;
    }
    // Nobody is left to be told.
    let _ = stderr().write_all(format!("{line}\n").as_bytes());
}

/// Locks data that stays sound whatever a thread did while it held the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
