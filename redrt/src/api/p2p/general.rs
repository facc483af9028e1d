//! Generalized requests (MPI-5.0 §13.2): operations that the program performs and completes itself.
//!
//! For the engine they are requests like any other. Their functions are kept here, by handle, and are called with no
//! lock held: the query function whenever a status is wanted, the free function when the request is freed.

use super::{handle, resolve};
use redrt_abi::error::{Error, Result};
use redrt_abi::handle::{CommHandle, RequestHandle};
use redrt_abi::{Callback, MPI_ERR_REQUEST, Output, Status as AbiStatus};
use redrt_comm::comm;
use redrt_engine as engine;
use redrt_engine::request::{Operation, RequestId, Status};
use redrt_process::lock;
use redrt_runtime::callbacks;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Clone, Copy)]
struct General {
    id: RequestId,
    query: Callback,
    free: Callback,
    cancel: Callback,
    extra_state: usize,
    /// The program freed the request before it completed: the free function is called at completion.
    is_freed: bool,
}

process_local! {
    static GENERAL: Mutex<BTreeMap<usize, General>> = Mutex::new(BTreeMap::new());
    static COUNT: AtomicUsize = AtomicUsize::new(0);
}

#[inline]
fn find(handle: RequestHandle) -> Option<General> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    find_one(handle)
}

#[cold]
fn find_one(handle: RequestHandle) -> Option<General> {
    lock(&GENERAL).get(&handle.0).copied()
}

fn forget(handle: RequestHandle) {
    if lock(&GENERAL).remove(&handle.0).is_some() {
        COUNT.fetch_sub(1, Ordering::AcqRel);
    }
}

/// True for a generalized request.
#[inline]
pub(super) fn is_general(handle: RequestHandle) -> bool {
    find(handle).is_some()
}

/// Replaces the status of a complete request by that of the program's query function. Has no effect on other requests.
pub(super) fn ask(handle: RequestHandle, status: &mut Status) {
    if let Some(general) = find(handle) {
        let mut abi = AbiStatus::empty();
        let code = callbacks::call_request_query(general.query, general.extra_state, &mut abi);
        *status = Status {
            source: abi.source,
            tag: abi.tag,
            error: code,
            bytes: abi.byte_count(),
            cancelled: abi.is_cancelled(),
        };
    }
}

/// Does the same as [`ask`] for a request that was just freed, and calls its free function.
pub(super) fn settle(handle: RequestHandle, status: &mut Status) {
    let Some(general) = find(handle) else { return };
    ask(handle, status);
    forget(handle);
    let code = callbacks::call_request_free(general.free, general.extra_state);
    if status.error == 0 {
        status.error = code;
    }
}

/// The program frees its handle. A pending request keeps its functions until it completes.
pub(super) fn free(handle: RequestHandle, is_complete: bool) -> Result {
    let Some(general) = find(handle) else { return Ok(()) };
    if !is_complete {
        lock(&GENERAL).insert(handle.0, General { is_freed: true, ..general });
        return Ok(());
    }
    forget(handle);
    checked(callbacks::call_request_free(general.free, general.extra_state), "free")
}

/// Calls the program's cancel function; `None` if the request is not generalized.
pub(super) fn cancel(handle: RequestHandle) -> Option<Result> {
    let general = find(handle)?;
    let is_complete = engine::cell().lock().requests.is_complete(general.id);
    Some(checked(callbacks::call_request_cancel(general.cancel, general.extra_state, is_complete), "cancel"))
}

fn checked(code: c_int, which: &str) -> Result {
    if code == 0 { Ok(()) } else { Err(Error::new(code, format!("the {which} function of the request failed"))) }
}

/// `MPI_Grequest_start`.
pub fn grequest_start(
    query_fn: Callback,
    free_fn: Callback,
    cancel_fn: Callback,
    extra_state: *mut c_void,
    request: Output<RequestHandle>,
) -> Result {
    let comm = comm::resolve(CommHandle::SELF)?;
    let mut engine = engine::cell().lock();
    let id = engine.requests.insert(Operation::Other);
    let handle = handle(&mut engine, id, &comm);
    drop(engine);
    let extra_state = extra_state.expose_provenance();
    let general = General { id, query: query_fn, free: free_fn, cancel: cancel_fn, extra_state, is_freed: false };
    lock(&GENERAL).insert(handle.0, general);
    COUNT.fetch_add(1, Ordering::AcqRel);
    request.set(handle)
}

/// `MPI_Grequest_complete`.
pub fn grequest_complete(request: RequestHandle) -> Result {
    let Some(general) = find(request) else {
        resolve(&engine::cell().lock(), request)?;
        return Err(Error::new(MPI_ERR_REQUEST, "the request was not made by MPI_Grequest_start"));
    };
    let mut engine = engine::cell().lock();
    if !general.is_freed && engine.requests.is_complete(general.id) {
        return Err(Error::new(MPI_ERR_REQUEST, "the request is complete already"));
    }
    engine.requests.complete(general.id, Status::EMPTY);
    drop(engine);
    if general.is_freed {
        forget(request);
        return checked(callbacks::call_request_free(general.free, general.extra_state), "free");
    }
    Ok(())
}
