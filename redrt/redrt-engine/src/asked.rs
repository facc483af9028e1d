//! What a thread is told that asks for an outcome which depends on timing.

use quiesce::Outcome;

/// The answer to a question for an outcome.
pub enum Asked {
    /// Take this one.
    Decided(Outcome),
    /// Find out and answer.
    Decide,
    /// The leader has not said yet.
    Wait,
}

/// What is known of the next outcome before any progress is made.
pub enum Ahead {
    /// It is that nothing was ready.
    Nothing,
    /// It is this.
    Decided(Outcome),
    /// Nothing is.
    Unknown,
}
