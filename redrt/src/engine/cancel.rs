//! Cancelling receives in a replicated world: whether the receive was still unmatched is the leader's decision.

use super::replication::{Asked, Streams};
use super::request::RequestId;
use crate::engine;
use quiesce::Outcome;

/// Cancels a receive in all replicas or in none.
///
/// A follower may have matched a receive that its leader cancels. It cannot take the payload out of the application's
/// buffer again, so it stops with a report: see the limits in `docs/matching.md`.
pub fn agree(id: RequestId) {
    let stream = Streams::of_this_thread();
    engine::cell().wait_for(|engine| match engine.ask(stream) {
        Asked::Decided(Outcome::Flag(true)) => {
            if engine.cancel(id) {
                Some(())
            } else {
                engine.diverged("a cancelled receive", &Outcome::Flag(true))
            }
        }
        Asked::Decided(_) => Some(()),
        Asked::Wait => None,
        Asked::Decide => {
            let cancelled = engine.cancel(id);
            engine.answer(stream, Outcome::Flag(cancelled));
            Some(())
        }
    });
}
