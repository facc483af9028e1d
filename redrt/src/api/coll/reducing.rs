//! Collectives that reduce.

use super::direct;
use super::slots::{Packed, Slot};
use super::{Plan, Root, Running, across, collective, in_place, is_in_place, not_in_place, one_group};
use redrt_abi::error::{Error, Result};
use redrt_abi::handle::{DatatypeHandle, Held, OpHandle};
use redrt_abi::{Counts, MPI_ERR_COUNT};
use redrt_comm::coll::board::{Algorithm, Call, MakePeers, SharedBoard};
use redrt_comm::coll::reduce::Combine;
use redrt_comm::coll::{Peers, board, inter, reduce as fold, scan as prefix};
use redrt_comm::comm::Comm;
use redrt_comm::datatype::{self, Datatype};
use redrt_comm::op::{self, Op};
use redrt_transport::memory::{Region, Scratch};
use std::ffi::{c_int, c_void};

/// A reduction operation on elements of a datatype.
#[derive(Clone)]
pub(super) struct Reduction {
    op: Held<Op>,
    datatype: Held<Datatype>,
    /// True if elements have the same bytes packed and in memory.
    dense: bool,
}

impl Reduction {
    #[inline(always)]
    pub(super) fn new(op: OpHandle, datatype: DatatypeHandle) -> Result<Self> {
        let op = op::resolve(op)?;
        let datatype = datatype::resolve_committed(datatype)?;
        op.check(&datatype)?;
        let dense = datatype.contiguous_offset(2) == Some(0) && datatype.extent() == datatype.size() as i64;
        Ok(Self { op, datatype, dense })
    }
}

impl Combine for Reduction {
    fn combine(&self, left: Region, right: Region) -> Result {
        let size = self.datatype.size() as usize;
        if size == 0 || right.len() == 0 {
            return Ok(());
        }
        let count = (right.len() / size) as i64;
        if self.dense {
            self.op.reduce_checked(&self.datatype, count, left.start(), right.start());
            return Ok(());
        }
        let (low, high) = self.datatype.message_layout(count).bounds();
        let mut spread_left = Scratch::new((high - low) as usize);
        let mut spread_right = Scratch::new((high - low) as usize);
        let typed = |scratch: &mut Scratch| scratch.region().start().wrapping_offset(-low as isize);
        let (left_start, right_start) = (typed(&mut spread_left), typed(&mut spread_right));
        left.with_bytes(|bytes| self.datatype.unpack(left_start, count, bytes));
        right.with_bytes(|bytes| self.datatype.unpack(right_start, count, bytes));
        self.op.reduce_checked(&self.datatype, count, left_start, right_start);
        right.with_bytes_mut(|bytes| self.datatype.pack(right_start, count, bytes));
        Ok(())
    }

    fn element_bytes(&self) -> usize {
        self.datatype.size().max(1) as usize
    }

    fn commutes(&self) -> bool {
        self.op.is_commutative()
    }

    fn is_fast(&self) -> bool {
        !self.op.is_user()
    }
}

/// A member's operand, and the place of its result.
#[derive(Clone)]
struct Operand {
    /// The member's operand; `None` if it is in the result's place.
    mine: Option<Slot>,
    result: Slot,
}

impl Operand {
    #[inline(always)]
    fn new(
        sendbuf: *const c_void,
        recvbuf: *mut c_void,
        count: i64,
        datatype: DatatypeHandle,
        comm: &Comm,
    ) -> Result<Self> {
        let mine = if in_place(comm, sendbuf)? { None } else { Some(Slot::new(sendbuf, count, datatype)?) };
        Ok(Self { mine, result: Slot::new(recvbuf, count, datatype)? })
    }

    /// Operand and result's place, if both are the program's own bytes; the same region if the operand is in the
    /// result's place.
    #[inline(always)]
    fn in_place(&self) -> Option<(Region, Region)> {
        let result = self.result.in_place()?;
        Some((self.mine.as_ref().map_or(Some(result), Slot::in_place)?, result))
    }

    /// Operand, and room for the result. `None` for an operand in the result's place: the result then holds it.
    #[inline(always)]
    fn open(self) -> (Option<Packed>, Packed) {
        match self.mine {
            None => (None, self.result.load()),
            Some(mine) => (Some(mine.load()), self.result.open()),
        }
    }

    /// The result's place, filled with the operand.
    #[inline(always)]
    fn load(self) -> Packed {
        let (mine, result) = self.open();
        mine.iter().for_each(|mine| result.region.copy_from(mine.region));
        result
    }
}

/// An operand that must not change while the result is received.
#[derive(Clone)]
struct Source {
    slot: Slot,
    /// True if the result has the same place.
    is_in_place: bool,
}

/// The bytes of a [`Source`].
enum Loaded {
    Apart(Packed),
    Copied(Scratch),
}

impl Source {
    fn new(sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle) -> Result<Self> {
        let is_in_place = is_in_place(sendbuf);
        let source = if is_in_place { recvbuf.cast_const() } else { sendbuf };
        Ok(Self { slot: Slot::new(source, count, datatype)?, is_in_place })
    }

    fn load(self) -> Loaded {
        if self.is_in_place { Loaded::Copied(self.slot.copy()) } else { Loaded::Apart(self.slot.load()) }
    }
}

impl Loaded {
    fn region(&mut self) -> Region {
        match self {
            Self::Apart(packed) => packed.region,
            Self::Copied(copy) => copy.region(),
        }
    }
}

/// Operand and result at the root, with two groups only the result. Operand at members that contribute; neither at
/// other members of the root's group.
#[derive(Clone)]
struct Reduce {
    reduction: Option<Reduction>,
    operand: Option<Operand>,
    mine: Option<Slot>,
    root: Root,
}

impl Plan for Reduce {
    fn run(self, peers: Peers) -> impl Running {
        let Self { reduction, operand, mine, root } = self;
        let (mine, result) = match operand.map(Operand::open) {
            Some((mine, result)) => (mine, Some(result)),
            None => (mine.map(Slot::load), None),
        };
        async move {
            let Some(reduction) = &reduction else { return Ok(()) };
            let at = result.as_ref().map_or(Region::empty(), |result| result.region);
            let mine = mine.as_ref().map_or(at, |mine| mine.region);
            match across(&peers).zip(root.role) {
                None => fold::reduce(peers, mine, at, reduction, root.rank).await?,
                Some((across, role)) => inter::reduce_to(peers, &across, mine, at, reduction, role).await?,
            }
            result.iter().for_each(Packed::store);
            Ok(())
        }
    }

    #[inline(always)]
    fn over<'a, P: MakePeers>(&'a self, table: &'a SharedBoard, peers: P) -> Option<Call<'a, P, impl Algorithm + 'a>> {
        let (mine, result) = match (&self.operand, &self.mine) {
            (Some(operand), _) => operand.in_place()?,
            (None, mine) => (mine.as_ref()?.in_place()?, Region::empty()),
        };
        let reduction = self.reduction.as_ref().filter(|reduction| reduction.is_fast())?;
        let arguments = board::Reduce { operand: mine, result, combine: reduction, root: self.root.rank };
        board::are_few(mine.len(), table.size()).then(|| Call::new(table, peers, arguments))
    }
}

#[inline(always)]
fn plan_reduce(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    root: c_int,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    let root = Root::new(comm, root)?;
    // In the root's group, no argument but the root is significant at other members.
    let takes_part = root.is_me || root.is_member;
    let reduction = if takes_part { Some(Reduction::new(op, datatype)?) } else { None };
    let (operand, mine) = match (root.is_me, root.is_member) {
        // With two groups the root has no operand.
        (true, false) => (Some(Operand { mine: None, result: Slot::new(recvbuf, count, datatype)? }), None),
        (true, true) => (Some(Operand::new(sendbuf, recvbuf, count, datatype, comm)?), None),
        (false, false) => (None, None),
        (false, true) => {
            not_in_place(sendbuf)?;
            (None, Some(Slot::new(sendbuf, count, datatype)?))
        }
    };
    Ok(Reduce { reduction, operand, mine, root })
}
collective!(reduce, ireduce, reduce_init, plan_reduce(
    sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle, root: c_int),
    in_place: direct::reduce);

#[derive(Clone)]
struct Allreduce {
    reduction: Reduction,
    operand: Operand,
}

impl Plan for Allreduce {
    fn run(self, peers: Peers) -> impl Running {
        let Self { reduction, operand } = self;
        let (mine, result) = operand.open();
        async move {
            let mine = mine.as_ref().map_or(result.region, |mine| mine.region);
            match across(&peers) {
                None => fold::allreduce(peers, mine, result.region, &reduction).await?,
                Some(across) => inter::allreduce(peers, &across, mine, result.region, &reduction).await?,
            }
            result.store();
            Ok(())
        }
    }

    #[inline(always)]
    fn over<'a, P: MakePeers>(&'a self, table: &'a SharedBoard, peers: P) -> Option<Call<'a, P, impl Algorithm + 'a>> {
        let (mine, result) = self.operand.in_place()?;
        let may_be = self.reduction.is_fast() && board::are_few(mine.len(), table.size());
        let arguments = board::Allreduce { operand: mine, result, combine: &self.reduction };
        may_be.then(|| Call::new(table, peers, arguments))
    }
}

#[inline(always)]
fn plan_allreduce(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    let reduction = Reduction::new(op, datatype)?;
    Ok(Allreduce { reduction, operand: Operand::new(sendbuf, recvbuf, count, datatype, comm)? })
}
collective!(allreduce, iallreduce, allreduce_init, plan_allreduce(
    sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle),
    in_place: direct::allreduce);

#[derive(Clone)]
struct Scan {
    reduction: Reduction,
    operand: Operand,
}

impl Plan for Scan {
    fn run(self, peers: Peers) -> impl Running {
        let Self { reduction, operand } = self;
        let result = operand.load();
        async move {
            prefix::scan(peers, result.region, &reduction).await?;
            result.store();
            Ok(())
        }
    }

    #[inline(always)]
    fn over<'a, P: MakePeers>(&'a self, table: &'a SharedBoard, peers: P) -> Option<Call<'a, P, impl Algorithm + 'a>> {
        let (mine, result) = self.operand.in_place()?;
        let may_be = self.reduction.is_fast() && board::are_few(mine.len(), table.size());
        let arguments = board::Scan { operand: mine, result, combine: &self.reduction };
        may_be.then(|| Call::new(table, peers, arguments))
    }
}

#[inline(always)]
fn plan_scan(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    one_group(comm)?;
    let reduction = Reduction::new(op, datatype)?;
    Ok(Scan { reduction, operand: Operand::new(sendbuf, recvbuf, count, datatype, comm)? })
}
collective!(scan, iscan, scan_init, plan_scan(
    sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle),
    in_place: direct::scan);

#[derive(Clone)]
struct Exscan {
    reduction: Reduction,
    operand: Source,
    result: Slot,
}

impl Plan for Exscan {
    fn run(self, peers: Peers) -> impl Running {
        let Self { reduction, operand, result } = self;
        let mut operand = operand.load();
        let result = result.load();
        async move {
            prefix::exscan(peers, operand.region(), result.region, &reduction).await?;
            result.store();
            Ok(())
        }
    }

    #[inline(always)]
    fn over<'a, P: MakePeers>(&'a self, table: &'a SharedBoard, peers: P) -> Option<Call<'a, P, impl Algorithm + 'a>> {
        let (mine, result) = (self.operand.slot.in_place()?, self.result.in_place()?);
        let may_be = self.reduction.is_fast() && board::are_few(mine.len(), table.size());
        let arguments = board::Exscan { operand: mine, result, combine: &self.reduction };
        may_be.then(|| Call::new(table, peers, arguments))
    }
}

#[inline(always)]
fn plan_exscan(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    one_group(comm)?;
    let reduction = Reduction::new(op, datatype)?;
    let (operand, result) = (Source::new(sendbuf, recvbuf, count, datatype)?, Slot::new(recvbuf, count, datatype)?);
    Ok(Exscan { reduction, operand, result })
}
collective!(exscan, iexscan, exscan_init, plan_exscan(
    sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle),
    in_place: direct::exscan);

fn scatter_reduced(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    counts: &[i64],
    datatype: DatatypeHandle,
    op: OpHandle,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    let reduction = Reduction::new(op, datatype)?;
    if let Some(count) = counts.iter().find(|count| **count < 0) {
        return Err(Error::new(MPI_ERR_COUNT, format!("count is {count}")));
    }
    in_place(comm, sendbuf)?;
    let all = Source::new(sendbuf, recvbuf, counts.iter().sum(), datatype)?;
    let mine = Slot::new(recvbuf, counts[comm.rank as usize], datatype)?;
    let size = reduction.datatype.size() as usize;
    let mut bounds = vec![0];
    bounds.extend(counts.iter().scan(0, |sum, count| {
        *sum += *count as usize * size;
        Some(*sum)
    }));
    Ok(move |peers: Peers| {
        let (mut all, mine) = (all.load(), mine.open());
        async move {
            let all = all.region();
            match across(&peers) {
                None => fold::reduce_scatter(peers, all, bounds, mine.region, &reduction).await?,
                Some(across) => {
                    inter::reduce_scatter(peers, &across, all, bounds, mine.region, &reduction).await?;
                }
            }
            mine.store();
            Ok(())
        }
    })
}

fn plan_reduce_scatter(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcounts: Counts,
    datatype: DatatypeHandle,
    op: OpHandle,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    scatter_reduced(sendbuf, recvbuf, &recvcounts.to_vec(comm.size())?, datatype, op, comm)
}
collective!(reduce_scatter, ireduce_scatter, reduce_scatter_init, plan_reduce_scatter(
    sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: Counts, datatype: DatatypeHandle, op: OpHandle),
    in_place: direct::reduce_scatter);

fn plan_reduce_scatter_block(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcount: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    comm: &Comm,
) -> Result<impl Plan + use<>> {
    scatter_reduced(sendbuf, recvbuf, &vec![recvcount; comm.size()], datatype, op, comm)
}
collective!(reduce_scatter_block, ireduce_scatter_block, reduce_scatter_block_init, plan_reduce_scatter_block(
    sendbuf: *const c_void, recvbuf: *mut c_void, recvcount: i64, datatype: DatatypeHandle, op: OpHandle),
    in_place: direct::reduce_scatter_block);
