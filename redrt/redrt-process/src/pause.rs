//! Pauses of a thread that does not sleep on the transports.

use crate::simulation;
use std::time::Duration;

/// Lets other threads use the core.
pub fn yield_now() {
    if !simulation::sleep(Some(Duration::ZERO)) {
        std::thread::yield_now();
    }
}

/// Lets other threads use the core for this time.
pub fn sleep(time: Duration) {
    if !simulation::sleep(Some(time)) {
        std::thread::sleep(time);
    }
}
