//! What the coordinator is told, and what it wants done.

use super::injection::{RandomKills, TimedKill};
use super::line::{LineSettings, StoreNews, TakenLine};
use super::{OutputFailure, Report};
use redrt_types::{Kinship, ReplicaId, View, VirtualRank, World};
use redrt_wire::clone::{CloneId, CloneStep, Newcomer, Progress};
use redrt_wire::control::{FromAgent, OnSdc};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::exit::Exit;
use redrt_wire::foreign::Foreign;
use redrt_wire::line::{Generation, LineStep};
use replica_output::mismatch::Finding;
use serde::{Deserialize, Serialize};
use spare_pool::{PlaceNews, PlaceOrder};
use std::time::Duration;

/// What the coordinator is told when it is made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Shape of the job: the places that its ranks have.
    pub world: World,
    /// Who is started; the other places are free at first.
    pub view: View,
    /// When the job is to be ended.
    pub timeout: Option<Duration>,
    /// How long the death of a process may take to be known here.
    pub death_time_max: Duration,
    /// What is done about replicas that differ.
    pub on_sdc: OnSdc,
    /// What is done about a replica that stands still while its siblings wait for it.
    pub on_stall: OnStall,
    /// How long a replica may stand still; as its rank's own pace says if absent.
    pub stall_time: Option<Duration>,
    /// How often processes are asked whether they wait in MPI, at most.
    pub look_interval: Duration,
    /// Number of strikes at which a host is drained.
    pub strikes_max: u32,
    /// How often the memory of replicas is compared.
    pub scrub_interval: Option<Duration>,
    /// When lines are taken, if they are.
    pub line: Option<LineSettings>,
    /// Kills at given times.
    pub timed_kills: Vec<TimedKill>,
    /// Replicas that will end themselves before one of their sends.
    pub send_kills: Vec<ReplicaId>,
    /// Kills at random times.
    pub random_kills: Option<RandomKills>,
}

/// What is done about a replica that stands still while its siblings wait for it (`--on-stall`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum OnStall {
    /// It is ended if two siblings of different lineages are ahead.
    #[default]
    Majority,
    /// It is ended if a sibling is ahead.
    Retire,
    /// It is waited for.
    Wait,
}

/// What happens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Input {
    /// A process was started.
    Started {
        /// The replica.
        replica: ReplicaId,
        /// Its process id.
        pid: i32,
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
        /// Its library.
        found: Foreign,
    },
    /// A process said something.
    Agent(ReplicaId, FromAgent),
    /// A process ended.
    Exited(ReplicaId, Exit),
    /// All that a process printed has arrived.
    Drained(ReplicaId),
    /// What replicas of a rank printed was compared, and this was found.
    Output {
        /// The virtual rank.
        rank: VirtualRank,
        /// What.
        finding: Finding,
    },
    /// A daemon, and with it these replicas, is gone.
    DaemonLost {
        /// Where it ran.
        host: String,
        /// How that is known.
        why: String,
        /// What ran there.
        replicas: Vec<ReplicaId>,
    },
    /// A daemon says how far a clone has come.
    Clone {
        /// Number of its host.
        host: u32,
        /// Which clone.
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
    /// The store says something of a line.
    Store {
        /// Which line.
        generation: Generation,
        /// What.
        news: StoreNews,
    },
    /// A pool of spares has something to say.
    Place {
        /// What.
        news: PlaceNews,
        /// Number of the host that a place was granted on.
        host: Option<u32>,
    },
    /// The user sent `redrun` this signal, which is to end the job.
    Interrupted(i32),
    /// The user sent `redrun` this signal, which is for the program.
    Signalled {
        /// Higher than those of signals before, also in a job that goes on from an older one's checkpoint.
        number: u64,
        /// Which signal.
        signal: i32,
    },
    /// The user wants all processes to stand still, or to go on. In between no time passes.
    Suspended(bool),
    /// A job that a process has spawned, and met, has failed.
    SpawnedFailed {
        /// Its exit code.
        code: i32,
    },
    /// Nobody reads the standard output of the job any more.
    OutputClosed,
    /// What the job prints could not be written.
    OutputFailed(OutputFailure),
    /// Nothing but time has passed.
    Tick,
}

/// How the output of a replica ends that was not lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamEnd {
    /// It has printed all that it would have.
    Complete,
    /// The job was ended: that one replica had come further than another is no difference between them.
    CutOff,
    /// It is a copy of a program that a script had started. What its sibling's script prints now, it cannot print.
    BeforeScript,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Output {
    /// Send this to every daemon.
    Send(ToDaemon),
    /// Send this to the daemon of one host.
    SendTo(u32, ToDaemon),
    /// Tell this to the pools of spares.
    Place(PlaceOrder),
    /// There is no process in this place any more, and none is awaited.
    Vacated(ReplicaId),
    /// Two hosts do not hear each other: do without one of them.
    Expel {
        /// That one.
        host: u32,
        /// Which one does not hear it.
        by: u32,
    },
    /// A host that was to become free is.
    HostFree(u32),
    /// The process in this place runs on this host from now on.
    Moved {
        /// Which place.
        replica: ReplicaId,
        /// Number of the host.
        host: u32,
    },
    /// Memory of a clone is going over.
    Progress {
        /// What is being made.
        newcomer: Newcomer,
        /// How far it is.
        progress: Progress,
    },
    /// A copy prints from now on what its source has printed since.
    StreamJoined {
        /// The copy.
        replica: ReplicaId,
        /// Its source.
        source: ReplicaId,
        /// Bytes that the source had printed when it was copied.
        offset: u64,
        /// Who descends from one unproven image in this rank, the copy among them.
        kinship: Kinship,
    },
    /// Who descends from one unproven image in this rank, from now on.
    Kinship(VirtualRank, Kinship),
    /// This replica's output is waited for no more; its siblings will print what it owed.
    StreamLost(ReplicaId),
    /// This replica will print no more.
    StreamEnded {
        /// The replica.
        replica: ReplicaId,
        /// Whether that is all that it would have printed.
        end: StreamEnd,
    },
    /// Tell the user and the audit log.
    Report(Report),
    /// Make a place in the store for the images of a line, and have the daemons begin to write them.
    OpenLine(Generation),
    /// All images of a line are on the disk: keep it.
    CommitLine(Box<TakenLine>),
    /// Nothing comes of a line: remove what there is of it.
    DropLine(Generation),
    /// All processes are gone: start the job again from this line.
    Restart {
        /// The line.
        generation: Generation,
        /// How often the job is started from it, with this time; 0 if it cannot be loaded, and an older one is to be
        /// taken.
        count: u32,
    },
    /// The job is over: tell the daemons to leave and exit with this code.
    Finish(i32),
}
