//! Persistent requests (MPI-5.0 §3.9).

use super::send::Mode;
use super::{handle, receive, resolve, send};
use crate::api::buffers;
use redrt_abi::error::{Error, Result};
use redrt_abi::handle::{CommHandle, DatatypeHandle, RequestHandle};
use redrt_abi::{MPI_ERR_REQUEST, Output};
use redrt_comm::comm::{self, Comm};
use redrt_comm::datatype;
use redrt_engine as engine;
use redrt_engine::Engine;
use redrt_engine::request::{Operation, RequestId, Start};
use std::ffi::{c_int, c_void};

/// Address of a buffer that is used after the call that named it.
#[derive(Clone, Copy)]
pub(crate) struct Lent(*mut c_void);

// SAFETY: - an address only; its uses are by rounds, during which MPI forbids the program to access the buffer.
unsafe impl Send for Lent {}
// SAFETY: - shared references only copy the address.
unsafe impl Sync for Lent {}

impl Lent {
    /// The buffer at this address.
    pub(crate) fn new(address: *mut c_void) -> Self {
        Self(address)
    }

    /// Address of the buffer.
    pub(crate) fn get(&self) -> *mut c_void {
        self.0
    }
}

/// Makes an inactive persistent request; `start` begins each of its rounds.
pub(crate) fn create(
    comm: &Comm,
    request: Output<RequestHandle>,
    start: impl Fn() -> Result<Option<RequestId>> + Send + Sync + 'static,
) -> Result {
    let mut engine = engine::cell().lock();
    let start: Box<Start> = Box::new(move || start().map_err(Into::into));
    let operation = Operation::Persistent { start: Some(start), round: None, active: false };
    let id = engine.requests.insert(operation);
    request.set(handle(&mut engine, id, comm))
}

macro_rules! persistent_send {
    ($name:ident, $mode:expr) => {
        /// The persistent form of a send.
        ///
        /// # Safety
        /// The pointers are those of the C call.
        pub unsafe fn $name(
            buf: *const c_void,
            count: i64,
            datatype: DatatypeHandle,
            dest: c_int,
            tag: c_int,
            comm: CommHandle,
            request: Output<RequestHandle>,
        ) -> Result {
            let comm = comm::resolve(comm)?;
            buffers::typed_at(buf, count, datatype)?;
            super::check_tag(tag)?;
            if dest != redrt_abi::MPI_PROC_NULL {
                comm.member(dest)?;
            }
            let (buffer, datatype, owner) = (Lent(buf.cast_mut()), datatype::keep(datatype)?, comm.clone());
            create(&comm, request, move || {
                // SAFETY: - valid during each round: the contract of MPI_Start.
                unsafe { send::begin(buffer.get(), count, datatype.handle(), dest, tag, &owner, $mode) }
            })
        }
    };
}

persistent_send!(send_init, Mode::Standard);
persistent_send!(bsend_init, Mode::Buffered);
persistent_send!(ssend_init, Mode::Synchronous);
persistent_send!(rsend_init, Mode::Standard);

/// `MPI_Recv_init`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn recv_init(
    buf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    source: c_int,
    tag: c_int,
    comm: CommHandle,
    request: Output<RequestHandle>,
) -> Result {
    let comm = comm::resolve(comm)?;
    buffers::typed_at(buf, count, datatype)?;
    super::selector(&comm, source, tag)?;
    let (buffer, datatype, owner) = (Lent(buf), datatype::keep(datatype)?, comm.clone());
    create(&comm, request, move || match receive::begin(buffer.get(), count, datatype.handle(), source, tag, &owner)? {
        Some(round) => Ok(Some(round)),
        None => {
            let mut engine = engine::cell().lock();
            let id = engine.requests.insert(Operation::Other);
            engine.requests.complete(id, super::PROC_NULL_STATUS);
            Ok(Some(id))
        }
    })
}

/// Takes the function that begins a round out of an inactive persistent request.
fn take_start(engine: &mut Engine, id: RequestId) -> Result<Box<Start>> {
    let Operation::Persistent { start, active, .. } = &mut engine.requests.get(id).operation else {
        return Err(Error::new(MPI_ERR_REQUEST, "the request is not persistent"));
    };
    let start = if *active { None } else { start.take() };
    start.ok_or_else(|| Error::new(MPI_ERR_REQUEST, "the request has been started already"))
}

fn begin_round(handle: RequestHandle) -> Result {
    let cell = engine::cell();
    let (id, begin) = {
        let mut engine = cell.lock();
        let id = resolve(&engine, handle)?;
        (id, take_start(&mut engine, id)?)
    };
    // Not locked: beginning may wait, and may call functions of the program.
    let begun = begin();
    let mut engine = cell.lock();
    if let Operation::Persistent { start, round, active } = &mut engine.requests.get(id).operation {
        *start = Some(begin);
        if let Ok(begun) = &begun {
            (*round, *active) = (*begun, true);
        }
    }
    drop(engine);
    begun.map(|_| ()).map_err(|error| *error.downcast::<Error>().expect("`create` has made it"))
}

/// `MPI_Start`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn start(request: Output<RequestHandle>) -> Result {
    begin_round(request.get()?)
}

/// `MPI_Startall`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn startall(count: c_int, requests: Output<RequestHandle>) -> Result {
    requests.slice(count)?.iter().try_for_each(|handle| begin_round(*handle))
}
