//! The MPI-5.0 C interface as data, and the text that is generated from it.
//!
//! In: `mpi-5.0.functions`, `.callbacks` and `.constants` (the standard) and `bound` (the functions that redrt
//! implements). Out: `include/mpi.h`, the Rust constants and the `extern "C"` exports of the library, Fortran's
//! modules, `mpif.h` and the procedures behind them. One table, so that they cannot disagree. It does not know the
//! meaning of any function.
#![forbid(unsafe_code)]

mod coverage;
mod exports;
mod facade;
mod fortran;
mod header;
mod kind;
mod parse;

pub use coverage::{REFUSED, render_coverage};
pub use exports::{render_constants, render_exports};
pub use facade::{Fact, Facts, Family, render_core_table, render_core_type, render_facade};
pub use fortran::{
    Library as FortranLibrary, render_base_module, render_fortran_binding, render_fortran_library,
    render_mpi_f08_module, render_mpi_module, render_mpif_h,
};
pub use header::render_header;
pub use kind::{ParameterKind, Shape};
pub use parse::{Bound, Constant, Direction, Function, Parameter, ParseError, Table};

#[cfg(test)]
mod tests;
