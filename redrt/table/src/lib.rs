//! The MPI-5.0 C interface as data, and what is generated from it.
//!
//! In: `mpi-5.0.functions`, `.callbacks` and `.constants` (what the standard says) and `bound` (what redrt implements).
//! Out: `include/mpi.h`, the Rust constants and the `extern "C"` exports of the library. One table, so that the three
//! cannot disagree. It does not know what any function does.
#![forbid(unsafe_code)]

mod coverage;
mod exports;
mod header;
mod kind;
mod parse;

pub use coverage::render_coverage;
pub use exports::{render_constants, render_exports};
pub use header::render_header;
pub use kind::{Kind, Shape};
pub use parse::{Bound, Constant, Direction, Function, Parameter, ParseError, Table};

#[cfg(test)]
mod tests;
