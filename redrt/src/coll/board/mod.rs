//! Collectives of the members of one host, over a board: each posts what it contributes, once, and reads what it needs
//! of the others.
//!
//! Only in a world that is not replicated. Where there are replicas, what one contributes is compared with what its
//! siblings do, kept until all have it and given to copies: it goes in messages.
//!
//! A communicator gets its board when it has been used for a few collectives (`comm::seat`), and another one for those
//! that do not block (`comm::queue`). Operands are combined in the order in which messages would have brought them, so
//! the result does not depend on who is on which host.
//!
//! There is one text of each algorithm. Its waits for others block the thread in a blocking collective, so that it is
//! over with the first poll unless parts of it go in messages; in the others they give the thread back.

mod moving;
mod reducing;

pub use moving::{allgather, alltoall, barrier, bcast, gather, scatter};
pub use reducing::{
    allreduce, allreduce_by_shares, allreduce_by_short_shares, are_few, is_short, reduce, reduce_scatter,
};

use super::{Failure, Outcome};
use crate::abi::MPI_ERR_INTERN;
use crate::error::Error;
use redrt_engine as engine;
use redrt_engine::doorbell;
use redrt_engine::meeting::Meeting;
use redrt_engine::tasks;
use redrt_transport::board::{ANNEX_BYTES_MAX, Awaited, Board, Long, Posted};
use redrt_transport::memory::Region;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Number of operations after which incoming messages are drained though nobody here waits for any: others may wait for
/// what only this process can do.
const OPERATIONS_PER_PROGRESS: u64 = 64;

/// A wait for members that lasts.
#[derive(Clone)]
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
    /// Whether its waits hold the thread.
    blocks: bool,
    /// How pieces that are moved are posted, where longer ones stay in place.
    in_place: Long,
    /// The same where longer ones come as messages.
    as_messages: Long,
}

/// Where every member has a core, the kernel copies pieces from this length on in less time than two members take to
/// copy them one after the other. Where cores are shared, the second wait that this needs takes longer.
const COPIED_MAX: usize = 16 << 10;

/// The same where longer pieces come as messages, for which nobody else waits.
const COPIED_MAX_BEFORE_MESSAGES: usize = 8 << 10;

/// Pieces of members.
pub trait Pieces: Sync {
    /// That of a member.
    fn piece(&self, member: usize) -> Region;
}

impl Pieces for &[Region] {
    #[inline]
    fn piece(&self, member: usize) -> Region {
        self[member]
    }
}

/// Waits for members without holding the thread.
struct Coming {
    wait: Wait,
    /// Its number among the engine's meetings, once it is there.
    meeting: Option<u64>,
}

impl Future for Coming {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.wait.has_come() {
            return Poll::Ready(());
        }
        if tasks::is_looked_at_again() || self.meeting.is_some() {
            return Poll::Pending;
        }
        let wait = Box::new(self.wait.clone());
        self.meeting = Some(engine::cell().lock().meetings.add(wait));
        // Another thread may have looked before that, and sleep.
        if self.wait.has_come() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        if let Some(meeting) = self.meeting {
            engine::cell().lock().meetings.remove(meeting);
        }
    }
}

impl SharedBoard {
    /// The table of a communicator with this context; `blocks`: its waits hold the thread.
    pub fn new(board: Arc<Board>, context: u64, blocks: bool) -> Self {
        let shares_core = engine::cell().lock().shares_core();
        let most = |most| if shares_core || !board.is_direct() { ANNEX_BYTES_MAX } else { most };
        let (in_place, as_messages) = (most(COPIED_MAX), most(COPIED_MAX_BEFORE_MESSAGES));
        let (in_place, as_messages) = (Long::InPlace(in_place), Long::AsMessages(as_messages));
        Self { board, context, shares_core, blocks, in_place, as_messages }
    }

    /// Number of members.
    pub fn size(&self) -> usize {
        self.board.size()
    }

    #[inline(always)]
    async fn wait(&self, awaited: Awaited) {
        let mut come = 0;
        if self.board.has_come(awaited, &mut come) {
            return;
        }
        let wait = || Wait { board: self.board.clone(), awaited, context: self.context };
        if self.blocks {
            let has_come = || self.board.has_come(awaited, &mut come);
            engine::cell().await_shared(self.shares_core, has_come, || Box::new(wait()));
        } else {
            Coming { wait: wait(), meeting: None }.await;
        }
    }

    /// Begins the next operation; its number.
    #[inline(always)]
    async fn begin(&self) -> u64 {
        let (number, before) = self.board.next();
        if let Some(before) = before {
            self.wait(before).await;
        }
        // Not where collectives do not block: a thread that waits for one of those makes progress by that.
        if self.blocks && number.is_multiple_of(OPERATIONS_PER_PROGRESS) {
            engine::cell().poll_once();
        }
        number
    }

    /// The same where this member writes something, and whether that is more than a cell holds.
    #[inline(always)]
    async fn begin_to_write(&self, needs_annex: bool) -> u64 {
        let number = self.begin().await;
        if needs_annex && let Some(before) = self.board.before_annex(number) {
            self.wait(before).await;
        }
        number
    }

    fn post(&self, number: u64) {
        self.board.post(number, doorbell::poke);
    }

    /// Comes to the next operation, and posts `piece` for all.
    #[inline(always)]
    async fn come_with(&self, piece: Region, long: Long) -> u64 {
        let number = self.begin_to_write(self.board.needs_annex(piece)).await;
        self.board.write(number, piece, long);
        self.post(number);
        number
    }

    /// The same; `also` will be posted later, and must be readable in place too.
    async fn come_with_both(&self, piece: Region, also: Region) -> u64 {
        let number = self.begin_to_write(self.board.needs_annex(piece)).await;
        if self.board.is_readable(also) {
            self.board.write(number, piece, Long::TO_ANNEX);
        } else {
            self.board.write_message(number, piece.len());
        }
        self.post(number);
        number
    }

    /// Comes to the next operation with nothing.
    #[inline(always)]
    async fn come(&self) -> u64 {
        let number = self.begin().await;
        self.post(number);
        number
    }

    #[inline(always)]
    async fn wait_for_all(&self, number: u64) {
        self.wait(Board::all(number)).await;
    }

    #[inline(always)]
    async fn wait_for(&self, member: usize, number: u64) {
        self.wait(Board::one(member, number)).await;
    }

    /// The same in an operation in which this member only takes. If the other one was there before it, it is likely to
    /// be there before it in the next one, too.
    #[inline(always)]
    async fn take_from(&self, member: usize, number: u64) {
        if self.board.has_come(Board::one(member, number), &mut 0) {
            self.board.expect(member, number + 1);
        } else {
            self.wait_for(member, number).await;
        }
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
fn following(table: &SharedBoard) -> impl Iterator<Item = usize> + use<> {
    let (rank, size) = (table.board.rank(), table.board.size());
    (rank + 1..size).chain(0..rank)
}
