//! Reductions.

use super::{Algorithm, Call, MakePeers, SharedBoard, following};
use crate::coll::reduce::{Combine, RING_BYTES_MIN, even_shares, join};
use crate::coll::{Failure, Outcome};
use redrt_transport::board::{ANNEX_BYTES_MAX, Board, Long};
use redrt_transport::memory::{Region, Scratch};
use smallvec::SmallVec;
use std::ops::Range;

/// Bytes of each member that are combined at a time: operands and result stay in a core's cache.
const CHUNK_BYTES: usize = 128 << 10;

/// One member combines all operands if they are no more than this together: it has them in its cache then.
const ALL_BYTES_MAX: usize = 128 << 10;

/// Whether operands of this length are posted as they are. They are combined in the order in which messages would bring
/// them that are as short.
pub fn is_short(bytes: usize) -> bool {
    bytes < RING_BYTES_MIN.min(ANNEX_BYTES_MAX + 1)
}

/// Whether short operands of this many members are combined by one, or by each who wants the result; else each combines
/// a share of them.
pub fn are_few(bytes: usize, size: usize) -> bool {
    is_short(bytes) && bytes <= ALL_BYTES_MAX / size
}

/// An operation in which members have posted short operands, `length` bytes each. Those bytes of them are wanted that
/// begin at `offset`.
struct Posts<'a> {
    table: &'a SharedBoard,
    number: u64,
    length: usize,
    offset: usize,
}

impl Posts<'_> {
    /// `bytes` bytes of that of a member, who has come.
    #[inline(always)]
    fn operand(&self, member: usize, bytes: usize) -> Outcome<Region> {
        let posted = self.table.board.posted(member, self.number);
        Ok(self.table.see(&posted, self.length)?.part(self.offset, bytes))
    }

    /// Combines those of all, of whom `first` comes first in order, into `result`. `pairs_up`: the first pairs before
    /// all else, so that a power of two is left.
    #[inline(always)]
    fn combine_all(&self, first: usize, result: Region, combine: &impl Combine, pairs_up: bool) -> Outcome {
        match self.table.size() {
            2 => self.combine_two(first, 1 - first, result, combine),
            _ => self.combine_many(first, result, combine, pairs_up),
        }
    }

    #[inline(always)]
    fn combine_two(&self, left: usize, right: usize, result: Region, combine: &impl Combine) -> Outcome {
        let left = self.operand(left, result.len())?;
        result.copy_from(self.operand(right, result.len())?);
        combine.combine(left, result).map_err(Failure::Refused)
    }

    #[inline(never)]
    fn combine_many(&self, first: usize, result: Region, combine: &dyn Combine, pairs_up: bool) -> Outcome {
        let size = self.table.size();
        let mut scratch = Scratch::spare(result.len() * (size - 2));
        let mut operands = Operands::default();
        operands.add(self, (0..size).map(|at| (first + at) % size), result, scratch.region())?;
        if pairs_up {
            operands.pair_up(combine)?;
        }
        operands.fold(combine)
    }
}

/// Operands of members, in order. They are where they were posted until they are combined with one to the left, and
/// then in memory of this member.
#[derive(Default)]
struct Operands {
    places: SmallVec<[Operand; 8]>,
}

/// Where an operand is.
#[derive(Clone, Copy)]
struct Operand {
    bytes: Region,
    /// Where what it is combined with goes.
    mine: Region,
    is_mine: bool,
}

impl Operands {
    /// Those of these members, at least one. What is combined at the end is in `result`, on the way also in `room`,
    /// which has room for two operands less than there are: nothing is to the left of the first.
    fn add(
        &mut self,
        posts: &Posts<'_>,
        members: impl ExactSizeIterator<Item = usize>,
        result: Region,
        room: Region,
    ) -> Outcome {
        let last = members.len() - 1;
        for (at, member) in members.enumerate() {
            let bytes = posts.operand(member, result.len())?;
            let mine = match at {
                _ if at == last => result,
                0 => Region::empty(),
                _ => room.part((at - 1) * bytes.len(), bytes.len()),
            };
            self.places.push(Operand { bytes, mine, is_mine: false });
        }
        Ok(())
    }

    /// Combines two of them; the combination takes the place of the left one.
    fn join(&mut self, combine: &dyn Combine, left: usize, right: usize) -> Outcome {
        let combined = self.places[right].own();
        join(combine, self.places[left].bytes, combined.bytes)?;
        self.places[left] = combined;
        Ok(())
    }

    /// Combines the first pairs, so that a power of two is left.
    fn pair_up(&mut self, combine: &dyn Combine) -> Outcome {
        let paired = self.places.len() - (1 << self.places.len().ilog2());
        for number in 0..paired {
            self.join(combine, 2 * number, 2 * number + 1)?;
            self.places[number] = self.places[2 * number];
        }
        self.places.drain(paired..2 * paired);
        Ok(())
    }

    /// Combines those in a range as members do that bring each other what they have of ever more before them:
    /// neighbours from the right, then neighbours of these. It is in the place of the last one then.
    fn fold_back(&mut self, combine: &dyn Combine, range: Range<usize>) -> Outcome {
        let mut distance = 1;
        while distance < range.len() {
            for right in range.clone().rev().step_by(2 * distance) {
                if let Some(left) = right.checked_sub(distance).filter(|left| range.contains(left)) {
                    let combined = self.places[right].own();
                    join(combine, self.places[left].bytes, combined.bytes)?;
                    self.places[right] = combined;
                }
            }
            distance *= 2;
        }
        Ok(())
    }

    /// Combines neighbours, then neighbours of these, until one is left, which is where the last one's combinations go.
    fn fold(&mut self, combine: &dyn Combine) -> Outcome {
        let (mut distance, count) = (1, self.places.len());
        while distance < count {
            for left in (0..count - distance).step_by(2 * distance) {
                self.join(combine, left, left + distance)?;
            }
            distance *= 2;
        }
        Ok(())
    }
}

impl Operand {
    /// The operand in memory of this member.
    fn own(self) -> Self {
        if !self.is_mine {
            self.mine.copy_from(self.bytes);
        }
        Self { bytes: self.mine, is_mine: true, ..self }
    }
}

/// Combines short operands of all members into `result` of `root`.
pub struct Reduce<C> {
    /// This member's.
    pub operand: Region,
    /// Written by the root alone.
    pub result: Region,
    /// How two are combined.
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
            take_from!(table, from, number);
        }
        let first = if combine.commutes() { *root } else { 0 };
        Posts { table, number, length: operand.len(), offset: 0 }.combine_all(first, *result, combine, false)
    }
}

/// Combines short operands of all members up to this one into `result`, in the order of [`crate::coll::scan::scan`].
pub struct Scan<C> {
    /// This member's.
    pub operand: Region,
    /// Where the result goes.
    pub result: Region,
    /// How two are combined.
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
            take_from!(table, from, number);
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

/// Combines short operands of all members before this one into `result`, in the order of
/// [`crate::coll::scan::exscan`]; untouched on the first.
pub struct Exscan<C> {
    /// This member's.
    pub operand: Region,
    /// Where the result goes.
    pub result: Region,
    /// How two are combined.
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
            take_from!(table, from, number);
        }
        let posts = Posts { table, number, length: operand.len(), offset: 0 };
        let mut scratch = Scratch::spare(operand.len() * rank.saturating_sub(2));
        let mut operands = Operands::default();
        operands.add(&posts, 0..rank, *result, scratch.region())?;
        let last = operands.places[rank - 1].own();
        // Twice as many of those before with each step.
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
pub async fn reduce_scatter(
    table: &SharedBoard,
    operand: Region,
    offset: usize,
    mine: Region,
    combine: &dyn Combine,
) -> Outcome {
    let (number, _) = come_with!(table, operand, Long::TO_ANNEX);
    wait_for_all!(table, number);
    Posts { table, number, length: operand.len(), offset }.combine_all(0, mine, &combine, false)
}

/// Combines short operands of all members into `result` of all.
pub struct Allreduce<C> {
    /// This member's.
    pub operand: Region,
    /// Where the result goes.
    pub result: Region,
    /// How two are combined.
    pub combine: C,
}

impl<C: Combine> Algorithm for Allreduce<C> {
    #[inline(always)]
    async fn run<P: MakePeers>(call: &Call<'_, P, Self>) -> Outcome {
        let Call { table, arguments: Self { operand, result, combine }, .. } = call;
        let (number, _) = come_with!(table, *operand, Long::TO_ANNEX);
        wait_for_all!(table, number);
        Posts { table, number, length: operand.len(), offset: 0 }.combine_all(0, *result, combine, true)
    }
}

/// Combines short operands of all members into `result` of all: each combines a share of them, and reads the others'.
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

/// Combines long operands of all members into `result` of all: each combines a share of them, where they are, and reads
/// what the others made of theirs. `None` when not all can be read where they are; then nothing has happened.
pub async fn allreduce_by_shares(
    table: &SharedBoard,
    operand: Region,
    result: Region,
    combine: &dyn Combine,
) -> Option<Outcome> {
    let (rank, size) = (table.board.rank(), table.board.size());
    let number = begin!(table, needs_annex: table.board.needs_annex(operand));
    // The result will be posted later, and must be readable in place too.
    if table.board.is_readable(result) {
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
    // Who comes to this has read all that it needs of the operands.
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

/// Combines the share of this member, which begins `offset` bytes into the operands, into `mine`: that of the next
/// member first, its own last, as if it had gone round the ring.
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
