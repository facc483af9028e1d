//! Calls of a simulated process to its simulation. Without the feature they do nothing.

use std::fmt::Display;
use std::time::Duration;

/// Functions of a simulation for its processes. Any thread may call each of them; for a thread of no simulated process
/// they return `None` or `false`, or do nothing.
#[cfg(any(test, feature = "simulation"))]
pub struct Simulation {
    /// Virtual time, in nanoseconds.
    pub now_ns: fn() -> Option<u64>,
    /// Sleeps until the process is woken, at most for this time.
    pub sleep: fn(Option<Duration>) -> bool,
    /// Takes a line for the user.
    pub say: fn(&dyn Display) -> bool,
    /// A point at which the process may be lost. If it may pause, other processes may run first.
    pub step: fn(bool),
    /// Returns true if the process has ended, and the calling thread drops its values.
    pub is_over: fn() -> bool,
    /// Ends the process.
    pub end: fn(),
    /// Raises this signal in the program, at this call.
    pub raise: fn(i32, u64) -> bool,
}

#[cfg(any(test, feature = "simulation"))]
static SIMULATION: std::sync::OnceLock<&'static Simulation> = std::sync::OnceLock::new();

/// Installs the simulation that threads may belong to. The first one stays.
#[cfg(any(test, feature = "simulation"))]
pub fn install(simulation: &'static Simulation) {
    SIMULATION.get_or_init(|| simulation);
}

/// Virtual time of the calling thread's simulated process, in nanoseconds; `None` outside of simulations.
#[inline(always)]
pub fn now_ns() -> Option<u64> {
    #[cfg(any(test, feature = "simulation"))]
    if let Some(simulation) = SIMULATION.get() {
        return (simulation.now_ns)();
    }
    None
}

/// Sleeps until the simulated process is woken, at most for this time. Returns false if the process is not simulated.
#[inline(always)]
pub fn sleep(limit: Option<Duration>) -> bool {
    #[cfg(any(test, feature = "simulation"))]
    if let Some(simulation) = SIMULATION.get() {
        return (simulation.sleep)(limit);
    }
    let _ = limit;
    false
}

/// Takes a line for the user. Returns false if the process is not simulated.
#[inline(always)]
pub fn say(line: &dyn Display) -> bool {
    #[cfg(any(test, feature = "simulation"))]
    if let Some(simulation) = SIMULATION.get() {
        return (simulation.say)(line);
    }
    let _ = line;
    false
}

/// Returns true if the simulated process has ended, and the calling thread drops its values.
#[inline(always)]
pub fn is_over() -> bool {
    #[cfg(any(test, feature = "simulation"))]
    if let Some(simulation) = SIMULATION.get() {
        return (simulation.is_over)();
    }
    false
}

/// Marks a point at which a simulated process may be lost. With `may_pause`, other processes may run first.
#[inline(always)]
pub fn step(may_pause: bool) {
    #[cfg(any(test, feature = "simulation"))]
    if let Some(simulation) = SIMULATION.get() {
        (simulation.step)(may_pause);
    }
    let _ = may_pause;
}

/// Raises this signal in the simulated program, at this call. Returns false if the process is not simulated.
#[inline(always)]
pub fn raise(signal: i32, call: u64) -> bool {
    #[cfg(any(test, feature = "simulation"))]
    if let Some(simulation) = SIMULATION.get() {
        return (simulation.raise)(signal, call);
    }
    let _ = (signal, call);
    false
}

/// Ends the calling process, if it is simulated.
#[inline(always)]
pub fn end_process() {
    #[cfg(any(test, feature = "simulation"))]
    if let Some(simulation) = SIMULATION.get() {
        (simulation.end)();
    }
}
