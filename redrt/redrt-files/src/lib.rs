//! Files that a program opens with MPI, and files that it opens by the C library.
//!
//! ```text
//!   MPI_File_… ──▶ file ────────────────┐
//!   open, write, rename, … ──▶ posix ───┴──▶ decide: one replica acts, all have its outcome
//!                                            undo: a change can be taken back
//! ```
//! In: calls of the exported functions, and calls of the C library that the preloaded library passes on. Out: changes
//! of files, made by the leader of a rank or by each replica, and results that are the same in all replicas.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[macro_use]
extern crate redrt_process;

pub mod file;
pub mod posix;
