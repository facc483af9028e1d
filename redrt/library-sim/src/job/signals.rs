//! Signals that the user sends to a simulated job, and their arrival in its programs.

use super::SimulatedJob;
use crate::world::{self, Event};
use redrt_wire::control::ToAgent;
use simulation_kit::Random;
use std::sync::{Mutex, PoisonError};

process_local! {
    /// Signals that the program got, each with the number of its call.
    static RAISED: Mutex<Vec<u64>> = Mutex::new(Vec::new());
}

/// Records that the program of a process gets a signal at this call.
pub fn raise(signal: i32, call: u64) -> bool {
    let raised = world::with_current(|world| world.raised_count += 1);
    RAISED.lock().unwrap_or_else(PoisonError::into_inner).extend([u64::from(signal.cast_unsigned()), call]);
    raised.is_some()
}

/// Signals that the program of the calling process got.
pub fn raised() -> Vec<u64> {
    RAISED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

const SIGUSR1: i32 = 10;
const SIGUSR2: i32 = 12;

impl SimulatedJob {
    /// Chooses the moments of signals, in a part of all runs.
    pub(super) fn plan_signals(&mut self, seed: u64) {
        // From a sequence of its own, so that all else in a run stays as it is.
        let mut random = Random::stream(seed, "signals!");
        let count = if random.chance(60) { 0 } else { 1 + random.below(3) };
        let mut world = self.world();
        for _ in 0..count {
            let span = random.pick(&[10, 100, 1000]);
            let at_ns = world.now_ns + random.number() % (world.delay_ns_max * span);
            world.plan(at_ns, Event::Signal);
        }
    }

    /// Sends a signal to all processes, as `redrun` does.
    pub(super) fn send_signal(&mut self) {
        self.signal_count += 1;
        let number = self.signal_count;
        let signal = if number.is_multiple_of(2) { SIGUSR2 } else { SIGUSR1 };
        self.send_all(|_| ToAgent::Signal { number, signal });
    }
}
