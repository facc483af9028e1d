//! The MPI library: `libmpi_abi.so.1`, MPI calls in, replicated and verified messages out.
pub mod engine;
pub mod transport;
