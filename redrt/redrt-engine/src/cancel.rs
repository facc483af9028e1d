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
use super::request::{Operation, RequestId};
use super::{Engine, cell};
use quiesce::{Call, Outcome, StreamId};

/// Cancels a receive in all replicas or in none. The outcome is the next one of the calling thread's stream.
pub fn agree(id: RequestId, stream: StreamId) {
    let mut frozen = None;
    cell().wait_for(|engine| {
        // Passes over readings that only the leader made: else the ballot would be for another outcome.
        engine.agree(|sphere| sphere.skip_readings(stream));
        let question = engine.agree(|sphere| sphere.question(stream, Call::Cancel, 0, 0));
        let is_frozen = *frozen.get_or_insert_with(|| {
            let is_frozen = freeze(engine, id);
            engine.agree(|sphere| sphere.cast_ballot(stream, question, is_frozen.into()));
            is_frozen
        });
        let cancelled = match engine.agree(|sphere| sphere.ask(stream, question)) {
            Asked::Decided(Outcome::Flag(cancelled)) => cancelled,
            Asked::Decided(other) => unreachable!("{other:?} was decided for the cancellation of a receive"),
            Asked::Wait => return None,
            Asked::Decide => {
                let cancelled = is_frozen && engine.agree(|sphere| sphere.count_ballots(stream, question))?;
                engine.agree(|sphere| sphere.answer(stream, question, Outcome::Flag(cancelled)));
                cancelled
            }
        };
        if !cancelled {
            thaw(engine, id);
        } else if !engine.cancel(id) {
            // This replica's ballot promised that the receive can be cancelled. A broken promise means corrupt memory.
            let message = format!("replica {}: a receive was matched after all agreed to cancel it", engine.me);
            engine.runtime.abort(1, message);
        }
        Some(())
    });
}

/// Keeps a posted receive from being matched. Returns false if it has been matched already.
fn freeze(engine: &mut Engine, id: RequestId) -> bool {
    let request = engine.requests.get(id);
    let Operation::Receive { context, .. } = request.operation else { return false };
    !request.complete && engine.arrivals.freeze(context, id)
}

/// Lets a frozen receive be matched again.
fn thaw(engine: &mut Engine, id: RequestId) {
    let Operation::Receive { context, .. } = engine.requests.get(id).operation else { return };
    let matched = engine.arrivals.thaw(context, id);
    engine.deliver_all(matched);
}
