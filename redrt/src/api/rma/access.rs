//! `MPI_Put`, `MPI_Get` and the functions derived from them (MPI-5.0 §12.3).

use super::target_of;
use crate::api::buffers::{self, Typed};
use redrt_abi::error::{Error, Result};
use redrt_abi::fail;
use redrt_abi::handle::{DatatypeHandle, RequestHandle, WinHandle};
use redrt_abi::{Aint, MPI_ERR_DISP, MPI_ERR_RMA_RANGE, MPI_ERR_TRUNCATE, Output};
use redrt_comm::datatype;
use redrt_engine::{
    self as engine,
    request::{Operation, RequestId, Status},
};
use redrt_transport::copying;
use redrt_window::{self as window, Effect, Form, There, Window};
use std::ffi::{c_int, c_void};

/// The origin's side of an operation: address, number of elements, datatype.
pub(super) type Here<P> = (P, i64, DatatypeHandle);

/// The target's side of an operation: rank, displacement, number of elements, datatype.
pub(super) type Named = (c_int, Aint, i64, DatatypeHandle);

/// Checks the target's side of an operation; `None` for `MPI_PROC_NULL`.
pub(super) fn reach(window: &Window, named: Named) -> Result<Option<(There, Typed)>> {
    let (rank, displacement, count, datatype) = named;
    let Some(target) = target_of(window, rank)? else { return Ok(None) };
    window.enter(target)?;
    let typed = buffers::typed(count, datatype)?;
    let form = Form::of(&typed.datatype, count);
    if !window.is_dynamic() {
        if displacement < 0 {
            fail!(MPI_ERR_DISP, "the displacement is {displacement}");
        }
        let exposed = window.members[target as usize];
        let begin = i128::from(displacement as i64) * i128::from(exposed.unit);
        let (first, past) = form.bounds();
        let is_within = begin + i128::from(first) >= 0 && begin + i128::from(past) <= i128::from(exposed.size);
        if form.size() > 0 && !is_within {
            return Err(not_within(window, target, begin, (first, past)));
        }
    }
    Ok(Some((There { target, displacement: displacement as i64, form }, typed)))
}

#[cold]
fn not_within(window: &Window, target: u32, begin: i128, (first, past): (i64, i64)) -> Error {
    let (size, label) = (window.members[target as usize].size, window.label());
    let (first, past) = (begin + i128::from(first), begin + i128::from(past));
    let message = format!("bytes {first} to {past} are not within the {size} that rank {target} exposes in {label}");
    Error::new(MPI_ERR_RMA_RANGE, message)
}

/// The operation as one copy: address at the origin, address at the target, number of bytes. That needs contiguous
/// predefined types on both sides, and memory of the target that is mapped here; `None` in all other cases, errors
/// included. Most operations are such a copy, and [`reach`] takes ten times as long as the copy of 8 bytes.
#[inline(always)]
pub(super) fn copy_of<P>(
    window: &Window,
    here: Here<P>,
    there: Named,
    start: impl Fn(P) -> *mut u8,
) -> Option<(*mut u8, *mut u8, usize)> {
    let (own, bytes, _) = buffers::predefined_stretch(start(here.0).cast(), here.1, here.2)?;
    let (rank, displacement, count, datatype) = there;
    let datatype = datatype::predefined(datatype).filter(|_| count >= 0 && rank >= 0)?;
    let (offset, room) = (datatype.contiguous_offset(count)?, datatype.packed_size(count) as usize);
    let target = u32::try_from(rank).ok()?;
    (bytes == room).then_some(())?;
    Some((own, window.near(target, displacement as i64, offset, room)?, bytes))
}

/// Checks that the data fit the target's side of the operation (MPI-5.0 §12.3.1). Sizes are in bytes.
pub(super) fn check_fits(sent: u64, room: u64) -> Result {
    if sent > room {
        fail!(MPI_ERR_TRUNCATE, "{sent} bytes do not fit the {room} at their destination");
    }
    Ok(())
}

/// A complete request, if the operation has a request.
pub(super) fn nothing_to_do(effect: Effect) -> Option<RequestId> {
    (effect == Effect::Requested).then(|| {
        let mut engine = engine::cell().lock();
        let id = engine.requests.insert(Operation::Other);
        engine.requests.complete(id, Status::EMPTY);
        id
    })
}

/// Sets the program's handle of the operation's request.
pub(super) fn hand_over(window: &Window, id: Option<RequestId>, request: Output<RequestHandle>) -> Result {
    let id = id.expect("the operation was begun with a request");
    let handle = crate::api::p2p::handle(&mut engine::cell().lock(), id, &window.comm);
    request.set(handle)
}

/// Begins a put.
///
/// # Safety
/// The origin buffer stays valid and unchanged until the operation is complete at the origin.
unsafe fn begin_put(
    window: &Window,
    origin: Here<*const c_void>,
    named: Named,
    effect: Effect,
) -> Result<Option<RequestId>> {
    let Some((there, typed)) = reach(window, named)? else {
        return Ok(nothing_to_do(effect));
    };
    // SAFETY: - valid until the operation is complete at the origin: this function's contract.
    let (data, _) = unsafe { buffers::outgoing(origin.0, origin.1, origin.2)? };
    check_fits(data.len() as u64, typed.bytes() as u64)?;
    window.put(&there, data, effect)
}

/// `MPI_Put`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn put(
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: DatatypeHandle,
    target_rank: c_int,
    target_disp: Aint,
    target_count: i64,
    target_datatype: DatatypeHandle,
    win: WinHandle,
) -> Result {
    let (window, effect) = (window::resolve(win)?, Effect::Plain);
    let origin = (origin_addr, origin_count, origin_datatype);
    let named = (target_rank, target_disp, target_count, target_datatype);
    if let Some((own, there, bytes)) = copy_of(&window, origin, named, |buffer| buffer.cast_mut().cast()) {
        // SAFETY: - valid for reads and writes: the program's buffer, by the contract of the C call, and memory of the
        //           window, by `copy_of`.
        unsafe { copying::copy(own, there, bytes) };
        return Ok(());
    }
    // SAFETY: - valid until the epoch ends: the contract of the C call.
    unsafe { begin_put(&window, origin, named, effect) }.map(drop)
}

/// `MPI_Rput`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn rput(
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: DatatypeHandle,
    target_rank: c_int,
    target_disp: Aint,
    target_count: i64,
    target_datatype: DatatypeHandle,
    win: WinHandle,
    request: Output<RequestHandle>,
) -> Result {
    let (window, effect) = (window::resolve(win)?, Effect::Requested);
    let origin = (origin_addr, origin_count, origin_datatype);
    let named = (target_rank, target_disp, target_count, target_datatype);
    // SAFETY: - valid until the request completes: the contract of the C call.
    let id = unsafe { begin_put(&window, origin, named, effect)? };
    hand_over(&window, id, request)
}

fn begin_get(window: &Window, origin: Here<*mut c_void>, named: Named, effect: Effect) -> Result<Option<RequestId>> {
    let Some((there, typed)) = reach(window, named)? else {
        return Ok(nothing_to_do(effect));
    };
    let into = buffers::incoming(origin.0, origin.1, origin.2)?;
    check_fits(typed.bytes() as u64, into.capacity)?;
    window.get(&there, into, effect)
}

/// `MPI_Get`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn get(
    origin_addr: *mut c_void,
    origin_count: i64,
    origin_datatype: DatatypeHandle,
    target_rank: c_int,
    target_disp: Aint,
    target_count: i64,
    target_datatype: DatatypeHandle,
    win: WinHandle,
) -> Result {
    let (window, effect) = (window::resolve(win)?, Effect::Plain);
    let origin = (origin_addr, origin_count, origin_datatype);
    let named = (target_rank, target_disp, target_count, target_datatype);
    if let Some((own, there, bytes)) = copy_of(&window, origin, named, |buffer| buffer.cast()) {
        // SAFETY: - valid for reads and writes: the program's buffer, by the contract of the C call, and memory of the
        //           window, by `copy_of`.
        unsafe { copying::copy(there, own, bytes) };
        return Ok(());
    }
    begin_get(&window, origin, named, effect).map(drop)
}

/// `MPI_Rget`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn rget(
    origin_addr: *mut c_void,
    origin_count: i64,
    origin_datatype: DatatypeHandle,
    target_rank: c_int,
    target_disp: Aint,
    target_count: i64,
    target_datatype: DatatypeHandle,
    win: WinHandle,
    request: Output<RequestHandle>,
) -> Result {
    let (window, effect) = (window::resolve(win)?, Effect::Requested);
    let origin = (origin_addr, origin_count, origin_datatype);
    let named = (target_rank, target_disp, target_count, target_datatype);
    let id = begin_get(&window, origin, named, effect)?;
    hand_over(&window, id, request)
}
