//! Inputs, settings and outputs of the replication manager.

use super::checkpoint::{CheckpointWatchSettings, StoreNews, TakenCheckpoint};
use super::injection::{RandomKills, TimedKill};
use super::{OutputFailure, Report};
use redrt_types::{Kinship, ReplicaId, View, VirtualRank, World};
use redrt_wire::checkpoint::{CheckpointStep, Generation, Proof};
use redrt_wire::clone::{CloneId, CloneStep, Newcomer, Progress};
use redrt_wire::control::{FromAgent, OnSdc};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::exit::Exit;
use redrt_wire::foreign::Foreign;
use replica_output::mismatch::Finding;
use serde::{Deserialize, Serialize};
use spare_pool::{PlaceNews, PlaceOrder};
use std::time::Duration;

/// Settings of a job, fixed at its start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// The shape of the job: the places that its ranks have.
    pub world: World,
    /// The replicas that are started. The other places are free at first.
    pub view: View,
    /// Time at which the job is ended (`--timeout`). None means never.
    pub timeout: Option<Duration>,
    /// Maximum time until the replication manager learns of the death of a process.
    pub death_time_max: Duration,
    /// Treatment of replicas that differ.
    pub on_sdc: OnSdc,
    /// Treatment of a replica that stands still while its siblings wait for it.
    pub on_stall: OnStall,
    /// Maximum time a replica may stand still. None derives it from the pace of its rank.
    pub stall_time: Option<Duration>,
    /// Minimum time from a wave of questions that found work to the next one.
    pub look_interval: Duration,
    /// Number of strikes at which a host is drained.
    pub strikes_max: u32,
    /// Time between comparisons of the replicas' memory. None turns them off.
    pub scrub_interval: Option<Duration>,
    /// Settings of checkpoints. None turns them off.
    pub checkpoint: Option<CheckpointWatchSettings>,
    /// Kills at given times.
    pub timed_kills: Vec<TimedKill>,
    /// Replicas that will end themselves before one of their sends.
    pub send_kills: Vec<ReplicaId>,
    /// Kills at random times.
    pub random_kills: Option<RandomKills>,
}

/// Treatment of a replica that stands still while its siblings wait for it (`--on-stall`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum OnStall {
    /// It is ended if two siblings of different lineages are ahead.
    #[default]
    Majority,
    /// It is ended if one sibling is ahead.
    Retire,
    /// It is only reported.
    Wait,
}

/// An event for the replication manager.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Input {
    /// A process was started.
    Started {
        /// The replica that was started.
        replica: ReplicaId,
        /// Its process id on its host.
        pid: i32,
    },
    /// A process could not be started.
    NotStarted {
        /// The replica that was to start.
        replica: ReplicaId,
        /// The reason, for the user.
        message: String,
    },
    /// A process has loaded another MPI.
    OtherMpi {
        /// The replica that has loaded it.
        replica: ReplicaId,
        /// The library that it uses.
        found: Foreign,
    },
    /// A message of a process.
    Agent(ReplicaId, FromAgent),
    /// A process ended, with this status or signal.
    Exited(ReplicaId, Exit),
    /// All output of a process has arrived.
    Drained(ReplicaId),
    /// A finding of the comparison of printed output.
    Output {
        /// The rank that printed.
        rank: VirtualRank,
        /// The result of the comparison.
        finding: Finding,
    },
    /// A daemon is gone, and its processes with it.
    DaemonLost {
        /// Name of its host.
        host: String,
        /// The evidence for it, for the user.
        why: String,
        /// The processes that it ran.
        replicas: Vec<ReplicaId>,
    },
    /// A daemon reports progress of a clone.
    Clone {
        /// Number of the daemon's host: the source's or the copy's.
        host: u32,
        /// Number of the clone.
        id: CloneId,
        /// The step that was reached.
        step: CloneStep,
    },
    /// A daemon reports progress of an image for a checkpoint.
    Checkpoint {
        /// Number of the checkpoint.
        generation: Generation,
        /// The process whose image it is.
        replica: ReplicaId,
        /// The step that was reached.
        step: CheckpointStep,
    },
    /// The store reports about a checkpoint.
    Store {
        /// Number of the checkpoint.
        generation: Generation,
        /// The news of the store.
        news: StoreNews,
    },
    /// A pool of spares reports about a place.
    Place {
        /// The news of the pool.
        news: PlaceNews,
        /// Number of the host on which a place was granted. None for other news.
        host: Option<u32>,
    },
    /// The user sent `redrun` this signal, which ends the job.
    Interrupted(i32),
    /// The user sent `redrun` this signal, which is for the program.
    Signalled {
        /// Higher than the numbers of all earlier signals, also after a restart from a checkpoint.
        number: u64,
        /// Number of the signal.
        signal: i32,
    },
    /// The user wants all processes to stop, or to go on. Time does not pass in between.
    Suspended(bool),
    /// A job that a process spawned, and that has met it, has failed.
    SpawnedFailed {
        /// Exit code of that job.
        code: i32,
    },
    /// The reader of the job's standard output has gone.
    OutputClosed,
    /// Output of the job could not be written.
    OutputFailed(OutputFailure),
    /// Only time has passed.
    Tick,
}

/// The end of the output of a replica that was not lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamEnd {
    /// The replica has printed all its output.
    Complete,
    /// The job was ended. Output of one replica that goes beyond a sibling's is then no difference.
    CutOff,
    /// The replica is a copy of a program that a script had started. It cannot print the output of the script that
    /// follows.
    BeforeScript,
}

/// An action for `redrun` to carry out.
#[derive(Clone, Debug)]
pub enum Output {
    /// Send this to every daemon.
    Send(ToDaemon),
    /// Send this to the daemon of the host with this number.
    SendTo(u32, ToDaemon),
    /// Send this to the pools of spares.
    Place(PlaceOrder),
    /// This place has no process any more, and none is awaited.
    Vacated(ReplicaId),
    /// Two hosts cannot reach each other: end one of them.
    Expel {
        /// Number of the host that is to go.
        host: u32,
        /// Number of the host that cannot reach it.
        by: u32,
    },
    /// A host that was to become free has no replicas any more.
    HostFree(u32),
    /// The process in this place runs on another host from now on.
    Moved {
        /// The place of the process.
        replica: ReplicaId,
        /// Number of the new host.
        host: u32,
    },
    /// Progress of a clone, for the user.
    Progress {
        /// The copy that is made.
        newcomer: Newcomer,
        /// Rounds and bytes so far.
        progress: Progress,
    },
    /// A copy prints the same as its source from now on.
    StreamJoined {
        /// The copy that joins.
        replica: ReplicaId,
        /// The source of the copy.
        source: ReplicaId,
        /// Bytes that the source had printed when it was copied.
        offset: u64,
        /// The replicas of this rank that descend from one unproven image, the copy included.
        kinship: Kinship,
    },
    /// The replicas of this rank that descend from one unproven image, from now on.
    Kinship(VirtualRank, Kinship),
    /// Do not wait for this replica's output. Its siblings will print what it still owed.
    StreamLost(ReplicaId),
    /// This replica prints no more.
    StreamEnded {
        /// The replica whose output ends.
        replica: ReplicaId,
        /// The completeness of its output.
        end: StreamEnd,
    },
    /// Tell the user, and write it to the audit log.
    Report(Report),
    /// Make a place in the store for the images of a checkpoint, and order the daemons to write them.
    OpenCheckpoint(Generation),
    /// All images of a checkpoint are on disk: keep it.
    CommitCheckpoint(Box<TakenCheckpoint>),
    /// A checkpoint is proven: record that with it.
    ProveCheckpoint {
        /// Its number.
        generation: Generation,
        /// The testimony for it.
        proof: Proof,
    },
    /// A checkpoint has failed: remove its remains.
    DropCheckpoint(Generation),
    /// All processes are gone: start the job again from this checkpoint.
    Restart {
        /// The checkpoint to start from.
        generation: Generation,
        /// Number of starts from it because processes ended, this one included. None if it cannot be loaded, and an
        /// older one is to be used.
        count: Option<u32>,
    },
    /// The job is over: dismiss the daemons, and exit with this code.
    Finish(i32),
}
