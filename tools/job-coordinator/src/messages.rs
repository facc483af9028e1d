//! Settings, inputs and outputs of the coordinator.

use super::asker::Asker;
use super::checkpoints::{CheckpointEvent, CheckpointSettings, OrderNumber, StoreAnswer, StoreOrder};
use super::ending::OutputLoss;
use super::launching::LaunchSettings;
use super::layout::HostFacts;
use super::printing::ShownTexts;
use super::returning::Return;
use super::spawned::{JobNews, JobOrder};
use super::times::ReturnTimes;
use super::waiting_for_hosts::HostWait;
use checkpoint_store::StoredCheckpoint;
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::checkpoint::Generation;
use redrt_wire::clone::{Newcomer, Progress};
use redrt_wire::daemon::{FromDaemon, ToDaemon};
use replica_output::restored::Restored;
use replica_output::sphere_stream::Release;
use replication_manager::{ChangeRequest, ChangeRequestError, CheckpointFailure, NoCheckpoints, OutputFailure, Report};
use serde::{Deserialize, Serialize};
use spare_pool::{News, Request as SpareRequest, SiteOrder, Spare};
use std::time::Duration;

/// Settings of a coordinator, fixed when it is made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// The first life of the job.
    pub life: Life,
    /// The rule by which outputs of replicas become one.
    pub release: Release,
    /// The texts that were shown before this coordinator was made. None if they are not known.
    pub shown: Option<ShownTexts>,
    /// True if replicas can be copied, and so may move.
    pub is_cloneable: bool,
    /// True for a check (`--check-determinism`).
    pub checks_determinism: bool,
    /// Number of the job.
    pub job: u64,
    /// True if another job has spawned this one.
    pub is_spawned: bool,
    /// The request to the site's pool of spares. None if the job does not use it.
    pub site: Option<SpareRequest>,
    /// Settings of checkpoints. None where none are taken.
    pub checkpoints: Option<CheckpointSettings>,
    /// Settings of launches.
    pub launch: LaunchSettings,
    /// Condition for waiting for a host instead of going on with fewer.
    pub host_wait: Option<HostWait>,
}

/// The begin of a job, either its start or a return to a checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Life {
    /// Settings of the replication manager.
    pub manager: replication_manager::Settings,
    /// Replicas that go on from images, by rank. They print again all output since their images were cut.
    pub restored: Vec<(VirtualRank, Vec<Restored>)>,
    /// Bytes of standard input that these images contain.
    pub input_bytes: u64,
    /// The checkpoint that has these images. None at a start.
    pub from: Option<Box<StoredCheckpoint>>,
}

/// An event for the coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Input {
    /// All hosts have attached: processes are to be launched.
    Launched {
        /// The hosts, by number.
        hosts: Vec<HostFacts>,
    },
    /// A host cannot be had at the begin of a life.
    HostNotHad {
        /// Number of the host.
        host: u32,
        /// Name of the host.
        name: String,
        /// The reason, with the host's name.
        why: String,
    },
    /// The coordinator goes on in another place: on the hosts with these numbers.
    CoordinatorIsOn(Vec<u32>),
    /// The job has begun another life from a checkpoint, for which no process was launched yet.
    WentBack(Box<Life>),
    /// The store has carried out an order, or failed to ([`Output::Store`]).
    Store {
        /// The number of the order.
        number: OrderNumber,
        /// The outcome.
        answer: StoreAnswer,
    },
    /// A message of a daemon that is part of the job.
    Daemon {
        /// Number of its host.
        host: u32,
        /// The message of the daemon.
        message: FromDaemon,
    },
    /// A host is no longer part of the job.
    HostLost {
        /// Number of the host.
        host: u32,
        /// Name of the host.
        name: String,
        /// The evidence for the loss.
        why: String,
    },
    /// Copies may be put on this host from now on. It may be the host that [`Output::FindHost`] has asked for.
    SpareAdded {
        /// Number of the host.
        host: u32,
        /// Name of the host.
        name: String,
        /// User to log in as. None for that of the job.
        user: Option<String>,
        /// Number of copies that fit. None if it follows from the number of CPUs.
        count: Option<u32>,
        /// Number of CPUs. 0 if unknown.
        cpu_count: u32,
    },
    /// A host that was asked for ([`Output::FindHost`]) is part of the job.
    HostFound {
        /// Number of the host.
        host: u32,
        /// Name of the host.
        name: String,
        /// True if it joined because of the request.
        is_new: bool,
    },
    /// A host that was asked for cannot become part of the job.
    HostNotFound {
        /// Name of the host.
        name: String,
        /// The reason, for the user.
        why: String,
    },
    /// News of the site's pool of spares.
    Site(News),
    /// The loss that is told of next was found so late.
    FoundLate(Duration),
    /// Daemons were ordered to launch processes, and files are put back.
    Loading,
    /// Output could not be written.
    OutputLost(OutputLoss),
    /// A user wants a change. Answered by [`Output::Answered`].
    ChangeRequest {
        /// The connection to answer.
        asker: Asker,
        /// The change that is wanted.
        request: ChangeRequest,
    },
    /// A user wants a checkpoint now. Answered by [`Output::Answered`] when it is kept, or was given up.
    Checkpoint {
        /// The connection to answer.
        asker: Asker,
        /// True if the job is to end with it.
        ends: bool,
    },
    /// A user wants a replica ended.
    Kill {
        /// The connection to answer.
        asker: Asker,
        /// The replica to end.
        replica: ReplicaId,
    },
    /// Bytes that were read from standard input.
    StandardInput(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Standard input has ended.
    StandardInputEnd,
    /// News about other jobs.
    OtherJob(JobNews),
    /// Too much output waits to be written to files and terminals, or little does again.
    OutputFull(bool),
    /// An input for the replication manager that is no message of a daemon.
    Job(replication_manager::Input),
    /// Only time has passed.
    Tick,
}

/// An action for `redrun` to carry out.
#[derive(Clone, Debug)]
pub enum Output {
    /// Send this to every daemon.
    Send(ToDaemon),
    /// Send this to the daemon of the host with this number.
    SendTo(u32, ToDaemon),
    /// Remove this host from the job.
    Expel {
        /// Number of the host.
        host: u32,
        /// The reason for removal.
        why: Unfit,
    },
    /// Send this to the site's pool of spares.
    Site(SiteOrder),
    /// A place was granted on a host of this name: make it part of the job. Answered by [`Input::HostFound`] or
    /// [`Input::HostNotFound`].
    FindHost(Spare),
    /// A host is not needed any more: dismiss its daemon. It has joined for a place, or was to become free.
    DismissHost(u32),
    /// Show text that the replicas of a rank agree on.
    Show {
        /// Rank of these replicas.
        rank: VirtualRank,
        /// The text to show.
        bytes: Vec<u8>,
        /// True if the text differs, from this line on, from the text shown in an earlier life. An unfinished line is
        /// dropped if it was not written yet, and ended here if it was.
        is_anew: bool,
    },
    /// Show text that a process printed on standard error.
    ShowError {
        /// The process that printed it.
        replica: ReplicaId,
        /// The text to show.
        bytes: Vec<u8>,
        /// The text differs, as for [`Output::Show`].
        is_anew: bool,
    },
    /// The standard error of a process has ended.
    ErrorEnded(ReplicaId),
    /// Tell the user, and write it to the audit log.
    Report(Report),
    /// A process was started: write it to the audit log.
    Started {
        /// The replica that was started.
        replica: ReplicaId,
        /// Process id on its host.
        pid: i32,
    },
    /// A process is bound to processors: tell the user.
    Bound {
        /// The replica that is bound.
        replica: ReplicaId,
        /// The processors, as the kernel writes lists of them.
        processors: String,
    },
    /// A user has a replica ended: write it to the audit log.
    KilledByUser(ReplicaId),
    /// A note of a daemon for the user.
    Note(String),
    /// Progress of a clone.
    Progress {
        /// The copy that is made.
        newcomer: Newcomer,
        /// Rounds and bytes so far.
        progress: Progress,
    },
    /// Tell the user of a checkpoint, and write it to the audit log.
    Checkpoint(CheckpointEvent),
    /// An order about other jobs.
    OtherJob(JobOrder),
    /// Show an error line of a job that this one has spawned.
    SpawnedError(String),
    /// The answer to a user's request.
    Answered {
        /// The connection to answer.
        asker: Asker,
        /// `Ok` if the request is fulfilled, or its fulfilment has begun.
        outcome: Result<(), Refused>,
    },
    /// Give this to the store of checkpoints. Answered by [`Input::Store`].
    Store(StoreOrder),
    /// All processes are gone: begin again from this checkpoint, on these hosts. Answered by [`Input::WentBack`], and
    /// then [`Input::Launched`]. A later order takes its place.
    GoBack(Box<Return>),
    /// A return is complete: tell the user how long it has taken.
    Returned(ReturnTimes),
    /// Output of the job was lost when it had ended: tell the user.
    OutputLost(OutputFailure),
    /// The job goes back without this host: tell the user, and write it to the audit log.
    HostPassedOver {
        /// Name of the host.
        name: String,
        /// The reason, with the host's name.
        why: String,
    },
    /// The job ends, to be resumed from this checkpoint with more hosts: tell the user.
    WaitsForHosts {
        /// Number of the checkpoint.
        generation: Generation,
        /// The reason, for the user.
        why: String,
    },
    /// Processes were laid out on hosts: tell the user.
    LaidOut {
        /// The processes of each host, a line each.
        report: Vec<String>,
        /// Peculiarities of the layout.
        notes: Vec<String>,
    },
    /// Copies may be put on a host from now on: write it to the audit log.
    SpareAdded {
        /// Number of the host.
        host: u32,
        /// Number of copies that fit.
        count: u32,
    },
    /// A line for the user that is no warning.
    Say(String),
    /// The job cannot go on, for this reason: `redrun` ends.
    Failed(String),
    /// The job is over.
    Finish {
        /// Exit code of the job.
        code: i32,
        /// True if it ended with a checkpoint, from which it will go on.
        will_go_on: bool,
    },
}

/// The reason why a host with a running daemon cannot stay in the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// Its daemon sent a message about a replica that it does not run.
    Misplaced(Misplaced),
    /// This host and another cannot reach each other, though others reach both.
    Unheard {
        /// Number of the other host.
        by: u32,
    },
}

/// A message of a daemon about a replica that it does not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Misplaced {
    /// The job has no such replica.
    #[error("its daemon speaks of a replica {0}")]
    NoReplica(ReplicaId),
    /// The replica is on another host.
    #[error("its daemon speaks of replica {0}, which is not there")]
    NotItsReplica(ReplicaId),
}

/// The reason why a user's request is refused. Nothing has changed then.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// There is no such replica, or it is dead.
    #[error("there is no live replica {0}")]
    NotLive(ReplicaId),
    /// The reason that the replication manager gives for replicas or hosts.
    #[error(transparent)]
    ChangeRequest(ChangeRequestError),
    /// The job takes no checkpoints.
    #[error(transparent)]
    Checkpoint(NoCheckpoints),
    /// The checkpoint was given up.
    #[error("checkpoint {generation} was not taken: {}", why.told(&|replica| replica.to_string()))]
    NotTaken {
        /// Number of the checkpoint.
        generation: Generation,
        /// The reason.
        why: CheckpointFailure,
    },
}
