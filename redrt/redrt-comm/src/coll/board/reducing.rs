//! Reductions over a board.

use super::operands::{Operands, Posts};
use super::{Algorithm, Call, MakePeers, SharedBoard, following};
use crate::coll::reduce::{Combine, RING_BYTES_MIN, even_shares, join};
use crate::coll::{Failure, Outcome};
use redrt_transport::board::{ANNEX_BYTES_MAX, Board, Long};
use redrt_transport::memory::{Region, Scratch};

/// Number of bytes of each member that are combined at a time, so that operands and result stay in a core's cache.
const CHUNK_BYTES: usize = 128 << 10;

/// Maximum total length of operands that one member combines alone: up to this length they are in its core's cache.
const ALL_BYTES_MAX: usize = 128 << 10;

/// Returns true if operands of this length are posted whole. They are combined in the order in which messages of that
/// length would bring them.
pub fn is_short(bytes: usize) -> bool {
    bytes < RING_BYTES_MIN.min(ANNEX_BYTES_MAX + 1)
}

/// Returns true if one member, or each member that needs the result, combines all short operands of `size` members;
/// else each member combines a share of them.
pub fn are_few(bytes: usize, size: usize) -> bool {
    is_short(bytes) && bytes <= ALL_BYTES_MAX / size
}

/// Combines short operands of all members into `result` of `root`.
pub struct Reduce<C> {
    /// This member's operand.
    pub operand: Region,
    /// Place for the result, used at the root alone.
    pub result: Region,
    /// Operation that combines two.
    pub combine: C,
    /// Rank of the root.
    pub root: usize,
}

impl<C: Combine> Algorithm for Reduce<C> {
    #[inline(always)]
    async fn run<P: MakePeers>(call: &Call<'_, P, Self>) -> Outcome {
        let Call { table, arguments: Self { operand, result, combine, root }, .. } = call;
        let (number, _) = come_with!(table, *operand, Long::TO_ANNEX);
        if table.board.rank() != *root {
            return Ok(());
        }
        for from in following(table) {
            take_from!(table, from, number, operand.len());
        }
        let first = if combine.commutes() { *root } else { 0 };
        Posts { table, number, length: operand.len(), offset: 0 }.combine_all(first, *result, combine, false)
    }
}

/// Combines short operands of all members up to this one into `result`, in the order of [`crate::coll::scan::scan`].
pub struct Scan<C> {
    /// This member's operand.
    pub operand: Region,
    /// Place for the result.
    pub result: Region,
    /// Operation that combines two.
    pub combine: C,
}

impl<C: Combine> Algorithm for Scan<C> {
    #[inline(always)]
    async fn run<P: MakePeers>(call: &Call<'_, P, Self>) -> Outcome {
        let Call { table, arguments: Self { operand, result, combine }, .. } = call;
        let (number, _) = come_with!(table, *operand, Long::TO_ANNEX);
        let rank = table.board.rank();
        if rank == 0 {
            result.copy_from(*operand);
            return Ok(());
        }
        for from in 0..rank {
            take_from!(table, from, number, operand.len());
        }
        let posts = Posts { table, number, length: operand.len(), offset: 0 };
        if rank == 1 {
            return posts.combine_two(0, 1, *result, combine);
        }
        let mut scratch = Scratch::spare(operand.len() * (rank - 1));
        let mut operands = Operands::default();
        operands.add(&posts, 0..rank + 1, *result, scratch.region())?;
        operands.fold_back(combine, 0..rank + 1)
    }
}

/// Combines short operands of all members before this one into `result`, in the order of [`crate::coll::scan::exscan`];
/// unchanged at the first member.
pub struct Exscan<C> {
    /// This member's operand.
    pub operand: Region,
    /// Place for the result.
    pub result: Region,
    /// Operation that combines two.
    pub combine: C,
}

impl<C: Combine> Algorithm for Exscan<C> {
    #[inline(always)]
    async fn run<P: MakePeers>(call: &Call<'_, P, Self>) -> Outcome {
        let Call { table, arguments: Self { operand, result, combine }, .. } = call;
        let (number, _) = come_with!(table, *operand, Long::TO_ANNEX);
        let rank = table.board.rank();
        if rank == 0 {
            return Ok(());
        }
        for from in 0..rank {
            take_from!(table, from, number, operand.len());
        }
        let posts = Posts { table, number, length: operand.len(), offset: 0 };
        let mut scratch = Scratch::spare(operand.len() * rank.saturating_sub(2));
        let mut operands = Operands::default();
        operands.add(&posts, 0..rank, *result, scratch.region())?;
        let last = operands.places[rank - 1].own();
        // Each step takes twice as many members before this one.
        let (mut end, mut count) = (rank - 1, 2);
        while end > 0 {
            operands.fold_back(combine, end.saturating_sub(count)..end)?;
            join(combine, operands.places[end - 1].bytes, last.bytes)?;
            (end, count) = (end.saturating_sub(count), 2 * count);
        }
        Ok(())
    }
}

/// Combines short operands of all members, from byte `offset` of them on, into `mine`.
pub struct ReduceScatter<C> {
    /// This member's operand.
    pub operand: Region,
    /// Offset in the operands of this member's stretch.
    pub offset: usize,
    /// Place for the result, as long as that stretch.
    pub mine: Region,
    /// Operation that combines two.
    pub combine: C,
}

impl<C: Combine> Algorithm for ReduceScatter<C> {
    #[inline(always)]
    async fn run<P: MakePeers>(call: &Call<'_, P, Self>) -> Outcome {
        let Call { table, peers, arguments: Self { operand, offset, mine, combine } } = call;
        let (number, own) = come_with!(table, *operand, table.all_in_place);
        let posts = Posts { table, number, length: operand.len(), offset: *offset };
        if own.is_elsewhere() {
            let mut read = Box::pin(posts.read(peers, *operand, mine.len())).await?;
            return read.operands(table.size(), *mine).combine_all(combine, false);
        }
        wait_for_all!(table, number);
        table.end(number, posts.combine_all(0, *mine, combine, false))
    }
}

/// Combines short operands of all members into `result` of all.
pub struct Allreduce<C> {
    /// This member's operand.
    pub operand: Region,
    /// Place for the result.
    pub result: Region,
    /// Operation that combines two.
    pub combine: C,
}

impl<C: Combine> Algorithm for Allreduce<C> {
    #[inline(always)]
    async fn run<P: MakePeers>(call: &Call<'_, P, Self>) -> Outcome {
        let Call { table, peers, arguments: Self { operand, result, combine } } = call;
        let (number, own) = come_with!(table, *operand, table.all_in_place);
        let posts = Posts { table, number, length: operand.len(), offset: 0 };
        if own.is_elsewhere() {
            let mut read = Box::pin(posts.read(peers, *operand, operand.len())).await?;
            return read.operands(table.size(), *result).combine_all(combine, true);
        }
        wait_for_all!(table, number);
        table.end(number, posts.combine_all(0, *result, combine, true))
    }
}

/// Combines short operands of all members into `result` of all: each member combines a share, and reads the others'
/// shares.
pub async fn allreduce_by_short_shares(
    table: &SharedBoard,
    operand: Region,
    result: Region,
    combine: &dyn Combine,
) -> Outcome {
    let shares = even_shares(result, combine.element_bytes(), table.board.size());
    let mine = shares[table.board.rank()];
    let offset = mine.start() as usize - result.start() as usize;
    let (number, _) = come_with!(table, operand, Long::TO_ANNEX);
    wait_for_all!(table, number);
    let posts = Posts { table, number, length: operand.len(), offset };
    let mut outcome = posts.combine_all(0, mine, &combine, true);
    let (combined, _) = come_with!(table, mine, Long::TO_ANNEX);
    for from in following(table) {
        wait_for!(table, from, combined);
        outcome = outcome.and_then(|()| table.take(&table.board.posted(from, combined), shares[from]));
    }
    outcome
}

/// Combines long operands of all members into `result` of all: each member combines a share, read in place, and reads
/// the others' shares. `None` if not all operands can be read in place; then nothing was changed.
pub async fn allreduce_by_shares(
    table: &SharedBoard,
    operand: Region,
    result: Region,
    combine: &dyn Combine,
) -> Option<Outcome> {
    let (rank, size) = (table.board.rank(), table.board.size());
    let number = begin!(table, needs_annex: table.board.needs_annex(operand));
    // Both must be readable in place: the result will be posted later.
    if table.board.is_readable(operand) && table.board.is_readable(result) {
        table.board.write(number, operand, Long::TO_ANNEX);
    } else {
        table.board.write_message(number, operand.len());
    }
    table.post(number);
    wait_for_all!(table, number);
    let posted = |rank| table.board.posted(rank, number);
    if (0..size).any(|rank| posted(rank).is_message()) {
        return None;
    }
    if (0..size).any(|rank| posted(rank).length() != posted(0).length()) {
        return Some(Err(Failure::Mismatched));
    }
    let shares = even_shares(result, combine.element_bytes(), size);
    let offset = |share: Region| share.start() as usize - result.start() as usize;
    let mut outcome = combine_share(table, number, offset(shares[rank]), operand, shares[rank], combine);
    // A member that comes to this operation needs no operand any more.
    let (combined, _) = come_with!(table, result, Long::TO_ANNEX);
    for from in following(table) {
        wait_for!(table, from, combined);
        let made = table.board.posted(from, combined);
        outcome = outcome.and_then(|()| table.read(&made, offset(shares[from]), shares[from]));
    }
    let read = come!(table);
    wait_for_all!(table, read);
    Some(outcome)
}

/// Combines this member's share, from byte `offset` of the operands, into `mine`. The next member's operand comes first
/// and the own last, the order of a share that goes round the ring.
fn combine_share(
    table: &SharedBoard,
    number: u64,
    offset: usize,
    operand: Region,
    mine: Region,
    combine: &dyn Combine,
) -> Outcome {
    let element_bytes = combine.element_bytes();
    let chunk_bytes = (CHUNK_BYTES / element_bytes).max(1) * element_bytes;
    let mut scratch = Scratch::spare(2 * chunk_bytes);
    let (combined, next) = (scratch.region().part(0, chunk_bytes), scratch.region().part(chunk_bytes, chunk_bytes));
    for start in (0..mine.len()).step_by(chunk_bytes) {
        let bytes = chunk_bytes.min(mine.len() - start);
        let (combined, next) = (combined.part(0, bytes), next.part(0, bytes));
        for (step, from) in following(table).enumerate() {
            let posted = table.board.posted(from, number);
            if step == 0 {
                table.read(&posted, offset + start, combined)?;
            } else {
                table.read(&posted, offset + start, next)?;
                join(combine, next, combined)?;
            }
        }
        join(combine, operand.part(offset + start, bytes), combined)?;
        mine.part(start, bytes).copy_from(combined);
    }
    Ok(())
}
