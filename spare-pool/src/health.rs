//! How far a host is to be trusted after clones to it have failed.
//!
//! Each failure is a strike, and the host is left alone for a while that doubles with each. A clone that went well
//! takes all strikes back. With too many the host is bad, and only a person makes it good again. What is stored is the
//! number of strikes: after a restart the present rest begins again.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The rest that a host gets after failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BackOff {
    /// After the first.
    pub first: Duration,
    /// At most.
    pub longest: Duration,
}

impl BackOff {
    pub(crate) fn after(self, strikes: u32) -> Duration {
        match strikes.checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => {
                self.first.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(self.longest)
            }
        }
    }
}

/// Strikes, and the rest for the last of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Health {
    pub strikes: u32,
    pub rests_until: Duration,
}

impl Health {
    /// As it was stored.
    pub(crate) fn restored(strikes: u32, back_off: BackOff, now: Duration) -> Self {
        Self { strikes, rests_until: now + back_off.after(strikes) }
    }

    pub(crate) fn strike(&mut self, back_off: BackOff, now: Duration) {
        self.strikes = self.strikes.saturating_add(1);
        self.rests_until = now + back_off.after(self.strikes);
    }

    pub(crate) fn is_resting(&self, now: Duration) -> bool {
        now < self.rests_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_double_up_to_the_longest() {
        let back_off = BackOff { first: Duration::from_secs(10), longest: Duration::from_secs(60) };
        let rests: Vec<_> = (0..6).chain([40, u32::MAX]).map(|strikes| back_off.after(strikes).as_secs()).collect();
        assert_eq!(rests, [0, 10, 20, 40, 60, 60, 60, 60]);
    }
}
