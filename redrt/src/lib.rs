//! The functions of MPI: the exports of `libmpi_abi.so.1`, and their implementations by means of the crates below.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[macro_use]
extern crate redrt_process;

#[cfg(not(test))]
mod allocator;
pub mod api;
pub mod exports;
