//! Whether a daemon whose connection broke has ended: then its host refuses a new one.

/// A daemon that is ending closes its sockets one after the other: so often it is tried again.
const TRIES: u32 = 100;
/// One refusal may come from a connection that was reset while it was being made.
const BELIEVED: u32 = 3;

/// What is known of one daemon, or of `redrun`.
#[derive(Clone, Copy, Default, Debug)]
pub struct Refusals {
    /// Tries left.
    tries: u32,
    /// In a row.
    count: u32,
}

impl Refusals {
    /// A connection broke: it is to be asked.
    pub fn begin(&mut self) {
        self.tries = TRIES;
    }

    /// Whether it is to be tried once more.
    pub fn may_ask(&mut self) -> bool {
        self.tries = self.tries.saturating_sub(1);
        self.tries > 0
    }

    /// It has refused. Whether that is believed.
    pub fn refused(&mut self) -> bool {
        self.count += 1;
        self.count >= BELIEVED
    }

    /// A try ended otherwise.
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
