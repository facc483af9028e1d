//! Beginning and end (MPI-5.0 chapter 11).

use crate::abi::{
    MPI_ERR_OTHER, MPI_THREAD_FUNNELED, MPI_THREAD_MULTIPLE, MPI_THREAD_SERIALIZED, MPI_THREAD_SINGLE, Output,
};
use crate::comm;
use crate::error::{Error, Result};
use crate::handle::CommHandle;
use crate::host;
use crate::runtime;
use std::ffi::c_int;
use std::sync::OnceLock;
use std::thread::ThreadId;

static MAIN: OnceLock<ThreadId> = OnceLock::new();
static PROVIDED: OnceLock<c_int> = OnceLock::new();

fn begin(required: c_int) -> Result<c_int> {
    if host::is_active() || host::is_finalized() {
        return Err(Error::new(MPI_ERR_OTHER, "MPI has been initialized already"));
    }
    let provided = match required {
        MPI_THREAD_FUNNELED | MPI_THREAD_SERIALIZED | MPI_THREAD_MULTIPLE => required,
        _ => MPI_THREAD_SINGLE,
    };
    if let Err(error) = runtime::begin() {
        eprintln!("redrt: MPI_Init: {}", runtime::chain(&error));
        std::process::exit(1);
    }
    let _ = MAIN.set(std::thread::current().id());
    let _ = PROVIDED.set(provided);
    host::set_active();
    runtime::clock::install_hooks();
    Ok(provided)
}

/// `MPI_Init`. The arguments are left alone: redrun passes nothing by them.
pub fn init<A, B>(_argc: A, _argv: B) -> Result {
    begin(MPI_THREAD_SINGLE).map(drop)
}

/// `MPI_Init_thread`.
pub fn init_thread<A, B>(_argc: A, _argv: B, required: c_int, provided: Output<c_int>) -> Result {
    let level = begin(required)?;
    provided.set(level)
}

/// `MPI_Initialized`.
pub fn initialized(flag: Output<c_int>) -> Result {
    flag.set(c_int::from(host::is_active() || host::is_finalized()))
}

/// `MPI_Finalized`.
pub fn finalized(flag: Output<c_int>) -> Result {
    flag.set(c_int::from(host::is_finalized()))
}

/// `MPI_Query_thread`.
pub fn query_thread(provided: Output<c_int>) -> Result {
    provided.set(PROVIDED.get().copied().unwrap_or(MPI_THREAD_SINGLE))
}

/// Whether other threads than the main one may call MPI (MPI-5.0 §11.6).
pub fn allows_threads() -> bool {
    matches!(PROVIDED.get(), Some(&(MPI_THREAD_SERIALIZED | MPI_THREAD_MULTIPLE)))
}

/// `MPI_Is_thread_main`.
pub fn is_thread_main(flag: Output<c_int>) -> Result {
    flag.set(c_int::from(MAIN.get() == Some(&std::thread::current().id())))
}

/// `MPI_Finalize`.
pub fn finalize() -> Result {
    let this = comm::resolve(CommHandle::SELF)?;
    // MPI-5.0 §11.2.4: attributes of MPI_COMM_SELF are deleted first, while MPI still works.
    this.attached.attributes.delete_all(CommHandle::SELF.0)?;
    runtime::end();
    runtime::clock::remove_hooks();
    host::set_finalized();
    Ok(())
}

/// `MPI_Abort`. All communicators are of one job, which ends.
pub fn abort(_comm: CommHandle, errorcode: c_int) -> Result {
    runtime::abort(errorcode, String::new())
}
