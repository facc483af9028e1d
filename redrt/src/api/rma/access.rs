//! `MPI_Put`, `MPI_Get` and their kin (MPI-5.0 §12.3).

use super::target_of;
use crate::abi::{Aint, MPI_ERR_DISP, MPI_ERR_RMA_RANGE, MPI_ERR_TRUNCATE, Output};
use crate::api::buffers::{self, Typed};
use crate::error::Result;
use crate::fail;
use crate::handle::{DatatypeHandle, RequestHandle, WinHandle};
use crate::window::order::{Order, Place};
use crate::window::{self, Effect, Window};
use redrt_engine::{
    self as engine,
    request::{Operation, RequestId, Status},
};
use std::ffi::{c_int, c_void};

/// The program's buffer of an operation: where it is, how many elements, of what.
pub(super) type Here<P> = (P, i64, DatatypeHandle);

/// What an operation names at the target: its rank, the displacement, how many elements, of what.
pub(super) type There = (c_int, Aint, i64, DatatypeHandle);

/// Where an operation goes: a target, and the checked place in its memory.
pub(super) struct Reached {
    pub(super) target: u32,
    pub(super) at: Place,
    /// What lies there.
    pub(super) typed: Typed,
}

/// Checks the target's side of an operation; `None` for `MPI_PROC_NULL`.
pub(super) fn reach(window: &Window, there: There) -> Result<Option<Reached>> {
    let (rank, displacement, count, datatype) = there;
    let Some(target) = target_of(window, rank)? else { return Ok(None) };
    window.check_access(target)?;
    let typed = buffers::typed(count, datatype)?;
    let layout = typed.datatype.message_layout(count);
    if !window.is_dynamic() {
        if displacement < 0 {
            fail!(MPI_ERR_DISP, "the displacement is {displacement}");
        }
        let exposed = window.members[target as usize];
        let begin = i128::from(displacement as i64) * i128::from(exposed.unit);
        let (first, past) = layout.bounds();
        let is_within = begin + i128::from(first) >= 0 && begin + i128::from(past) <= i128::from(exposed.size);
        if layout.size() > 0 && !is_within {
            fail!(
                MPI_ERR_RMA_RANGE,
                "bytes {} to {} are not within the {} that rank {target} exposes in {}",
                begin + i128::from(first),
                begin + i128::from(past),
                exposed.size,
                window.label()
            );
        }
    }
    Ok(Some(Reached { target, at: Place::new(displacement as i64, &layout), typed }))
}

/// What the origin hands over must fit what it names at the target (MPI-5.0 §12.3.1).
pub(super) fn check_fits(sent: u64, room: u64) -> Result {
    if sent > room {
        fail!(MPI_ERR_TRUNCATE, "{sent} bytes do not fit the {room} at their destination");
    }
    Ok(())
}

/// A request that is complete from the start, if the program wants one.
pub(super) fn nothing_to_do(effect: Effect) -> Option<RequestId> {
    (effect == Effect::Requested).then(|| {
        let mut engine = engine::cell().lock();
        let id = engine.requests.insert(Operation::Other);
        engine.requests.complete(id, Status::EMPTY);
        id
    })
}

/// The program's handle of its request.
pub(super) fn hand_over(window: &Window, id: Option<RequestId>, request: Output<RequestHandle>) -> Result {
    let id = id.expect("the operation was begun with a request");
    let handle = crate::api::p2p::handle(&mut engine::cell().lock(), id, &window.comm);
    request.set(handle)
}

/// Begins a put.
///
/// # Safety
/// The buffer stays valid and unchanged until the operation is complete here.
unsafe fn begin_put(
    window: &Window,
    origin: Here<*const c_void>,
    there: There,
    effect: Effect,
) -> Result<Option<RequestId>> {
    let Some(Reached { target, at, typed }) = reach(window, there)? else {
        return Ok(nothing_to_do(effect));
    };
    // SAFETY: - as promised to this function.
    let (data, _) = unsafe { buffers::outgoing(origin.0, origin.1, origin.2)? };
    check_fits(data.len() as u64, typed.bytes() as u64)?;
    window.push(target, |apart| Order::Put { at, apart }, data, effect)
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
    let there = (target_rank, target_disp, target_count, target_datatype);
    // SAFETY: - the program keeps the buffer until the epoch ends.
    unsafe { begin_put(&window, origin, there, effect) }.map(drop)
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
    let there = (target_rank, target_disp, target_count, target_datatype);
    // SAFETY: - the program keeps the buffer until the request completes.
    let id = unsafe { begin_put(&window, origin, there, effect)? };
    hand_over(&window, id, request)
}

fn begin_get(window: &Window, origin: Here<*mut c_void>, there: There, effect: Effect) -> Result<Option<RequestId>> {
    let Some(Reached { target, at, typed }) = reach(window, there)? else {
        return Ok(nothing_to_do(effect));
    };
    let into = buffers::incoming(origin.0, origin.1, origin.2)?;
    check_fits(typed.bytes() as u64, into.capacity)?;
    Ok(window.ask(target, |tag| Order::Get { at, tag }, &[], into, effect))
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
    let there = (target_rank, target_disp, target_count, target_datatype);
    begin_get(&window, origin, there, effect).map(drop)
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
    let there = (target_rank, target_disp, target_count, target_datatype);
    let id = begin_get(&window, origin, there, effect)?;
    hand_over(&window, id, request)
}
