//! Finds out whether a daemon whose connection broke has ended: then its host refuses new connections.

/// Number of attempts: a daemon that is ending closes its sockets one after another.
const TRIES: u32 = 100;
/// Refusals in a row that are believed. A single one may come from a connection that was reset while it was being made.
const BELIEVED: u32 = 3;

/// Attempts to reach one daemon, or `redrun`.
#[derive(Clone, Copy, Default, Debug)]
pub struct Refusals {
    /// Remaining attempts.
    tries: u32,
    /// Refusals in a row.
    count: u32,
}

impl Refusals {
    /// Begins anew, when a connection broke.
    pub fn begin(&mut self) {
        self.tries = TRIES;
    }

    /// Uses up an attempt. False if none is left.
    pub fn may_ask(&mut self) -> bool {
        self.tries = self.tries.saturating_sub(1);
        self.tries > 0
    }

    /// Notes a refusal. True if it is believed now.
    pub fn refused(&mut self) -> bool {
        self.count += 1;
        self.count >= BELIEVED
    }

    /// Notes an attempt that was not refused.
    pub fn not_refused(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_believed_when_they_come_in_a_row() {
        let mut refusals = Refusals::default();
        assert!((1..BELIEVED).all(|_| !refusals.refused()));
        refusals.not_refused();
        assert!((1..BELIEVED).all(|_| !refusals.refused()));
        assert!(refusals.refused());
    }

    #[test]
    fn nobody_is_asked_for_ever_or_without_a_reason() {
        let mut refusals = Refusals::default();
        assert!(!refusals.may_ask());
        refusals.begin();
        assert_eq!((0..2 * TRIES).filter(|_| refusals.may_ask()).count() as u32, TRIES - 1);
    }
}
