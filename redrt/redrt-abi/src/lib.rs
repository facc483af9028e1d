//! The standard ABI, and the wrappers that every call of a program passes first.
//!
//! In: pointers, handles and constants of C. Out: [`Input`], [`Output`], [`Counts`] and [`CountOut`], whose users need
//! no unsafe code; tables of handles; errors for error handlers.
//!
//! The constants are generated from `redrt/mpi-table` by `build.rs`.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[macro_use]
extern crate redrt_process;

mod arguments;
mod constants;
pub mod error;
pub mod handle;
pub mod memory;
pub mod packed;
pub mod phase;
pub mod program_memory;
mod status;

pub use arguments::{Callback, CountOut, Counts, Input, Output};
pub use constants::*;
pub use status::{Status, int_or_undefined};

/// `MPI_Aint`: an address, or a distance in bytes.
pub type Aint = isize;
/// `MPI_Count`: any count.
pub type Count = i64;
/// `MPI_Offset`: a position in a file.
pub type Offset = i64;
/// `MPI_Fint`: a Fortran `INTEGER`.
pub type Fint = std::ffi::c_int;

/// A handle of the tool information interface (MPI-5.0 chapter 15).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct ToolHandle(pub usize);

// The standard ABI is defined for platforms with these sizes.
const _: () = assert!(size_of::<usize>() == 8 && size_of::<std::ffi::c_int>() == 4);
const _: () = assert!(size_of::<Status>() == 32);
