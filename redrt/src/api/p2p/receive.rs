//! Receives, blocking and nonblocking.

use super::{PROC_NULL_STATUS, complete_handle, failure, handle, selector, to_abi};
use crate::abi::{Output, Status as AbiStatus};
use crate::api::buffers;
use crate::comm::{self, Comm};
use crate::engine::{self, request::RequestId};
use crate::error::Result;
use crate::handle::{CommHandle, DatatypeHandle, RequestHandle};
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
    let target = buffers::incoming(buf, count, datatype)?;
    let Some(selector) = selector(comm, source, tag)? else { return Ok(None) };
    let mut engine = engine::cell().lock();
    Ok(Some(engine.post(comm.context, selector.source, selector.tag, target)))
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
    status.set_if_wanted(to_abi(&outcome));
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
    match begin(buf, count, datatype, source, tag, &comm)? {
        None => request.set(complete_handle(&comm, PROC_NULL_STATUS)),
        Some(id) => request.set(handle(&mut engine::cell().lock(), id, &comm)),
    }
}
