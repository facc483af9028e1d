//! What the coordinator has to tell. In which words is not said here.

use super::recovery::{Arbitration, Purpose, Recovered, Unproven};
use super::scrub::{self, Difference};
use super::stall::Stall;
use super::{CloneFailure, Laggard, LineFailure, NotHeld, OutputFailure, SlowHost, StayReason};
use attribution::Conclusion;
use redrt_types::{ReplicaId, ViewNumber, VirtualRank};
use redrt_wire::event::{Action, Event, Mismatch, PathMismatch};
use redrt_wire::exit::Exit;
use redrt_wire::foreign::Foreign;
use redrt_wire::lack::Lack;
use redrt_wire::line::{Generation, Step};
use replica_output::mismatch::OutputMismatch;
use std::time::Duration;

/// The loss of one replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// The replica.
    pub replica: ReplicaId,
    /// How it ended.
    pub exit: Exit,
    /// Whether it had called `MPI_Init`.
    pub greeted: bool,
    /// Live replicas left in its sphere.
    pub left: usize,
    /// The view without it.
    pub view: ViewNumber,
}

/// Why a job ends before its processes do.
#[derive(Clone, PartialEq, Debug)]
pub enum EndReason {
    /// A rank has no live replica left.
    SphereLost {
        /// Its last one.
        loss: Loss,
        /// The line from which the job was started as often as it may be, if that is why it is not again.
        spent: Option<Generation>,
    },
    /// `MPI_Abort`, or the library gave up.
    Aborted {
        /// Who.
        replica: ReplicaId,
        /// The exit code.
        code: i32,
        /// Why; empty when the application asked.
        message: String,
    },
    /// A process could not be started.
    NotStarted {
        /// The replica.
        replica: ReplicaId,
        /// Why.
        message: String,
    },
    /// A process uses another MPI.
    OtherMpi {
        /// The replica.
        replica: ReplicaId,
        /// Which.
        found: Foreign,
    },
    /// A rank ended without calling `MPI_Init` while others had called it, and would wait for ever.
    MissedInit {
        /// The rank.
        rank: VirtualRank,
    },
    /// A replica, or a program it ran, called `MPI_Init` once more.
    SecondInit {
        /// The replica.
        replica: ReplicaId,
    },
    /// A job that was spawned has failed.
    SpawnedFailed {
        /// Its exit code.
        code: i32,
    },
    /// A signal to `redrun`.
    Interrupted {
        /// Its number.
        signal: i32,
    },
    /// `--timeout`.
    TimedOut {
        /// As given.
        timeout: Duration,
    },
    /// Every process waits in MPI and nothing is under way.
    Stalled {
        /// What each waits for.
        stall: Stall,
        /// Replicas were found to differ before.
        have_differed: bool,
    },
    /// A process sent what no sound process sends, and there is no sibling to go on in its place.
    Refused(Refusal),
    /// A process lacks something of its host, and there is no sibling to go on in its place.
    Unable {
        /// The replica.
        replica: ReplicaId,
        /// What it lacks.
        lack: Lack,
    },
    /// A connection between two living processes broke, and neither has a sibling.
    BrokenLink {
        /// Whose end is said to be the broken one.
        suspect: ReplicaId,
        /// Who says so.
        by: ReplicaId,
    },
    /// Replicas differ, and `--on-sdc=abort` was given.
    Corrupted,
    /// The user has asked for a line and the end of the job.
    Suspended {
        /// The line.
        generation: Generation,
    },
    /// The image of a process cannot be loaded: the job is started from an older line, if there is one.
    Unloadable {
        /// The line.
        generation: Generation,
        /// Whose image.
        replica: ReplicaId,
        /// Why.
        message: String,
    },
    /// A rank has no live replica left, and the job is started again from a line.
    GoesBack {
        /// The loss.
        loss: Loss,
        /// The line.
        generation: Generation,
        /// How often the job is started from it, with this time.
        count: u32,
    },
    /// The reader of standard output has gone.
    OutputClosed,
    /// What the job prints could not be written.
    OutputFailed(OutputFailure),
}

/// Why a replica is ended while its siblings go on.
#[derive(Clone, PartialEq, Debug)]
pub enum RetireReason {
    /// A message of it was outvoted.
    Outvoted,
    /// It stands still, and its siblings wait for it.
    Lagging,
    /// Its siblings contradict it, where nobody knows which of them are right.
    Parted,
    /// It took another path than its leader, and nobody can say which of them is right.
    LeftPath,
    /// It has computed with a payload that was outvoted later.
    Tainted,
    /// It waits for something that its siblings do not, in a job that cannot go on.
    Strayed,
    /// A message for it is corrupt wherever it is kept.
    Withheld,
    /// It alone called `MPI_Abort`, or left the path of its leader.
    Abort {
        /// The exit code it asked for.
        code: i32,
        /// What the library says; empty when the program called `MPI_Abort`.
        message: String,
    },
    /// It sent what no sound process sends, or says so of others and is not believed.
    Refused(Refusal),
    /// It lacks something of its host.
    Unable(Lack),
    /// A connection of it with another living process broke.
    BrokenLink {
        /// Whose end is said to be the broken one.
        suspect: ReplicaId,
        /// Who says so.
        by: ReplicaId,
    },
}

/// Something that a process was told and that cannot be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Who refused it; `redrun` when absent.
    pub by: Option<ReplicaId>,
    /// Who said it, when that is known.
    pub peer: Option<ReplicaId>,
    /// What was wrong, in words that follow on the name of who said it.
    pub what: String,
}

/// Something to tell.
#[derive(Clone, PartialEq, Debug)]
pub enum Report {
    /// A replica was lost and its sphere goes on.
    Lost(Loss),
    /// A replica is lost, and these are ended: they share memory with it, or with each other.
    PlaneLost {
        /// Which.
        replica: ReplicaId,
        /// They.
        others: Vec<ReplicaId>,
    },
    /// A process ended in the ordinary course of events.
    Exited {
        /// The replica.
        replica: ReplicaId,
        /// How.
        exit: Exit,
    },
    /// A replica's connections broke; whether it is dead is for its daemon to say.
    Suspected {
        /// The replica.
        replica: ReplicaId,
        /// Who noticed.
        by: ReplicaId,
    },
    /// A frame was refused; what follows from that is a report of its own.
    Refused(Refusal),
    /// A replica is being copied, to take a lost one's place.
    CloneBegun {
        /// Whose place.
        replica: ReplicaId,
        /// Who is copied.
        source: ReplicaId,
        /// What for.
        purpose: Purpose,
        /// Name of the host it is copied to.
        host: String,
    },
    /// The copy runs on its host.
    CopyRuns {
        /// Whose place.
        replica: ReplicaId,
        /// Its process id there.
        pid: i32,
    },
    /// A line was taken, and is kept.
    LineTaken {
        /// Its number.
        generation: Generation,
        /// How long threads of a process were stopped, of that for which it was longest.
        stopped: Duration,
        /// That one.
        longest: ReplicaId,
        /// What was done for its image, in order.
        steps: Vec<Step>,
        /// From the order to stop until all had been copied.
        held: Duration,
        /// From the begin until it was kept.
        elapsed: Duration,
        /// Bytes of all images.
        bytes: u64,
        /// Bytes of memory that older images have, and these leave out.
        kept_bytes: u64,
    },
    /// No line was taken. An older one is kept, if there is one.
    LineFailed {
        /// The number that it would have had.
        generation: Generation,
        /// Why.
        why: LineFailure,
    },
    /// A line that was given up is kept all the same: the store had it before it was told.
    LineKept {
        /// Its number.
        generation: Generation,
    },
    /// A line is wanted, and none is taken before all processes have called `MPI_Init`. Told once.
    LineAwaitsStart {
        /// Those that have not.
        missing: Vec<ReplicaId>,
    },
    /// The job is to go back, and waits until its store says what has become of this line.
    StoreAwaited {
        /// The number that it has or would have had.
        generation: Generation,
    },
    /// Nothing came of it; it is tried again.
    CloneFailed {
        /// Whose place.
        replica: ReplicaId,
        /// Who was to be copied.
        source: ReplicaId,
        /// Where to; empty when the copy had its place already.
        host: String,
        /// Why.
        why: CloneFailure,
    },
    /// There is no host for a copy; said once for each loss.
    NoSpare {
        /// Whose place stays free.
        replica: ReplicaId,
        /// What the copy is for.
        purpose: Purpose,
        /// Why each host cannot be given, as far as that is known.
        why: Vec<String>,
    },
    /// A replica is to leave when another has its part.
    Leaving {
        /// The replica.
        replica: ReplicaId,
        /// Name of the host that it is to be moved to, if that was said.
        to: Option<String>,
    },
    /// It has left, and its rank has as many replicas as it is to have.
    Left {
        /// The replica.
        replica: ReplicaId,
    },
    /// It does not leave after all.
    Stays {
        /// The replica.
        replica: ReplicaId,
        /// Why.
        why: StayReason,
    },
    /// The degree of ranks is to change.
    Degree {
        /// The degree.
        degree: u16,
        /// How many ranks.
        rank_count: usize,
    },
    /// A host that was to become free is.
    HostFree {
        /// Its name.
        host: String,
    },
    /// The place that a replica is in is the job's no more.
    PlaceLost {
        /// The replica.
        replica: ReplicaId,
        /// Why.
        why: String,
    },
    /// A copy has taken a lost replica's place and is in step.
    Recovered(Recovered),
    /// A copy stands ready, to judge if its rank's replicas differ.
    CopyHeld {
        /// The place that it would have.
        replica: ReplicaId,
        /// Who was copied.
        source: ReplicaId,
    },
    /// No copy of a rank stands ready; said once.
    NotHeld {
        /// Of which.
        rank: VirtualRank,
        /// Why.
        why: NotHeld,
    },
    /// Two replicas differ, and those that stand ready are asked.
    Disputed(Box<Mismatch>),
    /// The same, where they differ in their paths.
    DisputedPath(Box<PathMismatch>),
    /// They have judged.
    Arbitrated(Arbitration),
    /// A whole daemon was lost.
    DaemonLost {
        /// On which host.
        host: String,
        /// How that is known.
        why: String,
        /// How many processes went with it.
        process_count: usize,
    },
    /// A process reported something.
    Event(Event),
    /// Replicas printed different things.
    OutputMismatch {
        /// Of which rank.
        rank: VirtualRank,
        /// What.
        mismatch: OutputMismatch,
        /// What was done.
        action: Action,
    },
    /// A replica is so far behind that what it prints next is not compared.
    OutputUncompared {
        /// The replica.
        replica: ReplicaId,
    },
    /// After a return to a line a text is another one than was shown before. From that line on all is shown.
    OutputDeparted {
        /// Of which rank.
        rank: VirtualRank,
        /// It is the standard error of this replica; none for standard output.
        error_of: Option<ReplicaId>,
        /// The line, from 1.
        line: u64,
    },
    /// A replica must stop printing until others have printed as much.
    OutputHeld {
        /// The replica.
        replica: ReplicaId,
    },
    /// Memory of a rank's replicas was equal and is not any more.
    MemoryDiffers(Difference),
    /// A replica is copied for whose memory no other has vouched, though memory is compared in this job.
    CopyUnproven {
        /// The place of the copy.
        replica: ReplicaId,
        /// Who is copied.
        source: ReplicaId,
        /// Why nobody has.
        why: Unproven,
    },
    /// The memory of a rank cannot be compared.
    ScrubUnfit {
        /// Who says so.
        replica: ReplicaId,
        /// Why, in words that follow on its name.
        why: String,
    },
    /// A round of comparing memory is over.
    Scrubbed(scrub::Coverage),
    /// There will be no more.
    ScrubEnded(scrub::Coverage),
    /// A replica that its siblings contradict is being ended.
    Retired {
        /// The replica.
        replica: ReplicaId,
        /// What it did.
        reason: RetireReason,
    },
    /// A replica that was wrong, or that its host makes slow, counts against the host.
    Strike {
        /// Which replica.
        replica: ReplicaId,
        /// Number of strikes that its host has now.
        count: u32,
        /// Number at which it is drained.
        limit: u32,
    },
    /// A replica stands still, and its siblings wait for it.
    Lags {
        /// Who, and since when.
        laggard: Laggard,
        /// Whether it is ended for that.
        is_retired: bool,
    },
    /// A replica goes on long after siblings of it have ended well.
    Lingers {
        /// Who, and for how long the job could have been left.
        laggard: Laggard,
        /// Whether it is ended for that.
        is_retired: bool,
    },
    /// A host holds up the others.
    SlowHost(SlowHost),
    /// No process of the job answers.
    Quiet {
        /// For how long.
        silence: Duration,
    },
    /// All replicas of a rank, of which there are three or more, share an image that nothing has vouched for.
    OneLineage(VirtualRank),
    /// A host has too many strikes.
    HostBad {
        /// The replica whose strike was the last one.
        last: ReplicaId,
        /// How many there are.
        strikes: u32,
        /// Whether its replicas move away: there may be no other host.
        is_drained: bool,
    },
    /// What the verdicts until now have in common: software or hardware.
    Attribution(Box<Conclusion>),
    /// A fault was carried out from here.
    Injected {
        /// On whom.
        replica: ReplicaId,
        /// In the words of `--inject`.
        fault: String,
    },
    /// The job is being ended.
    Ending(EndReason),
    /// A second signal: no more grace.
    Impatient,
    /// All processes have ended.
    Ended {
        /// The exit code of the job.
        code: i32,
    },
}
