//! How a thread makes room for others that is not asleep on the transports.

use std::time::Duration;

/// Lets others use the core.
pub fn yield_now() {
    #[cfg(any(test, feature = "simulation"))]
    if crate::sim::sleep(Some(Duration::ZERO)) {
        return;
    }
    std::thread::yield_now();
}

/// Lets others use the core for so long.
pub fn sleep(time: Duration) {
    #[cfg(any(test, feature = "simulation"))]
    if crate::sim::sleep(Some(time)) {
        return;
    }
    std::thread::sleep(time);
}
