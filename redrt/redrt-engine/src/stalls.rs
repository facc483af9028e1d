//! Times that calls stand still when the membership changes.
//!
//! No call waits for a change of view itself. But a call may wait for a message that a lost replica owed, and that
//! another has to send in its place. A stall begins when a view without some replica has come and a call is waiting; it
//! ends when any operation completes. It includes the time that the call would have waited anyway, so the figure is an
//! upper bound.

use redrt_process::clock::monotonic_ns;

/// The present stall, and the longest of those before.
#[derive(Default)]
pub struct Stalls {
    /// Time at which it began, and the completions at that time.
    began: Option<(u64, u64)>,
    longest_ns: u64,
}

impl Stalls {
    /// Begins a stall: a view has come while a call waits.
    pub fn begin(&mut self, completions: u64) {
        self.began.get_or_insert_with(|| (monotonic_ns(), completions));
    }

    /// Ends a stall if operations have completed since. To be called whenever some may have.
    #[inline]
    pub fn update(&mut self, completions: u64) {
        if let Some((since_ns, before)) = self.began
            && completions != before
        {
            self.began = None;
            self.longest_ns = self.longest_ns.max(monotonic_ns().saturating_sub(since_ns));
        }
    }

    pub fn longest_ns(&self) -> u64 {
        self.longest_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_ends_with_the_next_completion() {
        let mut stalls = Stalls::default();
        stalls.update(7);
        stalls.begin(7);
        stalls.begin(8);
        stalls.update(7);
        assert_eq!(stalls.longest_ns(), 0, "nothing has completed");
        stalls.update(8);
        let longest = stalls.longest_ns();
        assert!(longest > 0);
        stalls.update(9);
        assert_eq!(stalls.longest_ns(), longest, "it is over");
    }
}
