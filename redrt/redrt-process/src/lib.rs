//! A process of a job, below its messages: its process-wide values, its clock, pauses of its threads, and its
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

/// Writes a line to standard error. `eprintln!` would panic when nobody reads it.
pub fn say(line: impl Display) {
    if simulation::say(&line) {
        return;
    }
    // Fails only if nobody is left to read it.
    let _ = stderr().write_all(format!("{line}\n").as_bytes());
}

/// Locks data that stays sound even if a thread panicked while it held the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
