//! The messages between `redrun` and the `redrtd` of each host.
//!
//! ```text
//! redrun                                redrtd
//!   │ ◀───────── Host ───────────────────  │   after authentication
//!   │ ── Launch ─────────────────────────▶ │   spawns its replicas
//!   │ ◀── Started | NotStarted ──────────  │   one for each
//!   │ ◀── Agent{Hello, Ready, …} ────────  │   forwarded from the processes; `Hello` was answered already
//!   │ ── Cards, View, Release ───────────▶ │   forwarded to every process that said `Hello`
//!   │ ◀── Output ────────────────────────  │   what the processes print
//!   │ ◀── Exited … Drained ──────────────  │   one of each for each process: dead; nothing more to print
//!   │ ── Shutdown ───────────────────────▶ │   kills what is left and leaves
//! ```
//! When the connection breaks, the daemon kills its processes and leaves; `redrun` counts all of them as lost.

use crate::auth::Secret;
use crate::control::{Card, FromAgent, Options, ProcessFault};
use redrt_types::{ReplicaId, View, World};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;

/// One program of the command line (several when it is MPMD).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Application {
    /// The executable file.
    pub program: PathBuf,
    /// The arguments, the first being the name the user gave the program.
    pub arguments: Vec<OsString>,
    /// The whole environment, without what the daemon adds.
    pub environment: Vec<(OsString, OsString)>,
    /// Working directory.
    pub directory: PathBuf,
}

/// Everything a daemon needs to start its part of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Launch {
    /// Random identity of the job.
    pub job: u64,
    /// The job's secret, handed on to the processes for their data connections.
    pub secret: Secret,
    /// Shape of the job.
    pub world: World,
    /// Membership now.
    pub view: View,
    /// Shared settings.
    pub options: Options,
    /// Number of this host within the job.
    pub host_number: u32,
    /// The programs.
    pub applications: Vec<Application>,
    /// Which program each virtual rank runs.
    pub application_of_rank: Vec<u32>,
    /// The replicas to start on this host.
    pub replicas: Vec<ReplicaId>,
    /// Faults the processes are to carry out themselves.
    pub faults: Vec<(ReplicaId, ProcessFault)>,
    /// Nanoseconds since the epoch when the job started, the same for all hosts: the base of replicas' clocks.
    pub start_time_ns: u64,
    /// The monotonic clock of `redrun`'s host at that time.
    pub start_monotonic_ns: u64,
    /// The host name that all replicas show their program, wherever they run.
    pub host_name: String,
    /// Whether rank 0 gets the standard input of `redrun`; `/dev/null` otherwise.
    pub standard_input: bool,
}

impl Launch {
    /// Whether its parts fit each other; else what does not.
    pub fn check(&self) -> Result<(), &'static str> {
        let is_application = |number: &u32| (*number as usize) < self.applications.len();
        if !self.view.fits(&self.world) {
            Err("its view is of another job")
        } else if self.application_of_rank.len() != self.world.rank_count() as usize {
            Err("not every rank has a program")
        } else if !self.application_of_rank.iter().all(is_application) {
            Err("a rank's program is missing")
        } else if self.applications.iter().any(|application| application.arguments.is_empty()) {
            Err("a program has no name")
        } else if !self.replicas.iter().all(|replica| self.view.is_live(*replica)) {
            Err("a replica is not in the job")
        } else {
            Ok(())
        }
    }
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Exit {
    /// It exited with this status.
    Status(i32),
    /// It was killed by this signal.
    Signal(i32),
}

impl Exit {
    /// The exit code a shell would report.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::Status(status) => status,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// Which stream of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// From `redrun` to a daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToDaemon {
    /// Start your part of the job.
    Launch(Box<Launch>),
    /// To be forwarded: every live process is ready.
    Cards(Vec<Card>),
    /// To be forwarded: the membership changed.
    View(View),
    /// To be forwarded: leave `MPI_Finalize`.
    Release,
    /// To be forwarded: is there anything you can do by yourself?
    Ask {
        /// Number of the question.
        wave: u64,
    },
    /// Bytes for the standard input of every replica of rank 0.
    Input {
        /// The bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Standard input has ended.
    InputEnd,
    /// Stop reading what processes print (all, or one), so that they block when their pipes are full; or go on.
    HoldOutput {
        /// Which process; all when absent.
        replica: Option<ReplicaId>,
        /// Whether to stop.
        held: bool,
    },
    /// Kill one process, as a fault or because it was fenced.
    Kill(ReplicaId),
    /// Send every process a signal.
    Signal(i32),
    /// Kill every process and all their descendants.
    KillAll,
    /// Kill what is left and leave.
    Shutdown,
}

impl FromDaemon {
    /// Which process it is about.
    #[must_use]
    pub fn replica(&self) -> Option<ReplicaId> {
        match self {
            Self::Host { .. } | Self::Note(_) | Self::InputTaken { .. } => None,
            Self::Started { replica, .. }
            | Self::NotStarted { replica, .. }
            | Self::Agent { replica, .. }
            | Self::Output { replica, .. }
            | Self::Exited { replica, .. }
            | Self::Drained(replica) => Some(*replica),
        }
    }
}

/// From a daemon to `redrun`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromDaemon {
    /// First message.
    Host {
        /// Name of the host.
        name: String,
        /// CPUs the daemon may use.
        cpu_count: u32,
    },
    /// A process was started.
    Started {
        /// Which.
        replica: ReplicaId,
        /// Its process id.
        pid: i32,
    },
    /// A process could not be started.
    NotStarted {
        /// Which.
        replica: ReplicaId,
        /// Why.
        message: String,
    },
    /// Something the user should know about this host, once.
    Note(String),
    /// A process said this.
    Agent {
        /// Which process.
        replica: ReplicaId,
        /// What it said.
        message: FromAgent,
    },
    /// A process printed this.
    Output {
        /// Which process.
        replica: ReplicaId,
        /// Where.
        stream: Stream,
        /// What.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// So many more bytes of standard input were taken by every replica of rank 0 on this host.
    InputTaken {
        /// Number of bytes.
        byte_count: u64,
    },
    /// A process ended. More of its output may follow.
    Exited {
        /// Which.
        replica: ReplicaId,
        /// How.
        exit: Exit,
    },
    /// No more output of this process will follow.
    Drained(ReplicaId),
}
