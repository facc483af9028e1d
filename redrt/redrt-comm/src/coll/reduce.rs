//! Reductions. The order in which operands are combined depends on ranks and lengths alone, so that every member and
//! replica gets the same bits. For operations that do not commute, the operand of a lower rank stands to the left.

use super::board::Call;
use super::gather::scatter;
use super::{Failure, Outcome, Peers, board};
use redrt_runtime::mutation::{self, Mutation};
use redrt_transport::memory::{Region, Scratch};

/// From this length on, allreduce gives each member a share to combine.
pub(super) const RING_BYTES_MIN: usize = 64 << 10;

/// Operation that combines elements.
pub trait Combine: Send + Sync {
    /// `right[k] = left[k] op right[k]` for `right.len() / element` elements.
    fn combine(&self, left: Region, right: Region) -> Result<(), redrt_abi::error::Error>;
    /// Bytes of one element.
    fn element_bytes(&self) -> usize;
    /// Returns true if operands may change places.
    fn commutes(&self) -> bool;
    /// Returns true if combining short operands takes less time than a message. For functions of the program that is
    /// unknown, so false.
    fn is_fast(&self) -> bool;
}

impl<T: Combine + ?Sized> Combine for &T {
    #[inline(always)]
    fn combine(&self, left: Region, right: Region) -> Result<(), redrt_abi::error::Error> {
        (**self).combine(left, right)
    }

    fn element_bytes(&self) -> usize {
        (**self).element_bytes()
    }

    fn commutes(&self) -> bool {
        (**self).commutes()
    }

    fn is_fast(&self) -> bool {
        (**self).is_fast()
    }
}

pub(super) fn join(combine: &dyn Combine, left: Region, right: Region) -> Outcome {
    combine.combine(left, right).map_err(Failure::Refused)
}

/// Combines `operand` of all members into `result` of `root`; the two may be the same there. Other members have no
/// result.
pub async fn reduce(peers: Peers, operand: Region, result: Region, combine: &dyn Combine, root: usize) -> Outcome {
    if let Some(table) = table_for(&peers, combine).filter(|_| board::are_few(operand.len(), peers.size())) {
        let arguments = board::Reduce { operand, result, combine, root };
        return Call::new(table, || peers.clone(), arguments).run().await;
    }
    let size = peers.size();
    // Members are numbered from the root if operands may change places, else from rank 0, and the result goes to the
    // root at the end.
    let base = if combine.commutes() { root } else { 0 };
    let number = (peers.rank + size - base) % size;
    let rank_of = |number: usize| (number + base) % size;
    // A member's children: their numbers differ from its own in one bit below its lowest set bit.
    let masks = (0..usize::BITS).map(|bit| 1usize << bit).take_while(|mask| number & mask == 0);
    let children: Vec<_> = masks.take_while(|mask| number + mask < size).map(|mask| number + mask).collect();
    let is_lost = |step: usize| step > 0 && mutation::is_planted(Mutation::ReduceChildLost);
    let places = Places::new(operand, (peers.rank == root).then_some(result), children.len());
    let mut mine = operand;
    for (step, child) in children.into_iter().enumerate() {
        let theirs = places.of_step(step);
        peers.receive(rank_of(child), theirs).await?;
        // `mine` is the left operand, so the combination is computed into `theirs`.
        if is_lost(step) {
            theirs.copy_from(mine);
        } else {
            join(combine, mine, theirs)?;
        }
        mine = theirs;
    }
    if number != 0 {
        peers.send(rank_of(number & (number - 1)), mine).await?;
    }
    if base != root && peers.rank == base {
        peers.send(root, mine).await?;
    } else if base != root && peers.rank == root {
        peers.receive(base, result).await?;
    } else if peers.rank == root && mine.start() != result.start() {
        result.copy_from(mine);
    }
    Ok(())
}

/// The board over which operands are combined, if there is one.
pub(super) fn table_for<'a>(peers: &'a Peers, combine: &dyn Combine) -> Option<&'a board::SharedBoard> {
    peers.table.as_deref().filter(|_| combine.is_fast())
}

/// Two places in which a member receives operands by turns. The last one used is the result's place, if the member has
/// one.
struct Places {
    turns: [Region; 2],
    _scratch: Scratch,
}

impl Places {
    fn new(operand: Region, result: Option<Region>, steps: usize) -> Self {
        let bytes = operand.len();
        let own = if result.is_some() { 1 } else { 2 }.min(steps);
        let mut scratch = Scratch::spare(own * bytes);
        let parts = scratch.region();
        let first = if own > 0 { parts.part(0, bytes) } else { Region::empty() };
        let second = result.unwrap_or_else(|| if own > 1 { parts.part(bytes, bytes) } else { first });
        // The operand is needed in the first step.
        let is_result_last = steps % 2 == 1 && result.is_some_and(|result| result.start() != operand.start());
        let turns = if is_result_last { [second, first] } else { [first, second] };
        Self { turns, _scratch: scratch }
    }

    fn of_step(&self, step: usize) -> Region {
        self.turns[step % 2]
    }
}

/// Combines `operand` of all members into `buffer` of all members; the two may be the same. Short operands over a board
/// are combined there if they are few ([`board::Allreduce`]).
pub async fn allreduce(peers: Peers, operand: Region, buffer: Region, combine: &dyn Combine) -> Outcome {
    let by_shares = combine.commutes() && buffer.len() >= RING_BYTES_MIN.max(peers.size() * combine.element_bytes());
    if let Some(table) = table_for(&peers, combine).filter(|_| board::is_short(buffer.len())) {
        return board::allreduce_by_short_shares(table, operand, buffer, combine).await;
    }
    if let Some(table) = table_for(&peers, combine).filter(|_| by_shares)
        && let Some(outcome) = board::allreduce_by_shares(table, operand, buffer, combine).await
    {
        return outcome;
    }
    if by_shares && peers.size() > 1 {
        let shares = |region| even_shares(region, combine.element_bytes(), peers.size());
        let results = shares(buffer);
        ring_reduce(&peers, &shares(operand), results[peers.rank], combine).await?;
        return super::gather::allgather(peers, None, results).await;
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

/// Recursive doubling. Members beyond the largest power of two first hand their operand to their left neighbour, and
/// get the result from it at the end.
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

/// Leaves in `mine` the combination of `operands[rank]` of all members; `mine` may be the operand's place. Each share
/// goes round the ring once, and each member combines its own operand with it, on the left.
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

/// Combines `operand` of all members, and leaves this member's stretch of the result in `mine`. Stretch k is
/// `bounds[k]..bounds[k + 1]` bytes.
pub async fn reduce_scatter(
    peers: Peers,
    operand: Region,
    bounds: Vec<usize>,
    mine: Region,
    combine: &dyn Combine,
) -> Outcome {
    if let Some(table) = table_for(&peers, combine).filter(|_| board::is_short(operand.len())) {
        let arguments = board::ReduceScatter { operand, offset: bounds[peers.rank], mine, combine };
        return Call::new(table, || peers.clone(), arguments).run().await;
    }
    let shares = |all: Region| stretches(all, &bounds);
    if combine.commutes() && operand.len() >= RING_BYTES_MIN {
        return ring_reduce(&peers, &shares(operand), mine, combine).await;
    }
    let mut scratch = Scratch::spare(if peers.rank == 0 { operand.len() } else { 0 });
    let all = scratch.region();
    reduce(peers.clone(), operand, all, combine, 0).await?;
    let shares = if peers.rank == 0 { shares(all) } else { Vec::new() };
    scatter(peers, shares, Some(mine), 0).await
}

/// Splits a region into stretches: stretch k is bytes `bounds[k]..bounds[k + 1]`.
pub(super) fn stretches(all: Region, bounds: &[usize]) -> Vec<Region> {
    bounds.windows(2).map(|bound| all.part(bound[0], bound[1] - bound[0])).collect()
}
