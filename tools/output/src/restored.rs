//! Where the output of a replica goes on that was restored from an image.

use redrt_types::ReplicaIndex;
use serde::{Deserialize, Serialize};

/// A replica that goes on from an image.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Restored {
    /// The replica.
    pub index: ReplicaIndex,
    /// Bytes that it had printed when its image was taken.
    pub printed_bytes: u64,
    /// Those that may not have been shown then: what it had printed behind `shown_bytes`.
    pub unshown: Vec<u8>,
    /// Bytes that had been shown for sure when `unshown` was noted.
    pub shown_bytes: u64,
}

impl Restored {
    /// What was noted of it while it was stopped, at a later time: it had printed `printed_bytes` then, and
    /// `shown_bytes` of its rank have been shown for sure by now. It may have gone since, with what it has printed.
    #[must_use]
    pub fn later(mut self, printed_bytes: u64, shown_bytes: u64) -> Self {
        self.unshown.truncate(printed_bytes.saturating_sub(self.shown_bytes) as usize);
        let shown = shown_bytes.saturating_sub(self.shown_bytes).min(self.unshown.len() as u64);
        self.unshown.drain(..shown as usize);
        Self { printed_bytes, shown_bytes: self.shown_bytes.max(shown_bytes), ..self }
    }

    /// What it had printed that is not among the first `shown` bytes, and how many bytes it will print that are.
    pub(super) fn at(&self, shown: u64) -> (Vec<u8>, u64) {
        let behind = shown.saturating_sub(self.shown_bytes).min(self.unshown.len() as u64) as usize;
        (self.unshown[behind..].to_vec(), shown.saturating_sub(self.printed_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// All replicas of a rank print the same bytes, so what was noted of one and what is shown are pieces of them.
        #[test]
        fn what_a_replica_had_printed_is_shown_or_noted_however_much_was_shown_since(
            shown in 0..50_u64, printed in 0..50_u64, noted in 0..20_u64, since in 0..60_u64,
        ) {
            let bytes: Vec<u8> = (0..200).collect();
            let part = |from: u64, to: u64| bytes[from as usize..to.max(from) as usize].to_vec();
            let at_stop = Restored {
                index: ReplicaIndex(0),
                printed_bytes: u64::MAX,
                unshown: part(shown, printed + noted),
                shown_bytes: shown,
            };
            let later = at_stop.later(printed, shown + since);
            prop_assert_eq!((later.printed_bytes, later.shown_bytes), (printed, shown + since));
            prop_assert_eq!(later.unshown, part(shown + since, printed));
        }
    }
}
