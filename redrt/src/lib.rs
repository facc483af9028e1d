//! The MPI library: `libmpi_abi.so.1`, MPI calls in, replicated and verified messages out.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[macro_use]
extern crate redrt_process;

#[cfg(not(test))]
mod allocator;
pub mod api;
pub mod exports;
#[cfg(any(test, feature = "simulation"))]
pub mod sim;
