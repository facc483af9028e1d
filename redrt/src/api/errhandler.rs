//! Error handlers (MPI-5.0 section 9.3).

use redrt_abi::error::{Error, Result, Scope};
use redrt_abi::handle::{CommHandle, ErrhandlerHandle, FileHandle, SessionHandle, WinHandle};
use redrt_abi::{Callback, MPI_ERR_COMM, MPI_ERR_FILE, MPI_ERR_SESSION, MPI_ERR_WIN, Output};
use redrt_comm::objects::attached::Attached;
use redrt_comm::objects::errhandler::{self, ErrhandlerKind, raise};
use redrt_comm::objects::host;
use redrt_runtime::callbacks::UserFunction;
use std::ffi::c_int;
use std::sync::Arc;

/// Error handler and attributes of a scope's object.
pub(super) fn attached(scope: Scope) -> Result<Arc<Attached>> {
    let (class, message) = match scope {
        Scope::Default | Scope::Comm(_) => (MPI_ERR_COMM, "not a valid communicator"),
        Scope::Win(_) => (MPI_ERR_WIN, "not a valid window"),
        Scope::File(_) => (MPI_ERR_FILE, "not a valid file"),
        Scope::Session(_) => (MPI_ERR_SESSION, "not a valid session"),
    };
    host::get().attached(scope).ok_or_else(|| Error::new(class, message))
}

fn create(kind: ErrhandlerKind, function: Callback, errhandler: Output<ErrhandlerHandle>) -> Result {
    create_adapted(kind, function.into(), errhandler)
}

/// Creates an error handler whose function may be called through an adapter (`UserFunction`).
pub fn create_adapted(kind: ErrhandlerKind, function: UserFunction, errhandler: Output<ErrhandlerHandle>) -> Result {
    errhandler.set(errhandler::create(kind, function))
}

fn get(scope: Scope, errhandler: Output<ErrhandlerHandle>) -> Result {
    errhandler.set(errhandler::handle_of(&attached(scope)?.errhandler()))
}

fn set(scope: Scope, kind: ErrhandlerKind, errhandler: ErrhandlerHandle) -> Result {
    attached(scope)?.set_errhandler(errhandler::resolve(errhandler, kind)?);
    Ok(())
}

fn call(function: &str, scope: Scope, errorcode: c_int) -> Result {
    attached(scope)?;
    raise(function, Error::new(errorcode, "raised by the program"), scope);
    Ok(())
}

/// `MPI_Errhandler_free`.
pub fn errhandler_free(errhandler: Output<ErrhandlerHandle>) -> Result {
    errhandler::free(errhandler.get()?)?;
    errhandler.set(ErrhandlerHandle::NULL)
}

/// `MPI_Comm_create_errhandler`.
pub fn comm_create_errhandler(function: Callback, errhandler: Output<ErrhandlerHandle>) -> Result {
    create(ErrhandlerKind::Comm, function, errhandler)
}

/// `MPI_Comm_get_errhandler`.
pub fn comm_get_errhandler(comm: CommHandle, errhandler: Output<ErrhandlerHandle>) -> Result {
    get(Scope::Comm(comm), errhandler)
}

/// `MPI_Comm_set_errhandler`.
pub fn comm_set_errhandler(comm: CommHandle, errhandler: ErrhandlerHandle) -> Result {
    set(Scope::Comm(comm), ErrhandlerKind::Comm, errhandler)
}

/// `MPI_Comm_call_errhandler`.
pub fn comm_call_errhandler(comm: CommHandle, errorcode: c_int) -> Result {
    call("MPI_Comm_call_errhandler", Scope::Comm(comm), errorcode)
}

/// `MPI_Win_create_errhandler`.
pub fn win_create_errhandler(function: Callback, errhandler: Output<ErrhandlerHandle>) -> Result {
    create(ErrhandlerKind::Win, function, errhandler)
}

/// `MPI_Win_get_errhandler`.
pub fn win_get_errhandler(win: WinHandle, errhandler: Output<ErrhandlerHandle>) -> Result {
    get(Scope::Win(win), errhandler)
}

/// `MPI_Win_set_errhandler`.
pub fn win_set_errhandler(win: WinHandle, errhandler: ErrhandlerHandle) -> Result {
    set(Scope::Win(win), ErrhandlerKind::Win, errhandler)
}

/// `MPI_Win_call_errhandler`.
pub fn win_call_errhandler(win: WinHandle, errorcode: c_int) -> Result {
    call("MPI_Win_call_errhandler", Scope::Win(win), errorcode)
}

/// `MPI_File_create_errhandler`.
pub fn file_create_errhandler(function: Callback, errhandler: Output<ErrhandlerHandle>) -> Result {
    create(ErrhandlerKind::File, function, errhandler)
}

/// `MPI_File_get_errhandler`.
pub fn file_get_errhandler(file: FileHandle, errhandler: Output<ErrhandlerHandle>) -> Result {
    get(Scope::File(file), errhandler)
}

/// `MPI_File_set_errhandler`.
pub fn file_set_errhandler(file: FileHandle, errhandler: ErrhandlerHandle) -> Result {
    set(Scope::File(file), ErrhandlerKind::File, errhandler)
}

/// `MPI_File_call_errhandler`.
pub fn file_call_errhandler(file: FileHandle, errorcode: c_int) -> Result {
    call("MPI_File_call_errhandler", Scope::File(file), errorcode)
}

/// `MPI_Session_create_errhandler`.
pub fn session_create_errhandler(function: Callback, errhandler: Output<ErrhandlerHandle>) -> Result {
    create(ErrhandlerKind::Session, function, errhandler)
}

/// `MPI_Session_get_errhandler`.
pub fn session_get_errhandler(session: SessionHandle, errhandler: Output<ErrhandlerHandle>) -> Result {
    get(Scope::Session(session), errhandler)
}

/// `MPI_Session_set_errhandler`.
pub fn session_set_errhandler(session: SessionHandle, errhandler: ErrhandlerHandle) -> Result {
    set(Scope::Session(session), ErrhandlerKind::Session, errhandler)
}

/// `MPI_Session_call_errhandler`.
pub fn session_call_errhandler(session: SessionHandle, errorcode: c_int) -> Result {
    call("MPI_Session_call_errhandler", Scope::Session(session), errorcode)
}
