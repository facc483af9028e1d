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
//!   │ ◀── Output ────────────────────────  │   output of the processes
//!   │ ◀── Exited … Drained ──────────────  │   one of each for each process: dead; nothing more to print
//!   │ ── Shutdown ───────────────────────▶ │   kills all remaining processes and leaves
//! ```
//! `tree` says how these messages travel through the tree of daemons, and what happens when a connection breaks.

use crate::card::Card;
use crate::checkpoint::{self, CheckpointOrder, CheckpointStep, Generation, PartOrder, PartStep, Restore};
use crate::clone::{CloneId, CloneOrder, CloneStep, Pins};
use crate::control::{FromAgent, Options};
use crate::dynamic::{Answer, Origin};
use crate::exit::Exit;
use crate::fault::ProcessFault;
use crate::foreign::Foreign;
use crate::slots::Slots;
use crate::trace::TracePoint;
use redrt_types::{ReplicaId, View, VirtualRank, World};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The ABI that a program was built for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Abi {
    /// Unknown: a script or an interpreter may load a library of any.
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
    /// File name of the library with this ABI; `None` if the ABI is unknown.
    #[must_use]
    pub fn library(self) -> Option<&'static str> {
        match self {
            Self::Any => None,
            Self::Standard => Some("libmpi_abi.so.1"),
            Self::Mpich => Some("libmpi.so.12"),
            Self::OpenMpi => Some("libmpi.so.40"),
        }
    }

    /// File name of the library with the Fortran procedures, where another MPI has a library of its own for them.
    #[must_use]
    pub fn fortran_library(self) -> Option<&'static str> {
        match self {
            Self::Any | Self::Standard => None,
            Self::Mpich => Some("libmpifort.so.12"),
            Self::OpenMpi => Some("libmpi_mpifh.so.40"),
        }
    }
}

/// A program of the command line (several with MPMD).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Application {
    /// The executable file.
    #[serde(with = "redrt_types::path_bytes")]
    pub program: PathBuf,
    /// The arguments, the first being the name the user gave the program.
    pub arguments: Vec<OsString>,
    /// The whole environment, without the variables that the daemon adds.
    pub environment: Vec<(OsString, OsString)>,
    /// Working directory.
    #[serde(with = "redrt_types::path_bytes")]
    pub directory: PathBuf,
    /// ABI of the library that is put first in its search path.
    pub abi: Abi,
}

/// Hardware that each process is bound to (`--bind-to`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum BindTo {
    /// No binding.
    #[default]
    None,
    /// An equal share of the cores, if there are enough.
    Share,
    /// As many cores as the process has threads.
    Core,
    /// All cores of a socket.
    Socket,
    /// All cores of a memory node.
    Numa,
}

/// Order in which processes of a host get its cores, sockets and memory nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Within {
    /// From the first core to the last.
    #[default]
    Fill,
    /// Round robin over the sockets.
    Socket,
    /// Round robin over the memory nodes.
    Numa,
}

/// Resources of a host that its processes may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Binding {
    /// Hardware of each process.
    pub to: BindTo,
    /// Order of the processes over the hardware.
    pub within: Within,
    /// True if the user gets a report of the bindings.
    pub is_reported: bool,
    /// GPUs shown to each process; 0 to leave that setting alone.
    pub gpus_per_process: u16,
}

/// All that a daemon needs to start its part of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Launch {
    /// Random identity of the job.
    pub job: u64,
    /// Shape of the job.
    pub world: World,
    /// Membership at the launch.
    pub view: View,
    /// Settings that all processes share.
    pub options: Options,
    /// Host number of each process, by process number.
    pub placement: Vec<u32>,
    /// The programs of the job.
    pub applications: Vec<Application>,
    /// Number of the program of each virtual rank.
    pub application_of_rank: Vec<u32>,
    /// Faults that processes inject into themselves.
    pub faults: Vec<(ReplicaId, ProcessFault)>,
    /// Start of the job in nanoseconds since the epoch, the same for all hosts: the base of replicas' clocks.
    pub start_time_ns: u64,
    /// Reading of the monotonic clock of `redrun`'s host at that time.
    pub start_monotonic_ns: u64,
    /// The host name that all replicas show their program, wherever they run.
    pub host_name: String,
    /// True if replicas are started so that they can be cloned: each in a process-id namespace of its own.
    pub cloneable: bool,
    /// The parent of the job, if it was spawned.
    pub origin: Origin,
    /// True if processes may use another MPI.
    pub allows_other_mpi: bool,
    /// Resources of a host that its processes may use.
    pub binding: Binding,
    /// Cores from a rankfile, for the processes that it lists.
    pub slots: Vec<(ReplicaId, Slots)>,
    /// True if rank 0 gets the standard input of `redrun`; otherwise it gets `/dev/null`.
    pub standard_input: bool,
    /// Checkpoint from which processes are restored; `None` to start the programs.
    pub restore: Option<Restore>,
}

impl Launch {
    /// Path of the log of changed files that hosts share, if they do.
    #[must_use]
    pub fn shared_log(&self) -> PathBuf {
        let directory = self.applications.first().map(|application| application.directory.as_path());
        checkpoint::shared_log(directory.unwrap_or(Path::new("/")), self.job)
    }
}

/// Contradictions between parts of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LaunchError {
    /// The view names replicas that the world has not.
    #[error("its view is of another job")]
    View,
    /// The programs of ranks are too few or too many.
    #[error("not every rank has a program")]
    RankWithoutProgram,
    /// A rank has the number of a program that is not in the launch.
    #[error("a rank's program is missing")]
    ProgramMissing,
    /// A program has no first argument.
    #[error("a program has no name")]
    ProgramNameless,
    /// The hosts of processes are too few or too many.
    #[error("not every process has a host")]
    ProcessWithoutHost,
    /// A checkpoint has images of too few processes, or of too many.
    #[error("not every process has a place in the checkpoint")]
    PositionMissing,
}

impl Launch {
    /// Number of a rank among the ranks of its host, and their count. It is the same for all replicas of a rank: that
    /// of the first replica of each rank, at the begin of the job.
    #[must_use]
    pub fn local_rank(&self, rank: VirtualRank) -> (usize, usize) {
        let first = |VirtualRank(rank)| self.world.process(ReplicaId::new(rank, 0));
        let host = |rank| self.placement.get(first(rank).0 as usize);
        let here: Vec<_> =
            (0..self.world.rank_count()).map(VirtualRank).filter(|other| host(*other) == host(rank)).collect();
        (here.iter().position(|other| *other == rank).unwrap_or(0), here.len())
    }

    /// The least rank whose replicas are on the same hosts as those of this one, index by index: processes of one index
    /// of both ranks can share memory.
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

    /// Checks that the parts of the launch fit each other.
    ///
    /// # Errors
    /// The first contradiction.
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

/// Output stream of a process.
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
    /// The user to log in as; `None` for the present one.
    pub user: Option<String>,
    /// Its name or address.
    pub name: String,
}

impl HostName {
    /// Returns true if it can name a host. It becomes a word of a command, and must not be mistaken for an option.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let is_word = |word: &str| {
            !word.is_empty() && !word.starts_with('-') && !word.contains(|c: char| c.is_whitespace() || c.is_control())
        };
        is_word(&self.name) && self.user.as_deref().is_none_or(is_word)
    }
}

/// Means to start daemons on other hosts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Remote {
    /// The command that runs another on a host: `ssh` and its options.
    pub command: Vec<OsString>,
    /// Path of the daemon's executable.
    #[serde(with = "redrt_types::path_bytes")]
    pub daemon: PathBuf,
    /// The interface or network that daemons and processes must use; `None` for any.
    pub interface: Option<String>,
    /// Address at which `redrun` listens.
    pub coordinator: SocketAddr,
    /// Time in milliseconds that processes go on after the coordinator was killed; 0 if they end with it.
    pub coordinator_lease_ms: u64,
    /// True if they go on that long also when the coordinator's host is lost, until [`ToDaemon::Coordinators`] says
    /// otherwise.
    pub has_several_coordinators: bool,
}

/// Daemons that a daemon has to start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Growth {
    /// Number and name of each host.
    pub hosts: Vec<(u32, HostName)>,
    /// Means to start them.
    pub remote: Remote,
}

/// Hosts to watch, and the patience with them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Watch {
    /// The hosts that are there, in the order of the ring, with the addresses of their daemons.
    pub ring: Vec<(u32, SocketAddr)>,
    /// Silence in milliseconds after which a host is suspected.
    pub timeout_ms: u32,
}

/// Hosts that hold the coordinator's decisions, as daemons know them. They decide whether silence of the coordinator is
/// a reason to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Coordinators {
    /// The coordinator's host alone: the job is lost with it.
    One,
    /// Further hosts are about to. If the coordinator's host is lost, another one may have the root, or none.
    Becoming,
    /// Several hosts: if the coordinator's host is lost, another one has the coordinator.
    Several,
}

/// One daemon's knowledge of another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Sign {
    /// Heard of a moment ago.
    Alive,
    /// Silent for a while: a question to the others.
    Quiet,
    /// Silent for too long.
    Silent,
    /// Its host answers that the process is gone.
    Gone,
    /// The connection that attached it below the reporting daemon has ended: another daemon has to watch it.
    Parted,
}

/// From `redrun` to a daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToDaemon {
    /// Start the daemons of these hosts, which are to connect to this one.
    Grow(Growth),
    /// All hosts of the job are there: watch your neighbours, and this connection.
    Watch(Watch),
    /// Report whether this suspected host has been heard.
    Probe {
        /// The suspected host.
        host: u32,
    },
    /// Start your part of the job.
    Launch(Box<Launch>),
    /// To be forwarded: cards of all live processes, which are ready.
    Cards(Vec<Card>),
    /// To be forwarded: the new membership.
    View(View),
    /// To be forwarded: leave `MPI_Finalize`.
    Release,
    /// To be forwarded: report whether you can do anything by yourself.
    Ask {
        /// Number of the question.
        wave: u64,
    },
    /// To be forwarded: compare memory with the other replicas.
    Scrub(crate::scrub::Scrub),
    /// Bytes for the standard input of all replicas of rank 0.
    Input {
        /// The bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Standard input has ended.
    InputEnd,
    /// Stop reading the output of processes, so that they block once their pipes are full; or go on.
    HoldOutput {
        /// The process; `None` for all.
        replica: Option<ReplicaId>,
        /// True to stop.
        held: bool,
    },
    /// About a clone, to a host that takes part in it.
    Clone {
        /// The copy.
        id: CloneId,
        /// The order.
        order: CloneOrder,
    },
    /// Start a member of the quorum of coordinators.
    QuorumPeer(Box<QuorumPeer>),
    /// The hosts that hold the coordinator's decisions from now on.
    Coordinators(Coordinators),
    /// The processes by which earlier coordinators have started daemons, on any host. Processes of your host are to end
    /// with you.
    Launchers(
        /// A list of `control_network::identity::ProcessIdentity`.
        #[serde(with = "serde_bytes")]
        Vec<u8>,
    ),
    /// About a checkpoint, to the hosts that have a part in it.
    Checkpoint {
        /// Its number.
        generation: Generation,
        /// The order.
        order: CheckpointOrder,
    },
    /// About a host's part of a checkpoint, and a copy of it.
    Part {
        /// The checkpoint.
        generation: Generation,
        /// Host number of the part's owner.
        source: u32,
        /// The order.
        order: PartOrder,
    },
    /// Raise this signal in the program. Where ranks have replicas it is forwarded; else it is sent to the process.
    Deliver {
        /// Higher than the numbers of earlier signals.
        number: u64,
        /// Number of the signal, as the system has it.
        signal: i32,
    },
    /// Stop all processes, or let them go on.
    Suspend(bool),
    /// To be forwarded: the newcomers for which messages are kept.
    Pins(Pins),
    /// To be forwarded to this process: report this position in the program.
    Trace(ReplicaId, TracePoint),
    /// To be forwarded to this process: an answer, with the number of its question.
    Dynamic(ReplicaId, u64, Answer),
    /// Kill one process, as a fault or because it was fenced.
    Kill(ReplicaId),
    /// Send every process a signal.
    Signal(i32),
    /// Kill every process and all their descendants.
    KillAll,
    /// Remove this job's checkpoints from a directory, which has those of all jobs, when you leave: the job has ended
    /// well, and its checkpoints are of no more use.
    Forget(#[serde(with = "redrt_types::path_bytes")] PathBuf),
    /// Kill all remaining processes and leave.
    Shutdown {
        /// True if the job has ended well: processes in sessions of their own go on.
        keeps_sessions: bool,
    },
}

impl FromDaemon {
    /// The process that the message is about; `None` if it is about none.
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
            | Self::Checkpoint { replica, .. }
            | Self::Agent { replica, .. }
            | Self::Output { replica, .. }
            | Self::Exited { replica, .. }
            | Self::Drained(replica) => Some(*replica),
        }
    }
}

/// A member of the quorum of coordinators that a daemon is to start on its host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QuorumPeer {
    /// The job's number.
    pub job: u64,
    /// Number of this member.
    pub id: u64,
    /// Name of its host, as users call it.
    pub host: String,
    /// Numbers and addresses of the other members.
    pub peers: Vec<(u64, SocketAddr)>,
    /// Number of voters that there must be.
    pub voters: u8,
    /// Silence after which a member is replaced.
    pub timeout: Duration,
    /// Time without a coordinator after which the member ends.
    pub lease: Duration,
}

/// From a daemon to `redrun`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromDaemon {
    /// The daemon of another host could not be started, or ended before it connected.
    HostFailed {
        /// Number of the host.
        host: u32,
        /// Reason, for the user.
        message: String,
    },
    /// This daemon's knowledge of another, which it watches.
    Observed {
        /// Number of that host.
        host: u32,
        /// State of that daemon.
        sign: Sign,
    },
    /// A process was started.
    Started {
        /// The replica.
        replica: ReplicaId,
        /// Its process id.
        pid: i32,
    },
    /// A process is bound to these processors.
    Bound {
        /// The replica.
        replica: ReplicaId,
        /// List in the kernel's form: `0-3,8`.
        processors: String,
    },
    /// A process could not be started.
    NotStarted {
        /// The replica.
        replica: ReplicaId,
        /// Reason, for the user.
        message: String,
    },
    /// A process has begun to use another MPI.
    OtherMpi {
        /// The replica.
        replica: ReplicaId,
        /// The other MPI.
        found: Foreign,
    },
    /// Progress of a clone in which this host takes part.
    Clone {
        /// The copy.
        id: CloneId,
        /// The step that is done.
        step: CloneStep,
    },
    /// Progress of the image of a process for a checkpoint.
    Checkpoint {
        /// Number of the checkpoint.
        generation: Generation,
        /// The process.
        replica: ReplicaId,
        /// The step that is done.
        step: CheckpointStep,
    },
    /// Progress of a copy of a host's part of a checkpoint.
    Part {
        /// The checkpoint.
        generation: Generation,
        /// Host number of the part's owner.
        source: u32,
        /// The step that is done.
        step: PartStep,
    },
    /// A note for the user about this host, sent once.
    Note(String),
    /// A message from a process.
    Agent {
        /// The process.
        replica: ReplicaId,
        /// Its message.
        message: FromAgent,
    },
    /// Output of a process.
    Output {
        /// The process.
        replica: ReplicaId,
        /// The stream.
        stream: Stream,
        /// Bytes of the output.
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
        /// Status or signal.
        exit: Exit,
        /// Time at which the daemon noticed, in nanoseconds since 1970 by the clock of its host.
        found_at_ns: u64,
    },
    /// All output of this process has been sent.
    Drained(ReplicaId),
}
