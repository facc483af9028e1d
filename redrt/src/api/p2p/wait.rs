//! Waiting for requests (MPI-5.0 §3.7.3, §3.7.5).

use super::test::{Polled, find_all, find_any, find_some, poll, under_way};
use super::{failure, general, resolve, to_abi};
use redrt_abi::error::{Error, Result, Scope};
use redrt_abi::handle::{CommHandle, RequestHandle};
use redrt_abi::{MPI_ERR_IN_STATUS, MPI_UNDEFINED, Output, Status as AbiStatus};
use redrt_engine::request::{RequestId, Status};
use redrt_engine::{self as engine, Engine, Outlook, tasks};
use redrt_runtime::decide::is_complete;
use std::ffi::c_int;

/// `MPI_Wait`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn wait(request: Output<RequestHandle>, status: Output<AbiStatus>) -> Result {
    let handle = request.get()?;
    let (outcome, comm) = wait_one(handle, request)?;
    status.set_outcome(to_abi(&outcome));
    failure(&outcome, comm)
}

fn wait_one(handle: RequestHandle, request: Output<RequestHandle>) -> Result<(Status, usize)> {
    if handle == RequestHandle::NULL {
        return Ok((Status::EMPTY, 0));
    }
    let cell = engine::cell();
    let id = resolve(&cell.lock(), handle)?;
    if tasks::is_active() {
        let round = under_way(&mut cell.lock(), id);
        tasks::attend(round);
    }
    let Polled::Complete(mut outcome, comm, freed) = cell.wait_for_many(|engine| match poll(engine, id) {
        Polled::Pending => Outlook::Complete(1),
        done => Outlook::Done(done),
    }) else {
        unreachable!("the wait ends when the request is complete")
    };
    general::settle(handle, &mut outcome);
    if freed {
        request.set(RequestHandle::NULL)?;
    }
    Ok((outcome, comm))
}

/// `MPI_Waitall`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn waitall(count: c_int, requests: Output<RequestHandle>, statuses: Output<AbiStatus>) -> Result {
    let cell = engine::cell();
    let handles = requests.slice(count)?;
    let (mut ids, mut own) = (Vec::with_capacity(handles.len()), Vec::new());
    {
        let engine = cell.lock();
        for (at, handle) in handles.iter().enumerate() {
            ids.push(if *handle == RequestHandle::NULL { None } else { Some(resolve(&engine, *handle)?) });
            if general::is_general(*handle) {
                own.push((at, *handle));
            }
        }
    }
    let (mut next, mut failed) = (0, None);
    cell.wait_for_many(|engine| {
        while let Some(id) = ids.get(next) {
            let (outcome, comm, freed) = match id.map(|id| poll(engine, id)) {
                None => (Status::EMPTY, 0, false),
                Some(Polled::Complete(outcome, comm, freed)) => (outcome, comm, freed),
                Some(Polled::Pending) => return Outlook::Complete(pending(engine, &ids[next..])),
            };
            record_failure(&mut failed, &outcome, comm);
            if freed {
                // Cannot fail: the array was read before, so it is not null.
                let _ = requests.set_at(next, RequestHandle::NULL);
            }
            if !statuses.is_null() {
                let _ = statuses.set_at(next, to_abi(&outcome));
            }
            next += 1;
        }
        Outlook::Done(())
    });
    for (at, handle) in own {
        let mut outcome = Status::EMPTY;
        general::settle(handle, &mut outcome);
        record_failure(&mut failed, &outcome, CommHandle::SELF.0);
        if !statuses.is_null() {
            statuses.set_at(at, to_abi(&outcome))?;
        }
    }
    in_status(failed)
}

/// Number of pending operations among the next few: counting all of them at each look would be quadratic.
fn pending(engine: &mut Engine, ids: &[Option<RequestId>]) -> u64 {
    const FEW: usize = 64;
    ids.iter().take(FEW).flatten().filter(|id| !is_complete(engine, **id)).count() as u64
}

/// Records the communicator of the first failed operation.
pub(super) fn record_failure(failed: &mut Option<usize>, outcome: &Status, comm: usize) {
    if outcome.error != 0 {
        failed.get_or_insert(comm);
    }
}

/// `MPI_ERR_IN_STATUS`, if an operation failed: the statuses have the errors. `failed` is the communicator of the
/// first.
pub(super) fn in_status(failed: Option<usize>) -> Result {
    let Some(comm) = failed else { return Ok(()) };
    let error = Error::new(MPI_ERR_IN_STATUS, "an operation failed: see the error fields of the statuses");
    Err(error.in_scope(Scope::Comm(CommHandle(comm))))
}

/// `MPI_Waitany`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn waitany(
    count: c_int,
    requests: Output<RequestHandle>,
    index: Output<c_int>,
    status: Output<AbiStatus>,
) -> Result {
    let ids = find_all(requests.slice(count)?)?;
    match find_any(&ids, true) {
        None => {
            index.set(MPI_UNDEFINED)?;
            status.set_if_wanted(AbiStatus::empty());
            Ok(())
        }
        Some((at, outcome, comm, freed)) => {
            if freed {
                requests.set_at(at, RequestHandle::NULL)?;
            }
            index.set(at as c_int)?;
            status.set_outcome(to_abi(&outcome));
            failure(&outcome, comm)
        }
    }
}

/// `MPI_Waitsome`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn waitsome(
    incount: c_int,
    requests: Output<RequestHandle>,
    outcount: Output<c_int>,
    indices: Output<c_int>,
    statuses: Output<AbiStatus>,
) -> Result {
    some(incount, requests, outcount, indices, statuses, true)
}

/// The common part of `MPI_Waitsome` and `MPI_Testsome`.
pub(super) fn some(
    incount: c_int,
    requests: Output<RequestHandle>,
    outcount: Output<c_int>,
    indices: Output<c_int>,
    statuses: Output<AbiStatus>,
    wait: bool,
) -> Result {
    let ids = find_all(requests.slice(incount)?)?;
    let Some(found) = find_some(&ids, wait) else {
        return outcount.set(MPI_UNDEFINED);
    };
    let mut failed = None;
    for (place, (at, outcome, comm, freed)) in found.iter().enumerate() {
        if *freed {
            requests.set_at(*at, RequestHandle::NULL)?;
        }
        record_failure(&mut failed, outcome, *comm);
        indices.set_at(place, *at as c_int)?;
        if !statuses.is_null() {
            statuses.set_at(place, to_abi(outcome))?;
        }
    }
    outcount.set(found.len() as c_int)?;
    in_status(failed)
}
