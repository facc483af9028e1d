//! Cancelling receives in a replicated world: in all replicas or in none.
//!
//! ```text
//!   leader                               follower
//!     │ freeze the receive                  │ freeze the receive
//!     │ ◄──────────── Ballot{yes} ──────────┤ it was not matched: it will not be until the decision is in
//!     │ all said yes: decide Flag(true)     │        (Ballot{no} when it had been matched)
//!     ├──────────── Decisions{..} ────────► │ cancel
//! ```
//! One no, or a match at the leader, makes it `Flag(false)`: a replica that froze the receive thaws it, and the message
//! that one of them has matched comes to all. A new leader gets the ballots again. MPI_Cancel therefore waits until all
//! replicas of the rank have called it, but for no other rank.

use super::asked::Asked;
use super::cell;
use super::request::RequestId;
use quiesce::{Call, Outcome, StreamId};

/// Cancels a receive in all replicas or in none. The outcome is the next one of the calling thread's stream.
pub fn agree(id: RequestId, stream: StreamId) {
    let mut frozen = None;
    cell().wait_for(|engine| {
        // Passes over readings that only the leader made: else the ballot would be for another outcome.
        engine.skip_readings(stream);
        let question = engine.question(stream, Call::Cancel, 0, 0);
        let is_frozen = *frozen.get_or_insert_with(|| {
            let is_frozen = engine.freeze(id);
            engine.cast_ballot(stream, question, is_frozen.into());
            is_frozen
        });
        let cancelled = match engine.ask(stream, question) {
            Asked::Decided(Outcome::Flag(cancelled)) => cancelled,
            Asked::Decided(other) => unreachable!("{other:?} was decided for the cancellation of a receive"),
            Asked::Wait => return None,
            Asked::Decide => {
                let cancelled = is_frozen && engine.count_ballots(stream, question)?;
                engine.answer(stream, question, Outcome::Flag(cancelled));
                cancelled
            }
        };
        if !cancelled {
            engine.thaw(id);
        } else if !engine.cancel(id) {
            // This replica's ballot promised that the receive can be cancelled. A broken promise means corrupt memory.
            let message = format!("replica {}: a receive was matched after all agreed to cancel it", engine.me);
            engine.runtime.abort(1, message);
        }
        Some(())
    });
}
