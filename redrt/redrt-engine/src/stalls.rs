//! How long calls stand still when the membership changes.
//!
//! Nobody waits for a change of view itself. But a call may wait for what a lost replica owed, which another has to
//! send in its place. A stall begins when a view without somebody has come and a call is waiting, and ends when any
//! operation completes. What the call would have waited anyway is part of it, so the figure is an upper bound.

use redrt_process::clock::monotonic_ns;

/// The stall that lasts, and the longest of those before.
#[derive(Default)]
pub struct Stalls {
    /// Since when, and how many operations had completed by then.
    began: Option<(u64, u64)>,
    longest_ns: u64,
}

impl Stalls {
    /// A view has come and a call waits.
    pub fn begin(&mut self, completions: u64) {
        self.began.get_or_insert_with(|| (monotonic_ns(), completions));
    }

    /// To be called whenever operations may have completed.
    #[inline]
    pub fn look(&mut self, completions: u64) {
        if let Some((since_ns, before)) = self.began
            && completions != before
        {
            self.began = None;
            self.longest_ns = self.longest_ns.max(monotonic_ns().saturating_sub(since_ns));
        }
    }

    /// The longest stall that is over.
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
        stalls.look(7);
        stalls.begin(7);
        stalls.begin(8);
        stalls.look(7);
        assert_eq!(stalls.longest_ns(), 0, "nothing has completed");
        stalls.look(8);
        let longest = stalls.longest_ns();
        assert!(longest > 0);
        stalls.look(9);
        assert_eq!(stalls.longest_ns(), longest, "it is over");
    }
}
