//! The four send modes, blocking and nonblocking.

use super::{buffered, check_tag, complete_handle, handle};
use crate::abi::{MPI_PROC_NULL, Output};
use crate::api::buffers;
use crate::comm::{self, Comm};
use crate::engine::payload::Payload;
use crate::engine::request::Status;
use crate::engine::send::{SendArguments, Sent};
use crate::engine::{self, request::RequestId};
use crate::error::Result;
use crate::handle::{CommHandle, DatatypeHandle, RequestHandle};
use sdc_detect::Element;
use std::ffi::{c_int, c_void};

/// How a send relates to its receive (MPI-5.0 §3.4). Ready mode is standard mode: the receive is there already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Standard,
    Buffered,
    Synchronous,
}

/// A checked send: where it goes, `None` for `MPI_PROC_NULL`.
#[inline]
fn arguments(
    comm: &Comm,
    (payload, element): (Payload, Element),
    dest: c_int,
    tag: c_int,
    mode: Mode,
) -> Result<Option<SendArguments>> {
    check_tag(tag)?;
    if dest == MPI_PROC_NULL {
        return Ok(None);
    }
    let to = comm.member(dest)?;
    let synchronous = mode == Mode::Synchronous;
    Ok(Some(SendArguments { context: comm.context, source: comm.rank, to, tag, payload, element, synchronous }))
}

/// Begins a send and returns its engine request, `None` when it is complete already.
pub(super) unsafe fn begin(
    buf: *const c_void,
    count: i64,
    datatype: DatatypeHandle,
    dest: c_int,
    tag: c_int,
    comm: &Comm,
    mode: Mode,
) -> Result<Option<RequestId>> {
    // SAFETY: - the caller passes the C call's buffer on.
    let (mut payload, element) = unsafe { buffers::outgoing(buf, count, datatype)? };
    if mode == Mode::Buffered {
        payload = payload.into_owned();
    }
    let mut arguments = arguments(comm, (payload, element), dest, tag, mode)?;
    if let Some(arguments) = arguments.as_mut().filter(|arguments| arguments.to != comm.members[comm.rank as usize]) {
        crate::faults::before_send(&mut arguments.payload);
    }
    if mode == Mode::Buffered {
        return buffered::begin(comm, arguments);
    }
    let Some(arguments) = arguments else { return Ok(None) };
    let mut engine = engine::cell().lock();
    match engine.send(arguments) {
        Sent::Complete => Ok(None),
        pending => Ok(Some(engine.send_request(pending))),
    }
}

macro_rules! send_mode {
    ($blocking:ident, $nonblocking:ident, $mode:expr) => {
        /// The blocking form.
        ///
        /// # Safety
        /// The pointers are those of the C call.
        pub unsafe fn $blocking(
            buf: *const c_void,
            count: i64,
            datatype: DatatypeHandle,
            dest: c_int,
            tag: c_int,
            comm: CommHandle,
        ) -> Result {
            let comm = comm::resolve(comm)?;
            // SAFETY: - as promised to this function.
            match unsafe { begin(buf, count, datatype, dest, tag, &comm, $mode)? } {
                None => Ok(()),
                Some(request) => {
                    let status = engine::cell().finish(request);
                    super::failure(&status, comm.handle().0)
                }
            }
        }

        /// The nonblocking form.
        ///
        /// # Safety
        /// The pointers are those of the C call.
        pub unsafe fn $nonblocking(
            buf: *const c_void,
            count: i64,
            datatype: DatatypeHandle,
            dest: c_int,
            tag: c_int,
            comm: CommHandle,
            request: Output<RequestHandle>,
        ) -> Result {
            let comm = comm::resolve(comm)?;
            // SAFETY: - as promised to this function.
            match unsafe { begin(buf, count, datatype, dest, tag, &comm, $mode)? } {
                None => request.set(complete_handle(&comm, Status::EMPTY)),
                Some(id) => request.set(handle(&mut engine::cell().lock(), id, &comm)),
            }
        }
    };
}

send_mode!(send, isend, Mode::Standard);
send_mode!(bsend, ibsend, Mode::Buffered);
send_mode!(ssend, issend, Mode::Synchronous);
send_mode!(rsend, irsend, Mode::Standard);
