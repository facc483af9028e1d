//! The accumulate functions (MPI-5.0 §12.3.4).

use super::access::{Here, Named, check_fits, copy_of, hand_over, nothing_to_do, reach};
use crate::api::buffers::{self, Typed};
use redrt_abi::error::{Error, Result};
use redrt_abi::fail;
use redrt_abi::handle::{DatatypeHandle, OpHandle, RequestHandle, WinHandle};
use redrt_abi::{Aint, MPI_ERR_OP, MPI_ERR_TYPE, Output};
use redrt_comm::datatype::{self, Datatype};
use redrt_comm::op::{self, InPlace};
use redrt_datatype::basic::Class;
use redrt_engine::payload::Payload;
use redrt_engine::request::RequestId;
use redrt_runtime::mutation::{self, Mutation};
use redrt_transport::copying;
use redrt_transport::network::Source;
use redrt_window::{self as window, Combination, Effect, Window};
use std::ffi::{c_int, c_void};

/// The predefined type of all elements of a datatype; `None` if they have several.
fn element_of(datatype: &Datatype) -> Option<DatatypeHandle> {
    if let Some(handle) = datatype.predefined() {
        return Some(handle);
    }
    let mut elements = datatype.envelope().datatypes.iter().map(|inner| element_of(inner));
    let first = elements.next()??;
    elements.all(|other| other == Some(first)).then_some(first)
}

/// The combination of an accumulate: a predefined operation, and the one predefined type of all elements (MPI-5.0
/// §12.3.4).
fn combination(operation: OpHandle, typed: &Typed) -> Result<Combination> {
    let datatype = &typed.datatype;
    let found = op::resolve(operation)?;
    if found.is_user() {
        fail!(MPI_ERR_OP, "an operation of the program cannot be used in a window");
    }
    if typed.bytes() == 0 || operation == OpHandle::REPLACE || operation == OpHandle::NO_OP {
        return Ok(Combination { operation: operation.0 as u32, element: 0 });
    }
    let element = element_of(datatype);
    let element = element.ok_or_else(|| Error::new(MPI_ERR_TYPE, "the elements are not of one predefined type"))?;
    found.check(&*datatype::resolve(element)?)?;
    Ok(Combination { operation: operation.0 as u32, element: element.0 as u32 })
}

/// The origin's elements, packed or by reference. The buffer is not accessed after the call has returned.
///
/// # Safety
/// The buffer is that of the C call.
unsafe fn packed(buffer: *const c_void, count: i64, datatype: DatatypeHandle) -> Result<Payload> {
    // SAFETY: - valid during the call: this function's contract. The payload is not used after it.
    unsafe { buffers::outgoing(buffer, count, datatype) }.map(|(payload, _)| payload)
}

fn check_same(sent: usize, there: usize) -> Result {
    if sent != there {
        fail!(MPI_ERR_TYPE, "{sent} bytes are combined with {there} at the target");
    }
    Ok(())
}

/// The combination in place, if the operation needs nothing else: [`copy_of`] accepts it, and both sides have one type.
#[inline(always)]
fn in_place(here: DatatypeHandle, there: DatatypeHandle, op: OpHandle) -> Option<InPlace> {
    let is_simple = here == there && !mutation::is_planted(Mutation::AccumulateReplaces);
    InPlace::of(op, datatype::predefined(there).filter(|_| is_simple)?)
}

/// Does an accumulate in place, if that is all that it needs. Returns true if it was done.
///
/// # Safety
/// The buffer is that of the C call.
#[inline(always)]
unsafe fn accumulate_in_place(window: &Window, origin: Here<*const c_void>, named: Named, op: OpHandle) -> bool {
    let Some(how) = in_place(origin.2, named.3, op).filter(|_| op != OpHandle::NO_OP) else { return false };
    let Some((own, there, bytes)) = copy_of(window, origin, named, |buffer| buffer.cast_mut().cast()) else {
        return false;
    };
    // SAFETY: - valid, and of the type of `how`: the program's buffer, by the contract of the C call, and memory of the
    //           window, by `copy_of`.
    window.alone(named.0 as u32, || unsafe { how.act(own, there, named.2, bytes) });
    true
}

/// Does an accumulate that fetches the former elements in place, if a copy and a combination are all that it needs.
/// Returns true if it was done.
///
/// # Safety
/// The buffers are those of the C call.
#[inline(always)]
unsafe fn fetch_in_place(
    window: &Window,
    origin: Here<*const c_void>,
    result: Here<*mut c_void>,
    named: Named,
    op: OpHandle,
) -> bool {
    let Some(how) = in_place(result.2, named.3, op) else { return false };
    let Some((into, there, bytes)) = copy_of(window, result, named, |buffer| buffer.cast()) else { return false };
    let own = match how {
        InPlace::Nothing => std::ptr::null_mut(),
        _ if origin.2 != named.3 || origin.1 != named.2 => return false,
        _ => match buffers::predefined_stretch(origin.0, origin.1, origin.2) {
            Some((own, _, _)) => own,
            None => return false,
        },
    };
    window.alone(named.0 as u32, || {
        // SAFETY: - valid for reads and writes: memory of the window, by `copy_of`, and the program's buffer, by the
        //           contract of the C call.
        unsafe { copying::copy(there, into, bytes) };
        // SAFETY: - valid, and of the type of `how`: the program's buffer, by the contract of the C call, and memory of
        //           the window, by `copy_of`.
        unsafe { how.act(own, there, named.2, bytes) };
    });
    true
}

/// Begins an accumulate.
///
/// # Safety
/// The buffer is that of the C call.
unsafe fn begin_accumulate(
    window: &Window,
    origin: Here<*const c_void>,
    named: Named,
    op: OpHandle,
    effect: Effect,
) -> Result<Option<RequestId>> {
    if op == OpHandle::NO_OP {
        fail!(MPI_ERR_OP, "MPI_NO_OP is for MPI_Get_accumulate and MPI_Fetch_and_op");
    }
    let Some((there, typed)) = reach(window, named)? else {
        return Ok(nothing_to_do(effect));
    };
    let how = combination(op, &typed)?;
    // SAFETY: - valid during the call: this function's contract.
    let data = unsafe { packed(origin.0, origin.1, origin.2)? };
    check_same(data.len(), typed.bytes())?;
    window.accumulate(&there, how, data, effect)
}

/// `MPI_Accumulate`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn accumulate(
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: DatatypeHandle,
    target_rank: c_int,
    target_disp: Aint,
    target_count: i64,
    target_datatype: DatatypeHandle,
    op: OpHandle,
    win: WinHandle,
) -> Result {
    let (window, effect) = (window::resolve(win)?, Effect::Plain);
    let origin = (origin_addr, origin_count, origin_datatype);
    let named = (target_rank, target_disp, target_count, target_datatype);
    // SAFETY: - valid during the call: this function's contract.
    if unsafe { accumulate_in_place(&window, origin, named, op) } {
        return Ok(());
    }
    // SAFETY: - valid during the call: this function's contract.
    unsafe { begin_accumulate(&window, origin, named, op, effect) }.map(drop)
}

/// `MPI_Raccumulate`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn raccumulate(
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: DatatypeHandle,
    target_rank: c_int,
    target_disp: Aint,
    target_count: i64,
    target_datatype: DatatypeHandle,
    op: OpHandle,
    win: WinHandle,
    request: Output<RequestHandle>,
) -> Result {
    let (window, effect) = (window::resolve(win)?, Effect::Requested);
    let origin = (origin_addr, origin_count, origin_datatype);
    let named = (target_rank, target_disp, target_count, target_datatype);
    // SAFETY: - valid during the call: this function's contract.
    let id = unsafe { begin_accumulate(&window, origin, named, op, effect)? };
    hand_over(&window, id, request)
}

/// Begins an accumulate that fetches the former elements.
///
/// # Safety
/// The buffers are those of the C call.
unsafe fn begin_fetch(
    window: &Window,
    origin: Here<*const c_void>,
    result: Here<*mut c_void>,
    named: Named,
    op: OpHandle,
    effect: Effect,
) -> Result<Option<RequestId>> {
    let Some((there, typed)) = reach(window, named)? else {
        return Ok(nothing_to_do(effect));
    };
    let how = combination(op, &typed)?;
    let into = buffers::incoming(result.0, result.1, result.2)?;
    check_fits(typed.bytes() as u64, into.capacity)?;
    if op == OpHandle::NO_OP {
        // MPI_NO_OP: the origin buffer is not accessed.
        return window.fetch(&there, how, &[], into, effect);
    }
    // SAFETY: - valid during the call: this function's contract.
    let data = unsafe { packed(origin.0, origin.1, origin.2)? };
    check_same(data.len(), typed.bytes())?;
    window.fetch(&there, how, data.bytes(), into, effect)
}

/// `MPI_Get_accumulate`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn get_accumulate(
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: DatatypeHandle,
    result_addr: *mut c_void,
    result_count: i64,
    result_datatype: DatatypeHandle,
    target_rank: c_int,
    target_disp: Aint,
    target_count: i64,
    target_datatype: DatatypeHandle,
    op: OpHandle,
    win: WinHandle,
) -> Result {
    let window = window::resolve(win)?;
    let origin = (origin_addr, origin_count, origin_datatype);
    let result = (result_addr, result_count, result_datatype);
    let named = (target_rank, target_disp, target_count, target_datatype);
    // SAFETY: - valid during the call: this function's contract.
    if unsafe { fetch_in_place(&window, origin, result, named, op) } {
        return Ok(());
    }
    // SAFETY: - valid until the operation is complete: this function's contract.
    unsafe { begin_fetch(&window, origin, result, named, op, Effect::Plain) }.map(drop)
}

/// `MPI_Rget_accumulate`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn rget_accumulate(
    origin_addr: *const c_void,
    origin_count: i64,
    origin_datatype: DatatypeHandle,
    result_addr: *mut c_void,
    result_count: i64,
    result_datatype: DatatypeHandle,
    target_rank: c_int,
    target_disp: Aint,
    target_count: i64,
    target_datatype: DatatypeHandle,
    op: OpHandle,
    win: WinHandle,
    request: Output<RequestHandle>,
) -> Result {
    let window = window::resolve(win)?;
    let origin = (origin_addr, origin_count, origin_datatype);
    let result = (result_addr, result_count, result_datatype);
    let named = (target_rank, target_disp, target_count, target_datatype);
    // SAFETY: - valid until the request completes: this function's contract.
    let id = unsafe { begin_fetch(&window, origin, result, named, op, Effect::Requested)? };
    hand_over(&window, id, request)
}

/// Checks that a datatype is predefined.
fn single(datatype: DatatypeHandle) -> Result {
    if datatype::resolve(datatype)?.predefined().is_none() {
        fail!(MPI_ERR_TYPE, "the type is not predefined");
    }
    Ok(())
}

/// `MPI_Fetch_and_op`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn fetch_and_op(
    origin_addr: *const c_void,
    result_addr: *mut c_void,
    datatype: DatatypeHandle,
    target_rank: c_int,
    target_disp: Aint,
    op: OpHandle,
    win: WinHandle,
) -> Result {
    let window = window::resolve(win)?;
    let (origin, result) = ((origin_addr, 1, datatype), (result_addr, 1, datatype));
    let named = (target_rank, target_disp, 1, datatype);
    // SAFETY: - valid during the call: this function's contract.
    if unsafe { fetch_in_place(&window, origin, result, named, op) } {
        return Ok(());
    }
    single(datatype)?;
    // SAFETY: - valid until the operation is complete: this function's contract.
    unsafe { begin_fetch(&window, origin, result, named, op, Effect::Plain) }.map(drop)
}

/// Most bytes of an element that is compared in place.
const WORD_BYTES_MAX: usize = 16;

/// Checks that elements of a datatype can be compared (MPI-5.0 §12.3.4).
fn check_comparable(datatype: DatatypeHandle) -> Result {
    single(datatype)?;
    let class = datatype::resolve(datatype)?.basic().map(|basic| basic.class);
    let is_comparable = matches!(
        class,
        Some(
            Class::Integer | Class::Char | Class::FortranInteger | Class::MultiLanguage | Class::Logical | Class::Byte
        )
    );
    if !is_comparable {
        fail!(MPI_ERR_TYPE, "MPI_Compare_and_swap is for integers, logicals and bytes");
    }
    Ok(())
}

/// Compares and swaps in memory that is mapped here. `new_and_expected` are two addresses of one element.
/// Returns true if it was done.
///
/// # Safety
/// The pointers are those of the C call.
#[inline(always)]
unsafe fn swap_in_place(
    window: &Window,
    new_and_expected: [*const c_void; 2],
    result: Here<*mut c_void>,
    (target, displacement): (c_int, Aint),
) -> bool {
    let datatype = result.2;
    let named = (target, displacement, 1, datatype);
    let Some((into, there, bytes)) = copy_of(window, result, named, |buffer| buffer.cast()) else { return false };
    let own = new_and_expected.map(|buffer| buffers::predefined_stretch(buffer, 1, datatype));
    let [Some((new, ..)), Some((expected, ..))] = own else { return false };
    if bytes > WORD_BYTES_MAX {
        return false;
    }
    let (mut found, mut wanted) = ([0; WORD_BYTES_MAX], [0; WORD_BYTES_MAX]);
    // SAFETY: - one element of the program, by the contract of the C call; it fits: checked above.
    unsafe { std::ptr::copy_nonoverlapping(expected, wanted.as_mut_ptr(), bytes) };
    window.alone(target as u32, || {
        // SAFETY: - one element of the window's memory, by `copy_of`; it fits: checked above.
        unsafe { std::ptr::copy_nonoverlapping(there, found.as_mut_ptr(), bytes) };
        if found == wanted {
            // SAFETY: - one element of the program, by the contract of the C call, and one of the window's memory, by
            //           `copy_of`.
            unsafe { std::ptr::copy(new, there, bytes) };
        }
    });
    // SAFETY: - room for one element in the program's buffer: the contract of the C call.
    unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), into, bytes) };
    true
}

/// `MPI_Compare_and_swap`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn compare_and_swap(
    origin_addr: *const c_void,
    compare_addr: *const c_void,
    result_addr: *mut c_void,
    datatype: DatatypeHandle,
    target_rank: c_int,
    target_disp: Aint,
    win: WinHandle,
) -> Result {
    let window = window::resolve(win)?;
    check_comparable(datatype)?;
    // SAFETY: - valid during the call: this function's contract.
    if unsafe {
        swap_in_place(&window, [origin_addr, compare_addr], (result_addr, 1, datatype), (target_rank, target_disp))
    } {
        return Ok(());
    }
    let Some((there, _)) = reach(&window, (target_rank, target_disp, 1, datatype))? else {
        return Ok(());
    };
    let into = buffers::incoming(result_addr, 1, datatype)?;
    // SAFETY: - one element, valid during the call: this function's contract.
    let new = unsafe { packed(origin_addr, 1, datatype)? };
    // SAFETY: - one element, valid during the call: this function's contract.
    let expected = unsafe { packed(compare_addr, 1, datatype)? };
    let data = [new.bytes(), expected.bytes()].concat();
    window.compare_and_swap(&there, &data, into)
}
