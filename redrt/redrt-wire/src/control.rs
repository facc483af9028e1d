//! The control messages, by direction.
//!
//! ```text
//! redrun ──ToDaemon──▶ redrtd ──ToAgent──▶ agent thread in each application process
//!        ◀─FromDaemon─        ◀─FromAgent─
//! ```
//! The life of a process: `Hello` → `Welcome`; once every live process of the job has sent `Ready`, `Cards`; then a
//! `View` for each change of membership; in `MPI_Finalize` `Finalizing`, answered by `Release` once every live process
//! has sent it.

use crate::card::Card;
use crate::checkpoint::UndoPlace;
use crate::clone::Pins;
use crate::dynamic::{Answer as DynamicAnswer, Origin, Request};
use crate::event::{Coverage, Event, Statistics};
use crate::fault::ProcessFault;
use crate::lack::Lack;
use crate::profile::ProcessProfile;
use crate::scrub::{Answer, Scrub};
use crate::secret::Secret;
use crate::trace::{Trace, TracePoint};
use redrt_types::{Incarnation, ProcessIndex, ReplicaId, View, ViewNumber, VirtualRank, World};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Environment variable with the number of the inherited control descriptor (a connected unix stream socket). It has
/// the same value in every replica, because the environment of replicas must not differ.
pub const CONTROL_FD_VARIABLE: &str = "REDRT_CONTROL_FD";

/// Environment variable with the number of the listening socket of the cloner's agent, in processes that can be cloned.
pub const CLONER_FD_VARIABLE: &str = "REDRT_CLONER_FD";

/// Ways of a logical message to the replicas of its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Protocol {
    /// One payload for each receiver, digests from the other replicas (RedMPI's MsgPlusHash).
    #[default]
    Hash,
    /// Every payload from every replica of the sender.
    AllToAll,
}

/// Completion of a receive relative to its verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Verification {
    /// After the verdict.
    #[default]
    Strict,
    /// Before the verdict, which follows.
    Deferred,
}

/// Transports that may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Transport {
    /// Shared memory within a host, TCP between hosts.
    #[default]
    Auto,
    /// Shared memory only.
    Shm,
    /// TCP only.
    Tcp,
}

/// Nondeterministic outcomes that the leader decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Determinism {
    /// All outcomes.
    #[default]
    Full,
    /// Wildcard matches only: the program's sends are declared not to depend on Test*, probes and clocks.
    Sends,
}

/// Replicas that write the program's POSIX files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Files {
    /// One replica of each rank; with three or more replicas, once a majority asks for the same.
    #[default]
    Once,
    /// One replica of each rank, as soon as it asks.
    Leader,
    /// Every replica, as an unreplicated process would.
    All,
}

/// Order in which threads take locks, and in which threads of an interpreter with a global lock run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Threads {
    /// The order of the leader's threads.
    #[default]
    Order,
    /// None: each replica's threads run freely.
    None,
}

/// Treatment of replicas that differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum OnSdc {
    /// End the wrong replica, and let a copy of a sound one take its place.
    #[default]
    Heal,
    /// Deliver the majority's message; the wrong replica stays.
    Correct,
    /// Only report: the message is delivered as it arrived.
    Report,
    /// As `Heal`, and end the job when nobody knows which replica is wrong.
    Abort,
    /// As `Heal`, and have the job go back to a proven checkpoint when nobody knows which replica is wrong.
    Return,
}

impl OnSdc {
    /// Returns true if no process goes on when nobody knows which replica is wrong.
    #[must_use]
    pub fn stops_undecided(self) -> bool {
        matches!(self, Self::Abort | Self::Return)
    }
}

/// Settings that all processes of a job share.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Options {
    /// Message protocol.
    pub protocol: Protocol,
    /// Verification mode.
    pub verification: Verification,
    /// Allowed transports.
    pub transport: Transport,
    /// Outcomes that the leader decides.
    pub determinism: Determinism,
    /// Replicas that write the program's files.
    pub files: Files,
    /// Order of the program's threads.
    pub threads: Threads,
    /// Treatment of replicas that differ.
    pub on_sdc: OnSdc,
    /// Seed of the digests and of replacements of random bytes, the same in the whole job.
    pub seed: u64,
    /// True while faults are injected: each process sums its messages, so that the reach of a fault can be seen
    /// afterwards.
    pub sums_messages: bool,
    /// True if the memory of replicas is compared from time to time.
    pub scrubs: bool,
    /// True if siblings read files themselves, and compare with the bytes that the leader read.
    pub verifies_reads: bool,
    /// True if a copy's memory is compared with its source's by a digest before it joins.
    pub verifies_clones: bool,
    /// True if each send records its position in the program.
    pub traces: bool,
    /// True if the members of a communicator compare the collectives they call.
    pub checks_collectives: bool,
    /// True if calls that the standard leaves undefined are refused, even where other MPIs accept them.
    pub pedantic: bool,
    /// True if calls are timed and messages counted, for a report at the end.
    pub profiles: bool,
    /// True if the job is saved, so that processes may go on elsewhere: they share no memory of the program's.
    pub is_saved: bool,
}

/// The host's shared memory, a memfd inherited by every process of the host.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SharedMemory {
    /// Descriptor number in the process.
    pub fd: i32,
    /// Number of slots: the process count of the job and the places kept free for clones.
    pub slot_count: u32,
}

/// Bytes of the header of a host's shared memory.
pub const HEAD_BYTES: usize = 4096;
/// Bytes of a process's slot.
pub const SLOT_BYTES: usize = 4096;
/// Least size in bytes of the ring of an ordered pair of processes.
pub const RING_BYTES_LEAST: usize = 32 << 10;
/// Largest size of such a ring: two processes that send each other 64 messages of 1 KiB before they receive do not wait
/// for room.
pub const RING_BYTES_MOST: usize = 128 << 10;
/// Bytes of all rings to one process, as far as the bounds on a ring allow.
const RINGS_BYTES: usize = 2 << 20;
/// Bytes of a process's boards: 32 places of four pages, and behind them the annexes of each, 256 KiB.
pub const BOARDS_BYTES: usize = 32 * (4 * 4096 + (256 << 10));

/// Size in bytes of the ring of an ordered pair of processes on a host with `slot_count` slots, a power of two. A
/// process that sends to all touches all of its rings in time, so they are shorter where there are many.
#[must_use]
pub const fn ring_bytes(slot_count: u32) -> usize {
    let share = RINGS_BYTES / (slot_count as usize).next_power_of_two();
    if share > RING_BYTES_MOST {
        RING_BYTES_MOST
    } else if share < RING_BYTES_LEAST {
        RING_BYTES_LEAST
    } else {
        share
    }
}

/// Size in bytes of a host's shared memory for `slot_count` processes. It is mostly holes: untouched pages take no
/// memory.
#[must_use]
pub fn shared_memory_bytes(slot_count: u32) -> u64 {
    let slots = u64::from(slot_count);
    HEAD_BYTES as u64 + slots * (SLOT_BYTES + BOARDS_BYTES) as u64 + slots * slots * ring_bytes(slot_count) as u64
}

/// Bytes of each process's region in the memory for all windows of a host: the bound on a window's size. Regions are
/// holes until they are used.
pub const WINDOW_REGION_BYTES: u64 = 1 << 40;

/// Offset of a process's region in that memory.
#[must_use]
pub const fn window_region(process: ProcessIndex) -> u64 {
    process.0 as u64 * WINDOW_REGION_BYTES
}

/// All that a process needs to take its place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// Random identity of the job.
    pub job: u64,
    /// The secret of the job's links, which opens nothing else.
    pub link_secret: Secret,
    /// The place this process takes.
    pub me: ReplicaId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Shape of the job.
    pub world: World,
    /// Membership at this time.
    pub view: View,
    /// Shared settings.
    pub options: Options,
    /// Name of this host; at r = 1 also the result of `MPI_Get_processor_name`.
    pub host: String,
    /// Number of this host within the job.
    pub host_number: u32,
    /// Number of the job's processes on this host, this one included, that may use this one's processors.
    pub core_sharers: u32,
    /// The host's shared memory; `None` if the transport is TCP only.
    pub shared_memory: Option<SharedMemory>,
    /// Descriptor of the memory for windows that ranks share, which all processes of this host have. `None` where
    /// processes make such memory by themselves, since they are neither saved nor copied.
    pub windows: Option<i32>,
    /// The least rank whose replicas were started on the same hosts as those of this rank, index by index. Ranks with
    /// the same such number can share memory.
    pub neighborhood: VirtualRank,
    /// View up to which that holds: replicas that joined later, as copies, may be elsewhere.
    pub placed: ViewNumber,
    /// Address on which the process accepts data connections (port 0).
    pub listen: SocketAddr,
    /// Faults to carry out.
    pub faults: Vec<ProcessFault>,
    /// Number of this process's program on an MPMD command line, for `MPI_APPNUM`.
    pub application: u32,
    /// The parent of the job, if it was spawned.
    pub origin: Origin,
}

/// Contradictions between parts of a welcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WelcomeError {
    /// The view names replicas that the world has not.
    #[error("a view of another job")]
    View,
    /// The process itself is not in the view.
    #[error("a place that is not in the job")]
    Place,
    /// The host's memory has too few slots.
    #[error("shared memory for another job")]
    Memory,
}

impl Welcome {
    /// Checks that the parts of the welcome fit each other.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), WelcomeError> {
        let slots = |memory: SharedMemory| memory.slot_count >= self.world.process_count();
        if !self.view.fits(&self.world) {
            Err(WelcomeError::View)
        } else if !self.world.contains(self.me) || !self.view.is_live(self.me) {
            Err(WelcomeError::Place)
        } else if !self.shared_memory.is_none_or(slots) {
            Err(WelcomeError::Memory)
        } else {
            Ok(())
        }
    }
}

/// All that a copy needs to take its place beyond its source's memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopyPlace {
    /// The place it takes.
    pub me: ReplicaId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Name of its host.
    pub host: String,
    /// Number of its host within the job.
    pub host_number: u32,
    /// See [`Welcome::neighborhood`]. A copy has its source's; a process that goes on from a checkpoint has the present
    /// one.
    pub neighborhood: VirtualRank,
    /// See [`Welcome::placed`], likewise.
    pub placed: ViewNumber,
    /// Number of the job's processes on its host that may use its processors.
    pub core_sharers: u32,
    /// Address on which the copy accepts data connections (port 0).
    pub listen: SocketAddr,
    /// Proves to other processes that it is of the job. A job that goes on from a checkpoint has a new one: two jobs
    /// that go on from one line must not share it.
    pub link_secret: Secret,
    /// True if it goes on as the process of its image, with the whole job: `me` is its own old place.
    pub is_restored: bool,
    /// For a restored process: true if it leads its rank, so that it must have its file locks before others go on.
    pub leads: bool,
    /// For a restored process: the log of its changes of files, if it keeps one.
    pub undo: Option<UndoPlace>,
}

/// From a daemon to an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToAgent {
    /// The answer to `Hello`.
    Welcome(Box<Welcome>),
    /// The answer to the `Hello` of a copy.
    Place(Box<CopyPlace>),
    /// Cards of all live processes, by process number, once every one is ready; later those of copies, each before the
    /// `View` that has it.
    Cards(Vec<Card>),
    /// The new membership.
    View(View),
    /// All live processes are finalizing: leave.
    Release,
    /// Keep messages for these newcomers and no others: copies that will take a place, that are not in step yet, or
    /// that stand ready. Answered by `Pinned`.
    Pins(Pins),
    /// Report this position in the program. Answered by `Trace`.
    Trace(TracePoint),
    /// True while its output is not read until siblings have printed as much.
    Held(bool),
    /// Report whether you can do anything by yourself. Answered by `Answer`.
    Ask {
        /// Number of the question, the same for all processes.
        wave: u64,
    },
    /// Compare memory with the other replicas.
    Scrub(Scrub),
    /// The answer to the question of this number, in `Dynamic`.
    Dynamic(u64, DynamicAnswer),
    /// A signal of the user, with its number: it must come at the same call in all replicas of the rank.
    Signal {
        /// Higher than the numbers of earlier signals.
        number: u64,
        /// Number of the signal, as the system has it.
        signal: i32,
    },
    /// To a process that is held for a checkpoint and has sent `Quiet`: all are quiet, and from now on it logs its
    /// changes of files there. `None`: the checkpoint was abandoned.
    CheckpointGoes(Option<UndoPlace>),
    /// Lets the thread that waits for a flip (`AwaitsFlip`) go on without one.
    NoFlip,
    /// To a process whose sibling is being saved: the log for its own changes of files, if it has to make them. Comes
    /// before a `View` in which it may have to.
    ChangesSince(UndoPlace),
}

/// Statement of a process that waits in MPI and has nothing left to do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Passive {
    /// The view it acts on.
    pub view: ViewNumber,
    /// Bytes sent to live processes.
    pub sent_bytes: u64,
    /// Bytes received from live processes.
    pub received_bytes: u64,
    /// Digest of the positions of its program's threads: the same in siblings that stand at the same calls. 0 where
    /// calls are not counted.
    pub places: u64,
    /// Descriptions of the operations that it waits for.
    pub waits_for: Vec<String>,
    /// True if it waits for its leader's next decision alone.
    pub awaits_leader: bool,
}

/// From an agent to its daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromAgent {
    /// First message, sent in `MPI_Init`.
    Hello,
    /// The process can be reached.
    Ready(Card),
    /// The process is held for a checkpoint, and all bytes that it has sent over networks have reached the other hosts.
    /// Answered by `CheckpointGoes`.
    Quiet,
    /// `MPI_Finalize` was called and all messages of this process are known to have arrived. A later `View` revokes
    /// this: after it the agent sends `Finalizing` again, with that view's number.
    Finalizing {
        /// The view in which this holds.
        view: ViewNumber,
        /// The process's counters.
        statistics: Statistics,
        /// Compared messages and bytes, by communicator.
        coverage: Vec<Coverage>,
        /// Profile of the process, if it was asked for.
        profile: Option<Box<ProcessProfile>>,
    },
    /// `MPI_Abort` was called, or the library cannot go on.
    Abort {
        /// The job's exit code.
        code: i32,
        /// One line for the user; empty when the application called `MPI_Abort`.
        message: String,
    },
    /// This process lacks a resource of its host without which it cannot go on: descriptors, memory.
    Unable(Lack),
    /// From now on this process shares memory with the replicas of its index of these ranks, and with no others.
    Shares(Vec<VirtualRank>),
    /// An entry for the audit log.
    Event(Event),
    /// The answer to `Ask`.
    Answer {
        /// Number of the question.
        wave: u64,
        /// Its statement if it is passive; `None` while it is at work.
        passive: Option<Passive>,
        /// True if its program waits in MPI. Also for a process that is at work there, for others or for its own call.
        waits: bool,
        /// Its counters so far.
        statistics: Statistics,
    },
    /// Sent before each answer to a wave, also by a process that cannot answer because it waits outside of MPI.
    Pace {
        /// MPI calls that its main thread has begun; 0 where siblings need not make the same calls.
        calls: u64,
    },
    /// The answer to `Scrub`.
    Scrubbed {
        /// Number of the round.
        round: u64,
        /// The answer itself.
        answer: Answer,
    },
    /// The answer to `Trace`: `None` when the position is no longer known. Sent unasked for the thread that leaves its
    /// leader's path, before the report of that.
    Trace(TracePoint, Option<Trace>),
    /// About other jobs: a question with a number of its own, or a message that belongs to the question of that number.
    Dynamic(u64, Request),
    /// Messages are kept for these newcomers, which are all that are awaited.
    Pinned(Vec<ReplicaId>),
    /// This copy has heard from its leader: nothing needs to be pinned for it any more.
    InStep,
    /// This process cannot go on while copies of its rank stand ready.
    Hindered,
    /// A thread of this process waits for a fault (`ProcessFault::FlipThread`) until its word is not 0: the daemon's
    /// helper writes it when it holds the thread. Goes no farther than the daemon.
    AwaitsFlip {
        /// The fault.
        asked: ProcessFault,
        /// Number of the send at which it waits.
        send: u64,
        /// The thread's id, as the process knows it.
        thread: i32,
        /// The address of the word, of 4 bytes.
        word: u64,
    },
    /// A data connection to this process broke, and cannot be opened again.
    Suspect {
        /// The process at the other end.
        peer: ReplicaId,
        /// True if nobody refuses the connection: the peer's host does not answer.
        host_is_silent: bool,
    },
    /// A frame that no sound process sends was refused, and its link is closed: one of the two must go.
    Refused {
        /// Its sender, if known.
        peer: Option<ReplicaId>,
        /// The fault of the frame, in words that follow on its sender's name.
        what: String,
    },
}
