//! Collectives of members on one host, over a board: each member posts its contribution once, and reads the parts of
//! the others' contributions that it needs.
//!
//! Only in a world that is not replicated. Contributions of replicas are compared with their siblings', kept until all
//! receivers have them, and given to copies, so they go in messages.
//!
//! A communicator gets its board after a few collectives (`comm::comm_board`), and another one for nonblocking
//! collectives (`comm::queue`). Operands are combined in the order in which messages would have brought them, so the
//! result does not depend on the placement of members.
//!
//! Each algorithm is written once. In a blocking collective its waits block the thread: it ends at the first poll,
//! unless parts of it go in messages. In a nonblocking collective its waits give the thread back. The steps of
//! algorithms are macros: as nested futures they took more instructions than their work.

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

/// Waits for one member at an operation in which this member only takes a piece of `$bytes` bytes. If the other member
/// has come already, it probably comes first to the next operation too, with as many bytes: the board then prefetches
/// them.
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

/// Begins the next operation, and returns its number. `needs_annex` is true if this member posts more than a cell
/// holds.
macro_rules! begin {
    ($table:expr) => {{
        let (number, before) = $table.board.next();
        if let Some(before) = before {
            wait!($table, before);
        }
        $table.poll_progress(number);
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

/// Comes to the next operation without a piece. Returns its number.
macro_rules! come {
    ($table:expr) => {{
        let number = begin!($table);
        $table.post(number);
        number
    }};
}

/// Comes to the next operation, and posts a piece for all. Returns the operation's number and the posted piece.
macro_rules! come_with {
    ($table:expr, $piece:expr, $long:expr) => {{
        let (piece, long) = ($piece, $long);
        let number = begin!($table, needs_annex: $table.board.needs_annex(piece));
        let posted = $table.board.write(number, piece, long);
        $table.post(number);
        (number, posted)
    }};
}

/// Ends an operation with pieces that are posted outside of the board, in their owners' memory. `has_read` is true if
/// this member has read the others' pieces, false if it could not read them, `None` if it reads none. The member waits
/// until all readers, for which `out` returns a piece, have read its own. Pieces that a member could not read come as
/// messages, to the places that `into` returns.
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
use redrt_abi::MPI_ERR_INTERN;
use redrt_abi::error::Error;
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

/// Number of operations after which incoming messages are drained, though no thread here waits for any: others may wait
/// for this process's progress.
const OPERATIONS_PER_PROGRESS: u64 = 64;

/// A wait for members that did not end at once.
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

/// A communicator's board with the settings of its collectives.
pub struct SharedBoard {
    pub(crate) board: Arc<Board>,
    context: u64,
    /// True if some member has no core of its own.
    shares_core: bool,
    /// True if its waits block the thread.
    blocks: bool,
    /// Way of posting pieces that one other member reads at a time, if longer ones stay in place.
    in_place: Long,
    /// Way of posting pieces that all others read, if longer ones stay in place.
    all_in_place: Long,
    /// Way of posting pieces, if longer ones come as messages.
    as_messages: Long,
}

/// Longest piece in bytes that goes through the board if every member has a core. Longer ones are copied by the kernel,
/// once, in less time than the two members' copies to and from the board. With shared cores the limit is higher, since
/// the kernel's way needs a second wait, until the piece was read. It is higher too if all members read all pieces: the
/// kernel would copy a piece once for each, the board has one copy for all.
const COPIED_MAX: usize = 32 << 10;

/// Pieces of a buffer or buffers, one for each member.
pub trait Pieces: Send + Sync {
    /// The piece of a member.
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
    /// Runs the collective. All arguments are behind one address. The trap: a future with more of them moves them in
    /// portions other than those they were just written in, for which the processor waits until all earlier writes are
    /// visible.
    fn run<P: MakePeers>(call: &Call<'_, P, Self>) -> impl Future<Output = Outcome> + Send;
}

/// Makes the members, for parts of a collective that go in messages. Most collectives have no such parts, and take less
/// time than making the members.
pub trait MakePeers: Fn() -> Peers + Send + Sync {}
impl<F: Fn() -> Peers + Send + Sync> MakePeers for F {}

/// A collective over a board.
pub struct Call<'a, P, A> {
    /// Board of the communicator.
    pub table: &'a SharedBoard,
    /// Maker of the members; see [`MakePeers`].
    pub peers: P,
    /// Arguments at this member.
    pub arguments: A,
}

impl<'a, P: MakePeers, A: Algorithm> Call<'a, P, A> {
    /// A collective with these arguments.
    #[inline(always)]
    pub fn new(table: &'a SharedBoard, peers: P, arguments: A) -> Self {
        Self { table, peers, arguments }
    }

    /// Starts the collective. The future ends with its outcome.
    #[inline(always)]
    pub fn run(&self) -> impl Future<Output = Outcome> + Send {
        A::run(self)
    }
}

/// A wait for members that does not block the thread.
struct Coming {
    wait: Wait,
    /// Number among the engine's meetings, once it is entered.
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
        // Another thread may have checked before the entry, and sleep now: check once more.
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
    /// The board of a communicator with this context. `blocks` is true if its waits block the thread; `shares_core` if
    /// some member has no core of its own, on which all members agree.
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

    /// Number of members of the communicator.
    #[inline]
    pub fn size(&self) -> usize {
        self.board.size()
    }

    /// Waits for members, and blocks the thread.
    #[inline(never)]
    fn hold(&self, awaited: Awaited) {
        let mut come = 0;
        let has_come = || self.board.has_come(awaited, &mut come);
        engine::cell().await_shared(self.shares_core, has_come, || Box::new(self.wait(awaited)));
    }

    /// A wait for members that does not block the thread.
    fn coming(&self, awaited: Awaited) -> Coming {
        Coming { wait: self.wait(awaited), meeting: None }
    }

    fn wait(&self, awaited: Awaited) -> Wait {
        Wait { board: self.board.clone(), awaited, context: self.context }
    }

    /// Drains incoming messages in some operations. Only for blocking collectives: threads that wait for nonblocking
    /// ones make progress anyway.
    #[inline(always)]
    fn poll_progress(&self, number: u64) {
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

    /// Reads all of a piece. Returns false if the piece is outside of the board and this process cannot read it.
    #[inline(always)]
    fn take_from_anywhere(&self, posted: &Posted, into: Region) -> Outcome<bool> {
        match self.take(posted, into) {
            Err(Failure::Refused(_)) if posted.is_elsewhere() => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    /// Announces that this member has read the pieces outside of the board, or could not read them.
    fn say_read(&self, number: u64, has_read: bool) {
        self.board.say_read(number, has_read, doorbell::poke);
    }

    /// Ends an operation in which this member has read no piece outside of the board. After a failure it announces
    /// pieces as read: if arguments do not fit each other, another member may wait for that.
    #[inline(always)]
    fn end(&self, number: u64, outcome: Outcome) -> Outcome {
        if outcome.is_err() {
            self.say_read(number, true);
        }
        outcome
    }

    /// Begins to send as messages the pieces that members could not read in place, and to receive this member's.
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

    /// A short piece on the board. Fails unless it has `bytes` bytes.
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

/// The other members, beginning with the next one, so that not all read the same piece at first.
fn following(table: &SharedBoard) -> impl Iterator<Item = usize> + use<> {
    let (rank, size) = (table.board.rank(), table.board.size());
    (rank + 1..size).chain(0..rank)
}
