//! Reductions. Which operands are combined in which order depends on ranks and lengths alone, so that every member and
//! replica gets the same bits. For operations that do not commute, the operand of a lower rank stands to the left.

use super::gather::scatter;
use super::{Failure, Outcome, Peers, board};
use crate::memory::{Region, Scratch};

/// From this length on, allreduce gives each member a share to combine.
const RING_BYTES_MIN: usize = 64 << 10;

/// How elements are combined.
pub trait Combine: Send + Sync {
    /// `right[k] = left[k] op right[k]` for `right.len() / element` elements.
    fn combine(&self, left: Region, right: Region) -> Result<(), crate::error::Error>;
    /// Bytes of one element.
    fn element_bytes(&self) -> usize;
    /// Whether operands may change places.
    fn commutes(&self) -> bool;
    /// Whether combining short operands takes less time than a message does. Nobody knows of functions of the program.
    fn is_fast(&self) -> bool;
}

pub(super) fn join(combine: &dyn Combine, left: Region, right: Region) -> Outcome {
    combine.combine(left, right).map_err(Failure::Refused)
}

/// Combines `buffer` of all members into `buffer` of `root`; elsewhere `buffer` is used up.
pub async fn reduce(peers: Peers, buffer: Region, combine: &dyn Combine, root: usize) -> Outcome {
    if let Some(table) = peers.table.as_deref().filter(|_| board::is_short(buffer.len()) && combine.is_fast()) {
        return board::reduce(table, &peers, buffer, combine, root);
    }
    let size = peers.size();
    // Members are numbered from the root if operands may change places, else from rank 0, and the result goes to the root
    // at the end.
    let base = if combine.commutes() { root } else { 0 };
    let number = (peers.rank + size - base) % size;
    let rank_of = |number: usize| (number + base) % size;
    let mut scratch = Scratch::spare(buffer.len());
    let incoming = scratch.region();
    let mut mask = 1;
    while mask < size {
        if number & mask != 0 {
            peers.send(rank_of(number - mask), buffer).await?;
            break;
        }
        if number + mask < size {
            peers.receive(rank_of(number + mask), incoming).await?;
            // Mine is to the left: compute into theirs, and take it over.
            join(combine, buffer, incoming)?;
            buffer.copy_from(incoming);
        }
        mask *= 2;
    }
    if base != root {
        if peers.rank == base {
            peers.send(root, buffer).await?;
        } else if peers.rank == root {
            peers.receive(base, buffer).await?;
        }
    }
    Ok(())
}

/// Combines `operand` of all members into `buffer` of all; they may be the same. Short ones over a board are combined there ([`board::allreduce`]).
pub async fn allreduce(peers: Peers, operand: Region, buffer: Region, combine: &dyn Combine) -> Outcome {
    let by_shares = combine.commutes() && buffer.len() >= RING_BYTES_MIN.max(peers.size() * combine.element_bytes());
    if let Some(table) = peers.table.as_deref().filter(|_| by_shares && combine.is_fast())
        && let Some(outcome) = board::allreduce_by_shares(table, &peers, operand, buffer, combine)
    {
        return outcome;
    }
    if by_shares && peers.size() > 1 {
        let shares = |region| even_shares(region, combine.element_bytes(), peers.size());
        let results = shares(buffer);
        ring_reduce(&peers, &shares(operand), results[peers.rank], combine).await?;
        return super::gather::allgather(peers, results).await;
    }
    if operand.start() != buffer.start() {
        buffer.copy_from(operand);
    }
    doubling(&peers, buffer, combine).await
}

pub(super) fn even_shares(buffer: Region, element_bytes: usize, size: usize) -> Vec<Region> {
    let elements = buffer.len() / element_bytes;
    let bound = |number: usize| elements * number / size * element_bytes;
    (0..size).map(|number| buffer.part(bound(number), bound(number + 1) - bound(number))).collect()
}

/// Recursive doubling. Members beyond the largest power of two hand their operand to their left neighbour first and get
/// the result from it at the end.
async fn doubling(peers: &Peers, buffer: Region, combine: &dyn Combine) -> Outcome {
    let size = peers.size();
    let power = 1 << size.ilog2();
    let paired = size - power;
    let mut scratch = Scratch::spare(buffer.len());
    let mut mine = buffer;
    let mut other = scratch.region();
    let rank = peers.rank;
    if rank < 2 * paired && rank % 2 == 1 {
        peers.send(rank - 1, buffer).await?;
        return peers.receive(rank - 1, buffer).await;
    }
    if rank < 2 * paired {
        peers.receive(rank + 1, other).await?;
        join(combine, mine, other)?;
        std::mem::swap(&mut mine, &mut other);
    }
    let number = if rank < 2 * paired { rank / 2 } else { rank - paired };
    let rank_of = |number: usize| if number < paired { number * 2 } else { number + paired };
    let mut mask = 1;
    while mask < power {
        let partner = number ^ mask;
        peers.exchange(rank_of(partner), mine, rank_of(partner), other).await?;
        if partner < number {
            join(combine, other, mine)?;
        } else {
            join(combine, mine, other)?;
            std::mem::swap(&mut mine, &mut other);
        }
        mask *= 2;
    }
    if mine.start() != buffer.start() {
        buffer.copy_from(mine);
    }
    if rank < 2 * paired {
        peers.send(rank + 1, buffer).await?;
    }
    Ok(())
}

/// Leaves in `mine` the combination of `operands[rank]` of all members; it may be the operand's place. Each share goes once round the ring, and who has it combines its own
/// operand with what arrived, in this order.
async fn ring_reduce(peers: &Peers, operands: &[Region], mine: Region, combine: &dyn Combine) -> Outcome {
    let (rank, size) = (peers.rank, peers.size());
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    let longest = operands.iter().map(|share| share.len()).max().unwrap_or(0);
    let mut scratch = Scratch::spare(2 * longest);
    let (mut held, mut free) = (scratch.region().part(0, longest), scratch.region().part(longest, longest));
    let mut out = operands[left];
    for step in 1..size {
        let own = operands[(rank + 2 * size - step - 1) % size];
        let is_last = step == size - 1 && own.start() != mine.start();
        let arrived = if is_last { mine } else { free.part(0, own.len()) };
        peers.exchange(right, out, left, arrived).await?;
        join(combine, own, arrived)?;
        out = arrived;
        std::mem::swap(&mut held, &mut free);
    }
    if out.start() != mine.start() {
        mine.copy_from(out);
    }
    Ok(())
}

/// Combines `buffer` of all members and leaves in `mine` the stretch of it that belongs to this member; stretch k is
/// `bounds[k]..bounds[k + 1]` bytes. `buffer` is used up.
pub async fn reduce_scatter(
    peers: Peers,
    buffer: Region,
    bounds: Vec<usize>,
    mine: Region,
    combine: &dyn Combine,
) -> Outcome {
    let share = |number: usize| buffer.part(bounds[number], bounds[number + 1] - bounds[number]);
    let shares: Vec<_> = (0..peers.size()).map(share).collect();
    if combine.commutes() && buffer.len() >= RING_BYTES_MIN {
        return ring_reduce(&peers, &shares, mine, combine).await;
    }
    reduce(peers.clone(), buffer, combine, 0).await?;
    scatter(peers, shares, Some(mine), 0).await
}
