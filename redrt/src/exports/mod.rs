//! The exported functions, generated from `redrt/mpi-table/mpi-5.0.functions`.
//!
//! An exported function checks the phase (before, between or after `MPI_Init` and `MPI_Finalize`), wraps its arguments
//! (`redrt_abi::Input` and its like), calls the function of the same name in `crate::api`, and passes an error to the
//! error handler.
//!
//! `MPI_X` and `PMPI_X` are thin jumps to one body, so that a profiling library can interpose the former and call the
//! latter. A panic does not cross the boundary: unwinding out of `extern "C"` aborts the process. The body lets it
//! pass, since processes of the simulator end by unwinding.
#![allow(
    missing_docs,
    unused_imports,
    unused_variables,
    unused_unsafe,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    clippy::unnecessary_cast,
    clippy::useless_conversion,
    clippy::needless_pass_by_value
)]

mod facades;
mod own;
#[cfg(test)]
mod tests;

use redrt_abi::error::Scope;
use redrt_abi::handle::{
    CommHandle, DatatypeHandle, ErrhandlerHandle, FileHandle, GroupHandle, InfoHandle, MessageHandle, OpHandle,
    RequestHandle, SessionHandle, WinHandle,
};
use redrt_abi::*;
use redrt_comm::objects::errhandler::{inactive, raise};
use redrt_wire::profile::CallKind;
use std::ffi::{c_char, c_int, c_void};

/// The handle that an in-out argument points to; 0, which is not a handle, for a null pointer.
fn peek<T: Copy + From<usize>>(handle: *mut T) -> T {
    Output::new(handle).get().unwrap_or(T::from(0))
}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
