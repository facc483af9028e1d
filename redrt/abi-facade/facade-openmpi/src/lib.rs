//! Open MPI's ABI over redrt: `libmpi.so.40`, for programs that were built for Open MPI 4 or 5.
//!
//! The functions are generated from `redrt/mpi-table` (`mpi_table::render_facade`).
#![allow(
    missing_docs,
    non_upper_case_globals,
    non_snake_case,
    unused_mut,
    unused_unsafe,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    clippy::unnecessary_cast,
    clippy::unreadable_literal,
    clippy::match_same_arms,
    clippy::if_same_then_else
)]

mod cxx;

use self::cxx::ompi_mpi_errors_throw_exceptions;
use abi_facade::arrays::{Handles, Integers, Text, integers_out, sum};
use abi_facade::callbacks::{
    Context, call_errhandler, call_operation, cancel_request, convert, copy_attribute, delete_attribute, file_extent,
    free_request, query_request, unless_null,
};
use abi_facade::core::{CoreStatus, check, core};
use abi_facade::handles::{
    FIRST_HANDLE, Fortran, Handle, UNSET, core_of_address, give_handle, give_out_usize, peek, peek_handle, pointer_to,
    predefined,
};
use abi_facade::statuses::Statuses;
use abi_facade::values::{
    INFO_NULL, Names, attribute_out, buffer_in, buffer_out, contents_out, copy_status, destinations, peers, sources,
    unless_in_place, weights_in,
};
use std::ffi::{c_char, c_int, c_void};

type Aint = isize;
type Count = i64;
type Offset = i64;
type Fint = c_int;

/// `MPI_Status` of Open MPI.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Status {
    source: c_int,
    tag: c_int,
    error: c_int,
    cancelled: c_int,
    bytes: u64,
}

/// Open MPI's values, for the code that all façades share.
#[derive(Debug)]
pub struct Own;

impl abi_facade::Family for Own {
    type Status = Status;
    const IN_PLACE: usize = IN_PLACE;
    const BUFFER_AUTOMATIC: usize = BUFFER_AUTOMATIC;
    const STATUS_IGNORE: usize = STATUS_IGNORE;
    const UNWEIGHTED: usize = UNWEIGHTED;
    const WEIGHTS_EMPTY: usize = WEIGHTS_EMPTY;

    #[inline]
    fn status_out(status: &CoreStatus) -> Status {
        Status {
            source: rank_out(status.source),
            tag: tag_out(status.tag),
            error: error_out(status.error),
            cancelled: status.cancelled,
            bytes: status.bytes(),
        }
    }

    #[inline]
    fn status_in(status: &Status) -> CoreStatus {
        let Status { source, tag, error, cancelled, bytes } = *status;
        CoreStatus::new(rank_in(source), tag_in(tag), error_in(error), bytes, cancelled != 0)
    }

    fn error_in(code: c_int) -> c_int {
        error_in(code)
    }

    fn error_out(code: c_int) -> c_int {
        error_out(code)
    }

    fn rank_out(rank: c_int) -> c_int {
        rank_out(rank)
    }

    fn flavor_out(flavor: c_int) -> c_int {
        flavor_out(flavor)
    }

    fn model_out(model: c_int) -> c_int {
        model_out(model)
    }

    fn names() -> Names {
        Names { order: order_out, distribution: distribution_out, darg: darg_out }
    }

    unsafe fn call_cxx_operation<D: Handle>(
        function: usize,
        by: usize,
        input: *const c_void,
        in_out: *mut c_void,
        count: c_int,
        datatype: D,
    ) {
        // SAFETY: - buffers of `count` elements, and functions that belong together: the caller's duty.
        unsafe { cxx::call_operation(function, by, input, in_out, count, datatype) };
    }

    unsafe fn call_cxx_errhandler<H: Handle>(function: usize, by: usize, handle: H, code: c_int) -> c_int {
        // SAFETY: - functions that belong together: the caller's duty.
        unsafe { cxx::call_cxx_errhandler(function, by, handle, code) }
    }
}

/// A pointer that programs read.
#[repr(transparent)]
pub struct Pointer(*const c_void);

// SAFETY: - the pointer is a constant, which is never written or followed.
unsafe impl Sync for Pointer {}

/// Status arguments for an absent status in conversions between languages: only their addresses have a meaning.
static IGNORED: [c_int; 6] = [0; 6];
#[unsafe(no_mangle)]
pub static MPI_F_STATUS_IGNORE: Pointer = Pointer((&raw const IGNORED).cast());
#[unsafe(no_mangle)]
pub static MPI_F_STATUSES_IGNORE: Pointer = Pointer((&raw const IGNORED).cast());

fn all_handles_in(handle: usize) -> usize {
    if handle == T_PVAR_ALL_HANDLES { 1 } else { handle }
}

macro_rules! attribute_functions {
    ($($duplicate:ident, $no_copy:ident, $no_delete:ident: $object:ty;)*) => {$(
        /// Copies the attribute unchanged.
        ///
        /// # Safety
        /// The arguments of an attribute's copy function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $duplicate(
            _object: $object,
            _keyval: c_int,
            _state: *mut c_void,
            value: *mut c_void,
            copied: *mut *mut c_void,
            flag: *mut c_int,
        ) -> c_int {
            // SAFETY: - `copied` is valid for a write: an argument of a copy function.
            unsafe { *copied = value };
            // SAFETY: - `flag` is valid for a write: an argument of a copy function.
            unsafe { *flag = 1 };
            0
        }

        /// Does not copy the attribute.
        ///
        /// # Safety
        /// The arguments of an attribute's copy function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $no_copy(
            _object: $object,
            _keyval: c_int,
            _state: *mut c_void,
            _value: *mut c_void,
            _copied: *mut *mut c_void,
            flag: *mut c_int,
        ) -> c_int {
            // SAFETY: - `flag` is valid for a write: an argument of a copy function.
            unsafe { *flag = 0 };
            0
        }

        /// Deletes the attribute, for which nothing is to be done.
        #[unsafe(no_mangle)]
        pub extern "C" fn $no_delete(_object: $object, _keyval: c_int, _value: *mut c_void, _state: *mut c_void) -> c_int {
            0
        }
    )*};
}

attribute_functions! {
    OMPI_C_MPI_COMM_DUP_FN, OMPI_C_MPI_COMM_NULL_COPY_FN, OMPI_C_MPI_COMM_NULL_DELETE_FN: Comm;
    OMPI_C_MPI_TYPE_DUP_FN, OMPI_C_MPI_TYPE_NULL_COPY_FN, OMPI_C_MPI_TYPE_NULL_DELETE_FN: Datatype;
    OMPI_C_MPI_WIN_DUP_FN, OMPI_C_MPI_WIN_NULL_COPY_FN, OMPI_C_MPI_WIN_NULL_DELETE_FN: Win;
    OMPI_C_MPI_DUP_FN, OMPI_C_MPI_NULL_COPY_FN, OMPI_C_MPI_NULL_DELETE_FN: Comm;
}

include!(concat!(env!("OUT_DIR"), "/facade.rs"));

abi_facade::removed_functions!();

abi_facade::device_queries! {
    MPIX_Query_cuda_support, PMPIX_Query_cuda_support;
    MPIX_Query_rocm_support, PMPIX_Query_rocm_support;
}

/// Begins MPI. Programs tell Open MPI from others by the presence of this function (NEURON).
///
/// # Safety
/// `provided` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ompi_mpi_init(
    _count: c_int,
    _words: *mut *mut c_char,
    required: c_int,
    provided: *mut c_int,
    _again: bool,
) -> c_int {
    // SAFETY: - `provided` is valid for a write: the caller's duty; the arguments of main may be left out.
    unsafe { inner_init_thread(std::ptr::null_mut(), std::ptr::null_mut(), required, provided) }
}

/// Number of members with which a collective exchanges arrays, for the library of Fortran's procedures: all members
/// (0), sources of receives (1), destinations of sends (2).
#[unsafe(no_mangle)]
pub extern "C" fn redrt_fortran_peers(comm: Comm, which: c_int) -> usize {
    match which {
        0 => peers(comm.core()),
        1 => sources(comm.core()),
        _ => destinations(comm.core()),
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static CHECK: extern "C" fn() = on_load;

extern "C" fn on_load() {
    check();
}
