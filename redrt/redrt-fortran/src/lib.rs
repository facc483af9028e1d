//! The procedures behind `mpif.h` and the modules `mpi` and `mpi_f08`: `libredrt_mpifort.so.1`.
//!
//! They are generated from `redrt/mpi-table` (`mpi_table::render_fortran_library`) over the parts that every ABI needs
//! for Fortran (`redrt/redrt-fortran/fortran-binding`). This crate has the parts of the standard ABI alone: buffers as
//! descriptors ([`section`]), and the procedures that the C ABI lacks ([`own`]).

pub mod own;
mod peers;
mod procedures;
pub mod section;
pub mod standard;
