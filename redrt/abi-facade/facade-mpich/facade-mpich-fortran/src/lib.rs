//! MPICH's Fortran procedures over redrt: `libmpifort.so.12`, for programs that use `mpif.h` or the module `mpi`.
//!
//! Its module `mpi_f08` passes buffers as descriptors of one compiler, and is not served. The procedures are generated
//! from `redrt/mpi-table` (`mpi_table::render_fortran_library`).
#![allow(
    missing_docs,
    non_snake_case,
    unused_variables,
    unused_mut,
    unused_imports,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    clippy::unnecessary_cast,
    clippy::unreadable_literal,
    clippy::let_unit_value,
    clippy::deref_addrof
)]

use fortran_binding::attributes::{attribute_out, attribute_to_c, keyval_to_c};
use fortran_binding::callbacks::{
    Context, cancel_request, conversion, copy_attribute, copy_attribute_int, delete_attribute, delete_attribute_int,
    file_extent, free_request, query_request, read_converted, read_converted_large, write_converted,
    write_converted_large,
};
use fortran_binding::handles::{
    count_from_one, give_error, give_handle, give_handles, handles, is_set, unless_in_place, unset_handles,
};
use fortran_binding::sentinels;
use fortran_binding::text::{Text, WordLists, Words, text, trimmed, with_end, without_end};
use fortran_binding::{Aint, Binding, Count, Handle, Offset, blocks, handles_by_c, removed_procedures};
use std::ffi::{c_char, c_int, c_void};

/// A status: 5 integers in C and in Fortran.
pub type Status = [c_int; 5];

handles_by_c! {
    Comm(c_int): PMPI_Comm_f2c, PMPI_Comm_c2f;
    Datatype(c_int): PMPI_Type_f2c, PMPI_Type_c2f;
    Errhandler(c_int): PMPI_Errhandler_f2c, PMPI_Errhandler_c2f;
    File(usize): PMPI_File_f2c, PMPI_File_c2f;
    Group(c_int): PMPI_Group_f2c, PMPI_Group_c2f;
    Info(c_int): PMPI_Info_f2c, PMPI_Info_c2f;
    Message(c_int): PMPI_Message_f2c, PMPI_Message_c2f;
    Op(c_int): PMPI_Op_f2c, PMPI_Op_c2f;
    Request(c_int): PMPI_Request_f2c, PMPI_Request_c2f;
    Session(c_int): PMPI_Session_f2c, PMPI_Session_c2f;
    Win(c_int): PMPI_Win_f2c, PMPI_Win_c2f;
}

blocks! {
    mpipriv1_: 28 { Bottom at 0, InPlace at 4, StatusIgnore at 8 }
    mpipriv2_: 24 { StatusIgnore at 0, ErrcodesIgnore at 20 }
    mpiprivc_: 2 { NoArguments at 0, NoArguments at 1 }
    mpifcmb5_: 4 { Unweighted at 0 }
    mpifcmb9_: 4 { WeightsEmpty at 0 }
}

unsafe extern "C" {
    fn redrt_fortran_peers(comm: Comm, which: c_int) -> usize;
}

fn peers(comm: Comm) -> usize {
    peer_count(comm, 0)
}

fn sources(comm: Comm) -> usize {
    peer_count(comm, 1)
}

fn destinations(comm: Comm) -> usize {
    peer_count(comm, 2)
}

fn peer_count(comm: Comm, which: c_int) -> usize {
    // SAFETY: - the façade defines it with this signature; any handle may be passed, as it is looked up.
    unsafe { redrt_fortran_peers(comm, which) }
}

/// Copies a status, whose layout is the same in C and Fortran.
///
/// # Safety
/// Both pointers are to statuses.
unsafe fn copy_status(from: *const Status, to: *mut Status) -> c_int {
    // SAFETY: - both pointers are to statuses: the caller's duty.
    unsafe { *to = *from };
    0
}

include!(concat!(env!("OUT_DIR"), "/procedures.rs"));

removed_procedures!();
