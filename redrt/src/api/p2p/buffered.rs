//! Buffered mode (MPI-5.0 §3.6).
//!
//! The engine copies a buffered message to its own memory, so the attached buffer only accounts for room: it bounds the
//! pending messages, as the standard says, and detaching it waits for them.

use redrt_abi::error::{Error, Result};
use redrt_abi::handle::{CommHandle, RequestHandle, SessionHandle};
use redrt_abi::{MPI_ERR_BUFFER, MPI_ERR_COUNT, Output};
use redrt_comm::comm::{self, Comm};
use redrt_comm::objects::attachment::Attachment;
use redrt_comm::objects::session;
use redrt_engine as engine;
use redrt_engine::request::{Operation, Status};
use redrt_engine::send::{SendArguments, Sent};
use redrt_process::lock;
use redrt_runtime::locks;
use std::ffi::c_void;
use std::sync::Mutex;

process_local! {
    static PROCESS: Mutex<Option<Attachment>> = Mutex::new(None);
}

/// Bytes of an attached buffer that a message takes besides its own. This is the least `MPI_BSEND_OVERHEAD` of all
/// families (MPICH's), so that buffers of programs built for them are large enough. No bytes are kept there.
const OVERHEAD: i64 = 96;

/// Begins a buffered send. For its caller it is complete on return.
pub(super) fn begin(comm: &Comm, arguments: SendArguments) -> Result {
    let bytes = arguments.payload.len() as i64 + OVERHEAD;
    // In turn, since the order also decides which message finds room.
    let mut engine = locks::engine_in_turn(arguments.context);
    let mut own = lock(&comm.buffer);
    let mut of_session = comm.session.get().map(|session| lock(&session.buffer));
    let mut shared = lock(&PROCESS);
    let of_session = of_session.as_mut().and_then(|buffer| buffer.as_mut());
    let Some(attachment) = own.as_mut().or(of_session).or(shared.as_mut()) else {
        return Err(Error::new(MPI_ERR_BUFFER, "no buffer is attached"));
    };
    attachment.reserve(&mut engine, bytes)?;
    // Short messages do not count in a replicated world: their acknowledgements come at different times in the
    // replicas, and the room for further messages must be the same.
    let counts = !engine.is_replicated() || !arguments.is_short(arguments.payload.len());
    if let pending @ Sent::Pending(_) = engine.send(arguments)
        && counts
    {
        let request = engine.send_request(pending);
        attachment.pending.push((request, bytes));
    }
    Ok(())
}

fn attach(place: &Mutex<Option<Attachment>>, address: *mut c_void, size: i64) -> Result {
    if size < 0 {
        return Err(Error::new(MPI_ERR_COUNT, format!("a buffer of {size} bytes")));
    }
    let mut place = lock(place);
    if place.is_some() {
        return Err(Error::new(MPI_ERR_BUFFER, "a buffer is attached already"));
    }
    *place = Some(Attachment { address: address as usize, size, pending: Vec::new() });
    Ok(())
}

fn flush(place: &Mutex<Option<Attachment>>) -> Result {
    let pending = match &mut *lock(place) {
        None => return Err(Error::new(MPI_ERR_BUFFER, "no buffer is attached")),
        Some(attachment) => std::mem::take(&mut attachment.pending),
    };
    for (request, _) in pending {
        engine::cell().finish(request);
    }
    Ok(())
}

fn detach(place: &Mutex<Option<Attachment>>, address: *mut c_void, size: redrt_abi::CountOut) -> Result {
    flush(place)?;
    let attachment = lock(place).take().expect("flush has found one");
    if !address.is_null() {
        // SAFETY: - not null: checked; the argument is the address of a pointer: the contract of the C call.
        unsafe { address.cast::<usize>().write(attachment.address) };
    }
    size.set(attachment.size)
}

/// Flushes the buffer. Returns a complete request on `comm`.
fn iflush(place: &Mutex<Option<Attachment>>, comm: &Comm, request: Output<RequestHandle>) -> Result {
    flush(place)?;
    let mut engine = engine::cell().lock();
    let id = engine.requests.insert(Operation::Other);
    engine.requests.complete(id, Status::EMPTY);
    request.set(super::handle(&mut engine, id, comm))
}

/// `MPI_Buffer_attach`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn buffer_attach(buffer: *mut c_void, size: i64) -> Result {
    attach(&PROCESS, buffer, size)
}

/// `MPI_Buffer_detach`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn buffer_detach(buffer_addr: *mut c_void, size: redrt_abi::CountOut) -> Result {
    detach(&PROCESS, buffer_addr, size)
}

/// `MPI_Buffer_flush`.
///
/// # Safety
/// None: the function takes no pointers.
pub unsafe fn buffer_flush() -> Result {
    flush(&PROCESS)
}

/// `MPI_Buffer_iflush`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn buffer_iflush(request: Output<RequestHandle>) -> Result {
    let comm = comm::resolve(CommHandle::SELF)?;
    iflush(&PROCESS, &comm, request)
}

/// `MPI_Comm_attach_buffer`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn comm_attach_buffer(comm: CommHandle, buffer: *mut c_void, size: i64) -> Result {
    attach(&comm::resolve(comm)?.buffer, buffer, size)
}

/// `MPI_Comm_detach_buffer`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn comm_detach_buffer(comm: CommHandle, buffer_addr: *mut c_void, size: redrt_abi::CountOut) -> Result {
    detach(&comm::resolve(comm)?.buffer, buffer_addr, size)
}

/// `MPI_Comm_flush_buffer`.
///
/// # Safety
/// None: the function takes no pointers.
pub unsafe fn comm_flush_buffer(comm: CommHandle) -> Result {
    flush(&comm::resolve(comm)?.buffer)
}

/// `MPI_Comm_iflush_buffer`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn comm_iflush_buffer(comm: CommHandle, request: Output<RequestHandle>) -> Result {
    let comm = comm::resolve(comm)?;
    iflush(&comm.buffer, &comm, request)
}

/// `MPI_Session_attach_buffer`, for communicators that derive from a process set of the session.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn session_attach_buffer(session: SessionHandle, buffer: *mut c_void, size: i64) -> Result {
    attach(&session::resolve(session)?.buffer, buffer, size)
}

/// `MPI_Session_detach_buffer`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn session_detach_buffer(
    session: SessionHandle,
    buffer_addr: *mut c_void,
    size: redrt_abi::CountOut,
) -> Result {
    detach(&session::resolve(session)?.buffer, buffer_addr, size)
}

/// `MPI_Session_flush_buffer`.
///
/// # Safety
/// None: the function takes no pointers.
pub unsafe fn session_flush_buffer(session: SessionHandle) -> Result {
    flush(&session::resolve(session)?.buffer)
}

/// `MPI_Session_iflush_buffer`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn session_iflush_buffer(session: SessionHandle, request: Output<RequestHandle>) -> Result {
    let comm = comm::resolve(CommHandle::SELF)?;
    iflush(&session::resolve(session)?.buffer, &comm, request)
}
