//! Other programs on the cores of this one, which do not wait for its messages.
//!
//! A waiter that yields lets every thread on its core run before its own next turn. Between processes of a job that is
//! short: they wait too. A program that computes keeps the core for a time slice of milliseconds, and several of them
//! for as many slices. A sleeper that is woken has its turn much sooner: the kernel prefers those that have run little.
//! So after a long yield waits begin with sleep, once and then twice as often each time a yield was long again. This
//! module affects speed alone; nothing else depends on it.

use redrt_process::clock::monotonic_ns;
use redrt_process::pause;
use std::sync::atomic::{AtomicU32, Ordering};

/// A yield of this length has let others use up a time slice. Linux's slices are of 1.4 ms with two cores, and longer
/// with more.
const LONG_NS: u64 = 1_000_000;

/// Bound on the waits without a yield: a rival's end is noticed after as many.
const SKIPPED_MAX: u32 = 1024;

process_local! {
    /// Waits left that begin with sleep.
    static LEFT: AtomicU32 = AtomicU32::new(0);
    /// Number of them after the last long yield.
    static SKIPPED: AtomicU32 = AtomicU32::new(0);
}

/// Returns true if a wait that begins may yield.
pub fn may_yield() -> bool {
    let left = LEFT.load(Ordering::Relaxed);
    LEFT.store(left.saturating_sub(1), Ordering::Relaxed);
    left == 0
}

/// Lets other threads use the core. Returns false if that took long: the rest of the wait is better spent asleep.
pub fn yield_now() -> bool {
    let since_ns = monotonic_ns();
    pause::yield_now();
    record(monotonic_ns() - since_ns)
}

fn record(took_ns: u64) -> bool {
    let is_short = took_ns < LONG_NS;
    let skipped = if is_short { 0 } else { (SKIPPED.load(Ordering::Relaxed) * 2).clamp(1, SKIPPED_MAX) };
    SKIPPED.store(skipped, Ordering::Relaxed);
    LEFT.store(skipped, Ordering::Relaxed);
    is_short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_sleep_more_often_the_longer_a_rival_stays() {
        let mut skipped = Vec::new();
        for _ in 0..12 {
            assert!(!record(LONG_NS));
            skipped.push((0..).take_while(|_| !may_yield()).count());
        }
        assert_eq!(skipped, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024]);
        assert!(record(LONG_NS - 1) && may_yield() && may_yield());
        assert!(!record(LONG_NS));
        assert_eq!((may_yield(), may_yield()), (false, true));
    }
}
