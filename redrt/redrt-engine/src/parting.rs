//! Two processes that hand one core to each other while another core is idle.
//!
//! A waiter that yields is never asleep. So the kernel does not look for an idle core for it, and considers it too
//! recently run to be moved: two processes that wait for each other in turn may share a core for as long as they do so.
//! Each hand-over costs microseconds, where a cache line takes a tenth of one. This module affects speed alone; nothing
//! else depends on it.

use super::sleep::switches;
use libc::cpu_set_t;
use redrt_process::pause;

/// Waits ended by a yield, after which the hand-overs of the core are counted.
const WAITS: u32 = 32;

/// Hand-overs among these waits from which on the core counts as shared.
const SWITCHES_MIN: u64 = WAITS as u64 / 2;

/// Rows of [`WAITS`] on a shared core before looking for an idle one: half a millisecond, so that the look costs little
/// beside the waits. The kernel's own balancing takes five to ten.
const PATIENCE: u32 = 4;

/// Bound on those rows: each look adds one.
const PATIENCE_MAX: u32 = 1024;

/// Watches how often this process's waits hand its core to others.
pub struct Parting {
    /// Waits since the last count.
    waits: u32,
    /// The thread's switches at the last count.
    switches: u64,
    /// Rows on a shared core in succession.
    rows: u32,
    /// Rows needed before the next look.
    patience: u32,
}

impl Default for Parting {
    fn default() -> Self {
        Self { waits: 0, switches: 0, rows: 0, patience: PATIENCE }
    }
}

impl Parting {
    /// Counts a wait ended by a yield. `switches` counts the hand-overs of the core to others. Returns true if it is
    /// worth asking for another core.
    pub fn has_waited(&mut self, switches: impl FnOnce() -> u64) -> bool {
        self.waits += 1;
        if self.waits < WAITS {
            return false;
        }
        self.waits = 0;
        let now = switches();
        // It may have shrunk: another thread waits now, or this process has been copied.
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
/// cores: its own core is shared, so one of the others is idle then.
///
/// The kernel chooses the core, so with many cores and few of them idle it may choose the wrong one. Afterwards the
/// thread may use the same cores as before.
pub fn part() {
    let before = switches();
    pause::yield_now();
    // The other process that shared this core may have left it just now.
    if switches() == before {
        return;
    }
    let Ok(load) = std::fs::read_to_string("/proc/loadavg") else { return };
    // SAFETY: - all zeros are an empty set.
    let mut allowed: cpu_set_t = unsafe { std::mem::zeroed() };
    let size = size_of::<cpu_set_t>();
    // SAFETY: - allowed is valid for writes of its size.
    let is_known = unsafe { libc::sched_getaffinity(0, size, &raw mut allowed) } == 0;
    // SAFETY: - allowed is initialised: zeros, or filled by the kernel.
    let count = unsafe { libc::CPU_COUNT(&allowed) } as u32;
    // SAFETY: - no arguments: it returns a number.
    let here = unsafe { libc::sched_getcpu() };
    let (true, Ok(here)) = (is_known && count > 1, usize::try_from(here)) else { return };
    if runnable(&load).is_none_or(|running| running > count) {
        return;
    }
    let mut others = allowed;
    // SAFETY: - here is within the set: the kernel runs this thread there, and has filled a set of this size.
    //         - both sets are valid for reads of their size.
    unsafe {
        libc::CPU_CLR(here, &mut others);
        libc::sched_setaffinity(0, size, &raw const others);
        libc::sched_setaffinity(0, size, &raw const allowed);
    }
}

/// Number of threads that run or could run, in a text of `/proc/loadavg`: `0.20 0.18 0.12 1/80 11206`.
fn runnable(load: &str) -> Option<u32> {
    load.split_ascii_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits before the first look, if each wait hands the core over this often.
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
            // SAFETY: - all zeros are an empty set, valid for writes of its size.
            unsafe {
                let mut set: cpu_set_t = std::mem::zeroed();
                assert_eq!(libc::sched_getaffinity(0, size_of::<cpu_set_t>(), &raw mut set), 0);
                set
            }
        };
        let before = allowed();
        part();
        // SAFETY: - both sets are initialised.
        assert!(unsafe { libc::CPU_EQUAL(&before, &allowed()) });
    }
}
