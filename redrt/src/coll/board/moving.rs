//! Barrier, broadcast, gather, scatter, allgather and alltoall. `peers` makes the members for those parts that go in
//! messages: most need none, and take less time than to make them. What is seldom needed is not part of the futures,
//! for the same reason.

use super::{Pieces, SharedBoard, following};
use crate::coll::gather::{Mine, copy};
use crate::coll::{Failure, Outcome, Peers, Step, all};
use redrt_engine::doorbell;
use redrt_transport::board::{Board, Posted};
use redrt_transport::memory::Region;
use std::io;

/// Returns once all members have called it.
#[inline(always)]
pub async fn barrier(table: &SharedBoard) {
    let number = table.come().await;
    table.wait_for_all(number).await;
}

/// Brings `buffer` of `root` to all members. A long one is copied in parts, by any member that has time: each begins
/// with its own, and who has them all brings some to those that do not.
#[inline(always)]
pub async fn bcast(table: &SharedBoard, peers: impl Fn() -> Peers, buffer: Region, root: usize) -> Outcome {
    let (is_root, long) = (table.board.rank() == root, table.in_place);
    let number = table.begin_to_write(is_root && table.board.needs_annex(buffer)).await;
    if is_root {
        table.board.write(number, buffer, long);
    } else {
        table.board.write_place(number, buffer, long);
    }
    table.post(number);
    if !is_root {
        table.take_from(root, number).await;
    }
    let posted = table.board.posted(root, number);
    if !posted.is_elsewhere() && !posted.is_message() {
        return if is_root { Ok(()) } else { table.take(&posted, buffer) };
    }
    Box::pin(bcast_long(table, peers(), buffer, root, number, posted)).await
}

/// The rest of it, where the root's piece is long.
async fn bcast_long(
    table: &SharedBoard,
    peers: Peers,
    buffer: Region,
    root: usize,
    number: u64,
    posted: Posted,
) -> Outcome {
    let is_root = table.board.rank() == root;
    if posted.is_message() {
        return match is_root {
            true => all(following(table).map(|rank| peers.start_send(rank, buffer)).collect::<Vec<_>>()).await,
            false => peers.receive(root, buffer).await,
        };
    }
    let outcome = if is_root { Ok(()) } else { fetch(table, &posted, number, buffer).await };
    if outcome.is_ok() {
        for member in following(table).filter(|member| *member != root) {
            if is_root {
                table.wait_for(member, number).await;
            }
            if table.board.wants(member, number, buffer.len()) {
                table.help(member, number, buffer, |offset, part| table.board.bring(member, number, offset, part));
            }
        }
    }
    let read = table.come().await;
    if is_root {
        table.wait_for_all(read).await;
    }
    outcome
}

/// Has all of a long piece in `into` at the end, with the help of others.
async fn fetch(table: &SharedBoard, posted: &Posted, number: u64, into: Region) -> Outcome {
    if posted.length() != into.len() as u64 {
        return Err(Failure::Mismatched);
    }
    let me = table.board.rank();
    table.help(me, number, into, |offset, part| table.board.read(posted, offset, part));
    table.wait(Board::parts(number, parts_of(into))).await;
    // What others could not bring, say because they may not write, this member may still read.
    if table.board.has_failed(number) { table.read(posted, 0, into) } else { Ok(()) }
}

/// Bytes of one part of a transfer.
const PART_BYTES: usize = 128 << 10;

fn parts_of(piece: Region) -> u64 {
    piece.len().div_ceil(PART_BYTES) as u64
}

impl SharedBoard {
    /// Does parts of what a member wants, of which `piece` is the whole.
    fn help(&self, member: usize, number: u64, piece: Region, copy: impl Fn(usize, Region) -> io::Result<()>) {
        let part = |part: u64| {
            let offset = part as usize * PART_BYTES;
            copy(offset, piece.part(offset, PART_BYTES.min(piece.len() - offset)))
        };
        self.board.help(member, number, parts_of(piece), doorbell::poke, part);
    }
}

/// Brings `mine` of every member to its piece of `pieces` at `root`. `None` for `mine` at the root: it is in place.
/// Long pieces come as messages, so that only the root waits.
#[inline(always)]
pub async fn gather(
    table: &SharedBoard,
    peers: impl Fn() -> Peers,
    mine: Option<Region>,
    pieces: impl Pieces,
    root: usize,
) -> Outcome {
    if table.board.rank() != root {
        let mine = mine.unwrap_or(Region::empty());
        let number = table.come_with(mine, table.as_messages).await;
        let is_message = table.board.posted(table.board.rank(), number).is_message();
        let step = if is_message { peers().start_send(root, mine) } else { Step::done() };
        return step.await;
    }
    let number = table.come().await;
    let mut outcome = mine.map_or(Ok(()), |mine| copy(mine, pieces.piece(root)));
    let mut by_message = Vec::new();
    for from in following(table) {
        table.take_from(from, number).await;
        let posted = table.board.posted(from, number);
        if posted.is_message() {
            by_message.push(from);
        } else {
            outcome = outcome.and(table.take(&posted, pieces.piece(from)));
        }
    }
    if !by_message.is_empty() {
        let peers = peers();
        let steps: Vec<_> = by_message.into_iter().map(|from| peers.start_receive(from, pieces.piece(from))).collect();
        outcome = outcome.and(all(steps).await);
    }
    outcome
}

/// Brings each piece of `pieces` at `root` to `mine` of its member. `None` for `mine` at the root: it keeps its piece.
/// Long pieces come as messages, so that the root does not wait.
#[inline(always)]
pub async fn scatter(
    table: &SharedBoard,
    peers: impl Fn() -> Peers,
    pieces: impl Pieces,
    mine: Option<Region>,
    root: usize,
) -> Outcome {
    let rank = table.board.rank();
    if rank != root {
        let (number, mine) = (table.come().await, mine.unwrap_or(Region::empty()));
        table.take_from(root, number).await;
        let posted = table.board.posted_for(root, number, rank);
        if !posted.is_message() {
            return table.take(&posted, mine);
        }
        let step = peers().start_receive(root, mine);
        return step.await;
    }
    let number = table.begin_to_write(table.board.need_annex(|to| pieces.piece(to))).await;
    table.board.write_each(number, |to| pieces.piece(to), table.as_messages);
    table.post(number);
    let own = || mine.map_or(Ok(()), |mine| copy(pieces.piece(root), mine));
    let is_message = |to: &usize| table.board.posted_for(root, number, *to).is_message();
    let by_message: Vec<_> = following(table).filter(is_message).collect();
    if by_message.is_empty() {
        return own();
    }
    let steps = {
        let peers = peers();
        by_message.into_iter().map(|to| peers.start_send(to, pieces.piece(to))).collect::<Vec<_>>()
    };
    // While the others take theirs.
    let outcome = own();
    outcome.and(Box::pin(all(steps)).await)
}

/// Brings `mine` of every member to its piece at all. `None` where it is in place already.
#[inline(always)]
pub async fn allgather(
    table: &SharedBoard,
    peers: impl Fn() -> Peers,
    mine: Option<Region>,
    pieces: impl Pieces,
) -> Outcome {
    let rank = table.board.rank();
    let mine = Mine::new(mine, pieces.piece(rank))?;
    let number = table.come_with(mine.bytes, table.in_place).await;
    mine.settle();
    let mut outcome = Ok(());
    let own = table.board.posted(rank, number);
    let mut is_elsewhere = own.is_elsewhere();
    let mut by_message = Vec::new();
    for from in following(table) {
        table.wait_for(from, number).await;
        let posted = table.board.posted(from, number);
        is_elsewhere |= posted.is_elsewhere();
        if posted.is_message() {
            by_message.push(from);
        } else {
            outcome = outcome.and(table.take(&posted, pieces.piece(from)));
        }
    }
    if own.is_message() || !by_message.is_empty() {
        let steps = {
            let peers = peers();
            let receive = |from| peers.start_receive(from, pieces.piece(from));
            let mut steps: Vec<_> = by_message.into_iter().map(receive).collect();
            if own.is_message() {
                steps.extend(following(table).map(|to| peers.start_send(to, mine.bytes)));
            }
            steps
        };
        outcome = outcome.and(Box::pin(all(steps)).await);
    }
    if is_elsewhere {
        let read = table.come().await;
        table.wait_for_all(read).await;
    }
    outcome
}

/// Sends `out[k]` to member k and receives its piece into `into[k]`.
#[inline(always)]
pub async fn alltoall(table: &SharedBoard, peers: impl Fn() -> Peers, out: impl Pieces, into: impl Pieces) -> Outcome {
    let rank = table.board.rank();
    let number = table.begin_to_write(table.board.need_annex(|to| out.piece(to))).await;
    table.board.write_each(number, |to| out.piece(to), table.in_place);
    table.post(number);
    let mut by_message = Vec::new();
    let mut outcome = copy(out.piece(rank), into.piece(rank));
    let mut is_elsewhere = table.board.posted(rank, number).is_elsewhere();
    for from in following(table) {
        table.wait_for(from, number).await;
        is_elsewhere |= table.board.posted(from, number).is_elsewhere();
        let posted = table.board.posted_for(from, number, rank);
        if posted.is_message() {
            by_message.push(from);
        } else {
            outcome = outcome.and(table.take(&posted, into.piece(from)));
        }
    }
    let is_message = |to: &usize| table.board.posted_for(rank, number, *to).is_message();
    let as_messages: Vec<_> = following(table).filter(is_message).collect();
    if !by_message.is_empty() || !as_messages.is_empty() {
        let steps = {
            let peers = peers();
            let receive = |from| peers.start_receive(from, into.piece(from));
            let mut steps: Vec<_> = by_message.into_iter().map(receive).collect();
            steps.extend(as_messages.into_iter().map(|to| peers.start_send(to, out.piece(to))));
            steps
        };
        outcome = outcome.and(Box::pin(all(steps)).await);
    }
    if is_elsewhere {
        let read = table.come().await;
        table.wait_for_all(read).await;
    }
    outcome
}
