//! Nonblocking collectives of a communicator, and the rounds of a persistent one, over a board of their own.
//!
//! All members begin them in the same order (MPI-5.0 §6.12), but each advances them when it has time. Operations over a
//! board are numbered, and follow each other at each member. So an operation here continues once the one before it is
//! over at this member. All members run operations in this order, and none waits for a later one. Without a board
//! operations run concurrently, in messages.
//!
//! ```text
//!   1 2 3        in messages, concurrently
//!   4            members agree on a board, then run in messages; later operations wait for the agreement
//!   5 6 7 …      over the board, one after the other; without a board in messages, up to the 8th, which asks again
//! ```

use super::Comm;
pub use super::comm_board::may_have;
use super::comm_board::{self, FIRST, Place, Use};
use crate::coll::board::SharedBoard;
use crate::coll::{Outcome, Peers};
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

/// Operations that run one after the other.
#[derive(Default)]
pub struct Queue {
    place: Place,
    /// Number of the latest operation at which members have agreed, with or without a board as the outcome.
    agreed: AtomicU64,
    /// Number of the operation that may run over the board.
    turn: AtomicU64,
}

impl Queue {
    /// Runs operation `number`, counted from 1, over the board if there is one. `run` gets the members.
    pub async fn run<F: Future<Output = Outcome>>(
        &self,
        comm: &Comm,
        number: u64,
        peers: Peers,
        run: impl FnOnce(Peers) -> F,
    ) -> Outcome {
        let Some(table) = self.come(comm, number, &peers).await? else { return run(peers).await };
        let outcome = run(Peers { table: Some(table), ..peers }).await;
        self.pass(number);
        outcome
    }

    /// The board, if there is one already.
    #[inline]
    pub fn table(&self) -> Option<&Arc<SharedBoard>> {
        self.place.table()
    }

    /// Waits for the turn of an operation over the board.
    #[inline]
    pub async fn turn_of(&self, number: u64) {
        reach(|| self.turn.load(Ordering::Acquire) == number).await;
    }

    /// Ends an operation over the board, and gives the turn to the next one.
    #[inline]
    pub fn pass(&self, number: u64) {
        self.turn.store(number + 1, Ordering::Release);
    }

    /// Waits for the turn of an operation, and returns the board; `None` if it runs in messages.
    async fn come(&self, comm: &Comm, number: u64, peers: &Peers) -> Outcome<Option<Arc<SharedBoard>>> {
        reach(|| self.agreed.load(Ordering::Acquire) >= agreement_before(number) || self.place.table().is_some()).await;
        if let Some(table) = self.place.table() {
            self.turn_of(number).await;
            return Ok(Some(table.clone()));
        }
        if is_agreement(number) {
            let agreed = comm_board::agree(comm, peers, Use::Nonblocking).await.map(|table| {
                table.map(|table| {
                    self.turn.store(number + 1, Ordering::Release);
                    self.place.take(table);
                })
            });
            self.agreed.store(number, Ordering::Release);
            agreed?;
        }
        Ok(None)
    }
}

/// Returns true if members agree at this operation, if they have no board by then.
fn is_agreement(number: u64) -> bool {
    number >= u64::from(FIRST) && number.is_power_of_two()
}

/// The last operation before this one at which members agree; 0 if none exists.
fn agreement_before(number: u64) -> u64 {
    let before = 1 << (number - 1).max(1).ilog2();
    if is_agreement(before) { before } else { 0 }
}

/// Waits until another operation of this process has made a condition true. The condition is checked whenever an
/// operation completes.
async fn reach(is_so: impl Fn() -> bool) {
    poll_fn(|_| if is_so() { Poll::Ready(()) } else { Poll::Pending }).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_waits_for_the_last_agreement_before_it() {
        let found: Vec<_> = (1..=9).map(agreement_before).collect();
        assert_eq!(found, [0, 0, 0, 0, 4, 4, 4, 4, 8]);
        assert!((1..=9).filter(|number| is_agreement(*number)).eq([4, 8]));
    }
}
