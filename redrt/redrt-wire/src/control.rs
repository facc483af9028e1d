//! The control messages, by direction.
//!
//! ```text
//! redrun ──ToDaemon──▶ redrtd ──ToAgent──▶ agent thread in each application process
//!        ◀─FromDaemon─        ◀─FromAgent─
//! ```
//! The life of a process: `Hello` → `Welcome`; once every live process of the job has said `Ready`, `Cards`; then
//! `View`s as replicas are lost; in `MPI_Finalize` `Finalizing`, answered by `Release` once every live process has said
//! so.

use crate::card::Card;
use crate::clone::Pins;
use crate::dynamic::{Answer as DynamicAnswer, Origin, Request};
use crate::event::{Coverage, Event, Statistics};
use crate::fault::ProcessFault;
use crate::lack::Lack;
use crate::line::UndoPlace;
use crate::profile::ProcessProfile;
use crate::scrub::{Answer, Scrub};
use crate::secret::Secret;
use crate::trace::{Sending, Trace};
use redrt_types::{Incarnation, ProcessIndex, ReplicaId, View, ViewNumber, VirtualRank, World};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Environment variable that holds the number of the inherited control descriptor (a connected unix stream socket). It
/// has the same value in every replica, because the environment of replicas must not differ.
pub const CONTROL_FD_VARIABLE: &str = "REDRT_CONTROL_FD";

/// Environment variable that holds the number of the listening socket of the cloner's agent, in processes that can be
/// cloned.
pub const CLONER_FD_VARIABLE: &str = "REDRT_CLONER_FD";

/// How a logical message reaches the replicas of its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Protocol {
    /// The payload once per receiver, digests from the other replicas (RedMPI's MsgPlusHash).
    #[default]
    Hash,
    /// The payload from every replica to every replica.
    AllToAll,
}

/// When a receive completes relative to its verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Verification {
    /// When the verdict is in.
    #[default]
    Strict,
    /// At once; the verdict follows.
    Deferred,
}

/// Which transports may be used.
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

/// Which nondeterministic outcomes are decided by the leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Determinism {
    /// All of them.
    #[default]
    Full,
    /// Wildcard matches only: the program's sends are declared not to depend on Test*, probes and clocks.
    Sends,
}

/// Who writes the program's POSIX files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Files {
    /// One replica of each rank, and with three of them or more when a majority asks for the same.
    #[default]
    Once,
    /// One replica of each rank, as soon as it asks.
    Leader,
    /// Every replica, as if it were alone.
    All,
}

/// In which order threads take locks, and those of an interpreter with a global lock run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Threads {
    /// In that of their leader.
    #[default]
    Order,
    /// As they come, in each replica.
    None,
}

/// What to do about replicas that differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum OnSdc {
    /// End the replica that is wrong, and let a copy of a sound one take its place.
    #[default]
    Heal,
    /// Deliver what the majority sent; the replica that is wrong stays.
    Correct,
    /// Only say so: what arrived is delivered.
    Report,
    /// As `Heal`, and end the job when nobody knows which one is wrong.
    Abort,
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
    /// Decided outcomes.
    pub determinism: Determinism,
    /// Who writes the program's files.
    pub files: Files,
    /// In which order threads of an interpreter run.
    pub threads: Threads,
    /// What to do about replicas that differ.
    pub on_sdc: OnSdc,
    /// Seed of the digests and of what replaces random bytes, the same in the whole job.
    pub seed: u64,
    /// Faults are injected: each process adds up what it sends, so that one can tell afterwards what a fault has
    /// reached.
    pub sums_messages: bool,
    /// The memory of replicas is compared now and then.
    pub scrubs: bool,
    /// Siblings read for themselves what a leader has read from a file, and compare.
    pub verifies_reads: bool,
    /// A copy's memory is compared with its source's by a digest before it joins.
    pub verifies_clones: bool,
    /// Every send notes where in the program it was made.
    pub traces: bool,
    /// The members of a communicator compare what collectives they call.
    pub checks_collectives: bool,
    /// What the standard does not define is refused, also where other MPIs do it.
    pub pedantic: bool,
    /// Calls are timed and messages counted, to be told at the end.
    pub profiles: bool,
    /// The job is saved, and processes go on elsewhere, perhaps: they share no memory of the program's.
    pub is_saved: bool,
}

/// The node's shared memory, a memfd inherited by every process of the node.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SharedMemory {
    /// Descriptor number in the process.
    pub fd: i32,
    /// Number of slots: the process count of the job plus what is kept free for clones.
    pub slot_count: u32,
}

/// Bytes of the header of a node's shared memory.
pub const HEAD_BYTES: usize = 4096;
/// Bytes of a process's slot.
pub const SLOT_BYTES: usize = 4096;
/// Least bytes of the ring of an ordered pair of processes.
pub const RING_BYTES_LEAST: usize = 32 << 10;
/// Most bytes of such a ring: two that send each other 64 messages of 1 KiB before they receive do not wait for room.
pub const RING_BYTES_MOST: usize = 128 << 10;
/// Bytes of all rings to one process, where that gives each more than the least.
const RINGS_BYTES: usize = 2 << 20;
/// Bytes of a process's boards: 32 places of four pages, and behind them the annexes of each, 256 KiB.
pub const BOARDS_BYTES: usize = 32 * (4 * 4096 + (256 << 10));

/// Bytes of the ring of an ordered pair of processes of a node with `slot_count` of them, a power of two. Who sends to
/// all touches all of them in time, so they are shorter where there are many.
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

/// Size in bytes of a node's shared memory for `slot_count` processes. It is mostly holes: what is not touched takes no
/// memory.
#[must_use]
pub fn shared_memory_bytes(slot_count: u32) -> u64 {
    let slots = u64::from(slot_count);
    HEAD_BYTES as u64 + slots * (SLOT_BYTES + BOARDS_BYTES) as u64 + slots * slots * ring_bytes(slot_count) as u64
}

/// Bytes of the region that each process has for windows, in memory that is for all windows of a host: no more than a
/// window can have, and holes until they are used.
pub const WINDOW_REGION_BYTES: u64 = 1 << 40;

/// Where the region of a process begins there.
#[must_use]
pub const fn window_region(process: ProcessIndex) -> u64 {
    process.0 as u64 * WINDOW_REGION_BYTES
}

/// Everything a process needs to know to take its place.
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
    /// Membership now.
    pub view: View,
    /// Shared settings.
    pub options: Options,
    /// Name of this host, and what `MPI_Get_processor_name` answers at r = 1.
    pub host: String,
    /// Number of this host within the job.
    pub host_number: u32,
    /// How many processes of the job on this host, this one among them, may use the processors that this one may use.
    pub core_sharers: u32,
    /// The node's shared memory, unless the transport is TCP only.
    pub shared_memory: Option<SharedMemory>,
    /// Where windows are that ranks share: the descriptor of memory that all processes of this host have. `None` where
    /// they make memory by themselves, as processes can that are neither saved nor copied.
    pub windows: Option<i32>,
    /// The least rank whose replicas were started on the same hosts as those of this rank, index by index. Ranks with
    /// the same number can share memory.
    pub neighborhood: VirtualRank,
    /// That holds of replicas that had joined in this view, and not of copies that came later.
    pub placed: ViewNumber,
    /// Address on which data connections are to be accepted (port 0).
    pub listen: SocketAddr,
    /// Faults to carry out.
    pub faults: Vec<ProcessFault>,
    /// Which program of an MPMD line this process runs, for `MPI_APPNUM`.
    pub application: u32,
    /// Where the job comes from.
    pub origin: Origin,
}

/// Parts of a welcome that do not fit each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WelcomeError {
    /// The view names replicas that the world has not.
    #[error("a view of another job")]
    View,
    /// The process itself is not in the view.
    #[error("a place that is not in the job")]
    Place,
    /// The node's memory has too few slots.
    #[error("shared memory for another job")]
    Memory,
}

impl Welcome {
    /// Whether its parts fit each other.
    ///
    /// # Errors
    /// What does not.
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

/// What a copy needs to know to take its place. All else it knows from its source.
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
    /// See [`Welcome::neighborhood`]. A copy has that of its source, who goes on from a line that of now.
    pub neighborhood: VirtualRank,
    /// See [`Welcome::placed`], likewise.
    pub placed: ViewNumber,
    /// How many processes of the job may use the processors there that it may use.
    pub core_sharers: u32,
    /// Address on which data connections are to be accepted (port 0).
    pub listen: SocketAddr,
    /// What proves to others of the job that it is one of them. A job that goes on from a line has another than its
    /// processes had when they were saved: of two that go on from one line each has its own.
    pub link_secret: Secret,
    /// Whether it goes on as the process that its image is of, with the whole job: `me` is who it was.
    pub is_restored: bool,
    /// It will be the leader of its rank then, and has to have its locks of files before others go on.
    pub leads: bool,
    /// Then also where it writes down what it changes in files.
    pub undo: Option<UndoPlace>,
}

/// From a daemon to an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToAgent {
    /// The answer to `Hello`.
    Welcome(Box<Welcome>),
    /// The answer to the `Hello` of a copy.
    Place(Box<CopyPlace>),
    /// Cards: those of all live processes when every one is ready, in order of process number; later those of copies,
    /// each before the `View` that has it.
    Cards(Vec<Card>),
    /// The membership changed.
    View(View),
    /// All live processes are finalizing: leave.
    Release,
    /// Copies will take these places and no others, have and are not in step yet, or stand ready: keep for each what it
    /// may ask for. Answered by `Pinned`.
    Pins(Pins),
    /// Where in the program did you send this? Answered by `Trace`.
    Trace(Sending),
    /// What it prints is not taken until siblings have printed as much, or is taken again.
    Held(bool),
    /// Is there anything you can do by yourself? Answered by `Answer`.
    Ask {
        /// Number of the question, the same for all processes.
        wave: u64,
    },
    /// The memory of replicas is to be compared.
    Scrub(Scrub),
    /// The answer to the question of this number, in `Dynamic`.
    Dynamic(u64, DynamicAnswer),
    /// The user has sent this signal, the one of this number: it is to come at the same call in all replicas of the
    /// rank.
    Signal {
        /// Higher than those of signals before.
        number: u64,
        /// Which signal.
        signal: i32,
    },
    /// To a process that is held for a line and has said `Quiet`: all are, and it writes down there what it changes in
    /// files from now on; or nothing comes of the line.
    LineGoes(Option<UndoPlace>),
    /// The thread that waits for a flip (`AwaitsFlip`) goes on without one.
    NoFlip,
    /// To a process whose sibling is being saved: it writes down there what it changes in files, once it has to. Comes
    /// before a `View` in which it may have to.
    ChangesSince(UndoPlace),
}

/// What a process says of itself that waits in MPI and has nothing left to do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Passive {
    /// The view it acts on.
    pub view: ViewNumber,
    /// Bytes it has sent to live processes.
    pub sent_bytes: u64,
    /// Bytes it has received from live processes.
    pub received_bytes: u64,
    /// A digest of where its program's threads stand: the same in siblings that stand at the same calls. 0 where calls
    /// are not counted.
    pub places: u64,
    /// What it waits for, in words.
    pub waits_for: Vec<String>,
    /// Whether it waits for its leader's next decision, and for nothing else.
    pub awaits_leader: bool,
}

/// From an agent to its daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromAgent {
    /// First message, sent in `MPI_Init`.
    Hello,
    /// The process can be reached.
    Ready(Card),
    /// It is held for a line, and all that it has sent over networks has reached the other hosts. Answered by
    /// `LineGoes`.
    Quiet,
    /// `MPI_Finalize` was called and everything this process owes to others is known to have arrived. Taken back by a
    /// later `View`: after it the agent says `Finalizing` again, with that view's number.
    Finalizing {
        /// The view in which this holds.
        view: ViewNumber,
        /// The process's counters.
        statistics: Statistics,
        /// What was compared, by communicator.
        coverage: Vec<Coverage>,
        /// What it was seen to do, where that is wanted.
        profile: Option<Box<ProcessProfile>>,
    },
    /// `MPI_Abort` was called, or the library cannot go on.
    Abort {
        /// The job's exit code.
        code: i32,
        /// One line for the user; empty when the application called `MPI_Abort`.
        message: String,
    },
    /// This process lacks something of its host without which it cannot go on: descriptors, memory.
    Unable(Lack),
    /// With the replicas of its index of these ranks it shares memory from now on, and with no others.
    Shares(Vec<VirtualRank>),
    /// Something for the audit log.
    Event(Event),
    /// The answer to `Ask`.
    Answer {
        /// Number of the question.
        wave: u64,
        /// Absent when the process is at work.
        passive: Option<Passive>,
        /// Whether its program waits in MPI. Also of a process that is at work there, for others or for its own call.
        waits: bool,
        /// Its counters so far.
        statistics: Statistics,
    },
    /// Said before each answer to a wave, also by a process that cannot answer because it waits for something outside
    /// of MPI.
    Pace {
        /// MPI calls that its main thread has begun; 0 where siblings need not make the same calls.
        calls: u64,
    },
    /// The answer to `Scrub`.
    Scrubbed {
        /// Number of the round.
        round: u64,
        /// What there is to say.
        answer: Answer,
    },
    /// The answer to `Trace`: absent when that is no longer known.
    Trace(Sending, Option<Trace>),
    /// About other jobs: a question, with a number of its own, or what belongs to one of that number.
    Dynamic(u64, Request),
    /// What these newcomers, all that are awaited, may ask for is kept.
    Pinned(Vec<ReplicaId>),
    /// This copy has heard its leader: nothing needs to be pinned for it any more.
    InStep,
    /// This process cannot go on while copies of its rank stand ready.
    Hindered,
    /// A thread of this process is to be hit by a fault (`ProcessFault::FlipThread`), and waits until its word is not
    /// 0: the daemon's helper writes it when it holds the thread. Goes no farther than the daemon.
    AwaitsFlip {
        /// The fault.
        asked: ProcessFault,
        /// The number of the send at which it waits.
        send: u64,
        /// The thread's id, as the process knows it.
        thread: i32,
        /// The address of the word, of 4 bytes.
        word: u64,
    },
    /// A data connection to this process broke, and cannot be opened again.
    Suspect {
        /// The process.
        peer: ReplicaId,
        /// Nobody refuses it: its host does not answer.
        host_is_silent: bool,
    },
    /// A frame was refused that no sound process sends, and its link is closed: one of the two must go.
    Refused {
        /// Who sent it, when that is known.
        peer: Option<ReplicaId>,
        /// What was wrong with it, in words that follow on its sender's name.
        what: String,
    },
}
