//! MPICH's ABI over redrt: `libmpi.so.12`, for programs that were built for MPICH 3.1 or newer, Intel MPI, MVAPICH or
//! Cray MPI.
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

use abi_facade::arrays::{Handles, Integers, Text, integers_out, sum};
use abi_facade::callbacks::{
    Context, call_errhandler, call_operation, cancel_request, convert, copy_attribute, delete_attribute, file_extent,
    free_request, query_request, unless_null,
};
use abi_facade::core::{CoreStatus, check, core};
use abi_facade::handles::{
    FIRST_HANDLE, Fortran, Handle, NO_HANDLE, UNSET, give_handle, give_out_c_int, give_out_usize, given_out_c_int,
    given_out_usize, peek, peek_handle, pointer_to,
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

/// `MPI_Status` of MPICH. The second word has the upper bits of the count, and in bit 0 the mark of a cancelled
/// request.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Status {
    count_low: c_int,
    count_high_and_cancelled: c_int,
    source: c_int,
    tag: c_int,
    error: c_int,
}

/// MPICH's values, for the code that all façades share.
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
        let bytes = status.bytes();
        Status {
            count_low: bytes as u32 as c_int,
            count_high_and_cancelled: ((bytes >> 32) as c_int) << 1 | c_int::from(status.cancelled != 0),
            source: rank_out(status.source),
            tag: tag_out(status.tag),
            error: error_out(status.error),
        }
    }

    #[inline]
    fn status_in(status: &Status) -> CoreStatus {
        let high = status.count_high_and_cancelled as u32;
        let bytes = u64::from(status.count_low as u32) | u64::from(high >> 1) << 32;
        CoreStatus::new(rank_in(status.source), tag_in(status.tag), error_in(status.error), bytes, high & 1 != 0)
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
        unsafe { cxx::call_errhandler(function, by, handle, code) }
    }
}

/// A pointer that programs read.
#[repr(transparent)]
pub struct Pointer(*const c_void);

// SAFETY: - the pointer is a constant, which is never written or followed.
unsafe impl Sync for Pointer {}

/// In MPICH's `mpi.h` these are variables, so that they can have redrt's values.
#[unsafe(no_mangle)]
pub static MPI_UNWEIGHTED: Pointer = Pointer(std::ptr::without_provenance(UNWEIGHTED));
#[unsafe(no_mangle)]
pub static MPI_WEIGHTS_EMPTY: Pointer = Pointer(std::ptr::without_provenance(WEIGHTS_EMPTY));
#[unsafe(no_mangle)]
pub static MPI_T_PVAR_ALL_HANDLES: Pointer = Pointer(std::ptr::without_provenance(T_PVAR_ALL_HANDLES));

/// Status arguments for an absent status in conversions between languages: only their addresses have a meaning.
static IGNORED: [c_int; 5] = [0; 5];
#[unsafe(no_mangle)]
pub static MPI_F_STATUS_IGNORE: Pointer = Pointer((&raw const IGNORED).cast());
#[unsafe(no_mangle)]
pub static MPI_F_STATUSES_IGNORE: Pointer = Pointer((&raw const IGNORED).cast());
#[unsafe(no_mangle)]
pub static MPIR_F08_MPI_STATUS_IGNORE_OBJ: [c_int; 5] = [0; 5];
#[unsafe(no_mangle)]
pub static MPIR_F08_MPI_STATUSES_IGNORE_OBJ: [c_int; 5] = [0; 5];
#[unsafe(no_mangle)]
pub static MPI_F08_STATUS_IGNORE: Pointer = Pointer((&raw const MPIR_F08_MPI_STATUS_IGNORE_OBJ).cast());
#[unsafe(no_mangle)]
pub static MPI_F08_STATUSES_IGNORE: Pointer = Pointer((&raw const MPIR_F08_MPI_STATUSES_IGNORE_OBJ).cast());

/// `MPI_COMM_DUP_FN`, `MPI_TYPE_DUP_FN`, `MPI_WIN_DUP_FN`, `MPI_DUP_FN`: copies the attribute unchanged.
///
/// # Safety
/// The arguments of an attribute's copy function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIR_Dup_fn(
    _object: c_int,
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

include!(concat!(env!("OUT_DIR"), "/facade.rs"));

abi_facade::removed_functions!();

abi_facade::device_queries! {
    MPIX_Query_cuda_support, PMPIX_Query_cuda_support;
    MPIX_Query_hip_support, PMPIX_Query_hip_support;
    MPIX_Query_ze_support, PMPIX_Query_ze_support;
}

/// Support for buffers in memory of a device of this kind: none.
///
/// # Safety
/// `is_supported` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIX_GPU_query_support(_kind: c_int, is_supported: *mut c_int) -> c_int {
    // SAFETY: - `is_supported` is valid for a write: the caller's duty.
    unsafe { *is_supported = 0 };
    0
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
