//! Send and receive in one call (MPI-5.0 §3.11).

use super::send::Mode;
use super::{PROC_NULL_STATUS, failure, handle, receive, send, to_abi};
use crate::api::buffers;
use redrt_abi::error::Result;
use redrt_abi::handle::{CommHandle, DatatypeHandle, RequestHandle};
use redrt_abi::{Output, Status as AbiStatus};
use redrt_comm::comm;
use redrt_engine::payload::Payload;
use redrt_engine::tasks;
use redrt_engine::{self as engine, request::RequestId};
use redrt_transport::network::Source;
use std::ffi::{c_int, c_void};

/// `MPI_Sendrecv`.
///
/// # Safety
/// The pointers are those of the C call.
#[allow(clippy::too_many_arguments)]
pub unsafe fn sendrecv(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    dest: c_int,
    sendtag: c_int,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    source: c_int,
    recvtag: c_int,
    comm: CommHandle,
    status: Output<AbiStatus>,
) -> Result {
    let comm = comm::resolve(comm)?;
    let receiving = receive::begin(recvbuf, recvcount, recvtype, source, recvtag, &comm)?;
    // SAFETY: - the send buffer is valid: this function's contract; the send is complete before this returns.
    let sending = unsafe { send::begin(sendbuf, sendcount, sendtype, dest, sendtag, &comm, Mode::Standard) };
    let sending = match sending {
        Ok(sending) => sending,
        Err(error) => {
            withdraw(receiving);
            return Err(error);
        }
    };
    let cell = engine::cell();
    let outcome = receiving.map_or(PROC_NULL_STATUS, |request| cell.finish(request));
    if let Some(request) = sending {
        cell.finish(request);
    }
    status.set_outcome(to_abi(&outcome));
    failure(&outcome, comm.handle().0)
}

/// Cancels and frees a receive that was posted for a call that failed.
fn withdraw(receiving: Option<RequestId>) {
    if let Some(request) = receiving {
        let mut engine = engine::cell().lock();
        engine.cancel(request);
        engine.requests.detach(request);
    }
}

/// `MPI_Sendrecv_replace`: the outgoing bytes are copied, so that the receive may replace them.
///
/// # Safety
/// The pointers are those of the C call.
#[allow(clippy::too_many_arguments)]
pub unsafe fn sendrecv_replace(
    buf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    dest: c_int,
    sendtag: c_int,
    source: c_int,
    recvtag: c_int,
    comm: CommHandle,
    status: Output<AbiStatus>,
) -> Result {
    let copy = packed_copy(buf, count, datatype)?;
    let (copied, bytes) = (copy.bytes().as_ptr().cast(), copy.len() as i64);
    // SAFETY: - the copy outlives the call; the other pointers are valid: this function's contract.
    unsafe {
        sendrecv(
            copied,
            bytes,
            DatatypeHandle::BYTE,
            dest,
            sendtag,
            buf,
            count,
            datatype,
            source,
            recvtag,
            comm,
            status,
        )
    }
}

fn packed_copy(buf: *const c_void, count: i64, datatype: DatatypeHandle) -> Result<Payload> {
    // SAFETY: - valid during the C call: its contract. The payload is copied or dropped before this returns.
    let (payload, _) = unsafe { buffers::outgoing(buf, count, datatype)? };
    Ok(match payload {
        Payload::User { .. } => Payload::Owned(payload.bytes().into()),
        packed => packed,
    })
}

/// `MPI_Isendrecv`.
///
/// # Safety
/// The pointers are those of the C call.
#[allow(clippy::too_many_arguments)]
pub unsafe fn isendrecv(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    dest: c_int,
    sendtag: c_int,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    source: c_int,
    recvtag: c_int,
    comm: CommHandle,
    request: Output<RequestHandle>,
) -> Result {
    // SAFETY: - the pointers are valid until the request completes: this function's contract.
    unsafe {
        begin_exchange(
            sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source, recvtag, comm, request,
            None,
        )
    }
}

/// `MPI_Isendrecv_replace`.
///
/// # Safety
/// The pointers are those of the C call.
#[allow(clippy::too_many_arguments)]
pub unsafe fn isendrecv_replace(
    buf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    dest: c_int,
    sendtag: c_int,
    source: c_int,
    recvtag: c_int,
    comm: CommHandle,
    request: Output<RequestHandle>,
) -> Result {
    let copy = packed_copy(buf, count, datatype)?;
    let (copied, bytes) = (copy.bytes().as_ptr().cast::<c_void>(), copy.len() as i64);
    // SAFETY: - the copy is kept until the request completes; the other pointers are valid: this function's contract.
    unsafe {
        begin_exchange(
            copied,
            bytes,
            DatatypeHandle::BYTE,
            dest,
            sendtag,
            buf,
            count,
            datatype,
            source,
            recvtag,
            comm,
            request,
            Some(copy),
        )
    }
}

#[allow(clippy::too_many_arguments)]
unsafe fn begin_exchange(
    sendbuf: *const c_void,
    sendcount: i64,
    sendtype: DatatypeHandle,
    dest: c_int,
    sendtag: c_int,
    recvbuf: *mut c_void,
    recvcount: i64,
    recvtype: DatatypeHandle,
    source: c_int,
    recvtag: c_int,
    comm: CommHandle,
    request: Output<RequestHandle>,
    keep: Option<Payload>,
) -> Result {
    let comm = comm::resolve(comm)?;
    let receiving = receive::begin(recvbuf, recvcount, recvtype, source, recvtag, &comm)?;
    // SAFETY: - the send buffer is valid until the request completes: this function's contract.
    let sending = match unsafe { send::begin(sendbuf, sendcount, sendtype, dest, sendtag, &comm, Mode::Standard) } {
        Ok(sending) => sending,
        Err(error) => {
            withdraw(receiving);
            return Err(error);
        }
    };
    let id = tasks::pair(sending, receiving, PROC_NULL_STATUS, keep);
    request.set(handle(&mut engine::cell().lock(), id, &comm))
}
