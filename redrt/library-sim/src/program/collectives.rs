//! Collectives, each checked against its expected result.

use super::mpi::{self, WORD, mpi};
use super::{Member, same};
use redrt::exports::*;
use redrt_abi::handle::{OpHandle, RequestHandle};
use std::ffi::c_int;

/// A collective call, its data and its expected result.
struct Operation {
    outgoing: Vec<u64>,
    /// Receive buffer, as it is before the call.
    incoming: Vec<u64>,
    /// Receive buffer as it must be after the call.
    expected: Vec<u64>,
    which: usize,
    root: usize,
    length: usize,
    op: OpHandle,
    /// Counts and displacements by rank, for the collectives that take them.
    counts: Vec<c_int>,
    displacements: Vec<c_int>,
}

const NAMES: [&str; 14] = [
    "barrier",
    "bcast",
    "reduce",
    "allreduce",
    "scan",
    "gather",
    "scatter",
    "allgather",
    "alltoall",
    "exscan",
    "gatherv",
    "scatterv",
    "allgatherv",
    "reduce_scatter_block",
];
/// Number of collectives that have a nonblocking form here.
const BEGUN: usize = 9;

fn combine(op: OpHandle, one: u64, other: u64) -> u64 {
    match op {
        OpHandle::SUM => one.wrapping_add(other),
        OpHandle::MAX => one.max(other),
        _ => one ^ other,
    }
}

impl Operation {
    #[allow(clippy::too_many_lines)]
    fn new(member: &mut Member, kinds: usize) -> Self {
        let (rank, size) = (member.rank, member.size);
        let number = member.common.number();
        let (which, root, length) = (member.common.below(kinds), member.common.below(size), member.length());
        let op = member.common.pick(&[OpHandle::SUM, OpHandle::MAX, OpHandle::BXOR]);
        let counts: Vec<c_int> = (0..size).map(|_| member.common.below(1 + length) as c_int).collect();
        let displacements: Vec<c_int> = counts
            .iter()
            .scan(0, |next, count| {
                let at = *next;
                *next += count + 1;
                Some(at)
            })
            .collect();
        let total = (displacements[size - 1] + counts[size - 1]) as usize;
        let word = |rank: usize, at: usize| Member::word(number, rank, at);
        let words = |rank: usize, length: usize| Member::words(number, rank, length);
        let over = |ranks: std::ops::Range<usize>, at: usize| {
            ranks.map(|rank| word(rank, at)).reduce(|one, other| combine(op, one, other)).unwrap_or(0)
        };
        let reduced = |ranks: std::ops::Range<usize>| (0..length).map(|at| over(ranks.clone(), at)).collect::<Vec<_>>();
        let spread = |from: &dyn Fn(usize) -> Vec<u64>| {
            let mut all = vec![0; total];
            for (other, (at, count)) in displacements.iter().zip(&counts).enumerate() {
                let (at, count) = (*at as usize, *count as usize);
                all[at..at + count].copy_from_slice(&from(other)[..count]);
            }
            all
        };
        let (own, empty, is_root) = (words(rank, length), Vec::new(), rank == root);
        let everyone = || (0..size).flat_map(|other| words(other, length)).collect::<Vec<_>>();
        let mine = counts[rank] as usize;
        let (outgoing, expected) = match which {
            // Barrier.
            0 => (empty.clone(), empty),
            // Broadcast, in place.
            1 => (empty, words(root, length)),
            2 => (own, if is_root { reduced(0..size) } else { empty }),
            3 => (own, reduced(0..size)),
            4 => (own, reduced(0..rank + 1)),
            5 => (own, if is_root { everyone() } else { empty }),
            6 => {
                let all = words(root, length * size);
                let piece = all[rank * length..(rank + 1) * length].to_vec();
                (if is_root { all } else { empty }, piece)
            }
            7 => (own, everyone()),
            8 => {
                let to = |from: usize, to: usize| {
                    let all = words(from, length * size);
                    all[to * length..(to + 1) * length].to_vec()
                };
                (words(rank, length * size), (0..size).flat_map(|from| to(from, rank)).collect())
            }
            // Exscan: the buffer of rank 0 stays unchanged.
            9 => (own, if rank == 0 { vec![0; length] } else { reduced(0..rank) }),
            10 => (words(rank, mine), if is_root { spread(&|other| words(other, length)) } else { empty }),
            11 => {
                let all = words(root, total);
                let at = displacements[rank] as usize;
                (if is_root { all.clone() } else { empty }, all[at..at + mine].to_vec())
            }
            12 => (words(rank, mine), spread(&|other| words(other, length))),
            // Reduce-scatter of blocks.
            _ => {
                let block = (rank * length..(rank + 1) * length).map(|at| over(0..size, at)).collect();
                (words(rank, length * size), block)
            }
        };
        let incoming = if which == 1 && is_root { expected.clone() } else { vec![0; expected.len()] };
        Self { outgoing, incoming, expected, which, root, length, op, counts, displacements }
    }

    fn call(&mut self, member: &Member) {
        let Self { which, op, .. } = *self;
        let (root, length, comm) = (self.root as c_int, self.length as c_int, member.comm);
        let (out, into) = (mpi::from(&self.outgoing), mpi::into(&mut self.incoming));
        let (counts, places) = (self.counts.as_ptr(), self.displacements.as_ptr());
        let mine = self.counts[member.rank];
        match which {
            0 => mpi!(call_barrier(comm)),
            1 => mpi!(call_bcast(into, length, WORD, root, comm)),
            2 => mpi!(call_reduce(out, into, length, WORD, op, root, comm)),
            3 => mpi!(call_allreduce(out, into, length, WORD, op, comm)),
            4 => mpi!(call_scan(out, into, length, WORD, op, comm)),
            5 => mpi!(call_gather(out, length, WORD, into, length, WORD, root, comm)),
            6 => mpi!(call_scatter(out, length, WORD, into, length, WORD, root, comm)),
            7 => mpi!(call_allgather(out, length, WORD, into, length, WORD, comm)),
            8 => mpi!(call_alltoall(out, length, WORD, into, length, WORD, comm)),
            9 => mpi!(call_exscan(out, into, length, WORD, op, comm)),
            10 => mpi!(call_gatherv(out, mine, WORD, into, counts, places, WORD, root, comm)),
            11 => mpi!(call_scatterv(out, counts, places, WORD, into, mine, WORD, root, comm)),
            12 => mpi!(call_allgatherv(out, mine, WORD, into, counts, places, WORD, comm)),
            _ => mpi!(call_reduce_scatter_block(out, into, length, WORD, op, comm)),
        }
    }

    fn begin(&mut self, member: &Member) -> RequestHandle {
        let Self { which, op, .. } = *self;
        let (root, length, comm) = (self.root as c_int, self.length as c_int, member.comm);
        let (out, into) = (mpi::from(&self.outgoing), mpi::into(&mut self.incoming));
        let mut request = RequestHandle::NULL;
        let place = &raw mut request;
        match which {
            0 => mpi!(call_ibarrier(comm, place)),
            1 => mpi!(call_ibcast(into, length, WORD, root, comm, place)),
            2 => mpi!(call_ireduce(out, into, length, WORD, op, root, comm, place)),
            3 => mpi!(call_iallreduce(out, into, length, WORD, op, comm, place)),
            4 => mpi!(call_iscan(out, into, length, WORD, op, comm, place)),
            5 => mpi!(call_igather(out, length, WORD, into, length, WORD, root, comm, place)),
            6 => mpi!(call_iscatter(out, length, WORD, into, length, WORD, root, comm, place)),
            7 => mpi!(call_iallgather(out, length, WORD, into, length, WORD, comm, place)),
            _ => mpi!(call_ialltoall(out, length, WORD, into, length, WORD, comm, place)),
        }
        request
    }

    fn check(&self) {
        // Gaps between displaced blocks, and rank 0's buffer in an exscan, must stay unchanged.
        same(&self.incoming, &self.expected, NAMES[self.which]);
    }
}

/// Blocking collectives, one after the other.
pub fn blocking(member: &mut Member) {
    for _ in 0..1 + member.common.below(8) {
        let mut operation = Operation::new(member, NAMES.len());
        operation.call(member);
        // The call is over, so its send buffer may be changed.
        operation.outgoing.fill(!0);
        operation.check();
    }
}

/// Nonblocking collectives, several at a time, completed in any order.
pub fn begun(member: &mut Member) {
    for _ in 0..1 + member.common.below(3) {
        let mut all: Vec<_> = (0..1 + member.common.below(4)).map(|_| Operation::new(member, BEGUN)).collect();
        let mut requests: Vec<_> = all.iter_mut().map(|operation| operation.begin(member)).collect();
        match member.common.below(3) {
            0 => _ = mpi::wait_all(&mut requests),
            1 => {
                for _ in 0..requests.len() {
                    let (index, _) = mpi::wait_any(&mut requests);
                    member.output.push(index as u64);
                }
            }
            _ => {
                // An order that all replicas share, with tests in between.
                let mut order: Vec<_> = (0..requests.len()).collect();
                member.common.shuffle(&mut order);
                for at in order {
                    while mpi::test(&mut requests[at]).is_none() {
                        member.output.push(at as u64);
                    }
                }
            }
        }
        all.iter().for_each(Operation::check);
    }
}
