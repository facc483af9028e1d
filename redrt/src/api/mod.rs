//! The implementations behind the exported functions, by the modules of `redrt/mpi-table/mpi-5.0.functions`.
//!
//! Each function has the name and the parameters of its MPI function. Counts are widened and pointers wrapped, so one
//! function serves both the `int` and the large-count version. `redrt/mpi-table/bound` lists the functions that are
//! bound.
//!
//! "The pointers are those of the C call" in a safety section: each is null or valid, as the standard requires of the
//! argument.
#![allow(clippy::too_many_arguments, clippy::missing_errors_doc)]

pub mod attr;
mod buffers;
pub(crate) mod check;
pub mod coll;
pub mod comm;
pub mod datatype;
pub mod dynamic;
pub mod env;
pub mod errhandler;
mod graph;
pub mod group;
mod host;
pub mod info;
pub mod init;
mod inter;
pub mod io;
pub mod op;
pub mod p2p;
mod pack;
pub mod partitioned;
pub mod rma;
mod session;
pub mod status;
pub mod tool;
pub mod topology;
