//! The messages between `redrun` and the `redrtd` of each host.
//!
//! ```text
//! redrun                                redrtd
//!   │ ── Grow ───────────────────────────▶ │   starts the daemons below it in the tree
//!   │ ── Watch ──────────────────────────▶ │   all hosts are there; sent again when one is lost
//!   │ ── Launch ─────────────────────────▶ │   spawns its replicas
//!   │ ◀── Started | NotStarted ──────────  │   one for each
//!   │ ◀── Agent{Hello, Ready, …} ────────  │   forwarded from the processes; `Hello` was answered already
//!   │ ◀── Observed ──────────────────────  │   of another host, unasked or because of `Probe`
//!   │ ── Cards, View, Release ───────────▶ │   forwarded to every process that said `Hello`
//!   │ ◀── Output ────────────────────────  │   what the processes print
//!   │ ◀── Exited … Drained ──────────────  │   one of each for each process: dead; nothing more to print
//!   │ ── Shutdown ───────────────────────▶ │   kills what is left and leaves
//! ```
//! How these travel through the tree of daemons, and what happens when a connection breaks, is said in `tree`.

use crate::card::Card;
use crate::clone::{CloneId, CloneOrder, CloneStep, Pins};
use crate::control::{FromAgent, Options};
use crate::dynamic::{Answer, Origin};
use crate::exit::Exit;
use crate::fault::ProcessFault;
use crate::foreign::Foreign;
use crate::line::{self, Generation, LineOrder, LineStep, PartOrder, PartStep, Restore};
use crate::slots::Slots;
use crate::trace::Sending;
use redrt_types::{ReplicaId, View, VirtualRank, World};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The ABI that a program was built for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Abi {
    /// Nobody knows: a script or an interpreter may load a library of any.
    #[default]
    Any,
    /// The standard's, `libmpi_abi.so.1`.
    Standard,
    /// MPICH's, `libmpi.so.12`.
    Mpich,
    /// Open MPI's, `libmpi.so.40`.
    OpenMpi,
}

impl Abi {
    /// The file name of the library that has it; none for what is not known.
    #[must_use]
    pub fn library(self) -> Option<&'static str> {
        match self {
            Self::Any => None,
            Self::Standard => Some("libmpi_abi.so.1"),
            Self::Mpich => Some("libmpi.so.12"),
            Self::OpenMpi => Some("libmpi.so.40"),
        }
    }

    /// The file name of the library that has the procedures for Fortran, where it is another family's.
    #[must_use]
    pub fn fortran_library(self) -> Option<&'static str> {
        match self {
            Self::Any | Self::Standard => None,
            Self::Mpich => Some("libmpifort.so.12"),
            Self::OpenMpi => Some("libmpi_mpifh.so.40"),
        }
    }
}

/// One program of the command line (several when it is MPMD).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Application {
    /// The executable file.
    #[serde(with = "redrt_types::path_bytes")]
    pub program: PathBuf,
    /// The arguments, the first being the name the user gave the program.
    pub arguments: Vec<OsString>,
    /// The whole environment, without what the daemon adds.
    pub environment: Vec<(OsString, OsString)>,
    /// Working directory.
    #[serde(with = "redrt_types::path_bytes")]
    pub directory: PathBuf,
    /// Which library is put in front.
    pub abi: Abi,
}

/// To what processes are bound (`--bind-to`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum BindTo {
    /// To nothing.
    #[default]
    None,
    /// To an equal share of the cores, where there are enough.
    Share,
    /// To as many cores as they have threads.
    Core,
    /// To a socket.
    Socket,
    /// To a node of the memory.
    Numa,
}

/// How the processes of a host go over its cores, sockets and nodes of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Within {
    /// From the first to the last.
    #[default]
    Fill,
    /// Round the sockets.
    Socket,
    /// Round the nodes of the memory.
    Numa,
}

/// What processes may use of their host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Binding {
    /// What each has.
    pub to: BindTo,
    /// In which order.
    pub within: Within,
    /// The user is told.
    pub is_reported: bool,
    /// How many GPUs each is told of; 0 if nothing is said of them.
    pub gpus_per_process: u16,
}

/// Everything a daemon needs to start its part of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Launch {
    /// Random identity of the job.
    pub job: u64,
    /// Shape of the job.
    pub world: World,
    /// Membership now.
    pub view: View,
    /// Shared settings.
    pub options: Options,
    /// The number of the host of every process, in order of process number.
    pub placement: Vec<u32>,
    /// The programs.
    pub applications: Vec<Application>,
    /// Which program each virtual rank runs.
    pub application_of_rank: Vec<u32>,
    /// Faults the processes are to carry out themselves.
    pub faults: Vec<(ReplicaId, ProcessFault)>,
    /// Nanoseconds since the epoch when the job started, the same for all hosts: the base of replicas' clocks.
    pub start_time_ns: u64,
    /// The monotonic clock of `redrun`'s host at that time.
    pub start_monotonic_ns: u64,
    /// The host name that all replicas show their program, wherever they run.
    pub host_name: String,
    /// Whether replicas are started so that they can be cloned: each in a process-id namespace of its own.
    pub cloneable: bool,
    /// Where the job comes from.
    pub origin: Origin,
    /// Whether processes may use another MPI.
    pub allows_other_mpi: bool,
    /// What processes may use of their host.
    pub binding: Binding,
    /// What a rankfile says of that, of the processes that it says it of.
    pub slots: Vec<(ReplicaId, Slots)>,
    /// Whether rank 0 gets the standard input of `redrun`; `/dev/null` otherwise.
    pub standard_input: bool,
    /// From which line processes are restored; the program is started where there is none.
    pub restore: Option<Restore>,
}

impl Launch {
    /// Where the log of changed files is that hosts share, if they do.
    #[must_use]
    pub fn shared_log(&self) -> PathBuf {
        let directory = self.applications.first().map(|application| application.directory.as_path());
        line::shared_log(directory.unwrap_or(Path::new("/")), self.job)
    }
}

/// Parts of a launch that do not fit each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LaunchError {
    /// The view names replicas that the world has not.
    #[error("its view is of another job")]
    View,
    /// Programs are told for too few ranks, or too many.
    #[error("not every rank has a program")]
    RankWithoutProgram,
    /// A rank has the number of a program that was not told.
    #[error("a rank's program is missing")]
    ProgramMissing,
    /// A program has no first argument.
    #[error("a program has no name")]
    ProgramNameless,
    /// Hosts are told for too few processes, or too many.
    #[error("not every process has a host")]
    ProcessWithoutHost,
    /// A job goes on from a line that has too few processes, or too many.
    #[error("not every process has a place in the line")]
    PositionMissing,
}

impl Launch {
    /// Which of the ranks on its host a rank is, and how many these are. All replicas of a rank are told the same: what
    /// holds for the first of each, where the job begins.
    #[must_use]
    pub fn local_rank(&self, rank: VirtualRank) -> (usize, usize) {
        let first = |VirtualRank(rank)| self.world.process(ReplicaId::new(rank, 0));
        let host = |rank| self.placement.get(first(rank).0 as usize);
        let here: Vec<_> =
            (0..self.world.rank_count()).map(VirtualRank).filter(|other| host(*other) == host(rank)).collect();
        (here.iter().position(|other| *other == rank).unwrap_or(0), here.len())
    }

    /// The least rank whose replicas are on the same hosts as those of this one, index by index: their processes of one
    /// index can share memory.
    #[must_use]
    pub fn neighborhood(&self, rank: VirtualRank) -> VirtualRank {
        let placed = || self.world.replicas().zip(&self.placement).filter(|(replica, _)| self.view.is_live(*replica));
        let hosts = |rank| placed().filter(move |(replica, _)| replica.rank == rank).map(|(of, at)| (of.index, *at));
        let own: Vec<_> = hosts(rank).collect();
        (0..rank.0).map(VirtualRank).find(|other| hosts(*other).eq(own.iter().copied())).unwrap_or(rank)
    }

    /// The replicas to start on a host.
    pub fn replicas_on(&self, host: u32) -> impl Iterator<Item = ReplicaId> + '_ {
        let placed = self.world.replicas().zip(&self.placement);
        let here = placed.filter(move |(_, at)| **at == host).map(|(replica, _)| replica);
        here.filter(|replica| self.view.is_live(*replica))
    }

    /// Whether its parts fit each other.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), LaunchError> {
        let is_application = |number: &u32| (*number as usize) < self.applications.len();
        if !self.view.fits(&self.world) {
            Err(LaunchError::View)
        } else if self.application_of_rank.len() != self.world.rank_count() as usize {
            Err(LaunchError::RankWithoutProgram)
        } else if !self.application_of_rank.iter().all(is_application) {
            Err(LaunchError::ProgramMissing)
        } else if self.applications.iter().any(|application| application.arguments.is_empty()) {
            Err(LaunchError::ProgramNameless)
        } else if self.placement.len() != self.world.process_count() as usize {
            Err(LaunchError::ProcessWithoutHost)
        } else if self.restore.as_ref().is_some_and(|restore| restore.images.len() != self.placement.len()) {
            Err(LaunchError::PositionMissing)
        } else {
            Ok(())
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

/// A host as the user named it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct HostName {
    /// The user to log in as, if another.
    pub user: Option<String>,
    /// Its name or address.
    pub name: String,
}

impl HostName {
    /// Whether it can be a host's: it becomes a word of a command, and must not be taken for one of its options.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let is_word = |word: &str| {
            !word.is_empty() && !word.starts_with('-') && !word.contains(|c: char| c.is_whitespace() || c.is_control())
        };
        is_word(&self.name) && self.user.as_deref().is_none_or(is_word)
    }
}

/// How daemons are started on other hosts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Remote {
    /// The command that runs another on a host: `ssh` and its options.
    pub command: Vec<OsString>,
    /// Path of the daemon's executable.
    #[serde(with = "redrt_types::path_bytes")]
    pub daemon: PathBuf,
    /// The interface or network that daemons and processes are to use.
    pub interface: Option<String>,
    /// Where `redrun` listens.
    pub root: SocketAddr,
    /// How long processes go on when the root was killed, in milliseconds; 0 if they end with it.
    pub root_lease_ms: u64,
    /// They go on so long also when its host is lost, until [`ToDaemon::Roots`] says otherwise.
    pub has_several_roots: bool,
}

/// Daemons to be started by a daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Growth {
    /// Number and name of each host.
    pub hosts: Vec<(u32, HostName)>,
    /// How.
    pub remote: Remote,
}

/// Whom to watch, and how patiently.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Watch {
    /// The hosts that are there, in the order of the ring, and where their daemons listen.
    pub ring: Vec<(u32, SocketAddr)>,
    /// After this time without a sign a host is suspected.
    pub timeout_ms: u32,
}

/// Which hosts hold what the root decides, as daemons know it: whether nothing heard of the root is a reason to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Roots {
    /// Its own alone: the job is lost with it.
    One,
    /// Others are about to. If its host is lost, another may have the root, or none.
    Becoming,
    /// Several: if its host is lost, another has the root.
    Several,
}

/// What one daemon knows of another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Sign {
    /// It has been heard a moment ago.
    Alive,
    /// Nothing has been heard of it for a while: what do others hear?
    Quiet,
    /// Nothing has been heard of it for too long.
    Silent,
    /// Its host answers that there is no such process any more.
    Gone,
    /// The connection by which it was attached below the one who says so has ended: another has to watch it.
    Parted,
}

/// From `redrun` to a daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToDaemon {
    /// Start the daemons of these hosts, which are to connect to this one.
    Grow(Growth),
    /// All hosts of the job are there: watch your neighbours, and this connection.
    Watch(Watch),
    /// Another host is suspected: has it been heard?
    Probe {
        /// The host.
        host: u32,
    },
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
    /// To be forwarded: the memory of replicas is to be compared.
    Scrub(crate::scrub::Scrub),
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
    /// About a clone, to a host that takes part in it.
    Clone {
        /// The copy.
        id: CloneId,
        /// What to do.
        order: CloneOrder,
    },
    /// Start a member of the council of roots.
    Councillor(Box<Councillor>),
    /// Which hosts hold what the root decides from now on.
    Roots(Roots),
    /// What roots before this one have started daemons by, on whatever host. Those of yours are to end with you.
    Launchers(
        /// A list of `control_network::identity::ProcessIdentity`.
        #[serde(with = "serde_bytes")]
        Vec<u8>,
    ),
    /// About a line.
    Line {
        /// Its number.
        generation: Generation,
        /// What to do.
        order: LineOrder,
    },
    /// About the part of a line that a host has, and a copy of it.
    Part {
        /// The line.
        generation: Generation,
        /// Whose part.
        source: u32,
        /// What to do.
        order: PartOrder,
    },
    /// The program is to get this signal. Where ranks have replicas it is forwarded; else it is sent to the process.
    Deliver {
        /// Higher than those of signals before.
        number: u64,
        /// Which signal.
        signal: i32,
    },
    /// Stop all processes, or let them go on.
    Suspend(bool),
    /// To be forwarded: for whom to keep more than the view says.
    Pins(Pins),
    /// To be forwarded to this process: where in the program did you send this?
    Trace(ReplicaId, Sending),
    /// To be forwarded to this process: an answer, with the number of its question.
    Dynamic(ReplicaId, u64, Answer),
    /// Kill one process, as a fault or because it was fenced.
    Kill(ReplicaId),
    /// Send every process a signal.
    Signal(i32),
    /// Kill every process and all their descendants.
    KillAll,
    /// The job has ended well, and its lines are of no more use: when you leave, remove what is in this directory,
    /// which has those of all jobs, of this one.
    Forget(#[serde(with = "redrt_types::path_bytes")] PathBuf),
    /// Kill what is left and leave.
    Shutdown {
        /// The job has ended well: what processes have started in sessions of their own goes on.
        keeps_sessions: bool,
    },
}

impl FromDaemon {
    /// Which process it is about.
    #[must_use]
    pub fn replica(&self) -> Option<ReplicaId> {
        match self {
            Self::HostFailed { .. }
            | Self::Observed { .. }
            | Self::Note(_)
            | Self::InputTaken { .. }
            | Self::Part { .. }
            | Self::Clone { .. } => None,
            Self::Started { replica, .. }
            | Self::NotStarted { replica, .. }
            | Self::Bound { replica, .. }
            | Self::OtherMpi { replica, .. }
            | Self::Line { replica, .. }
            | Self::Agent { replica, .. }
            | Self::Output { replica, .. }
            | Self::Exited { replica, .. }
            | Self::Drained(replica) => Some(*replica),
        }
    }
}

/// A member of the council of roots that a daemon is to start on its host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Councillor {
    /// The job's number.
    pub job: u64,
    /// Its own number.
    pub id: u64,
    /// Its host, as users call it.
    pub host: String,
    /// Others, and where they listen.
    pub peers: Vec<(u64, SocketAddr)>,
    /// How many voters there are to be.
    pub voters: u8,
    /// After this time a member that is silent is replaced.
    pub timeout: Duration,
    /// It ends when there was no root for so long.
    pub lease: Duration,
}

/// From a daemon to `redrun`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromDaemon {
    /// The daemon of another host could not be started, or ended before it had connected.
    HostFailed {
        /// Which host.
        host: u32,
        /// Why.
        message: String,
    },
    /// What this daemon knows of another, which it watches.
    Observed {
        /// Which host.
        host: u32,
        /// What.
        sign: Sign,
    },
    /// A process was started.
    Started {
        /// The replica.
        replica: ReplicaId,
        /// Its process id.
        pid: i32,
    },
    /// A process may use these processors, and no others.
    Bound {
        /// The replica.
        replica: ReplicaId,
        /// As the kernel writes them: `0-3,8`.
        processors: String,
    },
    /// A process could not be started.
    NotStarted {
        /// The replica.
        replica: ReplicaId,
        /// Why.
        message: String,
    },
    /// A process has begun to use another MPI.
    OtherMpi {
        /// The replica.
        replica: ReplicaId,
        /// Which.
        found: Foreign,
    },
    /// A clone in which this host takes part has come so far.
    Clone {
        /// The copy.
        id: CloneId,
        /// How far.
        step: CloneStep,
    },
    /// The image of a process for a line has come so far.
    Line {
        /// Which line.
        generation: Generation,
        /// Whose image.
        replica: ReplicaId,
        /// How far.
        step: LineStep,
    },
    /// A copy of the part of a line that a host has has come so far.
    Part {
        /// The line.
        generation: Generation,
        /// Whose part.
        source: u32,
        /// How far.
        step: PartStep,
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
    /// Bytes of standard input that every replica of rank 0 on this host has taken since the last message.
    InputTaken {
        /// Number of bytes.
        byte_count: u64,
    },
    /// A process ended. More of its output may follow.
    Exited {
        /// The replica.
        replica: ReplicaId,
        /// How.
        exit: Exit,
        /// When the daemon found that, by the clock of its host: nanoseconds since 1970.
        found_at_ns: u64,
    },
    /// No more output of this process will follow.
    Drained(ReplicaId),
}
