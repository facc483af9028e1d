//! Where a simulated process has to do with its simulation. Without the feature all of it is nothing.

use std::fmt::Display;
use std::time::Duration;

/// What a simulation does for its processes. Each function is asked of any thread, and says of one that belongs to no
/// simulated process that it does nothing for it.
#[cfg(any(test, feature = "simulation"))]
pub struct Simulation {
    /// The time, in nanoseconds.
    pub now_ns: fn() -> Option<u64>,
    /// Lets the process sleep until it is woken, at most so long.
    pub sleep: fn(Option<Duration>) -> bool,
    /// Takes a line for the user.
    pub say: fn(&dyn Display) -> bool,
    /// The process may be lost here, and others may run first if it may pause.
    pub step: fn(bool),
    /// Whether the process has ended, and the calling thread drops what it had.
    pub is_over: fn() -> bool,
    /// Ends the process.
    pub end: fn(),
    /// The program gets this signal, at this call.
    pub raise: fn(i32, u64) -> bool,
}

#[cfg(any(test, feature = "simulation"))]
static SIMULATION: std::sync::OnceLock<&'static Simulation> = std::sync::OnceLock::new();

/// From now on threads may belong to processes of this simulation. The first one counts.
#[cfg(any(test, feature = "simulation"))]
pub fn install(simulation: &'static Simulation) {
    SIMULATION.get_or_init(|| simulation);
}

/// The time of the simulated process that the calling thread belongs to, in nanoseconds.
#[inline(always)]
pub fn now_ns() -> Option<u64> {
    #[cfg(any(test, feature = "simulation"))]
    if let Some(simulation) = SIMULATION.get() {
        return (simulation.now_ns)();
    }
    None
}

/// Lets a simulated process sleep until it is woken, at most so long. `false` where it is not simulated.
#[inline(always)]
pub fn sleep(limit: Option<Duration>) -> bool {
    #[cfg(any(test, feature = "simulation"))]
    if let Some(simulation) = SIMULATION.get() {
        return (simulation.sleep)(limit);
    }
    let _ = limit;
    false
}

/// Takes a line for the user. `false` where the process is not simulated.
#[inline(always)]
pub fn say(line: &dyn Display) -> bool {
    #[cfg(any(test, feature = "simulation"))]
    if let Some(simulation) = SIMULATION.get() {
        return (simulation.say)(line);
    }
    let _ = line;
    false
}

/// Whether a simulated process has ended, and the calling thread drops what it had.
#[inline(always)]
pub fn is_over() -> bool {
    #[cfg(any(test, feature = "simulation"))]
    if let Some(simulation) = SIMULATION.get() {
        return (simulation.is_over)();
    }
    false
}

/// Something that a process does which it may be lost before; at some of them others may run first.
#[inline(always)]
pub fn step(may_pause: bool) {
    #[cfg(any(test, feature = "simulation"))]
    if let Some(simulation) = SIMULATION.get() {
        (simulation.step)(may_pause);
    }
    let _ = may_pause;
}

/// The program of a simulated process gets this signal, at this call. `false` where it is not simulated.
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
