//! The MPI library of redrt: the standard ABI of MPI-5.0 over replicated processes.

pub mod abi;
pub mod api;
pub mod datatype;
pub mod error;
pub mod handle;
pub mod host;
pub mod objects;
pub mod op;
