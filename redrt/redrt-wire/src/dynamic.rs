//! What is said of jobs that a job starts, of names of ports (MPI-5.0 §11.8 and §11.9), and of lines that it asks for.
//!
//! ```text
//!  process ──Request──▶ redrun ──ToSpawned──▶ redrun of a job that was spawned
//!          ◀─Answer────        ◀─FromSpawned─
//! ```
//! `redrun` of a spawned job hands questions about names on to the one above it, so the first of a tree of jobs answers
//! all. The processes themselves meet over a port; nothing of that passes here but its name.

use serde::{Deserialize, Serialize};
use std::ffi::OsString;

/// Where a job comes from.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Origin {
    /// Identity of the first job of the tree that spawning makes.
    pub tree: u64,
    /// The port at which the job that spawned this one waits; it opens to those who know it.
    pub parent_port: Option<String>,
    /// Places that its hosts have, for `MPI_UNIVERSE_SIZE`.
    pub place_count: u32,
}

/// In the environment of a process, the error handler that its first communicators have (MPI-5.0 section 11.5,
/// `-initial-errhandler`): `mpi_errors_are_fatal`, `mpi_errors_abort` or `mpi_errors_return`.
pub const INITIAL_ERRHANDLER_VARIABLE: &str = "REDRT_INITIAL_ERRHANDLER";

/// One program of a job to be spawned.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Command {
    /// Its name.
    pub program: OsString,
    /// Its arguments, without its name.
    pub arguments: Vec<OsString>,
    /// How many processes.
    pub rank_count: u32,
    /// Working directory: of `MPI_Info`, or that of the process which spawns.
    pub directory: OsString,
    /// Directories in which the program is looked for first, separated by colons.
    pub path: Option<OsString>,
    /// Hosts to run on, as `redrun --hosts` takes them.
    pub hosts: Option<String>,
    /// The error handler of its first communicators, as [`INITIAL_ERRHANDLER_VARIABLE`] names it.
    pub initial_errhandler: Option<String>,
}

/// What a process asks of `redrun`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Start a job. There is an answer only if that fails: else the job comes to the port.
    Spawn {
        /// What is to be run.
        commands: Vec<Command>,
        /// Where the job is awaited.
        port: String,
    },
    /// It has come: from now on the two jobs end together.
    Met,
    /// About a name.
    Name(NameRequest),
    /// Take a line: all ranks are where that is good.
    Checkpoint,
}

/// What may be asked of a name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NameRequest {
    /// Publish this port under it.
    Publish {
        /// The name.
        service: String,
        /// The port.
        port: String,
    },
    /// Take it back.
    Unpublish {
        /// The name.
        service: String,
    },
    /// Which port has it?
    Lookup {
        /// The name.
        service: String,
    },
}

/// The answer to that.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NameAnswer {
    /// It was done.
    Done,
    /// The port of that name.
    Port(String),
    /// The name is not published.
    Unknown,
    /// The name is published already.
    Taken,
}

/// What `redrun` answers a process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The job could not be started, or ended before it came to the port. In words.
    NotSpawned(String),
    /// About a name.
    Name(NameAnswer),
    /// All processes were copied for a line, or none was taken.
    Checkpoint(bool),
}

/// From `redrun` to that of a job it has spawned.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ToSpawned {
    /// What to run, first of all.
    Begin {
        /// The programs.
        commands: Vec<Command>,
        /// The port, and the tree.
        origin: Origin,
    },
    /// The answer to the question of this number.
    Name(u64, NameAnswer),
}

/// From `redrun` of a spawned job to the one above it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromSpawned {
    /// A line for the user, if the two jobs have met; else why they will not.
    Error(String),
    /// A question, with its number.
    Name(u64, NameRequest),
}
