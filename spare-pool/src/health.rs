//! Trust in a host after clones to it have failed.
//!
//! Each failure is a strike, after which the host rests for a time that doubles with each strike. A successful clone
//! clears all strikes. After too many the host is bad, until a person clears it. Only the number of strikes is stored:
//! after a restart the current rest begins again.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Rest of a host after failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BackOff {
    /// Rest after the first failure.
    pub first: Duration,
    /// Longest rest, however many strikes.
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

/// Strikes of a host, and the end of its rest.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Health {
    pub strikes: u32,
    pub rests_until: Duration,
}

impl Health {
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
