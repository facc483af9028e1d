//! Blocking collectives over a board whose pieces are in place: arguments, prepared for the board's algorithms.
//!
//! A plan owns its arguments, for a later run, and finds out which of them must be packed. For a few bytes that would
//! take longer than the collective itself. The functions here return `None` for anything but the fast case, errors
//! included: the plan is made then, and reports the error.

use super::is_in_place;
use super::reducing::Reduction;
use super::slots::Even;
use crate::api::buffers;
use redrt_abi::Counts;
use redrt_abi::handle::{DatatypeHandle, OpHandle};
use redrt_comm::coll::board::{self, Algorithm, Pieces, SharedBoard};
use redrt_comm::coll::reduce::Combine;
use redrt_comm::datatype;
use redrt_transport::memory::Region;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

/// `count` contiguous elements. Their type is not passed on: over boards nothing is compared.
///
/// The result stays in registers, as that of [`buffers::outgoing`]: both branches yield the same two words.
#[inline(always)]
fn piece(buffer: *const c_void, count: i64, datatype: DatatypeHandle) -> Option<Region> {
    let (start, bytes) = match buffers::predefined_stretch(buffer, count, datatype) {
        Some((start, bytes, _)) => (start, bytes),
        None => stretch_of_any(buffer, count, datatype).map(|(start, bytes)| (start.as_ptr(), bytes))?,
    };
    // SAFETY: - the program's buffer, valid until the collective is over: the contract of the C call.
    Some(unsafe { Region::new(start, bytes) })
}

#[inline(never)]
fn stretch_of_any(buffer: *const c_void, count: i64, datatype: DatatypeHandle) -> Option<(NonNull<u8>, usize)> {
    let typed = buffers::typed_at(buffer, count, datatype).ok()?;
    Some((NonNull::new(typed.stretch(buffer)?).unwrap_or(NonNull::dangling()), typed.bytes()))
}

/// Pieces for all members, one after the other.
#[inline(always)]
fn pieces(buffer: *const c_void, count: i64, datatype: DatatypeHandle) -> Option<Even> {
    let first = piece(buffer, count, datatype)?;
    let extent = match datatype::predefined(datatype) {
        Some(datatype) => datatype.extent(),
        None => extent_of_any(datatype)?,
    };
    Some(Even::new(first, extent as isize * count as isize))
}

#[inline(never)]
fn extent_of_any(datatype: DatatypeHandle) -> Option<i64> {
    datatype::resolve_committed(datatype).ok().map(|datatype| datatype.extent())
}

/// Pieces for all members, at the root; none at other members.
#[inline(always)]
fn pieces_of_root(
    buffer: *const c_void,
    count: i64,
    datatype: DatatypeHandle,
    root: usize,
    table: &SharedBoard,
) -> Option<Even> {
    if root == table.rank() { pieces(buffer, count, datatype) } else { Some(Even::none()) }
}

/// This member's piece. `Some(None)` if the piece is in its place already, which `may_be_in_place` allows.
#[inline(always)]
fn own(buffer: *const c_void, count: i64, datatype: DatatypeHandle, may_be_in_place: bool) -> Option<Option<Region>> {
    if is_in_place(buffer) { may_be_in_place.then_some(None) } else { piece(buffer, count, datatype).map(Some) }
}

#[inline(always)]
fn member(root: c_int, table: &SharedBoard) -> Option<usize> {
    usize::try_from(root).ok().filter(|root| *root < table.size())
}

/// The operand and the place of the result; the same region for `MPI_IN_PLACE`.
#[inline(always)]
fn operand(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
) -> Option<(Region, Region)> {
    let result = piece(recvbuf, count, datatype)?;
    Some((if is_in_place(sendbuf) { result } else { piece(sendbuf, count, datatype)? }, result))
}

/// The combination of operands, if the member that needs the result does it for all: a fast operation on few bytes.
#[inline(always)]
fn reduction(op: OpHandle, datatype: DatatypeHandle, operand: Region, table: &SharedBoard) -> Option<Reduction> {
    let reduction = Reduction::new(op, datatype).ok()?;
    (reduction.is_fast() && board::are_few(operand.len(), table.size())).then_some(reduction)
}

/// `MPI_Barrier`.
#[inline(always)]
pub fn barrier(_: &SharedBoard) -> Option<impl Algorithm + use<>> {
    Some(board::Barrier)
}

/// `MPI_Bcast`.
#[inline(always)]
pub fn bcast(
    buffer: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    root: c_int,
    table: &SharedBoard,
) -> Option<impl Algorithm + use<>> {
    let (root, buffer) = (member(root, table)?, piece(buffer, count, datatype)?);
    Some(board::Bcast { buffer, root })
}

/// `MPI_Gather`.
#[inline(always)]
pub fn gather(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    root: c_int,
    table: &SharedBoard,
) -> Option<impl Algorithm + use<>> {
    let root = member(root, table)?;
    let pieces = pieces_of_root(recvbuf, recvcount, recvtype, root, table)?;
    Some(board::Gather { mine: own(sendbuf, sendcount, sendtype, root == table.rank())?, pieces, root })
}

/// `MPI_Scatter`.
#[inline(always)]
pub fn scatter(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    root: c_int,
    table: &SharedBoard,
) -> Option<impl Algorithm + use<>> {
    let root = member(root, table)?;
    let pieces = pieces_of_root(sendbuf, sendcount, sendtype, root, table)?;
    Some(board::Scatter { pieces, mine: own(recvbuf, recvcount, recvtype, root == table.rank())?, root })
}

/// `MPI_Allgather`.
#[inline(always)]
pub fn allgather(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    _: &SharedBoard,
) -> Option<impl Algorithm + use<>> {
    let (mine, pieces) = (own(sendbuf, sendcount, sendtype, true)?, pieces(recvbuf, recvcount, recvtype)?);
    let fits = mine.is_none_or(|mine| mine.len() <= pieces.piece(0).len());
    fits.then_some(board::Allgather { mine, pieces })
}

/// `MPI_Alltoall`.
#[inline(always)]
pub fn alltoall(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    _: &SharedBoard,
) -> Option<impl Algorithm + use<>> {
    if is_in_place(sendbuf) {
        return None;
    }
    let (out, into) = (pieces(sendbuf, sendcount, sendtype)?, pieces(recvbuf, recvcount, recvtype)?);
    Some(board::Alltoall { out, into })
}

/// `MPI_Reduce`.
#[inline(always)]
pub fn reduce(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    root: c_int,
    table: &SharedBoard,
) -> Option<impl Algorithm + use<>> {
    let root = member(root, table)?;
    let (operand, result) = match root == table.rank() {
        true => operand(sendbuf, recvbuf, count, datatype)?,
        false => (own(sendbuf, count, datatype, false)??, Region::empty()),
    };
    Some(board::Reduce { operand, result, combine: reduction(op, datatype, operand, table)?, root })
}

/// Reductions in which each member has an operand and a place for a result.
macro_rules! reduce_for_all {
    ($($(#[$doc:meta])* $function:ident: $algorithm:ident;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $function(
            sendbuf: *const c_void,
            recvbuf: *mut c_void,
            count: i64,
            datatype: DatatypeHandle,
            op: OpHandle,
            table: &SharedBoard,
        ) -> Option<impl Algorithm + use<>> {
            let (operand, result) = operand(sendbuf, recvbuf, count, datatype)?;
            Some(board::$algorithm { operand, result, combine: reduction(op, datatype, operand, table)? })
        }
    )*};
}

reduce_for_all! {
    /// `MPI_Allreduce`.
    allreduce: Allreduce;
    /// `MPI_Scan`.
    scan: Scan;
    /// `MPI_Exscan`.
    exscan: Exscan;
}

/// `MPI_Reduce_scatter` of one member: `count` of the `total` elements of the operands, `before` elements from their
/// beginning.
#[inline(always)]
fn reduced_stretch(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    (before, count, total): (i64, i64, i64),
    datatype: DatatypeHandle,
    op: OpHandle,
) -> Option<impl Algorithm + use<>> {
    let source = if is_in_place(sendbuf) { recvbuf.cast_const() } else { sendbuf };
    let (operand, mine) = (piece(source, total, datatype)?, piece(recvbuf, count, datatype)?);
    let combine = Reduction::new(op, datatype).ok().filter(Combine::is_fast)?;
    let offset = before as usize * combine.element_bytes();
    board::is_short(operand.len()).then_some(board::ReduceScatter { operand, offset, mine, combine })
}

/// `MPI_Reduce_scatter`.
#[inline(always)]
pub fn reduce_scatter(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcounts: Counts,
    datatype: DatatypeHandle,
    op: OpHandle,
    table: &SharedBoard,
) -> Option<impl Algorithm + use<>> {
    if recvcounts.is_null() {
        return None;
    }
    let (mut before, mut total) = (0, 0i64);
    for member in 0..table.size() {
        let count = Some(recvcounts.get(member)).filter(|count| *count >= 0)?;
        before += if member < table.rank() { count } else { 0 };
        total = total.checked_add(count)?;
    }
    let of = (before, recvcounts.get(table.rank()), total);
    reduced_stretch(sendbuf, recvbuf, of, datatype, op)
}

/// `MPI_Reduce_scatter_block`.
#[inline(always)]
pub fn reduce_scatter_block(
    sendbuf: *const c_void,
    recvbuf: *mut c_void,
    recvcount: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
    table: &SharedBoard,
) -> Option<impl Algorithm + use<>> {
    let total = recvcount.checked_mul(table.size() as i64).filter(|total| *total >= 0)?;
    let of = (recvcount * table.rank() as i64, recvcount, total);
    reduced_stretch(sendbuf, recvbuf, of, datatype, op)
}
