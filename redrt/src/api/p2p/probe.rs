//! Probes and matched receives (MPI-5.0 §3.8).

use super::{PROC_NULL_STATUS, Selector, complete_handle, failure, handle, selector, to_abi};
use crate::api::buffers;
use redrt_abi::error::{Error, Result};
use redrt_abi::handle::{CommHandle, DatatypeHandle, HandleTable, MessageHandle, RequestHandle};
use redrt_abi::{MPI_ERR_REQUEST, Output, Status as AbiStatus};
use redrt_comm::comm::{self, Comm};
use redrt_engine::{self as engine, request::Status};
use redrt_process::lock;
use redrt_runtime::decide::Probed;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};

/// A message that a matched probe took out of the queue.
struct Taken {
    /// Number of the message in the engine.
    message: usize,
    comm: Arc<Comm>,
}

process_local! {
    static MESSAGES: HandleTable<Mutex<Option<Taken>>> = HandleTable::new();
}

fn status_of(probed: &Probed) -> AbiStatus {
    let (source, tag) = (probed.source as i32, probed.tag);
    to_abi(&Status { source, tag, error: 0, bytes: probed.length, cancelled: false })
}

fn search(comm: &Comm, selector: Selector, take: bool, wait: bool) -> Option<Probed> {
    redrt_runtime::decide::probe(comm.context, selector.source, selector.tag, take, wait)
}

/// `MPI_Probe`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn probe(source: c_int, tag: c_int, comm: CommHandle, status: Output<AbiStatus>) -> Result {
    let comm = comm::resolve(comm)?;
    let outcome = match selector(&comm, source, tag)? {
        None => to_abi(&PROC_NULL_STATUS),
        Some(selector) => status_of(&search(&comm, selector, false, true).expect("the probe waits")),
    };
    status.set_outcome(outcome);
    Ok(())
}

/// `MPI_Iprobe`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn iprobe(
    source: c_int,
    tag: c_int,
    comm: CommHandle,
    flag: Output<c_int>,
    status: Output<AbiStatus>,
) -> Result {
    let comm = comm::resolve(comm)?;
    let outcome = match selector(&comm, source, tag)? {
        None => Some(to_abi(&PROC_NULL_STATUS)),
        Some(selector) => search(&comm, selector, false, false).map(|probed| status_of(&probed)),
    };
    flag.set(c_int::from(outcome.is_some()))?;
    if let Some(outcome) = outcome {
        status.set_outcome(outcome);
    }
    Ok(())
}

/// `MPI_Mprobe`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn mprobe(
    source: c_int,
    tag: c_int,
    comm: CommHandle,
    message: Output<MessageHandle>,
    status: Output<AbiStatus>,
) -> Result {
    matched(source, tag, comm, message, status, true).map(drop)
}

/// `MPI_Improbe`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn improbe(
    source: c_int,
    tag: c_int,
    comm: CommHandle,
    flag: Output<c_int>,
    message: Output<MessageHandle>,
    status: Output<AbiStatus>,
) -> Result {
    let found = matched(source, tag, comm, message, status, false)?;
    flag.set(c_int::from(found))
}

fn matched(
    source: c_int,
    tag: c_int,
    comm: CommHandle,
    message: Output<MessageHandle>,
    status: Output<AbiStatus>,
    wait: bool,
) -> Result<bool> {
    let comm = comm::resolve(comm)?;
    let Some(selector) = selector(&comm, source, tag)? else {
        status.set_outcome(to_abi(&PROC_NULL_STATUS));
        message.set(MessageHandle::NO_PROC)?;
        return Ok(true);
    };
    let Some(probed) = search(&comm, selector, true, wait) else { return Ok(false) };
    status.set_outcome(status_of(&probed));
    let taken = Taken { message: probed.message, comm: comm.shared() };
    message.set(MessageHandle(MESSAGES.insert(Arc::new(Mutex::new(Some(taken))))))?;
    Ok(true)
}

/// The message behind a handle, which is set to null; `None` for `MPI_MESSAGE_NO_PROC`.
fn claim(message: Output<MessageHandle>) -> Result<Option<Taken>> {
    let handle = message.get()?;
    message.set(MessageHandle::NULL)?;
    if handle == MessageHandle::NO_PROC {
        return Ok(None);
    }
    let taken = MESSAGES.remove(handle.0).and_then(|entry| lock(&entry).take());
    match taken {
        Some(taken) => Ok(Some(taken)),
        None => Err(Error::new(MPI_ERR_REQUEST, format!("{:#x} is not a message, or it has been received", handle.0))),
    }
}

/// `MPI_Mrecv`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn mrecv(
    buf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    message: Output<MessageHandle>,
    status: Output<AbiStatus>,
) -> Result {
    let target = buffers::incoming(buf, count, datatype)?;
    let (outcome, comm) = match claim(message)? {
        None => (PROC_NULL_STATUS, CommHandle::SELF),
        Some(taken) => {
            let cell = engine::cell();
            let request = cell.lock().post_matched(taken.message, target);
            (cell.finish(request), taken.comm.handle())
        }
    };
    status.set_outcome(to_abi(&outcome));
    failure(&outcome, comm.0)
}

/// `MPI_Imrecv`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn imrecv(
    buf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    message: Output<MessageHandle>,
    request: Output<RequestHandle>,
) -> Result {
    let target = buffers::incoming(buf, count, datatype)?;
    match claim(message)? {
        None => request.set(complete_handle(&*comm::resolve(CommHandle::SELF)?, PROC_NULL_STATUS)),
        Some(taken) => {
            let mut engine = engine::cell().lock();
            let id = engine.post_matched(taken.message, target);
            request.set(handle(&mut engine, id, &taken.comm))
        }
    }
}
