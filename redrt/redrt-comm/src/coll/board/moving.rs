//! Barrier, broadcast, gather, scatter, allgather and alltoall. Rare parts are boxed: as parts of the futures they
//! would cost every call more than the rest.

use super::{Algorithm, Call, MakePeers, Pieces, SharedBoard, following};
use crate::coll::gather::{Mine, copy};
use crate::coll::{Failure, Outcome, Peers, all};
use redrt_engine::doorbell;
use redrt_transport::board::{Board, Posted};
use redrt_transport::memory::Region;
use std::io;

/// A barrier: over once all members have called it.
pub struct Barrier;

impl Algorithm for Barrier {
    #[inline(always)]
    async fn run<P: MakePeers>(call: &Call<'_, P, Self>) -> Outcome {
        let number = come!(call.table);
        wait_for_all!(call.table, number);
        Ok(())
    }
}

/// Brings `buffer` of `root` to all members. A long one is copied in parts, each by any member that has time. A member
/// copies its own parts first; once it has all, it copies parts to others.
pub struct Bcast {
    /// The root's bytes, or the place for them.
    pub buffer: Region,
    /// Rank of the root.
    pub root: usize,
}

impl Algorithm for Bcast {
    #[inline(always)]
    async fn run<P: MakePeers>(call: &Call<'_, P, Self>) -> Outcome {
        let Call { table, peers, arguments: Self { buffer, root } } = call;
        let is_root = table.board.rank() == *root;
        let number = begin!(table, needs_annex: is_root && table.board.needs_annex(*buffer));
        let posted = if is_root {
            let posted = table.board.write(number, *buffer, table.in_place);
            table.post(number);
            if !posted.is_elsewhere() && !posted.is_message() {
                return Ok(());
            }
            posted
        } else {
            table.board.write_place(number, *buffer, table.in_place);
            table.post(number);
            take_from!(table, *root, number, buffer.len());
            let posted = table.board.posted(*root, number);
            if !posted.is_elsewhere() && !posted.is_message() {
                return table.take(&posted, *buffer);
            }
            posted
        };
        Box::pin(bcast_long(table, peers(), *buffer, *root, number, posted)).await
    }
}

/// The rest of a broadcast, if the root's piece is long.
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
    let has_it = if is_root { Ok(true) } else { fetch(table, &posted, number, buffer).await };
    if let Ok(true) = has_it {
        for member in following(table).filter(|member| *member != root) {
            if is_root {
                wait_for!(table, member, number);
            }
            if table.board.wants(member, number, buffer.len()) {
                table.help(member, number, buffer, |offset, part| table.board.bring(member, number, offset, part));
            }
        }
    }
    let has_read = (!is_root).then_some(!matches!(has_it, Ok(false)));
    let out = |_| is_root.then_some(buffer);
    let into = |from| (from == root).then_some(buffer);
    let settled = settle!(table, &|| peers.clone(), number, has_read: has_read, out: out, into: into);
    has_it.and(settled)
}

/// Copies all of a long piece to `into`, with the help of others. Returns false if parts are missing in the end and
/// this member cannot read the piece.
async fn fetch(table: &SharedBoard, posted: &Posted, number: u64, into: Region) -> Outcome<bool> {
    if posted.length() != into.len() as u64 {
        return Err(Failure::Mismatched);
    }
    let me = table.board.rank();
    table.help(me, number, into, |offset, part| table.board.read(posted, offset, part));
    wait!(table, Board::parts(number, parts_of(into)));
    // Others may have failed to write here, and this member may still be able to read.
    if table.board.has_failed(number) { table.take_from_anywhere(posted, into) } else { Ok(true) }
}

/// Length of one part of a transfer.
const PART_BYTES: usize = 128 << 10;

fn parts_of(piece: Region) -> u64 {
    piece.len().div_ceil(PART_BYTES) as u64
}

impl SharedBoard {
    /// Copies those parts of a piece that no other member copies. `piece` is the whole piece.
    fn help(&self, member: usize, number: u64, piece: Region, copy: impl Fn(usize, Region) -> io::Result<()>) {
        let part = |part: u64| {
            let offset = part as usize * PART_BYTES;
            copy(offset, piece.part(offset, PART_BYTES.min(piece.len() - offset)))
        };
        self.board.help(member, number, parts_of(piece), doorbell::poke, part);
    }
}

/// Brings `mine` of every member to its piece of `pieces` at `root`. Long pieces come as messages, so that only the
/// root waits.
pub struct Gather<A> {
    /// This member's piece; `None` at the root if it is in place.
    pub mine: Option<Region>,
    /// Places for the pieces, used by the root alone.
    pub pieces: A,
    /// Rank of the root.
    pub root: usize,
}

impl<A: Pieces> Algorithm for Gather<A> {
    #[inline(always)]
    async fn run<P: MakePeers>(call: &Call<'_, P, Self>) -> Outcome {
        let Call { table, peers, arguments: Self { mine, pieces, root } } = call;
        if table.board.rank() != *root {
            let mine = mine.unwrap_or(Region::empty());
            let (_, posted) = come_with!(table, mine, table.as_messages);
            if !posted.is_message() {
                return Ok(());
            }
            let step = peers().start_send(*root, mine);
            return step.await;
        }
        let number = come!(table);
        let mut outcome = mine.map_or(Ok(()), |mine| copy(mine, pieces.piece(*root)));
        let mut by_message = Vec::new();
        for from in following(table) {
            take_from!(table, from, number, pieces.piece(from).len());
            let posted = table.board.posted(from, number);
            if posted.is_message() {
                by_message.push(from);
            } else {
                outcome = outcome.and(table.take(&posted, pieces.piece(from)));
            }
        }
        if !by_message.is_empty() {
            let steps = {
                let peers = peers();
                let receive = |from| peers.start_receive(from, pieces.piece(from));
                by_message.into_iter().map(receive).collect::<Vec<_>>()
            };
            outcome = outcome.and(Box::pin(all(steps)).await);
        }
        outcome
    }
}

/// Brings each piece of `pieces` at `root` to `mine` of its member. Long pieces come as messages, so that the root does
/// not wait.
pub struct Scatter<A> {
    /// The pieces, used by the root alone.
    pub pieces: A,
    /// Place for this member's piece; `None` at the root, which keeps its piece.
    pub mine: Option<Region>,
    /// Rank of the root.
    pub root: usize,
}

impl<A: Pieces> Algorithm for Scatter<A> {
    #[inline(always)]
    async fn run<P: MakePeers>(call: &Call<'_, P, Self>) -> Outcome {
        let Call { table, peers, arguments: Self { pieces, mine, root } } = call;
        let rank = table.board.rank();
        if rank != *root {
            let number = come!(table);
            let mine = mine.unwrap_or(Region::empty());
            take_from!(table, *root, number, mine.len());
            let posted = table.board.posted_for(*root, number, rank);
            if !posted.is_message() {
                return table.take(&posted, mine);
            }
            let step = peers().start_receive(*root, mine);
            return step.await;
        }
        let number = begin!(table, needs_annex: table.board.need_annex(|to| pieces.piece(to)));
        let posted = table.board.write_each(number, |to| pieces.piece(to), table.as_messages);
        table.post(number);
        let own = || mine.map_or(Ok(()), |mine| copy(pieces.piece(*root), mine));
        let is_message = |to: &usize| table.board.posted_for(*root, number, *to).is_message();
        if posted.are_short() || !following(table).any(|to| is_message(&to)) {
            return own();
        }
        let steps = {
            let peers = peers();
            let send = |to| peers.start_send(to, pieces.piece(to));
            following(table).filter(is_message).map(send).collect::<Vec<_>>()
        };
        // Other members read their pieces meanwhile.
        let outcome = own();
        outcome.and(Box::pin(all(steps)).await)
    }
}

/// Brings `mine` of every member to its piece at all.
pub struct Allgather<A> {
    /// This member's piece; `None` if it is in place already.
    pub mine: Option<Region>,
    /// Places for the pieces.
    pub pieces: A,
}

impl<A: Pieces> Algorithm for Allgather<A> {
    #[inline(always)]
    async fn run<P: MakePeers>(call: &Call<'_, P, Self>) -> Outcome {
        let Call { table, peers, arguments: Self { mine, pieces } } = call;
        let rank = table.board.rank();
        let mine = Mine::new(*mine, pieces.piece(rank))?;
        let (number, own) = come_with!(table, mine.bytes, table.all_in_place);
        mine.settle();
        let mut outcome = Ok(());
        let (mut is_elsewhere, mut has_read) = (own.is_elsewhere(), true);
        let mut by_message = Vec::new();
        for from in following(table) {
            wait_for!(table, from, number);
            let posted = table.board.posted(from, number);
            is_elsewhere |= posted.is_elsewhere();
            if posted.is_message() {
                by_message.push(from);
            } else {
                let taken = table.take_from_anywhere(&posted, pieces.piece(from));
                outcome = outcome.and(taken.map(|is_taken| has_read &= is_taken));
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
            let out = |_| own.is_elsewhere().then_some(mine.bytes);
            let into = |from| table.board.posted(from, number).is_elsewhere().then(|| pieces.piece(from));
            let settled = settle!(table, peers, number, has_read: Some(has_read), out: out, into: into);
            outcome = outcome.and(settled);
        }
        outcome
    }
}

/// Sends `out[k]` to member k and receives its piece into `into[k]`.
pub struct Alltoall<A, B> {
    /// Pieces for the members.
    pub out: A,
    /// Places for the members' pieces.
    pub into: B,
}

impl<A: Pieces, B: Pieces> Algorithm for Alltoall<A, B> {
    #[inline(always)]
    async fn run<P: MakePeers>(call: &Call<'_, P, Self>) -> Outcome {
        let Call { table, peers, arguments: Self { out, into } } = call;
        let rank = table.board.rank();
        let number = begin!(table, needs_annex: table.board.need_annex(|to| out.piece(to)));
        let own = table.board.write_each(number, |to| out.piece(to), table.in_place);
        table.post(number);
        let mut by_message = Vec::new();
        let mut outcome = copy(out.piece(rank), into.piece(rank));
        let (mut is_elsewhere, mut has_read) = (own.is_elsewhere(), true);
        for from in following(table) {
            wait_for!(table, from, number);
            is_elsewhere |= table.board.posted(from, number).is_elsewhere();
            let posted = table.board.posted_for(from, number, rank);
            if posted.is_message() {
                by_message.push(from);
            } else {
                let taken = table.take_from_anywhere(&posted, into.piece(from));
                outcome = outcome.and(taken.map(|is_taken| has_read &= is_taken));
            }
        }
        let is_message = |to: &usize| table.board.posted_for(rank, number, *to).is_message();
        let sends = !own.are_short() && following(table).any(|to| is_message(&to));
        if sends || !by_message.is_empty() {
            let steps = {
                let peers = peers();
                let receive = |from| peers.start_receive(from, into.piece(from));
                let mut steps: Vec<_> = by_message.into_iter().map(receive).collect();
                let send = |to| peers.start_send(to, out.piece(to));
                steps.extend(following(table).filter(is_message).map(send));
                steps
            };
            outcome = outcome.and(Box::pin(all(steps)).await);
        }
        if is_elsewhere {
            let is_elsewhere = |from, to| table.board.posted_for(from, number, to).is_elsewhere();
            let lent = |to| is_elsewhere(rank, to).then(|| out.piece(to));
            let place = |from| is_elsewhere(from, rank).then(|| into.piece(from));
            let settled = settle!(table, peers, number, has_read: Some(has_read), out: lent, into: place);
            outcome = outcome.and(settled);
        }
        outcome
    }
}
