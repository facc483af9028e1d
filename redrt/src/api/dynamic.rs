//! Processes started by others (MPI-5.0 chapter 11). Nothing starts processes yet, so nobody has a parent.

use crate::abi::Output;
use crate::error::Result;
use crate::handle::CommHandle;

/// `MPI_Comm_get_parent`: `MPI_COMM_NULL` in a process that was not spawned (§11.8.2).
pub fn comm_get_parent(parent: Output<CommHandle>) -> Result {
    parent.set(CommHandle::NULL)
}

/// `MPI_Comm_disconnect` (§11.10.4). What is still under way on the communicator is completed whether it is there or not.
pub fn comm_disconnect(comm: Output<CommHandle>) -> Result {
    super::comm::comm_free(comm)
}
