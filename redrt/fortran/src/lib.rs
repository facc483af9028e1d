//! The procedures behind `mpif.h` and the modules `mpi` and `mpi_f08`: `libredrt_mpifort.so.1`.
//!
//! Each takes its arguments as a Fortran program passes them, calls the C function of the same name, and hands back
//! what came out. They are generated from `redrt/table` (`mpi_table::render_fortran_library`); this crate has what they
//! need for an argument that is not the same in both languages:
//!
//! | argument | in Fortran | here |
//! |---|---|---|
//! | handle | `INTEGER`, or a type of one | [`handles`] |
//! | buffer | address, or a descriptor of a section | [`section`] |
//! | `MPI_BOTTOM` and the like | a variable, known by its address | [`sentinels`] |
//! | string | its length apart, blanks at the end | [`text`] |
//! | callback, attribute | everything by reference | [`callbacks`], [`attributes`] |
//!
//! A `LOGICAL` needs nothing: true is not 0, and 1 is true, for every compiler on Linux. Nor do statuses, which have
//! the layout of C. What the library calls are the `MPI_` names, from `pmpi_...` the `PMPI_` names, so tools written in
//! C see the calls of Fortran programs.

pub mod attributes;
pub mod callbacks;
pub mod handles;
pub mod own;
mod procedures;
pub mod section;
pub mod sentinels;
pub mod text;

/// `MPI_Aint`.
pub type Aint = isize;
/// `MPI_Count`.
pub type Count = i64;
/// `MPI_Offset`.
pub type Offset = i64;
/// A status: in all three forms, C, array and type, eight integers.
pub type Status = [std::ffi::c_int; 8];

// The standard ABI is defined for platforms where these hold; that handles are read as integers where they stand for
// callbacks also takes a little-endian one.
const _: () = assert!(size_of::<usize>() == 8 && size_of::<std::ffi::c_int>() == 4);
const _: () = assert!(cfg!(target_endian = "little"));
