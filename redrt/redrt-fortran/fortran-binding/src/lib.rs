//! Parts of Fortran's procedures beside the C functions that they call, for any ABI of those.
//!
//! Each procedure takes its arguments as a Fortran program passes them, calls the C function of the same name, and
//! returns its results. Procedures are generated from `redrt/mpi-table` (`mpi_table::render_fortran_library`), for the
//! standard ABI (`redrt/redrt-fortran`) and for those of MPICH and Open MPI (`redrt/abi-facade`). This crate has the
//! conversions of arguments that differ between the two languages:
//!
//! | argument | in Fortran | here |
//! |---|---|---|
//! | handle | `INTEGER`, or a type of one | [`handles`] |
//! | `MPI_BOTTOM` and the like | a variable, known by its address | [`sentinels`] |
//! | string | its length apart, blanks at the end | [`text`] |
//! | callback, attribute | everything by reference | [`callbacks`], [`attributes`] |
//!
//! A `LOGICAL` needs no conversion: true is not 0, and 1 is true, for every compiler on Linux. Nor does a status, which
//! has the layout of C. The libraries call the `MPI_` names, and from `pmpi_...` the `PMPI_` names, so tools written in
//! C see the calls of Fortran programs.

pub mod attributes;
pub mod callbacks;
pub mod handles;
mod removed;
pub mod sentinels;
pub mod text;

pub use handles::Handle;

use sentinels::{Addresses, Sentinel};
use std::ffi::c_int;

/// `MPI_Aint`.
pub type Aint = isize;
/// `MPI_Count`.
pub type Count = i64;
/// `MPI_Offset`.
pub type Offset = i64;

/// An ABI for Fortran.
pub trait Binding: 'static {
    /// A status, which has one layout in C and Fortran.
    type Status: Copy + 'static;
    /// `MPI_UNDEFINED`
    const UNDEFINED: c_int;
    /// `MPI_ERR_IN_STATUS`
    const ERR_IN_STATUS: c_int;
    /// Addresses with a special meaning in C.
    const ADDRESSES: Addresses;
    /// The predefined attributes.
    const KEYS: &'static [Key];

    /// The special meaning of an argument's address, if it has one.
    fn sentinel(address: usize) -> Option<Sentinel>;
}

/// The key of a predefined attribute.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Value of the key in Fortran.
    pub fortran: c_int,
    /// Value of the key in C.
    pub c: c_int,
    /// Type of the value that C has under the key.
    pub value: Predefined,
}

/// Type of the value that C has under the key of a predefined attribute. Fortran has the value itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Predefined {
    /// The address of an `int`.
    Int,
    /// The address of an `MPI_Aint`.
    Size,
    /// The value itself.
    Address,
}

// The ABIs are defined for platforms where these hold. Handles that are read as integers where they stand for callbacks
// also need a little-endian one.
const _: () = assert!(size_of::<usize>() == 8 && size_of::<c_int>() == 4);
const _: () = assert!(cfg!(target_endian = "little"));
