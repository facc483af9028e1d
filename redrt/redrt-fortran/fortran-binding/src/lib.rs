//! What procedures for Fortran need beside the C functions that they call, whatever the ABI of those is.
//!
//! Each procedure takes its arguments as a Fortran program passes them, calls the C function of the same name, and
//! hands back what came out. They are generated from `redrt/mpi-table` (`mpi_table::render_fortran_library`), for the
//! standard ABI (`redrt/redrt-fortran`) and for those of MPICH and Open MPI (`redrt/abi-facade`). Here is what an
//! argument needs that is not the same in both languages:
//!
//! | argument | in Fortran | here |
//! |---|---|---|
//! | handle | `INTEGER`, or a type of one | [`handles`] |
//! | `MPI_BOTTOM` and the like | a variable, known by its address | [`sentinels`] |
//! | string | its length apart, blanks at the end | [`text`] |
//! | callback, attribute | everything by reference | [`callbacks`], [`attributes`] |
//!
//! A `LOGICAL` needs nothing: true is not 0, and 1 is true, for every compiler on Linux. Nor do statuses, which have
//! the layout of C. What the libraries call are the `MPI_` names, from `pmpi_...` the `PMPI_` names, so tools written
//! in C see the calls of Fortran programs.

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
    /// What stands for something in C.
    const ADDRESSES: Addresses;
    /// The predefined attributes.
    const KEYS: &'static [Key];

    /// What an argument at this address stands for.
    fn sentinel(address: usize) -> Option<Sentinel>;
}

/// The key of a predefined attribute.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// In Fortran.
    pub fortran: c_int,
    /// In C.
    pub c: c_int,
    /// What C has under it.
    pub value: Predefined,
}

/// What C has under the key of a predefined attribute. Fortran has the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Predefined {
    /// The address of an `int`.
    Int,
    /// The address of an `MPI_Aint`.
    Size,
    /// The value itself.
    Address,
}

// The ABIs are defined for platforms where these hold; that handles are read as integers where they stand for callbacks
// also takes a little-endian one.
const _: () = assert!(size_of::<usize>() == 8 && size_of::<c_int>() == 4);
const _: () = assert!(cfg!(target_endian = "little"));
