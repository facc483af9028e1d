//! Collective communication (MPI-5.0 chapter 6): arguments in, an algorithm of `crate::coll` run to its end or begun.
//!
//! Each operation is one function that checks its arguments and returns a future; the blocking and the nonblocking name
//! are made from it.

use crate::abi::{Counts, Input, MPI_ERR_ARG, MPI_ERR_BUFFER, MPI_ERR_COUNT, MPI_ERR_ROOT, MPI_IN_PLACE, Output};
use crate::api::p2p;
use crate::coll::Peers;
use crate::coll::reduce::Combine;
use crate::coll::schedule::{block_on, start};
use crate::coll::{
    Outcome, alltoall as exchange, barrier as signal, bcast as tree, gather as pieces, reduce as fold, scan as prefix,
};
use crate::comm::{self, Comm};
use crate::datatype::{self, Datatype};
use crate::engine;
use crate::error::{Error, Result};
use crate::handle::{CommHandle, DatatypeHandle, OpHandle, RequestHandle};
use crate::memory::{Region, Scratch};
use crate::op::{self, Op};
use std::ffi::{c_int, c_void};
use std::future::Future;
use std::sync::Arc;

/// A buffer of the program, as packed bytes: in place when it is contiguous, else through a copy.
struct Slot {
    region: Region,
    copy: Option<Scratch>,
    buffer: Region,
    count: i64,
    datatype: Arc<Datatype>,
}

impl Slot {
    fn new(buffer: *mut c_void, count: i64, datatype: DatatypeHandle) -> Result<Self> {
        Self::with(buffer.cast(), count, datatype::resolve_committed(datatype)?)
    }

    fn with(buffer: *mut u8, count: i64, datatype: Arc<Datatype>) -> Result<Self> {
        if count < 0 {
            return Err(Error::new(MPI_ERR_COUNT, format!("count is {count}")));
        }
        let bytes = datatype.packed_size(count) as usize;
        // SAFETY: - an address only; the bytes are accessed through `region`, or by pack and unpack.
        let whole = unsafe { Region::new(buffer, 0) };
        let (region, copy) = match datatype.contiguous_offset(count) {
            // SAFETY: - the program's buffer, valid until the collective is complete.
            Some(offset) => (unsafe { Region::new(buffer.wrapping_offset(offset as isize), bytes) }, None),
            None => {
                let mut copy = Scratch::new(bytes);
                (copy.region(), Some(copy))
            }
        };
        Ok(Self { region, copy, buffer: whole, count, datatype })
    }

    /// The slot with the program's bytes in it.
    fn loaded(self) -> Self {
        if self.copy.is_some() {
            let (buffer, count) = (self.buffer.start(), self.count);
            self.region.with_bytes_mut(|bytes| self.datatype.pack(buffer, count, bytes));
        }
        self
    }

    /// Brings the bytes to the program's buffer.
    fn store(&self) {
        if self.copy.is_some() {
            let (buffer, count) = (self.buffer.start(), self.count);
            self.region.with_bytes(|bytes| self.datatype.unpack(buffer, count, bytes));
        }
    }
}

/// `size` slots of `count` elements each, one after the other.
fn blocks(buffer: *mut c_void, count: i64, datatype: DatatypeHandle, size: usize) -> Result<Vec<Slot>> {
    let datatype = datatype::resolve_committed(datatype)?;
    let stride = datatype.extent() as isize * count as isize;
    let at = |number: usize| buffer.cast::<u8>().wrapping_offset(stride * number as isize);
    (0..size).map(|number| Slot::with(at(number), count, datatype.clone())).collect()
}

/// Slots with given counts and displacements, these in units of the extent.
fn scattered(
    buffer: *mut c_void,
    counts: Counts,
    places: Counts,
    datatype: DatatypeHandle,
    size: usize,
) -> Result<Vec<Slot>> {
    let datatype = datatype::resolve_committed(datatype)?;
    let extent = datatype.extent() as isize;
    let at = |number: usize| buffer.cast::<u8>().wrapping_offset(extent * places.get(number) as isize);
    (0..size).map(|number| Slot::with(at(number), counts.get(number), datatype.clone())).collect()
}

/// Slots with given counts, displacements in bytes, and types.
fn assorted(
    buffer: *mut c_void,
    counts: Counts,
    places: Counts,
    types: Input<DatatypeHandle>,
    size: usize,
) -> Result<Vec<Slot>> {
    let types = types.slice(size)?;
    let at = |number: usize| buffer.cast::<u8>().wrapping_offset(places.get(number) as isize);
    (0..size)
        .map(|number| Slot::with(at(number), counts.get(number), datatype::resolve_committed(types[number])?))
        .collect()
}

fn regions(slots: &[Slot]) -> Vec<Region> {
    slots.iter().map(|slot| slot.region).collect()
}

fn load_all(slots: Vec<Slot>) -> Vec<Slot> {
    slots.into_iter().map(Slot::loaded).collect()
}

fn is_in_place(buffer: *const c_void) -> bool {
    std::ptr::eq(buffer, MPI_IN_PLACE)
}

fn not_in_place(buffer: *const c_void) -> Result {
    if is_in_place(buffer) {
        return Err(Error::new(MPI_ERR_BUFFER, "MPI_IN_PLACE is not allowed for this buffer here"));
    }
    Ok(())
}

fn check_root(comm: &Comm, root: c_int) -> Result<usize> {
    match usize::try_from(root) {
        Ok(rank) if rank < comm.size() => Ok(rank),
        _ => Err(Error::new(MPI_ERR_ROOT, format!("root {root} is not in 0..{} of {}", comm.size(), comm.label()))),
    }
}

/// An operation on elements of a datatype.
struct Reduction {
    op: Arc<Op>,
    datatype: Arc<Datatype>,
    /// The packed form is the form in memory.
    dense: bool,
}

impl Reduction {
    fn new(op: OpHandle, datatype: DatatypeHandle) -> Result<Self> {
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
            return self.op.reduce(&self.datatype, count, left.start(), right.start());
        }
        let (low, high) = self.datatype.message_layout(count).bounds();
        let mut spread_left = Scratch::new((high - low) as usize);
        let mut spread_right = Scratch::new((high - low) as usize);
        let typed = |scratch: &mut Scratch| scratch.region().start().wrapping_offset(-low as isize);
        let (left_start, right_start) = (typed(&mut spread_left), typed(&mut spread_right));
        left.with_bytes(|bytes| self.datatype.unpack(left_start, count, bytes));
        right.with_bytes(|bytes| self.datatype.unpack(right_start, count, bytes));
        self.op.reduce(&self.datatype, count, left_start, right_start)?;
        right.with_bytes_mut(|bytes| self.datatype.pack(right_start, count, bytes));
        Ok(())
    }

    fn element_bytes(&self) -> usize {
        self.datatype.size().max(1) as usize
    }

    fn commutes(&self) -> bool {
        self.op.is_commutative()
    }
}

macro_rules! collective {
    ($blocking:ident, $nonblocking:ident, $begin:ident ( $($argument:ident : $type:ty),* )) => {
        /// The blocking form.
        ///
        /// # Safety
        /// The pointers are those of the C call.
        pub unsafe fn $blocking($($argument: $type,)* comm: CommHandle) -> Result {
            let comm = comm::resolve(comm)?;
            Ok(block_on($begin($($argument,)* &comm, comm.peers())?)?)
        }

        /// The nonblocking form.
        ///
        /// # Safety
        /// The pointers are those of the C call.
        pub unsafe fn $nonblocking($($argument: $type,)* comm: CommHandle, request: Output<RequestHandle>) -> Result {
            let comm = comm::resolve(comm)?;
            let number = comm.next_nonblocking();
            let id = match $begin($($argument,)* &comm, comm.nonblocking_peers(number)) {
                Ok(collective) => start(collective, &comm, number),
                Err(error) => {
                    comm.nonblocking_done(number);
                    return Err(error);
                }
            };
            request.set(p2p::handle(&mut engine::cell().lock(), id, &comm))
        }
    };
}

/// What an operation's function returns: the operation itself.
trait Running: Future<Output = Outcome> + Send + 'static {}
impl<T: Future<Output = Outcome> + Send + 'static> Running for T {}

fn begin_barrier(_comm: &Comm, peers: Peers) -> Result<impl Running + use<>> {
    Ok(signal::barrier(peers))
}
collective!(barrier, ibarrier, begin_barrier());

fn begin_bcast(
    buffer: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    root: c_int,
    comm: &Comm,
    peers: Peers,
) -> Result<impl Running + use<>> {
    let root = check_root(comm, root)?;
    let slot = Slot::new(buffer, count, datatype)?;
    let is_root = comm.rank as usize == root;
    let slot = if is_root { slot.loaded() } else { slot };
    Ok(async move {
        tree::bcast(peers, slot.region, root).await?;
        if !is_root {
            slot.store();
        }
        Ok(())
    })
}
collective!(bcast, ibcast, begin_bcast(buffer: *mut c_void, count: i64, datatype: DatatypeHandle, root: c_int));

/// What a member contributes to a gather: its buffer, or nothing because it is in place.
fn contribution(buffer: *const c_void, count: i64, datatype: DatatypeHandle, at_root: bool) -> Result<Option<Slot>> {
    if is_in_place(buffer) {
        if !at_root {
            not_in_place(buffer)?;
        }
        return Ok(None);
    }
    Ok(Some(Slot::new(buffer.cast_mut(), count, datatype)?.loaded()))
}

fn gather_to(mine: Option<Slot>, all: Vec<Slot>, root: usize, peers: Peers) -> impl Running + use<> {
    let all = if mine.is_none() { load_all(all) } else { all };
    async move {
        pieces::gather(peers, mine.as_ref().map(|slot| slot.region), regions(&all), root).await?;
        all.iter().for_each(Slot::store);
        Ok(())
    }
}

#[allow(clippy::too_many_arguments)]
fn begin_gather(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    root: c_int,
    comm: &Comm,
    peers: Peers,
) -> Result<impl Running + use<>> {
    let root = check_root(comm, root)?;
    let at_root = comm.rank as usize == root;
    let mine = contribution(sendbuf, sendcount, sendtype, at_root)?;
    let all = if at_root { blocks(recvbuf, recvcount, recvtype, comm.size())? } else { Vec::new() };
    Ok(gather_to(mine, all, root, peers))
}
collective!(gather, igather, begin_gather(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle, root: c_int));

#[allow(clippy::too_many_arguments)]
fn begin_gatherv(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcounts: Counts,
    displs: Counts,
    recvtype: DatatypeHandle,
    root: c_int,
    comm: &Comm,
    peers: Peers,
) -> Result<impl Running + use<>> {
    let root = check_root(comm, root)?;
    let at_root = comm.rank as usize == root;
    let mine = contribution(sendbuf, sendcount, sendtype, at_root)?;
    let all = if at_root { scattered(recvbuf, recvcounts, displs, recvtype, comm.size())? } else { Vec::new() };
    Ok(gather_to(mine, all, root, peers))
}
collective!(gatherv, igatherv, begin_gatherv(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcounts: Counts, displs: Counts, recvtype: DatatypeHandle, root: c_int));

fn scatter_from(all: Vec<Slot>, mine: Option<Slot>, root: usize, peers: Peers) -> impl Running + use<> {
    let all = load_all(all);
    async move {
        pieces::scatter(peers, regions(&all), mine.as_ref().map(|slot| slot.region), root).await?;
        mine.iter().for_each(Slot::store);
        Ok(())
    }
}

/// Where a member's piece of a scatter goes: its buffer, or nowhere because it stays in place.
fn share(buffer: *mut c_void, count: i64, datatype: DatatypeHandle, at_root: bool) -> Result<Option<Slot>> {
    if is_in_place(buffer) {
        if !at_root {
            not_in_place(buffer)?;
        }
        return Ok(None);
    }
    Slot::new(buffer, count, datatype).map(Some)
}

#[allow(clippy::too_many_arguments)]
fn begin_scatter(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    root: c_int,
    comm: &Comm,
    peers: Peers,
) -> Result<impl Running + use<>> {
    let root = check_root(comm, root)?;
    let at_root = comm.rank as usize == root;
    let mine = share(recvbuf, recvcount, recvtype, at_root)?;
    let all = if at_root { blocks(sendbuf.cast_mut(), sendcount, sendtype, comm.size())? } else { Vec::new() };
    Ok(scatter_from(all, mine, root, peers))
}
collective!(scatter, iscatter, begin_scatter(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle, root: c_int));

#[allow(clippy::too_many_arguments)]
fn begin_scatterv(
    sendbuf: *const c_void,
    sendcounts: Counts,
    displs: Counts,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    root: c_int,
    comm: &Comm,
    peers: Peers,
) -> Result<impl Running + use<>> {
    let root = check_root(comm, root)?;
    let at_root = comm.rank as usize == root;
    let mine = share(recvbuf, recvcount, recvtype, at_root)?;
    let all =
        if at_root { scattered(sendbuf.cast_mut(), sendcounts, displs, sendtype, comm.size())? } else { Vec::new() };
    Ok(scatter_from(all, mine, root, peers))
}
collective!(scatterv, iscatterv, begin_scatterv(
    sendbuf: *const c_void, sendcounts: Counts, displs: Counts, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle, root: c_int));

/// Puts this member's contribution into its piece, and collects all.
fn collect(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    all: Vec<Slot>,
    comm: &Comm,
    peers: Peers,
) -> Result<impl Running + use<>> {
    let rank = comm.rank as usize;
    let all = if is_in_place(sendbuf) {
        load_all(all)
    } else {
        let mine = Slot::new(sendbuf.cast_mut(), sendcount, sendtype)?.loaded();
        if mine.region.len() > all[rank].region.len() {
            return Err(Error::new(MPI_ERR_ARG, "the contribution is longer than its place in the receive buffer"));
        }
        all[rank].region.copy_from(mine.region);
        all
    };
    Ok(async move {
        pieces::allgather(peers, regions(&all)).await?;
        all.iter().for_each(Slot::store);
        Ok(())
    })
}

#[allow(clippy::too_many_arguments)]
fn begin_allgather(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    comm: &Comm,
    peers: Peers,
) -> Result<impl Running + use<>> {
    collect(sendbuf, sendcount, sendtype, blocks(recvbuf, recvcount, recvtype, comm.size())?, comm, peers)
}
collective!(allgather, iallgather, begin_allgather(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle));

#[allow(clippy::too_many_arguments)]
fn begin_allgatherv(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcounts: Counts,
    displs: Counts,
    recvtype: DatatypeHandle,
    comm: &Comm,
    peers: Peers,
) -> Result<impl Running + use<>> {
    collect(sendbuf, sendcount, sendtype, scattered(recvbuf, recvcounts, displs, recvtype, comm.size())?, comm, peers)
}
collective!(allgatherv, iallgatherv, begin_allgatherv(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcounts: Counts, displs: Counts, recvtype: DatatypeHandle));

/// Exchanges pieces; without `out`, those of `into` are replaced.
fn swap(out: Option<Vec<Slot>>, into: Vec<Slot>, peers: Peers) -> impl Running + use<> {
    let (out, into) = match out {
        Some(out) => (Some(load_all(out)), into),
        None => (None, load_all(into)),
    };
    async move {
        match &out {
            Some(out) => exchange::alltoall(peers, regions(out), regions(&into)).await?,
            None => exchange::alltoall_in_place(peers, regions(&into)).await?,
        }
        into.iter().for_each(Slot::store);
        Ok(())
    }
}

#[allow(clippy::too_many_arguments)]
fn begin_alltoall(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    comm: &Comm,
    peers: Peers,
) -> Result<impl Running + use<>> {
    let out = match is_in_place(sendbuf) {
        true => None,
        false => Some(blocks(sendbuf.cast_mut(), sendcount, sendtype, comm.size())?),
    };
    Ok(swap(out, blocks(recvbuf, recvcount, recvtype, comm.size())?, peers))
}
collective!(alltoall, ialltoall, begin_alltoall(
    sendbuf: *const c_void, sendcount: i64, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcount: i64, recvtype: DatatypeHandle));

#[allow(clippy::too_many_arguments)]
fn begin_alltoallv(
    sendbuf: *const c_void,
    sendcounts: Counts,
    sdispls: Counts,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcounts: Counts,
    rdispls: Counts,
    recvtype: DatatypeHandle,
    comm: &Comm,
    peers: Peers,
) -> Result<impl Running + use<>> {
    let out = match is_in_place(sendbuf) {
        true => None,
        false => Some(scattered(sendbuf.cast_mut(), sendcounts, sdispls, sendtype, comm.size())?),
    };
    Ok(swap(out, scattered(recvbuf, recvcounts, rdispls, recvtype, comm.size())?, peers))
}
collective!(alltoallv, ialltoallv, begin_alltoallv(
    sendbuf: *const c_void, sendcounts: Counts, sdispls: Counts, sendtype: DatatypeHandle,
    recvbuf: *mut c_void, recvcounts: Counts, rdispls: Counts, recvtype: DatatypeHandle));

#[allow(clippy::too_many_arguments)]
fn begin_alltoallw(
    sendbuf: *const c_void,
    sendcounts: Counts,
    sdispls: Counts,
    sendtypes: Input<DatatypeHandle>,
    recvbuf: *mut c_void,
    recvcounts: Counts,
    rdispls: Counts,
    recvtypes: Input<DatatypeHandle>,
    comm: &Comm,
    peers: Peers,
) -> Result<impl Running + use<>> {
    let out = match is_in_place(sendbuf) {
        true => None,
        false => Some(assorted(sendbuf.cast_mut(), sendcounts, sdispls, sendtypes, comm.size())?),
    };
    Ok(swap(out, assorted(recvbuf, recvcounts, rdispls, recvtypes, comm.size())?, peers))
}
collective!(alltoallw, ialltoallw, begin_alltoallw(
    sendbuf: *const c_void, sendcounts: Counts, sdispls: Counts, sendtypes: Input<DatatypeHandle>,
    recvbuf: *mut c_void, recvcounts: Counts, rdispls: Counts, recvtypes: Input<DatatypeHandle>));

/// The result buffer of a reduction with this member's operand in it.
fn operand(sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle) -> Result<Slot> {
    let result = Slot::new(recvbuf, count, datatype)?;
    if is_in_place(sendbuf) {
        return Ok(result.loaded());
    }
    let mine = Slot::new(sendbuf.cast_mut(), count, datatype)?.loaded();
    result.region.copy_from(mine.region);
    Ok(result)
}

/// A copy of this member's operand in memory of our own.
fn operand_copy(buffer: *const c_void, count: i64, datatype: DatatypeHandle) -> Result<Scratch> {
    let mine = Slot::new(buffer.cast_mut(), count, datatype)?.loaded();
    let mut copy = Scratch::new(mine.region.len());
    copy.region().copy_from(mine.region);
    Ok(copy)
}

#[allow(clippy::too_many_arguments)]
fn begin_reduce(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    root: c_int,
    comm: &Comm,
    peers: Peers,
) -> Result<impl Running + use<>> {
    let root = check_root(comm, root)?;
    let reduction = Reduction::new(op, datatype)?;
    let at_root = comm.rank as usize == root;
    if !at_root {
        not_in_place(sendbuf)?;
    }
    let result = if at_root { Some(operand(sendbuf, recvbuf, count, datatype)?) } else { None };
    let mut copy = if at_root { Scratch::new(0) } else { operand_copy(sendbuf, count, datatype)? };
    Ok(async move {
        let region = result.as_ref().map_or_else(|| copy.region(), |result| result.region);
        fold::reduce(peers, region, &reduction, root).await?;
        result.iter().for_each(Slot::store);
        Ok(())
    })
}
collective!(reduce, ireduce, begin_reduce(
    sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle, root: c_int));

fn begin_allreduce(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    _comm: &Comm,
    peers: Peers,
) -> Result<impl Running + use<>> {
    let reduction = Reduction::new(op, datatype)?;
    let result = operand(sendbuf, recvbuf, count, datatype)?;
    Ok(async move {
        fold::allreduce(peers, result.region, &reduction).await?;
        result.store();
        Ok(())
    })
}
collective!(allreduce, iallreduce, begin_allreduce(
    sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle));

fn begin_scan(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    _comm: &Comm,
    peers: Peers,
) -> Result<impl Running + use<>> {
    let reduction = Reduction::new(op, datatype)?;
    let result = operand(sendbuf, recvbuf, count, datatype)?;
    Ok(async move {
        prefix::scan(peers, result.region, &reduction).await?;
        result.store();
        Ok(())
    })
}
collective!(scan, iscan, begin_scan(
    sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle));

fn begin_exscan(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    _comm: &Comm,
    peers: Peers,
) -> Result<impl Running + use<>> {
    let reduction = Reduction::new(op, datatype)?;
    let source = if is_in_place(sendbuf) { recvbuf.cast_const() } else { sendbuf };
    let mut copy = operand_copy(source, count, datatype)?;
    let result = Slot::new(recvbuf, count, datatype)?.loaded();
    Ok(async move {
        prefix::exscan(peers, copy.region(), result.region, &reduction).await?;
        result.store();
        Ok(())
    })
}
collective!(exscan, iexscan, begin_exscan(
    sendbuf: *const c_void, recvbuf: *mut c_void, count: i64, datatype: DatatypeHandle, op: OpHandle));

fn scatter_reduced(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    counts: &[i64],
    datatype: DatatypeHandle,
    op: OpHandle,
    comm: &Comm,
    peers: Peers,
) -> Result<impl Running + use<>> {
    let reduction = Reduction::new(op, datatype)?;
    if let Some(count) = counts.iter().find(|count| **count < 0) {
        return Err(Error::new(MPI_ERR_COUNT, format!("count is {count}")));
    }
    let source = if is_in_place(sendbuf) { recvbuf.cast_const() } else { sendbuf };
    let mut copy = operand_copy(source, counts.iter().sum(), datatype)?;
    let size = reduction.datatype.size() as usize;
    let mut bounds = vec![0];
    bounds.extend(counts.iter().scan(0, |sum, count| {
        *sum += *count as usize * size;
        Some(*sum)
    }));
    let mine = Slot::new(recvbuf, counts[comm.rank as usize], datatype)?;
    Ok(async move {
        fold::reduce_scatter(peers, copy.region(), bounds, mine.region, &reduction).await?;
        mine.store();
        Ok(())
    })
}

fn begin_reduce_scatter(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcounts: Counts,
    datatype: DatatypeHandle,
    op: OpHandle,
    comm: &Comm,
    peers: Peers,
) -> Result<impl Running + use<>> {
    scatter_reduced(sendbuf, recvbuf, &recvcounts.to_vec(comm.size())?, datatype, op, comm, peers)
}
collective!(reduce_scatter, ireduce_scatter, begin_reduce_scatter(
    sendbuf: *const c_void, recvbuf: *mut c_void, recvcounts: Counts, datatype: DatatypeHandle, op: OpHandle));

fn begin_reduce_scatter_block(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcount: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    comm: &Comm,
    peers: Peers,
) -> Result<impl Running + use<>> {
    scatter_reduced(sendbuf, recvbuf, &vec![recvcount; comm.size()], datatype, op, comm, peers)
}
collective!(reduce_scatter_block, ireduce_scatter_block, begin_reduce_scatter_block(
    sendbuf: *const c_void, recvbuf: *mut c_void, recvcount: i64, datatype: DatatypeHandle, op: OpHandle));
