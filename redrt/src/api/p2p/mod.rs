//! Point-to-point communication (MPI-5.0 chapter 3).

pub mod buffered;
mod exchange;
mod general;
pub(crate) mod persistent;
mod probe;
mod receive;
mod send;
mod test;
mod wait;

pub use buffered::*;
pub use exchange::*;
pub use general::{grequest_complete, grequest_start};
pub use persistent::*;
pub use probe::*;
pub use receive::*;
pub use send::*;
pub use test::*;
pub use wait::*;

use redrt_abi::error::{Error, Result, Scope};
use redrt_abi::handle::{CommHandle, RequestHandle};
use redrt_abi::{MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_ERR_REQUEST, MPI_ERR_TAG, MPI_PROC_NULL, Status as AbiStatus};
use redrt_comm::comm::{self, Comm};
use redrt_comm::objects::host::TAG_MAX;
use redrt_engine::request::{Operation, RequestId, Status};
use redrt_engine::{self as engine, Engine};
use std::ffi::c_int;

const _: () = assert!(
    engine::ANY_SOURCE == MPI_ANY_SOURCE && engine::ANY_TAG == MPI_ANY_TAG && engine::PROC_NULL == MPI_PROC_NULL,
    "the engine has the numbers of the standard ABI"
);

/// Checks the tag of a send.
#[inline]
fn check_tag(tag: c_int) -> Result {
    if tag < 0 { Err(bad_tag(tag)) } else { Ok(()) }
}

#[cold]
fn bad_tag(tag: c_int) -> Error {
    Error::new(MPI_ERR_TAG, format!("tag {tag} is not in 0..={TAG_MAX}"))
}

/// Source and tag of a receive or probe; `None` for the wildcards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Selector {
    source: Option<u32>,
    tag: Option<i32>,
}

/// The selector of a receive from `source`, or `None` when that is `MPI_PROC_NULL`.
#[inline]
fn selector(comm: &Comm, source: c_int, tag: c_int) -> Result<Option<Selector>> {
    let tag = match tag {
        MPI_ANY_TAG => None,
        tag => {
            check_tag(tag)?;
            Some(tag)
        }
    };
    match source {
        MPI_PROC_NULL => Ok(None),
        MPI_ANY_SOURCE => Ok(Some(Selector { source: None, tag })),
        source => {
            comm.member(source)?;
            Ok(Some(Selector { source: Some(source as u32), tag }))
        }
    }
}

/// The status as the application sees it.
fn to_abi(status: &Status) -> AbiStatus {
    let mut abi = AbiStatus::new(status.source, status.tag, status.bytes);
    abi.error = status.error;
    abi.set_cancelled(status.cancelled);
    abi
}

/// The status of a receive from `MPI_PROC_NULL` (MPI-5.0 §3.10).
pub(crate) const PROC_NULL_STATUS: Status =
    Status { source: MPI_PROC_NULL, tag: MPI_ANY_TAG, error: 0, bytes: 0, cancelled: false };

/// The error of an operation with this status; `comm` selects the error handler.
fn failure(status: &Status, comm: usize) -> Result {
    if status.error == 0 {
        return Ok(());
    }
    let what = if status.error == engine::receive::ERR_TRUNCATE {
        format!("the message from rank {} with tag {} is longer than the receive buffer", status.source, status.tag)
    } else {
        let found = comm::resolve(CommHandle(comm)).ok().and_then(|comm| comm.checks.found(status.error));
        found.unwrap_or_else(|| "the operation failed".to_owned())
    };
    Err(Error::new(status.error, what).in_scope(Scope::Comm(CommHandle(comm))))
}

/// The request with this handle.
#[inline]
pub(crate) fn resolve(engine: &Engine, handle: RequestHandle) -> Result<RequestId> {
    match engine.requests.resolve(handle.0) {
        Some(id) => Ok(id),
        None => Err(bad_request(handle)),
    }
}

#[cold]
fn bad_request(handle: RequestHandle) -> Error {
    Error::new(MPI_ERR_REQUEST, format!("{:#x} is not a request, or it has been freed", handle.0))
}

/// The handle of a new request on `comm`.
#[inline]
pub(crate) fn handle(engine: &mut Engine, id: RequestId, comm: &Comm) -> RequestHandle {
    engine.requests.get(id).comm = comm.handle().0;
    RequestHandle(engine.requests.handle(id))
}

/// The handle of a send that is complete.
pub(crate) fn sent_handle(engine: &mut Engine) -> RequestHandle {
    let id = engine.requests.insert_complete();
    RequestHandle(engine.requests.handle(id))
}

/// The handle of a request that is complete from the start, for receives from `MPI_PROC_NULL` and for files.
pub(crate) fn complete_handle(comm: &Comm, status: Status) -> RequestHandle {
    let mut engine = engine::cell().lock();
    let id = engine.requests.insert(Operation::Other);
    engine.requests.complete(id, status);
    handle(&mut engine, id, comm)
}
