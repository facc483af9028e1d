//! The MPI library: `libmpi_abi.so.1`, MPI calls in, replicated and verified messages out.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[macro_use]
extern crate redrt_process;

#[cfg(not(test))]
mod allocator;
pub mod api;
pub mod callbacks;
mod clock;
pub mod coll;
pub mod comm;
pub mod datatype;
pub mod decide;
pub mod dynamic;
pub mod events;
pub mod exports;
pub mod faults;
pub mod file;
pub mod links;
mod locks;
pub mod membership;
mod mutation;
pub mod objects;
pub mod op;
pub mod posix;
pub mod runtime;
pub mod scrub;
#[cfg(any(test, feature = "simulation"))]
pub mod sim;
mod turns;
mod undo;
pub mod window;
