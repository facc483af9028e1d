//! The functions of MPI: what `libmpi_abi.so.1` exports, and what each of them does with the crates below.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[macro_use]
extern crate redrt_process;

#[cfg(not(test))]
mod allocator;
pub mod api;
pub mod exports;
