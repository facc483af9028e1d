//! Short operands of reductions, where they were posted, and their combination.

use super::{MakePeers, SharedBoard, following};
use crate::coll::reduce::{Combine, join};
use crate::coll::{Failure, Outcome, all};
use redrt_transport::board::Board;
use redrt_transport::memory::{Region, Scratch};
use smallvec::SmallVec;
use std::ops::Range;

/// An operation in which members have posted short operands of `length` bytes each. The bytes from `offset` on are
/// combined.
pub struct Posts<'a> {
    /// Board of the communicator, which has the operands.
    pub table: &'a SharedBoard,
    /// Number of the operation.
    pub number: u64,
    /// Bytes of each operand.
    pub length: usize,
    /// First byte to combine.
    pub offset: usize,
}

impl Posts<'_> {
    /// The bytes of a member's operand to combine, `bytes` of them. The member must have come.
    #[inline(always)]
    pub fn operand(&self, member: usize, bytes: usize) -> Outcome<Region> {
        let posted = self.table.board.posted(member, self.number);
        Ok(self.table.see(&posted, self.length)?.part(self.offset, bytes))
    }

    /// Combines the operands of all, in order from member `first` on, into `result`. With `pairs_up` the first pairs
    /// are combined before all else, so that a power of two is left.
    #[inline(always)]
    pub fn combine_all(&self, first: usize, result: Region, combine: &impl Combine, pairs_up: bool) -> Outcome {
        match self.table.size() {
            2 => self.combine_two(first, 1 - first, result, combine),
            _ => self.combine_many(first, result, combine, pairs_up),
        }
    }

    /// Combines the operands of two members.
    #[inline(always)]
    pub fn combine_two(&self, left: usize, right: usize, result: Region, combine: &impl Combine) -> Outcome {
        let left = self.operand(left, result.len())?;
        result.copy_from(self.operand(right, result.len())?);
        combine.combine(left, result).map_err(Failure::Refused)
    }

    /// For operands outside of the board: reads the bytes to combine of all operands, `bytes` of each, one after the
    /// other. `operand` is this member's own, which no member reads any more when this returns.
    pub async fn read<P: MakePeers>(&self, peers: &P, operand: Region, bytes: usize) -> Outcome<Read> {
        let Self { table, number, length, offset } = *self;
        let mut read = Scratch::spare(bytes * table.size());
        let all_read = read.region();
        let place = |member: usize| all_read.part(member * bytes, bytes);
        place(table.rank()).copy_from(operand.part(offset, bytes));
        let (mut outcome, mut has_read) = (Ok(()), true);
        for member in following(table) {
            wait_for!(table, member, number);
            let posted = table.board.posted(member, number);
            if posted.length() != length as u64 {
                outcome = Err(Failure::Mismatched);
                continue;
            }
            match table.read(&posted, offset, place(member)) {
                Err(_) if posted.is_elsewhere() => has_read = false,
                taken => outcome = outcome.and(taken),
            }
        }
        // Whole operands come as messages.
        let mut unread = Scratch::spare(if has_read { 0 } else { length * table.size() });
        let whole = unread.region();
        let place_of =
            |from: usize| table.board.posted(from, number).is_elsewhere().then(|| whole.part(from * length, length));
        let out = |_| Some(operand);
        let settled = settle!(table, peers, number, has_read: Some(has_read), out: out, into: place_of);
        outcome.and(settled)?;
        for from in following(table).filter(|_| !has_read) {
            if let Some(whole) = place_of(from) {
                place(from).copy_from(whole.part(offset, bytes));
            }
        }
        Ok(Read(read))
    }

    #[inline(never)]
    fn combine_many(&self, first: usize, result: Region, combine: &dyn Combine, pairs_up: bool) -> Outcome {
        let size = self.table.size();
        let mut scratch = Scratch::spare(result.len() * (size - 2));
        let mut operands = Operands::default();
        operands.add(self, (0..size).map(|at| (first + at) % size), result, scratch.region())?;
        operands.combine_all(combine, pairs_up)
    }
}

/// Operands of all members, one after the other in memory of this one.
pub struct Read(Scratch);

impl Read {
    /// All `count` operands. Their combination will be in `result`.
    pub fn operands(&mut self, count: usize, result: Region) -> Operands {
        let all = self.0.region();
        let operand = |at| {
            let bytes = all.part(at * result.len(), result.len());
            let is_last = at == count - 1;
            Operand { bytes, mine: if is_last { result } else { bytes }, is_mine: !is_last }
        };
        Operands { places: (0..count).map(operand).collect() }
    }
}

/// Operands of members, in order. An operand stays where it was posted until it is combined with one on its left; the
/// combination is in this member's memory.
#[derive(Default)]
pub struct Operands {
    /// Operands and combinations that are not combined yet, in order.
    pub places: SmallVec<[Operand; 8]>,
}

/// An operand, and the place for its combination.
#[derive(Clone, Copy)]
pub struct Operand {
    /// Bytes of the operand.
    pub bytes: Region,
    /// Place in memory of this member for the operand's combination.
    mine: Region,
    is_mine: bool,
}

impl Operands {
    /// Combines all operands. With `pairs_up` the first pairs are combined before all else, so that a power of two is
    /// left.
    pub fn combine_all(&mut self, combine: &dyn Combine, pairs_up: bool) -> Outcome {
        if pairs_up {
            self.pair_up(combine)?;
        }
        self.fold(combine)
    }

    /// Adds the operands of these members, at least one. Their combination will be in `result`. `room` holds
    /// intermediate combinations; it is two operands shorter than all of them: the last combination is in `result`, and
    /// the first operand has none to its left.
    pub fn add(
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

    /// Combines two operands into the right one's memory; the combination takes the left one's place in the order.
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

    /// Combines the operands in a range in the order of a scan: neighbours from the right, then neighbouring
    /// combinations. The result takes the last operand's place in the order.
    pub fn fold_back(&mut self, combine: &dyn Combine, range: Range<usize>) -> Outcome {
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

    /// Combines neighbours, then neighbouring combinations, until one is left; it is in the last operand's memory.
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
    pub fn own(self) -> Self {
        if !self.is_mine {
            self.mine.copy_from(self.bytes);
        }
        Self { bytes: self.mine, is_mine: true, ..self }
    }
}
