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
//! over with the first poll unless parts of it go in messages; in the others they give the thread back. The steps of
//! algorithms are macros: as futures within futures they took more instructions than what they do.

/// Waits until members have come.
macro_rules! wait {
    ($table:expr, $awaited:expr) => {
        let awaited = $awaited;
        if !$table.board.has_come(awaited, &mut 0) {
            if $table.blocks {
                $table.hold(awaited);
            } else {
                $table.coming(awaited).await;
            }
        }
    };
}

/// Waits for all members at an operation.
macro_rules! wait_for_all {
    ($table:expr, $number:expr) => {
        wait!($table, Board::all($number))
    };
}

/// Waits for one member at an operation.
macro_rules! wait_for {
    ($table:expr, $member:expr, $number:expr) => {
        wait!($table, Board::one($member, $number))
    };
}

/// The same in an operation in which this member only takes, namely `$bytes` bytes. If the other one was there before
/// it, it is likely to be there before it in the next one, too, and with as many bytes.
macro_rules! take_from {
    ($table:expr, $member:expr, $number:expr, $bytes:expr) => {
        let (member, number) = ($member, $number);
        if $table.board.has_come(Board::one(member, number), &mut 0) {
            $table.board.expect(member, number + 1, $bytes);
        } else {
            $table.board.expect_nothing();
            wait_for!($table, member, number);
        }
    };
}

/// Begins the next operation; its number. In one in which this member writes something, `needs_annex` is whether that
/// is more than a cell holds.
macro_rules! begin {
    ($table:expr) => {{
        let (number, before) = $table.board.next();
        if let Some(before) = before {
            wait!($table, before);
        }
        $table.look_around(number);
        number
    }};
    ($table:expr, needs_annex: $needs_annex:expr) => {{
        let number = begin!($table);
        if $needs_annex && let Some(before) = $table.board.before_annex(number) {
            wait!($table, before);
        }
        number
    }};
}

/// Comes to the next operation with nothing; its number.
macro_rules! come {
    ($table:expr) => {{
        let number = begin!($table);
        $table.post(number);
        number
    }};
}

/// Comes to the next operation, and posts a piece for all; its number, and what was posted.
macro_rules! come_with {
    ($table:expr, $piece:expr, $long:expr) => {{
        let (piece, long) = ($piece, $long);
        let number = begin!($table, needs_annex: $table.board.needs_annex(piece));
        let posted = $table.board.write(number, piece, long);
        $table.post(number);
        (number, posted)
    }};
}

/// Says whether this member has read what others have posted elsewhere in an operation (`has_read`; `None` where it
/// reads nothing). Then it waits until others have what it has posted so: `out` for each that reads it. Who could not
/// read a piece gets it as a message, `into` its place.
macro_rules! settle {
    ($table:expr, $peers:expr, $number:expr, has_read: $has_read:expr, out: $out:expr, into: $into:expr) => {{
        let (table, number, has_read, out) = ($table, $number, $has_read, $out);
        if let Some(has_read) = has_read {
            table.say_read(number, has_read);
        }
        let mut all_have = has_read != Some(false);
        for reader in following(table) {
            if out(reader).is_some() {
                wait!(table, Board::read_by(reader, number));
                all_have &= table.board.has_read(reader, number) == Some(true);
            }
        }
        if all_have { Ok(()) } else { Box::pin(all(table.send_unread(number, has_read, $peers, out, $into))).await }
    }};
}

mod moving;
mod operands;
mod reducing;

pub use moving::{Allgather, Alltoall, Barrier, Bcast, Gather, Scatter};
pub use reducing::{
    Allreduce, Exscan, Reduce, ReduceScatter, Scan, allreduce_by_shares, allreduce_by_short_shares, are_few, is_short,
};

use super::{Failure, Outcome, Peers, Step};
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
    /// Some member has no core of its own.
    shares_core: bool,
    /// Whether its waits hold the thread.
    blocks: bool,
    /// How pieces that one other member reads at a time are posted, where longer ones stay in place.
    in_place: Long,
    /// The same of pieces of which each member reads those of all others.
    all_in_place: Long,
    /// The same where longer ones come as messages.
    as_messages: Long,
}

/// Where every member has a core, the kernel copies pieces from this length on in less time than two members take to
/// copy them one after the other. Where cores are shared, the second wait that this needs takes longer. Where each
/// reads those of all others there is one call of the kernel for each of them, but one copy for all.
const COPIED_MAX: usize = 8 << 10;

/// Pieces of members.
pub trait Pieces: Send + Sync {
    /// That of a member.
    fn piece(&self, member: usize) -> Region;
}

impl Pieces for &[Region] {
    #[inline]
    fn piece(&self, member: usize) -> Region {
        self[member]
    }
}

/// A collective, by its arguments at this member.
pub trait Algorithm: Send + Sync + Sized {
    /// Does it. All that it needs is behind one address: the text of a future that is given more moves that about, in
    /// pieces that were just written in others, for which the processor waits until all earlier writes are visible.
    fn run<P: MakePeers>(call: &Call<'_, P, Self>) -> impl Future<Output = Outcome> + Send;
}

/// Makes the members for those parts of a collective that go in messages: most have none, and take less time than that.
pub trait MakePeers: Fn() -> Peers + Send + Sync {}
impl<F: Fn() -> Peers + Send + Sync> MakePeers for F {}

/// A collective over a board.
pub struct Call<'a, P, A> {
    /// The board.
    pub table: &'a SharedBoard,
    /// See [`MakePeers`].
    pub peers: P,
    /// What this member brings and wants.
    pub arguments: A,
}

impl<'a, P: MakePeers, A: Algorithm> Call<'a, P, A> {
    /// Of these arguments.
    #[inline(always)]
    pub fn new(table: &'a SharedBoard, peers: P, arguments: A) -> Self {
        Self { table, peers, arguments }
    }

    /// Does it.
    #[inline(always)]
    pub fn run(&self) -> impl Future<Output = Outcome> + Send {
        A::run(self)
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
    /// The table of a communicator with this context; `blocks`: its waits hold the thread. `shares_core`: some member
    /// does, on which all agree.
    pub fn new(board: Arc<Board>, context: u64, blocks: bool, shares_core: bool) -> Self {
        let most = if shares_core || !board.is_direct() { ANNEX_BYTES_MAX } else { COPIED_MAX };
        let for_all = ANNEX_BYTES_MAX.min(most * (board.size() - 1).max(1));
        let (in_place, all_in_place) = (Long::InPlace(most), Long::InPlace(for_all));
        let as_messages = Long::AsMessages(most);
        Self { board, context, shares_core, blocks, in_place, all_in_place, as_messages }
    }

    /// The rank of this process.
    #[inline]
    pub fn rank(&self) -> usize {
        self.board.rank()
    }

    /// Number of members.
    #[inline]
    pub fn size(&self) -> usize {
        self.board.size()
    }

    /// Waits for members where waits hold the thread.
    #[inline(never)]
    fn hold(&self, awaited: Awaited) {
        let mut come = 0;
        let has_come = || self.board.has_come(awaited, &mut come);
        engine::cell().await_shared(self.shares_core, has_come, || Box::new(self.wait(awaited)));
    }

    /// Waits for members where waits give the thread back.
    fn coming(&self, awaited: Awaited) -> Coming {
        Coming { wait: self.wait(awaited), meeting: None }
    }

    fn wait(&self, awaited: Awaited) -> Wait {
        Wait { board: self.board.clone(), awaited, context: self.context }
    }

    /// Drains incoming messages in some operations. Not where collectives do not block: a thread that waits for one of
    /// those makes progress by that.
    #[inline(always)]
    fn look_around(&self, number: u64) {
        if self.blocks && number.is_multiple_of(OPERATIONS_PER_PROGRESS) {
            engine::cell().poll_once();
        }
    }

    #[inline(always)]
    fn post(&self, number: u64) {
        self.board.post(number, doorbell::poke);
    }

    /// Reads all of a posted piece, which must be as long as its place.
    #[inline(always)]
    fn take(&self, posted: &Posted, into: Region) -> Outcome {
        if posted.length() != into.len() as u64 {
            return Err(Failure::Mismatched);
        }
        self.read(posted, 0, into)
    }

    /// The same where the piece may be where its member alone knows. `false`: it is, and this process cannot read it.
    #[inline(always)]
    fn take_from_anywhere(&self, posted: &Posted, into: Region) -> Outcome<bool> {
        match self.take(posted, into) {
            Err(Failure::Refused(_)) if posted.is_elsewhere() => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    /// Says that this member has read what others have posted elsewhere, or could not.
    fn say_read(&self, number: u64, has_read: bool) {
        self.board.say_read(number, has_read, doorbell::poke);
    }

    /// An operation in which this member has read nothing elsewhere ends like this. Where members' arguments do not fit
    /// each other, another may wait for it all the same.
    #[inline(always)]
    fn end(&self, number: u64, outcome: Outcome) -> Outcome {
        if outcome.is_err() {
            self.say_read(number, true);
        }
        outcome
    }

    /// Begins to bring as messages what members could not read where it is.
    fn send_unread<P: MakePeers>(
        &self,
        number: u64,
        has_read: Option<bool>,
        peers: &P,
        out: impl Fn(usize) -> Option<Region>,
        into: impl Fn(usize) -> Option<Region>,
    ) -> Vec<Step> {
        let peers = peers();
        let mut steps = Vec::new();
        for from in following(self).filter(|_| has_read == Some(false)) {
            steps.extend(into(from).map(|place| peers.start_receive(from, place)));
        }
        for to in following(self).filter(|to| self.board.has_read(*to, number) == Some(false)) {
            steps.extend(out(to).map(|piece| peers.start_send(to, piece)));
        }
        steps
    }

    /// All of a posted short piece, where it is posted. It must be as long as its place.
    #[inline]
    fn see(&self, posted: &Posted, bytes: usize) -> Outcome<Region> {
        self.board.seen(posted).filter(|piece| piece.len() == bytes).ok_or(Failure::Mismatched)
    }

    #[inline(always)]
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
