//! The four send modes, blocking and nonblocking.

use super::{buffered, check_tag, handle, sent_handle};
use crate::api::buffers;
use redrt_abi::error::Result;
use redrt_abi::handle::{CommHandle, DatatypeHandle, RequestHandle};
use redrt_abi::{MPI_PROC_NULL, Output};
use redrt_comm::comm::{self, Comm};
use redrt_engine::send::{SendArguments, Sent};
use redrt_engine::{self as engine, Engine, request::RequestId};
use redrt_runtime::locks;
use std::ffi::{c_int, c_void};

/// How a send relates to its receive (MPI-5.0 §3.4). Ready mode is standard mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Standard,
    Buffered,
    Synchronous,
}

/// Begins a send. Returns its request, `None` if it is complete already.
pub(super) unsafe fn begin(
    buf: *const c_void,
    count: i64,
    datatype: DatatypeHandle,
    dest: c_int,
    tag: c_int,
    comm: &Comm,
    mode: Mode,
) -> Result<Option<RequestId>> {
    // SAFETY: - the buffer is valid until the send completes: this function's contract.
    unsafe { begin_and(buf, count, datatype, dest, tag, comm, mode, |_, request| request) }
}

/// Begins a send, and calls `then` while the engine is still locked: with its request, `None` if it is complete
/// already.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
unsafe fn begin_and<T>(
    buf: *const c_void,
    count: i64,
    datatype: DatatypeHandle,
    dest: c_int,
    tag: c_int,
    comm: &Comm,
    mode: Mode,
    then: impl FnOnce(&mut Engine, Option<RequestId>) -> T,
) -> Result<T> {
    check_tag(tag)?;
    if dest == MPI_PROC_NULL {
        buffers::check(count, datatype)?;
        return Ok(then(&mut engine::cell().lock(), None));
    }
    let (context, source, to) = (comm.context, comm.rank, comm.member(dest)?);
    // From here on no call fails until the payload is where the engine finds it, so it stays in registers until then.
    // SAFETY: - the buffer is valid until the send completes: this function's contract.
    let (payload, element) = unsafe { buffers::outgoing(buf, count, datatype)? };
    let payload = if mode == Mode::Buffered { payload.into_owned() } else { payload };
    let synchronous = mode == Mode::Synchronous;
    let arguments = SendArguments { context, source, to, tag, payload, element, synchronous };
    if to != comm.members[comm.rank as usize] {
        redrt_runtime::faults::before_send(&arguments.payload);
    }
    if mode == Mode::Buffered {
        buffered::begin(comm, arguments)?;
        return Ok(then(&mut engine::cell().lock(), None));
    }
    let mut engine = locks::engine_in_turn(context);
    let request = match engine.send(arguments) {
        Sent::Complete => None,
        pending => Some(engine.send_request(pending)),
    };
    Ok(then(&mut engine, request))
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
            // SAFETY: - the buffer is valid until the send completes, which is before this returns.
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
            let named = |engine: &mut Engine, id: Option<RequestId>| match id {
                None => sent_handle(engine),
                Some(id) => handle(engine, id, &comm),
            };
            // SAFETY: - the buffer is valid until the request completes: this function's contract.
            request.set(unsafe { begin_and(buf, count, datatype, dest, tag, &comm, $mode, named)? })
        }
    };
}

send_mode!(send, isend, Mode::Standard);
send_mode!(bsend, ibsend, Mode::Buffered);
send_mode!(ssend, issend, Mode::Synchronous);
send_mode!(rsend, irsend, Mode::Standard);
