//! Blocking collectives of the members of one host, over a board: each posts what it contributes, once, and reads what
//! it needs of the others.
//!
//! Only in a world that is not replicated. Where there are replicas, what one contributes is compared with what its
//! siblings do, kept until all have it and given to copies: it goes in messages.
//!
//! A communicator gets its board when it has been used for a few collectives (`comm::seat`). Operands are combined in
//! the order in which messages would have brought them, so the result does not depend on who is on which host.

mod moving;
mod reducing;

pub use moving::{allgather, alltoall, barrier, bcast};
pub use reducing::{
    allreduce, allreduce_by_shares, allreduce_by_short_shares, are_few, is_short, reduce, reduce_scatter,
};

use super::{Failure, Outcome, Peers};
use crate::abi::MPI_ERR_INTERN;
use crate::error::Error;
use redrt_engine as engine;
use redrt_engine::doorbell;
use redrt_engine::meeting::Meeting;
use redrt_transport::board::{Awaited, Board, Posted};
use redrt_transport::memory::Region;
use std::sync::Arc;

/// Number of operations after which incoming messages are drained though nobody here waits for any: others may wait for
/// what only this process can do.
const OPERATIONS_PER_PROGRESS: u64 = 64;

/// A wait for members that lasts.
struct Wait {
    board: Arc<Board>,
    awaited: Awaited,
    context: u64,
}

impl Meeting for Wait {
    fn has_come(&self) -> bool {
        self.board.has_come(self.awaited, &mut 0)
    }

    fn missing(&self, label_of: &dyn Fn(u64) -> String) -> Option<String> {
        let rank = self.board.missing(self.awaited)?;
        Some(format!("rank {rank} to come to a collective of {}", label_of(self.context)))
    }
}

/// A communicator's board, as its collectives use it.
pub struct SharedBoard {
    pub(crate) board: Arc<Board>,
    /// Context of the communicator.
    context: u64,
    /// There are more processes than cores.
    shares_core: bool,
}

impl SharedBoard {
    /// The table of a communicator with this context.
    pub fn new(board: Arc<Board>, context: u64) -> Self {
        Self { board, context, shares_core: engine::cell().lock().shares_core() }
    }

    #[inline]
    fn wait(&self, awaited: Awaited) {
        let mut come = 0;
        if !self.board.has_come(awaited, &mut come) {
            let wait =
                || Box::new(Wait { board: self.board.clone(), awaited, context: self.context }) as Box<dyn Meeting>;
            engine::cell().await_shared(self.shares_core, || self.board.has_come(awaited, &mut come), wait);
        }
    }

    /// Begins the next operation; its number.
    #[inline]
    fn begin(&self) -> u64 {
        let (number, before) = self.board.next();
        if let Some(before) = before {
            self.wait(before);
        }
        if number.is_multiple_of(OPERATIONS_PER_PROGRESS) {
            engine::cell().poll_once();
        }
        number
    }

    /// The same where this member writes something, and whether that is more than a cell holds.
    #[inline]
    fn begin_to_write(&self, needs_annex: bool) -> u64 {
        let number = self.begin();
        if needs_annex && let Some(before) = self.board.before_annex(number) {
            self.wait(before);
        }
        number
    }

    fn post(&self, number: u64) {
        self.board.post(number, doorbell::poke);
    }

    /// Comes to the next operation, and posts `piece` for all.
    #[inline]
    fn come_with(&self, piece: Region) -> u64 {
        let number = self.begin_to_write(self.board.needs_annex(piece));
        self.board.write(number, piece);
        self.post(number);
        number
    }

    /// The same; `also` will be posted later, and must be readable in place too.
    fn come_with_both(&self, piece: Region, also: Region) -> u64 {
        let number = self.begin_to_write(self.board.needs_annex(piece));
        if self.board.is_readable(also) {
            self.board.write(number, piece);
        } else {
            self.board.write_message(number, piece.len());
        }
        self.post(number);
        number
    }

    /// Comes to the next operation with nothing.
    #[inline]
    fn come(&self) -> u64 {
        let number = self.begin();
        self.post(number);
        number
    }

    #[inline]
    fn wait_for_all(&self, number: u64) {
        self.wait(Board::all(number));
    }

    #[inline]
    fn wait_for(&self, member: usize, number: u64) {
        self.wait(Board::one(member, number));
    }

    /// Reads all of a posted piece, which must be as long as its place.
    #[inline]
    fn take(&self, posted: &Posted, into: Region) -> Outcome {
        if posted.length() != into.len() as u64 {
            return Err(Failure::Mismatched);
        }
        self.read(posted, 0, into)
    }

    /// All of a posted short piece, where it is posted. It must be as long as its place.
    #[inline]
    fn see(&self, posted: &Posted, bytes: usize) -> Outcome<Region> {
        self.board.seen(posted).filter(|piece| piece.len() == bytes).ok_or(Failure::Mismatched)
    }

    fn read(&self, posted: &Posted, offset: usize, into: Region) -> Outcome {
        self.board.read(posted, offset, into).map_err(|error| {
            let message = format!("another member's buffer cannot be read from its process: {error}");
            Failure::Refused(Error::new(MPI_ERR_INTERN, message))
        })
    }
}

/// The others, the next one first, so that not all read from the same.
fn following(peers: &Peers) -> impl Iterator<Item = usize> + use<> {
    let (rank, size) = (peers.rank, peers.size());
    (1..size).map(move |step| (rank + step) % size)
}
