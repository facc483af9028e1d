//! Tests of requests for completion (MPI-5.0 §3.7.3 to §3.7.6), and the look at a request that waits share.

use super::wait::{in_status, record_failure, some};
use super::{failure, general, resolve, to_abi};
use redrt_abi::error::{Error, Result};
use redrt_abi::handle::RequestHandle;
use redrt_abi::{Input, MPI_UNDEFINED, Output, Status as AbiStatus};
use redrt_engine::request::{Operation, RequestId, Status};
use redrt_engine::{self as engine, Engine};
use redrt_runtime::decide::is_complete;
use std::ffi::c_int;

/// Result of a poll of a request.
pub(super) enum Polled {
    /// The request is not complete.
    Pending,
    /// The request is complete: its outcome, its communicator, and true if the request was freed.
    Complete(Status, usize, bool),
}

/// Takes the outcome of a request if it is complete. A persistent request becomes inactive; others are freed.
pub(super) fn poll(engine: &mut Engine, id: RequestId) -> Polled {
    let request = engine.requests.get(id);
    let comm = request.comm;
    if let Operation::Persistent { round, .. } = &request.operation {
        let inner = *round;
        if let Some(inner) = inner
            && !engine.requests.is_complete(inner)
        {
            return Polled::Pending;
        }
        let Operation::Persistent { round, active, .. } = &mut engine.requests.get(id).operation else {
            unreachable!("it is persistent")
        };
        (*round, *active) = (None, false);
        let status = inner.map_or(Status::EMPTY, |inner| engine.requests.take(inner));
        return Polled::Complete(status, comm, false);
    }
    if !request.complete {
        return Polled::Pending;
    }
    Polled::Complete(engine.requests.take(id), comm, true)
}

/// The engine's request to wait for: the round of an active persistent request, else the request itself.
pub(super) fn under_way(engine: &mut Engine, id: RequestId) -> RequestId {
    match &engine.requests.get(id).operation {
        Operation::Persistent { round: Some(round), .. } => *round,
        _ => id,
    }
}

/// True if a request counts in calls on several requests: inactive ones do not.
fn is_active(engine: &mut Engine, id: RequestId) -> bool {
    !matches!(engine.requests.get(id).operation, Operation::Persistent { active: false, .. })
}

/// The active requests among these handles, each with its index.
pub(super) fn find_all(handles: &[RequestHandle]) -> Result<Vec<(usize, RequestId)>> {
    let mut engine = engine::cell().lock();
    let mut found = Vec::with_capacity(handles.len());
    for (at, handle) in handles.iter().enumerate() {
        if *handle == RequestHandle::NULL {
            continue;
        }
        let id = resolve(&engine, *handle)?;
        if is_active(&mut engine, id) {
            found.push((at, id));
        }
    }
    Ok(found)
}

/// A completed request: index, outcome, communicator, and true if the request was freed.
pub(super) type Found = (usize, Status, usize, bool);

fn take(at: usize, id: RequestId) -> Found {
    let mut engine = engine::cell().lock();
    let handle = RequestHandle(engine.requests.handle(id));
    let Polled::Complete(mut status, comm, freed) = poll(&mut engine, id) else {
        unreachable!("it was seen to be complete")
    };
    drop(engine);
    general::settle(handle, &mut status);
    (at, status, comm, freed)
}

/// Completes one request: the first complete one in the list, or the one that replicas agree on. `None` if none is
/// active or, without `wait`, none is complete.
pub(super) fn find_any(ids: &[(usize, RequestId)], wait: bool) -> Option<Found> {
    if ids.is_empty() {
        return None;
    }
    let first = |engine: &mut Engine| ids.iter().position(|(_, id)| is_complete(engine, *id));
    let chosen = redrt_runtime::decide::one(ids.iter().map(|(_, id)| *id).collect(), wait, first)?;
    let (at, id) = ids[chosen];
    Some(take(at, id))
}

/// Completes all requests that are complete, at least one if `wait`. `None` if none is active.
pub(super) fn find_some(ids: &[(usize, RequestId)], wait: bool) -> Option<Vec<Found>> {
    if ids.is_empty() {
        return None;
    }
    let chosen = redrt_runtime::decide::some(ids.iter().map(|(_, id)| *id).collect(), wait);
    Some(chosen.into_iter().map(|chosen| take(ids[chosen].0, ids[chosen].1)).collect())
}

/// `MPI_Test`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn test(request: Output<RequestHandle>, flag: Output<c_int>, status: Output<AbiStatus>) -> Result {
    let handle = request.get()?;
    if handle == RequestHandle::NULL {
        flag.set(1)?;
        status.set_if_wanted(AbiStatus::empty());
        return Ok(());
    }
    let id = resolve(&engine::cell().lock(), handle)?;
    if !redrt_runtime::decide::all(&[id]) {
        return flag.set(0);
    }
    let (_, outcome, comm, freed) = take(0, id);
    if freed {
        request.set(RequestHandle::NULL)?;
    }
    flag.set(1)?;
    status.set_outcome(to_abi(&outcome));
    failure(&outcome, comm)
}

/// `MPI_Testall`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn testall(
    count: c_int,
    requests: Output<RequestHandle>,
    flag: Output<c_int>,
    statuses: Output<AbiStatus>,
) -> Result {
    let ids = find_all(requests.slice(count)?)?;
    let only: Vec<_> = ids.iter().map(|(_, id)| *id).collect();
    if !only.is_empty() && !redrt_runtime::decide::all(&only) {
        return flag.set(0);
    }
    flag.set(1)?;
    let mut failed = None;
    if !statuses.is_null() {
        for at in 0..count as usize {
            statuses.set_at(at, AbiStatus::empty())?;
        }
    }
    for (at, id) in ids {
        let (at, outcome, comm, freed) = take(at, id);
        record_failure(&mut failed, &outcome, comm);
        if freed {
            requests.set_at(at, RequestHandle::NULL)?;
        }
        if !statuses.is_null() {
            statuses.set_at(at, to_abi(&outcome))?;
        }
    }
    in_status(failed)
}

/// `MPI_Testany`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn testany(
    count: c_int,
    requests: Output<RequestHandle>,
    index: Output<c_int>,
    flag: Output<c_int>,
    status: Output<AbiStatus>,
) -> Result {
    let ids = find_all(requests.slice(count)?)?;
    match find_any(&ids, false) {
        None => {
            index.set(MPI_UNDEFINED)?;
            flag.set(c_int::from(ids.is_empty()))?;
            if ids.is_empty() {
                status.set_if_wanted(AbiStatus::empty());
            }
            Ok(())
        }
        Some((at, outcome, comm, freed)) => {
            if freed {
                requests.set_at(at, RequestHandle::NULL)?;
            }
            index.set(at as c_int)?;
            flag.set(1)?;
            status.set_outcome(to_abi(&outcome));
            failure(&outcome, comm)
        }
    }
}

/// `MPI_Testsome`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn testsome(
    incount: c_int,
    requests: Output<RequestHandle>,
    outcount: Output<c_int>,
    indices: Output<c_int>,
    statuses: Output<AbiStatus>,
) -> Result {
    some(incount, requests, outcount, indices, statuses, false)
}

/// The outcome of a complete request, which stays as it is.
fn peek(id: RequestId) -> Status {
    let mut engine = engine::cell().lock();
    let handle = RequestHandle(engine.requests.handle(id));
    if let Operation::Persistent { round: None, .. } = &engine.requests.get(id).operation {
        return Status::EMPTY;
    }
    let source = under_way(&mut engine, id);
    let mut status = engine.requests.get(source).status;
    drop(engine);
    general::ask(handle, &mut status);
    status
}

/// `MPI_Request_get_status`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn request_get_status(request: RequestHandle, flag: Output<c_int>, status: Output<AbiStatus>) -> Result {
    if request == RequestHandle::NULL {
        flag.set(1)?;
        status.set_if_wanted(AbiStatus::empty());
        return Ok(());
    }
    let id = resolve(&engine::cell().lock(), request)?;
    let done = redrt_runtime::decide::all(&[id]);
    flag.set(c_int::from(done))?;
    if done {
        status.set_outcome(to_abi(&peek(id)));
    }
    Ok(())
}

/// `MPI_Request_get_status_all`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn request_get_status_all(
    count: c_int,
    requests: Input<RequestHandle>,
    flag: Output<c_int>,
    statuses: Output<AbiStatus>,
) -> Result {
    let handles = requests.slice(count)?;
    let ids = find_all(handles)?;
    let only: Vec<_> = ids.iter().map(|(_, id)| *id).collect();
    let done = only.is_empty() || redrt_runtime::decide::all(&only);
    flag.set(c_int::from(done))?;
    if done && !statuses.is_null() {
        for at in 0..handles.len() {
            statuses.set_at(at, AbiStatus::empty())?;
        }
        for (at, id) in ids {
            statuses.set_at(at, to_abi(&peek(id)))?;
        }
    }
    Ok(())
}

/// `MPI_Request_get_status_any`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn request_get_status_any(
    count: c_int,
    requests: Input<RequestHandle>,
    index: Output<c_int>,
    flag: Output<c_int>,
    status: Output<AbiStatus>,
) -> Result {
    let ids = find_all(requests.slice(count)?)?;
    let first = |engine: &mut Engine| ids.iter().position(|(_, id)| is_complete(engine, *id));
    let chosen = if ids.is_empty() {
        None
    } else {
        redrt_runtime::decide::one(ids.iter().map(|(_, id)| *id).collect(), false, first)
    };
    flag.set(c_int::from(chosen.is_some() || ids.is_empty()))?;
    index.set(chosen.map_or(MPI_UNDEFINED, |chosen| ids[chosen].0 as c_int))?;
    match chosen {
        Some(chosen) => status.set_outcome(to_abi(&peek(ids[chosen].1))),
        None if ids.is_empty() => status.set_if_wanted(AbiStatus::empty()),
        None => {}
    }
    Ok(())
}

/// `MPI_Request_get_status_some`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn request_get_status_some(
    incount: c_int,
    requests: Input<RequestHandle>,
    outcount: Output<c_int>,
    indices: Output<c_int>,
    statuses: Output<AbiStatus>,
) -> Result {
    let ids = find_all(requests.slice(incount)?)?;
    if ids.is_empty() {
        return outcount.set(MPI_UNDEFINED);
    }
    let chosen = redrt_runtime::decide::some(ids.iter().map(|(_, id)| *id).collect(), false);
    for (place, chosen) in chosen.iter().enumerate() {
        let (at, id) = ids[*chosen];
        indices.set_at(place, at as c_int)?;
        if !statuses.is_null() {
            statuses.set_at(place, to_abi(&peek(id)))?;
        }
    }
    outcount.set(chosen.len() as c_int)
}

/// `MPI_Request_free`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn request_free(request: Output<RequestHandle>) -> Result {
    let handle = request.get()?;
    let mut engine = engine::cell().lock();
    let id = resolve(&engine, handle)?;
    let round = match &engine.requests.get(id).operation {
        Operation::Persistent { round, .. } => Some(*round),
        _ => None,
    };
    let is_complete = engine.requests.is_complete(id);
    let freed = engine.requests.detach(id);
    if let Some(Some(round)) = round {
        engine.requests.detach(round);
    }
    drop(engine);
    drop(freed);
    crate::api::partitioned::forget(handle);
    request.set(RequestHandle::NULL)?;
    general::free(handle, is_complete)
}

/// `MPI_Cancel`. Sends are never cancelled, which MPI allows: they complete.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn cancel(request: Output<RequestHandle>) -> Result {
    let handle = request.get()?;
    if let Some(done) = general::cancel(handle) {
        return done;
    }
    let id = {
        let mut engine = engine::cell().lock();
        let id = resolve(&engine, handle)?;
        match engine.requests.get(id).operation {
            Operation::Persistent { round: Some(round), .. } => round,
            Operation::Persistent { round: None, active: true, .. } => return Ok(()),
            Operation::Persistent { .. } => {
                return Err(Error::new(redrt_abi::MPI_ERR_REQUEST, "an inactive request cannot be cancelled"));
            }
            _ => id,
        }
    };
    redrt_runtime::decide::cancel(id);
    Ok(())
}

/// `MPI_Test_cancelled`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn test_cancelled(status: Input<AbiStatus>, flag: Output<c_int>) -> Result {
    flag.set(c_int::from(status.get()?.is_cancelled()))
}
