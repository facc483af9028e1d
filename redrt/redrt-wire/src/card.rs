//! Addresses by which processes find each other.

use redrt_types::ProcessIndex;
use serde::{Deserialize, Serialize};

/// Addresses of a process for the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// The process.
    pub process: ProcessIndex,
    /// Number of its host.
    pub host_number: u32,
    /// Name of its host, for messages to the user.
    pub host: String,
    /// Its process id on its host.
    pub pid: i32,
    /// Endpoints at which it accepts data connections, the best one first.
    pub endpoints: Vec<Endpoint>,
    /// Threads of the program that run before `MPI_Init`, for siblings.
    pub early_threads: Vec<EarlyThread>,
}

/// Limit on the threads in a card.
pub const EARLY_THREADS_MAX: usize = 4096;

/// A thread that runs before `MPI_Init`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlyThread {
    /// The thread's number, the same in all replicas.
    pub thread: u64,
    /// Number of operations on locks that it has made; `u64::MAX` if it waits to be woken, one less if it
    /// has ended.
    pub made: u64,
}

/// Address of a process in one network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Name of the network.
    pub network: String,
    /// Address in the network's own form.
    pub address: String,
}
