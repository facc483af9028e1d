//! Messages on jobs that a job starts, on names of ports (MPI-5.0 §11.8 and §11.9), and on checkpoints that a job asks
//! for.
//!
//! ```text
//!  process ──Request──▶ redrun ──ToSpawned──▶ redrun of a job that was spawned
//!          ◀─Answer────        ◀─FromSpawned─
//! ```
//! `redrun` of a spawned job passes questions on names to the one above it, so the first of a tree of jobs answers all.
//! The processes themselves meet over a port; only the name of that port passes here.

use serde::{Deserialize, Serialize};
use std::ffi::OsString;

/// The parent of a job.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Origin {
    /// Identity of the first job in the tree of spawned jobs.
    pub tree: u64,
    /// The port at which the job that spawned this one waits; it opens only to jobs that know its name. `None` if the
    /// job was not spawned.
    pub parent_port: Option<String>,
    /// Places of the job's hosts, for `MPI_UNIVERSE_SIZE`.
    pub place_count: u32,
}

/// Environment variable with the error handler of a process's first communicators (MPI-5.0 section 11.5,
/// `-initial-errhandler`): `mpi_errors_are_fatal`, `mpi_errors_abort` or `mpi_errors_return`.
pub const INITIAL_ERRHANDLER_VARIABLE: &str = "REDRT_INITIAL_ERRHANDLER";

/// One program of a job to be spawned.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Command {
    /// Its name.
    pub program: OsString,
    /// Its arguments, without its name.
    pub arguments: Vec<OsString>,
    /// Number of processes.
    pub rank_count: u32,
    /// Working directory: from `MPI_Info`, or that of the spawning process.
    pub directory: OsString,
    /// Directories to search for the program first, separated by colons.
    pub path: Option<OsString>,
    /// Hosts to run on, in the form of `redrun --hosts`; `None` to leave the choice to `redrun`.
    pub hosts: Option<String>,
    /// Error handler of its first communicators, in the form of [`INITIAL_ERRHANDLER_VARIABLE`].
    pub initial_errhandler: Option<String>,
}

/// A process's request to `redrun`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Start a job. Only a failure is answered: otherwise the job comes to the port.
    Spawn {
        /// Programs to run.
        commands: Vec<Command>,
        /// Port at which the job is awaited.
        port: String,
    },
    /// The job has come: from now on both jobs end together.
    Met,
    /// A request about a name.
    Name(NameRequest),
    /// Take a checkpoint: all ranks are at a suitable call.
    Checkpoint,
}

/// A request about the name of a port.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NameRequest {
    /// Publish this port under the name.
    Publish {
        /// The name.
        service: String,
        /// The port.
        port: String,
    },
    /// Withdraw the name.
    Unpublish {
        /// The name.
        service: String,
    },
    /// Look up the port with this name.
    Lookup {
        /// The name.
        service: String,
    },
}

/// The answer to such a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NameAnswer {
    /// It was done.
    Done,
    /// The port with that name.
    Port(String),
    /// The name is not published.
    Unknown,
    /// The name is published already.
    Taken,
}

/// An answer of `redrun` to a process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The job could not be started, or ended before it came to the port. With the reason.
    NotSpawned(String),
    /// The answer to a request about a name.
    Name(NameAnswer),
    /// True if all processes were copied for a checkpoint; false if no checkpoint was taken.
    Checkpoint(bool),
}

/// From `redrun` to the one of a job it has spawned.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToSpawned {
    /// First message: the programs to run.
    Begin {
        /// The programs.
        commands: Vec<Command>,
        /// The parent's port, and the tree.
        origin: Origin,
    },
    /// The answer to the question with this number.
    Name(u64, NameAnswer),
}

/// From `redrun` of a spawned job to the one above it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromSpawned {
    /// A line for the user once both jobs have met; before that the reason why they will not.
    Error(String),
    /// A question on a name, with its number.
    Name(u64, NameRequest),
}
