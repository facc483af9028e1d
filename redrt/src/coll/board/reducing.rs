//! Reductions.

use super::{Table, following};
use crate::coll::reduce::{Combine, even_shares, join};
use crate::coll::{Failure, Outcome, Peers};
use crate::memory::{Region, Scratch};
use crate::transport::board::{INLINE_BYTES_MAX, MEMBERS_MAX};

/// So many bytes of each member are combined at a time: they and their combination stay in a core's cache.
const CHUNK_BYTES: usize = 128 << 10;

/// Whether operands of this length are combined over a board by everyone who wants the result.
pub fn is_short(bytes: usize) -> bool {
    bytes <= INLINE_BYTES_MAX
}

/// Short operands of all members, in memory of this one.
struct Operands {
    all: Region,
    bytes: usize,
    /// Which are left to combine, in order, by where they are.
    order: [u8; MEMBERS_MAX],
    count: usize,
}

impl Operands {
    /// Waits for all of them; member `first` comes first in order.
    fn gather(table: &Table, number: u64, first: usize, all: Region) -> Outcome<Self> {
        let size = table.board.size();
        let bytes = all.len() / size;
        let mut order = [0; MEMBERS_MAX];
        table.wait_for_all(number);
        for rank in 0..size {
            table.take(&table.board.posted(rank, number), all.part(rank * bytes, bytes))?;
            order[if rank < first { rank + size - first } else { rank - first }] = rank as u8;
        }
        Ok(Self { all, bytes, order, count: size })
    }

    fn at(&self, place: usize) -> Region {
        self.all.part(usize::from(self.order[place]) * self.bytes, self.bytes)
    }

    /// Combines two of them; the combination takes the place of the left one.
    fn join(&mut self, combine: &dyn Combine, left: usize, right: usize) -> Outcome {
        join(combine, self.at(left), self.at(right))?;
        self.order[left] = self.order[right];
        Ok(())
    }

    /// Combines the first pairs, so that a power of two is left.
    fn pair_up(&mut self, combine: &dyn Combine) -> Outcome {
        let paired = self.count - (1 << self.count.ilog2());
        for number in 0..paired {
            self.join(combine, 2 * number, 2 * number + 1)?;
            self.order[number] = self.order[2 * number];
        }
        self.order.copy_within(2 * paired..self.count, paired);
        self.count -= paired;
        Ok(())
    }

    /// Combines neighbours, then neighbours of these, until one is left.
    fn fold(mut self, combine: &dyn Combine) -> Outcome<Region> {
        let mut distance = 1;
        while distance < self.count {
            for left in (0..self.count - distance).step_by(2 * distance) {
                self.join(combine, left, left + distance)?;
            }
            distance *= 2;
        }
        Ok(self.at(0))
    }
}

/// Combines short operands of all members into `result` of `root`.
pub fn reduce(
    table: &Table,
    peers: &Peers,
    operand: Region,
    result: Region,
    combine: &dyn Combine,
    root: usize,
) -> Outcome {
    let number = table.come_with(operand);
    if peers.rank != root {
        return Ok(());
    }
    let first = if combine.commutes() { root } else { 0 };
    let mut scratch = Scratch::spare(operand.len() * peers.size());
    let operands = Operands::gather(table, number, first, scratch.region())?;
    result.copy_from(operands.fold(combine)?);
    Ok(())
}

/// Combines short operands of all members into `result` of all.
pub fn allreduce(table: &Table, operand: Region, result: Region, combine: &dyn Combine) -> Outcome {
    let number = table.come_with(operand);
    let mut scratch = Scratch::spare(operand.len() * table.board.size());
    let mut operands = Operands::gather(table, number, 0, scratch.region())?;
    operands.pair_up(combine)?;
    result.copy_from(operands.fold(combine)?);
    Ok(())
}

/// Combines long operands of all members into `result` of all: each combines a share of them, where they are, and reads what the others made of theirs. `None` when
/// not all can be read where they are; then nothing has happened.
pub fn allreduce_by_shares(
    table: &Table,
    peers: &Peers,
    operand: Region,
    result: Region,
    combine: &dyn Combine,
) -> Option<Outcome> {
    let (rank, size) = (peers.rank, peers.size());
    let number = table.come_with_both(operand, result);
    table.wait_for_all(number);
    let posted = |rank| table.board.posted(rank, number);
    if (0..size).any(|rank| posted(rank).is_message()) {
        return None;
    }
    if (0..size).any(|rank| posted(rank).length() != posted(0).length()) {
        return Some(Err(Failure::Mismatched));
    }
    let shares = even_shares(result, combine.element_bytes(), size);
    let offset = |share: Region| share.start() as usize - result.start() as usize;
    let mut outcome = combine_share(table, number, peers, offset(shares[rank]), operand, shares[rank], combine);
    // Who comes to this has read all that it needs of the operands.
    let combined = table.come_with(result);
    for from in following(peers) {
        table.wait_for(from, combined);
        let made = table.board.posted(from, combined);
        outcome = outcome.and_then(|()| table.read(&made, offset(shares[from]), shares[from]));
    }
    let read = table.come();
    table.wait_for_all(read);
    Some(outcome)
}

/// Combines the share of this member, which begins `offset` bytes into the operands, into `mine`: that of the next member first, its own last, as if it had gone
/// round the ring.
fn combine_share(
    table: &Table,
    number: u64,
    peers: &Peers,
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
        for (step, from) in following(peers).enumerate() {
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
