//! How a thread makes room for others that is not asleep on the transports.

use crate::simulation;
use std::time::Duration;

/// Lets others use the core.
pub fn yield_now() {
    if !simulation::sleep(Some(Duration::ZERO)) {
        std::thread::yield_now();
    }
}

/// Lets others use the core for so long.
pub fn sleep(time: Duration) {
    if !simulation::sleep(Some(time)) {
        std::thread::sleep(time);
    }
}
