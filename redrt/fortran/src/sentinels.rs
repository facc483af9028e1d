//! What stands for something else: `MPI_BOTTOM`, `MPI_STATUS_IGNORE` and their like.
//!
//! In C they are small numbers in place of an address. A Fortran program can only pass a variable, so each is a common
//! block that the program shares with this library, and its address tells what is meant. The linker makes one block of
//! those of the program and the one here; the program's wins, and so the address must be asked for anew each time.
#![allow(non_upper_case_globals)]

use crate::Status;
use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicI32;

macro_rules! blocks {
    ($($name:ident: $length:literal,)*) => {$(
        /// A common block; only its address has a meaning.
        #[unsafe(no_mangle)]
        pub static $name: [AtomicI32; $length] = [const { AtomicI32::new(0) }; $length];
    )*};
}

blocks! {
    redrt_mpi_bottom_: 1,
    redrt_mpi_in_place_: 1,
    redrt_mpi_buffer_automatic_: 1,
    redrt_mpi_errcodes_ignore_: 1,
    redrt_mpi_unweighted_: 1,
    redrt_mpi_weights_empty_: 1,
    redrt_mpi_argv_null_: 1,
    redrt_mpi_argvs_null_: 1,
    redrt_mpi_status_ignore_: 8,
    redrt_mpi_statuses_ignore_: 8,
}

/// Whether an argument is one of the blocks.
fn is<T, const N: usize>(argument: *const T, block: &'static [AtomicI32; N]) -> bool {
    argument.addr() == block.as_ptr().addr()
}

/// The address of a buffer in C.
pub fn buffer(argument: *mut c_void) -> *mut c_void {
    if is(argument, &redrt_mpi_bottom_) {
        std::ptr::null_mut()
    } else if is(argument, &redrt_mpi_in_place_) {
        std::ptr::without_provenance_mut(1)
    } else if is(argument, &redrt_mpi_buffer_automatic_) {
        std::ptr::without_provenance_mut(2)
    } else {
        argument
    }
}

/// Whether a buffer is `MPI_IN_PLACE`.
pub fn is_in_place(argument: *mut c_void) -> bool {
    is(argument, &redrt_mpi_in_place_)
}

/// Where statuses go in C.
pub fn status(argument: *mut Status) -> *mut Status {
    let ignored = is(argument, &redrt_mpi_status_ignore_) || is(argument, &redrt_mpi_statuses_ignore_);
    if ignored { std::ptr::null_mut() } else { argument }
}

/// The weights of a graph in C.
pub fn weights(argument: *mut c_int) -> *mut c_int {
    if is(argument, &redrt_mpi_unweighted_) {
        std::ptr::without_provenance_mut(10)
    } else if is(argument, &redrt_mpi_weights_empty_) {
        std::ptr::without_provenance_mut(11)
    } else {
        argument
    }
}

/// Where the error codes of started processes go in C.
pub fn error_codes(argument: *mut c_int) -> *mut c_int {
    if is(argument, &redrt_mpi_errcodes_ignore_) { std::ptr::null_mut() } else { argument }
}

/// Whether the arguments of programs are `MPI_ARGV_NULL` or `MPI_ARGVS_NULL`.
pub fn are_no_arguments<T>(argument: *const T) -> bool {
    is(argument, &redrt_mpi_argv_null_) || is(argument, &redrt_mpi_argvs_null_)
}
