//! Reports of the replication manager, for the user and the audit log. Their wording is left to the readers of these
//! types.

use super::recovery::{Arbitration, Purpose, Recovered, Unproven};
use super::scrub::{self, Difference};
use super::stall::Stall;
use super::{CheckpointFailure, CloneFailure, Laggard, NoProof, NotHeld, OutputFailure, SlowHost, StayReason};
use attribution::Conclusion;
use redrt_types::{ReplicaId, ViewNumber, VirtualRank};
use redrt_wire::checkpoint::{Generation, Proof, Step};
use redrt_wire::event::{Action, Event, Mismatch, PathMismatch};
use redrt_wire::exit::Exit;
use redrt_wire::foreign::Foreign;
use redrt_wire::lack::Lack;
use replica_output::mismatch::OutputMismatch;
use std::time::Duration;

/// The loss of one replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// The replica that was lost.
    pub replica: ReplicaId,
    /// Its exit status or signal.
    pub exit: Exit,
    /// True if it was lost with its host.
    pub is_of_host: bool,
    /// True if it had called `MPI_Init`.
    pub greeted: bool,
    /// Number of replicas of its rank that are left and in step.
    pub left: usize,
    /// Number of the first view without it. After `Release` none exists, and this is the latest view.
    pub view: ViewNumber,
}

/// The reason why a job ends before its processes do.
#[derive(Clone, PartialEq, Debug)]
pub enum EndReason {
    /// A rank has no live replica left.
    SphereLost {
        /// The loss of its last replica.
        loss: Loss,
        /// A checkpoint to which the job cannot go back, because it was started from it too often.
        spent: Option<Generation>,
    },
    /// `MPI_Abort` was called, or the library gave up.
    Aborted {
        /// The replica that did.
        replica: ReplicaId,
        /// The exit code that it asked for.
        code: i32,
        /// The reason that the library gave. Empty for a call of `MPI_Abort`.
        message: String,
    },
    /// A process could not be started.
    NotStarted {
        /// The replica that could not be started.
        replica: ReplicaId,
        /// The reason, for the user.
        message: String,
    },
    /// A process uses another MPI.
    OtherMpi {
        /// The replica that uses it.
        replica: ReplicaId,
        /// The library that it uses.
        found: Foreign,
    },
    /// A rank ended without calling `MPI_Init` while others had called it, and would wait for ever.
    MissedInit {
        /// The rank that has ended.
        rank: VirtualRank,
    },
    /// A replica, or a program it ran, called `MPI_Init` once more.
    SecondInit {
        /// The replica whose second call it was.
        replica: ReplicaId,
    },
    /// A job that was spawned by this one has failed.
    SpawnedFailed {
        /// Exit code of the spawned job.
        code: i32,
    },
    /// The user sent `redrun` a signal.
    Interrupted {
        /// Number of the signal.
        signal: i32,
    },
    /// The time limit has passed.
    TimedOut {
        /// The value of `--timeout`.
        timeout: Duration,
    },
    /// Every process waits in MPI, and nothing is in flight.
    Stalled {
        /// The calls in which the processes wait.
        stall: Stall,
        /// True if replicas were found to differ before, which may be the cause.
        have_differed: bool,
    },
    /// A process sent a frame that no sound process sends, and its rank cannot go on without it.
    Refused(Refusal),
    /// A process lacks something of its host, and its rank cannot go on without it.
    Unable {
        /// The replica that lacks it.
        replica: ReplicaId,
        /// The thing that it lacks.
        lack: Lack,
    },
    /// A connection between two living processes broke, and neither of their ranks can go on without them.
    BrokenLink {
        /// The process at the end that is said to be broken.
        suspect: ReplicaId,
        /// The process that reported it.
        by: ReplicaId,
    },
    /// Replicas differ, and nobody knows which one is wrong (`--on-sdc`).
    Corrupted {
        /// The reason why the job does not go back to a proven checkpoint.
        why: NoReturn,
    },
    /// The user has asked for a checkpoint and the end of the job.
    Suspended {
        /// The checkpoint to resume from.
        generation: Generation,
    },
    /// The image of a process cannot be loaded. The job starts from an older checkpoint, if there is one.
    Unloadable {
        /// The checkpoint that cannot be loaded.
        generation: Generation,
        /// The process whose image it is.
        replica: ReplicaId,
        /// The reason, for the user.
        message: String,
    },
    /// The job is started again from a checkpoint.
    GoesBack {
        /// The loss of a rank's last replica. None if replicas differ, and nobody knows which one is wrong.
        loss: Option<Loss>,
        /// The checkpoint it starts from.
        back: Back,
    },
    /// The reader of standard output has gone.
    OutputClosed,
    /// Output of the job could not be written.
    OutputFailed(OutputFailure),
}

/// A return to a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Back {
    /// The checkpoint.
    pub generation: Generation,
    /// Number of starts from it because processes ended or differed, this one included.
    pub count: u32,
    /// True if it is proven, and newer ones are passed over because their memory may be wrong.
    pub passes_newer: bool,
}

/// The reason why a job whose replicas differ does not go back to a proven checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoReturn {
    /// The user wants the job to end.
    Unwanted,
    /// No checkpoint is proven.
    NoneProven,
    /// Its replicas have differed each time that it went back to this one.
    Spent(Generation),
}

/// The reason why a replica is ended while its siblings go on.
#[derive(Clone, PartialEq, Debug)]
pub enum RetireReason {
    /// A message or output of it was outvoted.
    Outvoted,
    /// It stands still, and its siblings wait for it.
    Lagging,
    /// Its siblings contradict it, in a rank where no vote can decide who is right.
    Parted,
    /// It took another path than its leader, and no vote can decide which is right.
    LeftPath,
    /// It has computed with a payload that was outvoted later.
    Tainted,
    /// In a stalled job, it waits for something else than its siblings. Or it is an arbiter that does not come to the
    /// point in dispute.
    Strayed,
    /// A message for it is corrupt wherever it is kept.
    Withheld,
    /// It alone called `MPI_Abort`, or left its leader's path.
    Abort {
        /// The exit code it asked for.
        code: i32,
        /// The reason that the library gave. Empty for a call of `MPI_Abort`.
        message: String,
    },
    /// It sent a frame that no sound process sends, or reported such a frame and is not believed.
    Refused(Refusal),
    /// It lacks something of its host.
    Unable(Lack),
    /// Its connection with another living process broke.
    BrokenLink {
        /// The process at the end that is said to be broken.
        suspect: ReplicaId,
        /// The process that reported it.
        by: ReplicaId,
    },
}

impl RetireReason {
    /// Returns true if the replica's memory may be wrong.
    pub(super) fn is_wrong(&self) -> bool {
        match self {
            Self::Outvoted | Self::Parted | Self::LeftPath | Self::Tainted | Self::Strayed | Self::Withheld => true,
            Self::Abort { .. } | Self::Refused(_) => true,
            Self::Lagging | Self::Unable(_) | Self::BrokenLink { .. } => false,
        }
    }
}

/// The refusal of a frame or message that no sound process sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The process that refused it. None means `redrun`.
    pub by: Option<ReplicaId>,
    /// The sender. None if it is not known.
    pub peer: Option<ReplicaId>,
    /// The fault, in words that follow on the sender's name.
    pub what: String,
}

/// A report for the user and the audit log.
#[derive(Clone, PartialEq, Debug)]
pub enum Report {
    /// A replica was lost, and its sphere goes on.
    Lost(Loss),
    /// A replica is lost, and others are ended because they share memory with it, directly or through others.
    PlaneLost {
        /// The replica that was lost.
        replica: ReplicaId,
        /// The replicas that are ended.
        others: Vec<ReplicaId>,
    },
    /// A process ended in an ordinary way.
    Exited {
        /// The replica that ended.
        replica: ReplicaId,
        /// Its exit status or signal.
        exit: Exit,
    },
    /// A connection with a replica broke. Its daemon will say if it is dead.
    Suspected {
        /// The replica at the other end.
        replica: ReplicaId,
        /// The process that reported it.
        by: ReplicaId,
    },
    /// A frame was refused. Consequences are reported separately.
    Refused(Refusal),
    /// A copy of a replica has been begun.
    CloneBegun {
        /// The place of the copy.
        replica: ReplicaId,
        /// The replica that is copied.
        source: ReplicaId,
        /// The purpose of the copy.
        purpose: Purpose,
        /// Name of the copy's host.
        host: String,
    },
    /// A copy runs on its host.
    CopyRuns {
        /// The place of the copy.
        replica: ReplicaId,
        /// Its process id there.
        pid: i32,
    },
    /// A checkpoint was taken, and is kept.
    CheckpointTaken {
        /// Its number in the store.
        generation: Generation,
        /// The longest time for which the threads of a process were stopped.
        stopped: Duration,
        /// The process whose threads were stopped for that time.
        longest: ReplicaId,
        /// The steps of making its image, in order.
        steps: Vec<Step>,
        /// Time from the order to stop until all images were copied.
        held: Duration,
        /// Time from the begin until the checkpoint was kept.
        elapsed: Duration,
        /// Sum of the bytes of all images.
        bytes: u64,
        /// Bytes of memory that older images have, and that these leave out.
        kept_bytes: u64,
    },
    /// No checkpoint was taken. Older ones are unaffected.
    CheckpointFailed {
        /// The number it would have had.
        generation: Generation,
        /// The reason for the failure.
        why: CheckpointFailure,
    },
    /// A checkpoint that was given up is kept all the same, because the store had completed it before.
    CheckpointKept {
        /// Its number in the store.
        generation: Generation,
    },
    /// A checkpoint waits for processes that have not called `MPI_Init`. Reported once.
    CheckpointAwaitsStart {
        /// The processes that have not called it.
        missing: Vec<ReplicaId>,
    },
    /// The job is to go back, and waits for the store's answer about this checkpoint.
    StoreAwaited {
        /// Number of that checkpoint.
        generation: Generation,
    },
    /// A clone has failed. Another attempt follows, unless the reason says otherwise.
    CloneFailed {
        /// The place of the copy.
        replica: ReplicaId,
        /// The replica that was to be copied.
        source: ReplicaId,
        /// Name of the copy's host. Empty if the copy had joined already.
        host: String,
        /// The reason for the failure.
        why: CloneFailure,
    },
    /// No host is free for a copy. Reported once for each place that is to be filled.
    NoSpare {
        /// The place that stays free.
        replica: ReplicaId,
        /// The purpose of the copy.
        purpose: Purpose,
        /// The reason for each host, as far as it is known.
        why: Vec<String>,
    },
    /// A replica is to leave when another has its part.
    Leaving {
        /// The replica that is to leave.
        replica: ReplicaId,
        /// Name of its successor's host. None if any host will do.
        to: Option<String>,
    },
    /// A replica has left as planned, and its rank is whole.
    Left {
        /// The replica that has left.
        replica: ReplicaId,
    },
    /// A replica that was to leave stays.
    Stays {
        /// The replica that stays.
        replica: ReplicaId,
        /// The reason why it stays.
        why: StayReason,
    },
    /// The degree of ranks changes by the user's request.
    Degree {
        /// The new degree of all these ranks.
        degree: u16,
        /// Number of ranks that change.
        rank_count: usize,
    },
    /// A host that was to become free is free now.
    HostFree {
        /// Name of the host.
        host: String,
    },
    /// The pool has taken back a place that a replica is in.
    PlaceLost {
        /// The replica in that place.
        replica: ReplicaId,
        /// The reason that the pool gave.
        why: String,
    },
    /// A copy is in step.
    Recovered(Recovered),
    /// A copy stands ready to judge if the replicas of its rank differ.
    CopyHeld {
        /// The place that it would take.
        replica: ReplicaId,
        /// The replica that was copied.
        source: ReplicaId,
    },
    /// No copy of a rank stands ready. Reported once for each rank.
    NotHeld {
        /// The rank without held copies.
        rank: VirtualRank,
        /// The reason for having none.
        why: NotHeld,
    },
    /// Messages of two replicas differ, and arbiters are to judge.
    Disputed(Box<Mismatch>),
    /// Paths of two replicas differ, and arbiters are to judge.
    DisputedPath(Box<PathMismatch>),
    /// A dispute is over.
    Arbitrated(Arbitration),
    /// A daemon was lost.
    DaemonLost {
        /// Name of its host.
        host: String,
        /// The evidence for it.
        why: String,
        /// Number of processes that were lost with it.
        process_count: usize,
    },
    /// An event that a process reported.
    Event(Event),
    /// Replicas of a rank printed different lines.
    OutputMismatch {
        /// The rank that printed them.
        rank: VirtualRank,
        /// The lines, and the culprit if a majority names one.
        mismatch: OutputMismatch,
        /// The action that was taken.
        action: Action,
    },
    /// A replica is so far behind that its next output is not compared.
    OutputUncompared {
        /// The replica that is behind.
        replica: ReplicaId,
    },
    /// After a restart from a checkpoint, a rank prints another text than was shown before. All of it is shown from
    /// that line of text on.
    OutputDeparted {
        /// The rank that prints it.
        rank: VirtualRank,
        /// The replica whose standard error this is. None for standard output.
        error_of: Option<ReplicaId>,
        /// Number of the line of text, from 1.
        line: u64,
    },
    /// A replica must stop printing until its siblings have printed as much.
    OutputHeld {
        /// The replica that is held.
        replica: ReplicaId,
    },
    /// Memory of a rank's replicas was equal, and differs now.
    MemoryDiffers(Difference),
    /// A replica is copied though memory is compared in this job and no sibling vouches for its memory.
    CopyUnproven {
        /// The place of the copy.
        replica: ReplicaId,
        /// The replica that is copied.
        source: ReplicaId,
        /// The reason why none does.
        why: Unproven,
    },
    /// The memory of a rank cannot be compared.
    ScrubUnfit {
        /// The replica that reported it.
        replica: ReplicaId,
        /// The reason, in words that follow on its name.
        why: String,
    },
    /// A round of comparing memory is over.
    Scrubbed(scrub::Coverage),
    /// Replicas vouch for the memory in a checkpoint's images.
    CheckpointProven {
        /// Number of the checkpoint.
        generation: Generation,
        /// Their testimony.
        proof: Proof,
    },
    /// Nobody vouches for a checkpoint.
    CheckpointUnproven {
        /// Number of the checkpoint.
        generation: Generation,
        /// The reason.
        why: NoProof,
        /// True if the user has asked for proofs.
        is_asked_for: bool,
    },
    /// The program ends, and memory is not compared any more.
    ScrubEnded(scrub::Coverage),
    /// A replica is being ended while its siblings go on.
    Retired {
        /// The replica that is ended.
        replica: ReplicaId,
        /// The reason for its end.
        reason: RetireReason,
    },
    /// A replica that is wrong, or that its host makes slow, counts against the host.
    Strike {
        /// The replica that counts.
        replica: ReplicaId,
        /// Number of strikes that its host has now.
        count: u32,
        /// Number of strikes at which a host is drained.
        limit: u32,
    },
    /// A replica stands still, and its siblings wait for it.
    Lags {
        /// The replica, and how long it has stood.
        laggard: Laggard,
        /// True if it is ended for that.
        is_retired: bool,
    },
    /// A replica goes on long after siblings have ended well.
    Lingers {
        /// The replica, and the time since `Release`.
        laggard: Laggard,
        /// True if it is ended for that.
        is_retired: bool,
    },
    /// A host holds up the others.
    SlowHost(SlowHost),
    /// No process of the job answers.
    Quiet {
        /// Time since the latest question without an answer.
        silence: Duration,
    },
    /// A rank has three or more replicas, and all of them share an image that nothing has vouched for.
    OneLineage(VirtualRank),
    /// A host has too many strikes.
    HostBad {
        /// The replica with the last strike.
        last: ReplicaId,
        /// Number of strikes it has.
        strikes: u32,
        /// True if its replicas move away. False if there is no other host.
        is_drained: bool,
    },
    /// The common cause of the verdicts so far, software or hardware, as far as it can be told.
    Attribution(Box<Conclusion>),
    /// An injected fault was carried out.
    Injected {
        /// The replica that is hit.
        replica: ReplicaId,
        /// The fault, in the syntax of `--inject`.
        fault: String,
    },
    /// The job is being ended.
    Ending(EndReason),
    /// A second signal of the user ended the grace.
    Impatient,
    /// All processes have ended.
    Ended {
        /// The exit code of the job.
        code: i32,
    },
}
