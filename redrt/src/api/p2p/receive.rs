//! Receives, blocking and nonblocking.

use super::{PROC_NULL_STATUS, complete_handle, failure, handle, selector, to_abi};
use crate::api::buffers;
use redrt_abi::error::Result;
use redrt_abi::handle::{CommHandle, DatatypeHandle, RequestHandle};
use redrt_abi::{Output, Status as AbiStatus};
use redrt_comm::comm::{self, Comm};
use redrt_engine::{self as engine, Engine, request::RequestId};
use redrt_runtime::locks;
use std::ffi::{c_int, c_void};

/// Posts a receive and returns its engine request, `None` for `MPI_PROC_NULL`.
pub(super) fn begin(
    buf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    source: c_int,
    tag: c_int,
    comm: &Comm,
) -> Result<Option<RequestId>> {
    begin_and(buf, count, datatype, source, tag, comm, |_, request| request)
}

/// Posts a receive, and calls `then` with its request while the engine is still locked; `None` for `MPI_PROC_NULL`.
#[inline(always)]
fn begin_and<T>(
    buf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    source: c_int,
    tag: c_int,
    comm: &Comm,
    then: impl FnOnce(&mut Engine, RequestId) -> T,
) -> Result<Option<T>> {
    let Some(selector) = selector(comm, source, tag)? else {
        buffers::check(count, datatype)?;
        return Ok(None);
    };
    let target = buffers::incoming(buf, count, datatype)?;
    if selector.source.is_none() {
        engine::cell().wait_until_not_crowded(comm.context);
    }
    let mut engine = locks::engine_in_turn(comm.context);
    let request = engine.post(comm.context, selector.source, selector.tag, target);
    Ok(Some(then(&mut engine, request)))
}

/// `MPI_Recv`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn recv(
    buf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    source: c_int,
    tag: c_int,
    comm: CommHandle,
    status: Output<AbiStatus>,
) -> Result {
    let comm = comm::resolve(comm)?;
    let outcome = match begin(buf, count, datatype, source, tag, &comm)? {
        None => PROC_NULL_STATUS,
        Some(request) => engine::cell().finish(request),
    };
    status.set_outcome(to_abi(&outcome));
    failure(&outcome, comm.handle().0)
}

/// `MPI_Irecv`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn irecv(
    buf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    source: c_int,
    tag: c_int,
    comm: CommHandle,
    request: Output<RequestHandle>,
) -> Result {
    let comm = comm::resolve(comm)?;
    let named = |engine: &mut Engine, id| handle(engine, id, &comm);
    let begun = begin_and(buf, count, datatype, source, tag, &comm, named)?;
    request.set(begun.unwrap_or_else(|| complete_handle(&comm, PROC_NULL_STATUS)))
}
