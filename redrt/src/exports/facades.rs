//! Exports for the libraries of other families' ABIs (`redrt/abi-facade`): a table of this library's functions, since a
//! lookup by name would find the façade's own, and functions that the standard does not have.

use super::*;
use crate::api;
use redrt_abi::error::Scope;
use redrt_abi::handle::{CommHandle, ErrhandlerHandle, OpHandle};
use redrt_comm::objects::errhandler::{self, ErrhandlerKind, inactive, raise};
use redrt_comm::objects::{attributes, host};
use redrt_comm::op;
use redrt_runtime::callbacks::UserFunction;
use redrt_runtime::threads;
use redrt_wire::profile::CallKind;
use std::ffi::c_int;

/// A description of the table's layout, and the functions in the order of `redrt/mpi-table`.
#[repr(C)]
pub struct CoreTable<const COUNT: usize> {
    layout: u64,
    functions: [*const (); COUNT],
}

// SAFETY: - shared between threads: the addresses are never written.
unsafe impl<const COUNT: usize> Sync for CoreTable<COUNT> {}

/// `MPI_Op_create`; `function` is called through `adapter` (`abi_facade::callbacks::call_operation`).
extern "C" fn redrt_create_op(
    function: usize,
    wide: c_int,
    adapter: usize,
    commute: c_int,
    op: *mut OpHandle,
) -> c_int {
    if !redrt_abi::phase::is_active() {
        return inactive("MPI_Op_create");
    }
    let _inside = threads::enter(CallKind::Other);
    let function = UserFunction::adapted(Callback(function), Callback(adapter));
    let created = api::op::create(function, commute, Output::new(op), wide != 0);
    code("MPI_Op_create", created)
}

/// `MPI_Comm_create_errhandler` (`kind` 0) and its siblings for windows (1), files (2) and sessions (3); `function` is
/// called through `adapter`.
extern "C" fn redrt_create_errhandler(
    function: usize,
    kind: c_int,
    adapter: usize,
    errhandler: *mut ErrhandlerHandle,
) -> c_int {
    let _inside = threads::enter(CallKind::Other);
    let function = UserFunction::adapted(Callback(function), Callback(adapter));
    let kind = match kind {
        0 => ErrhandlerKind::Comm,
        1 => ErrhandlerKind::Win,
        2 => ErrhandlerKind::File,
        _ => ErrhandlerKind::Session,
    };
    let created = api::errhandler::create_adapted(kind, function, Output::new(errhandler));
    code("MPI_Comm_create_errhandler", created)
}

/// Adds `by`, the function of a C++ binding, to an operation: its adapter is passed `by` as well.
extern "C" fn redrt_call_op_by(op: OpHandle, by: usize) {
    let _inside = threads::enter_quietly();
    op::change_function(op, |function| function.called_by(Callback(by)));
}

/// Adds `by`, the function of a C++ binding, to an error handler: its adapter is passed `by` as well.
extern "C" fn redrt_call_errhandler_by(errhandler: ErrhandlerHandle, by: usize) {
    let _inside = threads::enter_quietly();
    errhandler::change_function(errhandler, |function| function.called_by(Callback(by)));
}

/// Exchanges the extra state that the functions of a key are called with. Returns the former state; 0 if there is no
/// such key. A `state` of 0 leaves it unchanged.
extern "C" fn redrt_exchange_keyval_state(keyval: c_int, state: usize) -> usize {
    let _inside = threads::enter_quietly();
    attributes::exchange_state(keyval, state).unwrap_or(0)
}

/// Sets a function that is called, through `adapter`, for each error of an object whose error handler is
/// `MPI::ERRORS_THROW_EXCEPTIONS`.
extern "C" fn redrt_on_exception(function: usize, adapter: usize) {
    let _inside = threads::enter_quietly();
    errhandler::on_exception(UserFunction::adapted(Callback(function), Callback(adapter)));
}

/// Length of the arrays that a collective on the communicator takes: number of its members (`which` 0), or in a
/// neighbourhood of the sources (1) or destinations (2). 0 for an invalid communicator, or without neighbours: the
/// collective reports that.
#[unsafe(no_mangle)]
extern "C" fn redrt_peers(comm: CommHandle, which: c_int) -> usize {
    // Not a call of the program, but freeing memory here may make the allocator read a clock.
    let _inside = threads::enter_quietly();
    let Ok(comm) = redrt_comm::comm::resolve(comm) else { return 0 };
    match which {
        0 => comm.remote.as_ref().unwrap_or(&comm.members).len(),
        1 => comm.neighbors().map_or(0, |neighbors| neighbors.sources.len()),
        _ => comm.neighbors().map_or(0, |neighbors| neighbors.destinations.len()),
    }
}

fn code(function: &str, result: redrt_abi::error::Result) -> c_int {
    match result {
        Ok(()) => MPI_SUCCESS,
        Err(error) => raise(function, error, Scope::Default),
    }
}

include!(concat!(env!("OUT_DIR"), "/functions.rs"));
