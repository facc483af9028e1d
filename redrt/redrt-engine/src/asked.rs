//! Answers to a thread that asks for an outcome which depends on timing.

use quiesce::Outcome;

/// The answer to a question for an outcome.
pub enum Asked {
    /// The outcome is decided: take it.
    Decided(Outcome),
    /// This process decides: find out, and answer.
    Decide,
    /// The leader has not decided yet.
    Wait,
}

/// The next outcome, as far as it is known before any progress is made.
pub enum Ahead {
    /// Decided: nothing was ready.
    Nothing,
    /// Decided: this outcome.
    Decided(Outcome),
    /// Unknown so far.
    Unknown,
}
