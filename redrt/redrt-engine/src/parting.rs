//! Two processes that hand one core to each other while another core is idle.
//!
//! A waiter that yields is never asleep. So the kernel does not look for an idle core for it, and takes it for too
//! recently run to be moved: two processes that wait for each other in turn may share a core for as long as they do so.
//! Each hand-over costs microseconds, where a cache line takes a tenth of one. What is decided here is a matter of
//! speed alone; nothing else depends on it.

use super::sleep::switches;
use libc::cpu_set_t;
use redrt_process::pause;

/// Waits that a yield has ended, after which it is counted who used the core meanwhile.
const WAITS: u32 = 32;

/// Of these waits, how many must have given the core to somebody else for the core to be called shared.
const SWITCHES_MIN: u64 = WAITS as u64 / 2;

/// Rows of [`WAITS`] on a shared core before it is asked whether another one is idle: half a millisecond, so that it
/// costs little beside the waits. The kernel's own balancing takes five to ten.
const PATIENCE: u32 = 4;

/// Most such rows: it is one more each time that it has asked.
const PATIENCE_MAX: u32 = 1024;

/// Watches how often this process's waits hand its core to others.
pub struct Parting {
    /// Waits since the last count.
    waits: u32,
    /// The thread's switches at the last count.
    switches: u64,
    /// Rows on a shared core, one after the other.
    rows: u32,
    /// As many are needed.
    patience: u32,
}

impl Default for Parting {
    fn default() -> Self {
        Self { waits: 0, switches: 0, rows: 0, patience: PATIENCE }
    }
}

impl Parting {
    /// A wait has been ended by a yield. `switches` counts how often somebody else was given the core. Whether it is
    /// worth asking for another core.
    pub fn has_waited(&mut self, switches: impl FnOnce() -> u64) -> bool {
        self.waits += 1;
        if self.waits < WAITS {
            return false;
        }
        self.waits = 0;
        let now = switches();
        // Not less than before, unless another thread waits now, or this process has been copied.
        let is_shared = now.saturating_sub(std::mem::replace(&mut self.switches, now)) >= SWITCHES_MIN;
        self.rows = if is_shared { self.rows + 1 } else { 0 };
        if self.rows < self.patience {
            return false;
        }
        self.rows = 0;
        self.patience = (self.patience + 1).min(PATIENCE_MAX);
        true
    }
}

/// Moves the calling thread to another core that it may use, if fewer threads run on this machine than it may use
/// cores: as its own core is shared, one of the others is idle then.
///
/// Which one is left to the kernel, so with many cores, and few of them idle, it may be the wrong one. What the thread
/// may use is as before afterwards.
pub fn part() {
    let before = switches();
    pause::yield_now();
    // Of two that share a core the other one may have left it just now.
    if switches() == before {
        return;
    }
    let Ok(load) = std::fs::read_to_string("/proc/loadavg") else { return };
    // SAFETY: - all zeros are an empty set.
    let mut allowed: cpu_set_t = unsafe { std::mem::zeroed() };
    let size = size_of::<cpu_set_t>();
    // SAFETY: - allowed is valid for writing of its size.
    let is_known = unsafe { libc::sched_getaffinity(0, size, &raw mut allowed) } == 0;
    // SAFETY: - allowed is a set.
    let count = unsafe { libc::CPU_COUNT(&allowed) } as u32;
    // SAFETY: - it has no arguments.
    let here = unsafe { libc::sched_getcpu() };
    let (true, Ok(here)) = (is_known && count > 1, usize::try_from(here)) else { return };
    if runnable(&load).is_none_or(|running| running > count) {
        return;
    }
    let mut others = allowed;
    // SAFETY: - the kernel has filled a set of this size, so it has no core beyond.
    //         - both sets are valid for reading of their size.
    unsafe {
        libc::CPU_CLR(here, &mut others);
        libc::sched_setaffinity(0, size, &raw const others);
        libc::sched_setaffinity(0, size, &raw const allowed);
    }
}

/// The threads that run or could run, of what `/proc/loadavg` says: `0.20 0.18 0.12 1/80 11206`.
fn runnable(load: &str) -> Option<u32> {
    load.split_ascii_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many waits it is worth asking, if each gives the core away so often.
    fn waits_before_asking(parting: &mut Parting, switches_per_wait: u64) -> Option<u32> {
        let mut switches = parting.switches;
        (1..=WAITS * PATIENCE_MAX * 2).find(|_| {
            switches += switches_per_wait;
            parting.has_waited(|| switches)
        })
    }

    #[test]
    fn only_who_hands_its_core_to_others_asks_and_ever_more_seldom() {
        let mut parting = Parting::default();
        assert_eq!(waits_before_asking(&mut parting, 0), None);
        for rows in PATIENCE..=PATIENCE_MAX {
            assert_eq!(waits_before_asking(&mut parting, 1), Some(WAITS * rows));
        }
        assert_eq!(waits_before_asking(&mut parting, 1), Some(WAITS * PATIENCE_MAX));
    }

    #[test]
    fn a_copy_whose_thread_has_switched_less_often_asks_as_well() {
        let mut parting = Parting { switches: 1_000_000, ..Parting::default() };
        let mut switches = 3;
        let asks = (1..=WAITS * (PATIENCE + 1)).find(|_| {
            switches += 1;
            parting.has_waited(|| switches)
        });
        assert_eq!(asks, Some(WAITS * (PATIENCE + 1)));
    }

    #[test]
    fn the_load_is_read_and_a_strange_one_says_nothing() {
        assert_eq!(runnable("0.20 0.18 0.12 13/80 11206\n"), Some(13));
        for strange in ["", "0.20 0.18 0.12", "0.20 0.18 0.12 13", "0.20 0.18 0.12 x/80 11206"] {
            assert_eq!(runnable(strange), None);
        }
    }

    #[test]
    fn who_has_parted_may_use_the_same_cores_as_before() {
        let allowed = || {
            // SAFETY: - all zeros are an empty set, valid for writing of its size.
            unsafe {
                let mut set: cpu_set_t = std::mem::zeroed();
                assert_eq!(libc::sched_getaffinity(0, size_of::<cpu_set_t>(), &raw mut set), 0);
                set
            }
        };
        let before = allowed();
        part();
        // SAFETY: - both are sets.
        assert!(unsafe { libc::CPU_EQUAL(&before, &allowed()) });
    }
}
