//! Takes checkpoints. A checkpoint has the images of one process of each rank, from which the whole job
//! is started again when a rank has lost its last replica.
//!
//! ```text
//!  Resting ─due, asked─▶ Opening ─▶ Copying ─▶ Settling ─all ready─▶ Quieting ─▶ Stopping ─▶ Taking ─copied─▶ Writing
//!     ▲                   store       the program runs              │  no source sends, then none runs     runs again
//!     │                                                             └─ a loss, or late ─▶ given up      all saved │
//!     └───────────────────────────── committed ◀── Committing (store) ◀───────────────────────────────────────────┘
//! ```
//! [`CheckpointWatch`] is that machine. The sources are fixed at the begin of an attempt. If a source is lost before
//! all sources go on, or a replica joins, the attempt is void. After that the images are complete, wherever they are
//! written from, and the loss of a process changes nothing. Siblings of sources are neither stopped nor waited for.
//!
//! The source of a rank is its leader. Changes outside the process, in files, are made by the leader when it decides.
//! So the leader's image contains exactly the changes that were made, and no process makes any while all sources are
//! stopped. A sibling may not know yet of a change that was made, and would make it again.
//!
//! Where messages have sequence numbers, a message that was in flight to a stopped source is sent again by the process
//! that goes on from the images. All sources are stopped before the first is copied. So no source has released a
//! message, or made a decision, that the image of another still needs.

mod taking;

pub use taking::{NoCheckpoints, RESUME_CODE, StoreNews, StoreWait};

use crate::proofs::{ProofMode, Sources};
use crate::{CheckpointFailure, Report};
use redrt_types::{Incarnation, ReplicaId, View};
use redrt_wire::checkpoint::{CheckpointOrder, CheckpointStep, Generation, Step};
use redrt_wire::clone::{Cost, Position, Progress};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A job that does not run after this time may never do so: a script, or a program without MPI.
const START_TIME_USUAL: Duration = Duration::from_secs(5);
/// Maximum time for processes to stop and be copied. After it the attempt is given up and they run on. Without the
/// limit, a process that was stopped by hand, or a host whose loss is not known yet, would hold up all others.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum time without news of images that are written, or of the store, while the program runs. After it the attempt
/// is given up. Without the limit, a disk that does not answer, or a lost message, would hold up all later checkpoints.
pub const WRITE_TIME_MAX: Duration = Duration::from_secs(600);
/// Time for which a job that is to go back waits for its store before the user is told.
pub const STORE_TIME_MAX: Duration = Duration::from_secs(2);
/// When the program runs again, the rest of the images and copies for other hosts may take this many times as long as
/// the rounds before.
const REST_FACTOR: u32 = 10;
/// Rest after the first failed attempt. It doubles with each further one.
const REST_FIRST: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(300);
/// Maximum number of times a job is started again from one checkpoint because processes ended. A program that fails by
/// itself fails each time. Losses of hosts do not count.
pub const RESTARTS_MAX: u32 = 3;

/// The times at which checkpoints are taken.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Schedule {
    /// Only when the user asks.
    Asked,
    /// Always after this interval.
    Every(Duration),
    /// At the interval of Daly's formula, from the cost of the last checkpoint and the mean time between failures.
    Auto {
        /// Mean time between failures of the whole job.
        mtbf: Duration,
    },
}

/// Settings of checkpoints, at the start of the job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CheckpointWatchSettings {
    /// The times at which they are taken.
    pub schedule: Schedule,
    /// Earliest time of the first checkpoint, since the start of the job. Until then the work is sooner repeated than
    /// saved. Ignored for checkpoints that the user asks for, and in a job that has one already.
    pub first: Option<Duration>,
    /// The number of the next checkpoint.
    pub next: Generation,
    /// The checkpoint that the job was started from. None for a fresh start.
    pub restored: Option<Generation>,
    /// Number of times the job was started from that one.
    pub restart_count: u32,
    /// True if a checkpoint with which the job ends goes to an archive too, which has to be known at its begin.
    pub has_archive: bool,
    /// The checkpoints that are proven.
    pub proofs: ProofMode,
    /// The newest that was proven before this life.
    pub proven: Option<Generation>,
}

/// A checkpoint, all of whose images are on disk.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TakenCheckpoint {
    /// Its number in the store.
    pub generation: Generation,
    /// The membership when the images were cut.
    pub view: View,
    /// The degree of each rank, by rank.
    pub degrees: Vec<u16>,
    /// Greater than every incarnation that any place has had.
    pub next_life: Incarnation,
    /// Positions of the standard streams, by process number. None for a process that is no source.
    pub positions: Vec<Option<Position>>,
    /// Time at which all processes were ordered to stop, since the start of the job.
    pub taken_at: Duration,
    /// Time from the begin of the attempt until all images were on disk.
    pub elapsed: Duration,
    /// Sum of the bytes of all images.
    pub bytes: u64,
    /// Older checkpoints whose memory is being compared: they stay beside this one.
    pub on_trial: Vec<Generation>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Stage {
    Opening,
    Copying,
    Settling,
    Quieting,
    Stopping,
    Taking,
    Writing,
    Committing,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Attempt {
    generation: Generation,
    stage: Stage,
    begun_at: Duration,
    /// Begin of this stage.
    since: Duration,
    /// The latest time at which an image, or its copy on another host, was reported to have grown.
    grown_at: Duration,
    /// Round and bytes of the latest progress of each image.
    grown: BTreeMap<ReplicaId, (u32, u64)>,
    stopped_at: Duration,
    held: Duration,
    /// True if the job was to end with it when it began.
    ends: bool,
    /// The newest membership that any image can know of.
    view: View,
    /// One process of each rank, whose images are in the checkpoint.
    sources: Vec<ReplicaId>,
    /// Sources that have not answered in this stage.
    awaited: BTreeSet<ReplicaId>,
    positions: BTreeMap<ReplicaId, Position>,
    costs: BTreeMap<ReplicaId, (Cost, Vec<Step>)>,
}

/// The consequence of an input.
#[derive(Clone, PartialEq, Debug)]
enum Next {
    /// All daemons get this order.
    Send(CheckpointOrder),
    /// All images are on disk: the store is to keep the checkpoint.
    Commit,
    /// The attempt has failed.
    GiveUp(CheckpointFailure),
}

/// Decides when a checkpoint is taken, and follows its stages. The module shows them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckpointWatch {
    schedule: Schedule,
    first: Option<Duration>,
    next: Generation,
    /// None before the job runs, and where checkpoints are taken only on request.
    due: Option<Duration>,
    /// The user has asked for a checkpoint. True if the job is to end with it.
    asked: Option<bool>,
    attempt: Option<Attempt>,
    /// Attempts that were given up, until the store answers whether it kept them.
    dropped: BTreeSet<Generation>,
    failure_count: u32,
    newest: Option<Generation>,
    /// Sources of the newest one, if it was taken in this life.
    newest_sources: Sources,
    /// Replicas that were found to be wrong in this life.
    wrong: BTreeSet<(ReplicaId, Incarnation)>,
    restart_count: u32,
    /// The checkpoint that this life began from, and the number of starts from it.
    restored: Option<(Generation, u32)>,
    has_archive: bool,
    /// Time that the last checkpoint cost the program. None before the first.
    cost: Option<Duration>,
    /// The user was told that the first one waits until the job runs.
    told_of_start: bool,
}

impl CheckpointWatch {
    /// A job that has not taken a checkpoint in this life.
    #[must_use]
    pub fn new(settings: &CheckpointWatchSettings) -> Self {
        Self {
            schedule: settings.schedule,
            first: settings.first,
            next: settings.next,
            due: None,
            asked: None,
            attempt: None,
            dropped: BTreeSet::new(),
            failure_count: 0,
            newest: settings.restored,
            newest_sources: Sources::new(),
            wrong: BTreeSet::new(),
            restored: settings.restored.map(|restored| (restored, settings.restart_count)),
            restart_count: settings.restart_count,
            has_archive: settings.has_archive,
            cost: None,
            told_of_start: false,
        }
    }

    /// The checkpoint from which the job can be started again, and the number of times it was. None if none exists,
    /// or if it was used too often.
    #[must_use]
    pub fn usable(&self) -> Option<(Generation, u32)> {
        self.newest.filter(|_| self.restart_count < RESTARTS_MAX).map(|newest| (newest, self.restart_count))
    }

    /// The newest checkpoint, however often the job was started from it.
    #[must_use]
    pub fn newest(&self) -> Option<Generation> {
        self.newest
    }

    /// Discards the newest checkpoint, which is of no use any more. Returns its number.
    pub(super) fn forget(&mut self) -> Option<Generation> {
        self.newest.take()
    }

    /// A checkpoint that was given up and may be kept all the same, since the store has not answered. The trap: it is
    /// then the one to go back to. If it were kept after the start point was chosen, a later restart would take it for
    /// the older one.
    pub(super) fn unsettled(&self) -> Option<Generation> {
        self.dropped.last().copied()
    }

    /// The checkpoint that is being taken.
    #[must_use]
    pub fn under_way(&self) -> Option<Generation> {
        self.attempt.as_ref().map(|attempt| attempt.generation)
    }

    /// Returns true if processes may be stopped for a checkpoint.
    pub(super) fn is_stopping(&self) -> bool {
        self.attempt
            .as_ref()
            .is_some_and(|attempt| matches!(attempt.stage, Stage::Quieting | Stage::Stopping | Stage::Taking))
    }

    /// The stage of the current attempt, in lower case.
    #[cfg(any(test, feature = "simulation"))]
    pub(super) fn stage(&self) -> Option<String> {
        self.attempt.as_ref().map(|attempt| format!("{:?}", attempt.stage).to_lowercase())
    }

    /// Returns true if an attempt should begin as soon as nothing is in its way.
    fn is_due(&self, now: Duration) -> bool {
        self.attempt.is_none() && (self.asked.is_some() || self.due.is_some_and(|due| now >= due))
    }

    fn attempt_deadline(&self) -> Option<Duration> {
        self.attempt.as_ref().map_or(self.due, |attempt| Some(attempt.deadline()))
    }

    /// The time at which the user is told that the job does not run yet, and so has no checkpoint. None if no
    /// checkpoint is wanted, or the user knows.
    fn start_deadline(&self) -> Option<Duration> {
        if self.told_of_start || self.newest.is_some() {
            return None;
        }
        let wanted = match self.asked {
            Some(_) => Some(Duration::ZERO),
            None => self.interval().map(|interval| self.first.map_or(interval, |first| first.max(interval))),
        };
        wanted.map(|wanted| wanted.max(START_TIME_USUAL))
    }

    /// Schedules the first checkpoint of this life.
    pub(super) fn job_runs(&mut self, now: Duration) {
        let due = self.interval().map(|interval| now + interval);
        self.due = match self.newest {
            None => due.map(|due| self.first.map_or(due, |first| first.max(due))),
            Some(_) => due,
        };
    }

    fn interval(&self) -> Option<Duration> {
        match self.schedule {
            Schedule::Asked => None,
            Schedule::Every(interval) => Some(interval),
            // Before its cost is known, the first checkpoint is taken after a tenth of the mean time between failures.
            Schedule::Auto { mtbf } => Some(self.cost.map_or(mtbf / 10, |cost| daly(cost, mtbf))),
        }
    }

    fn begin(&mut self, now: Duration, view: View, sources: Vec<ReplicaId>) -> Generation {
        let generation = self.next;
        self.next = Generation(generation.0 + 1);
        self.due = None;
        self.attempt = Some(Attempt {
            generation,
            stage: Stage::Opening,
            begun_at: now,
            since: now,
            grown_at: now,
            grown: BTreeMap::new(),
            stopped_at: now,
            held: Duration::ZERO,
            ends: self.asked == Some(true),
            view,
            awaited: sources.iter().copied().collect(),
            sources,
            positions: BTreeMap::new(),
            costs: BTreeMap::new(),
        });
        generation
    }

    /// The store has a place for the images, so the daemons begin to write them.
    fn opened(&mut self, now: Duration, generation: Generation) {
        if let Some(attempt) = self.attempt_at(generation, Stage::Opening) {
            (attempt.stage, attempt.since) = (Stage::Copying, now);
        }
    }

    fn attempt_at(&mut self, generation: Generation, stage: Stage) -> Option<&mut Attempt> {
        self.attempt.as_mut().filter(|attempt| attempt.generation == generation && attempt.stage == stage)
    }

    /// Handles the progress of one image. Returns the consequence, none while others are awaited.
    fn heard(
        &mut self,
        now: Duration,
        generation: Generation,
        replica: ReplicaId,
        step: CheckpointStep,
    ) -> Option<Next> {
        let attempt = self.attempt.as_mut().filter(|attempt| attempt.generation == generation)?;
        let fits = match step {
            CheckpointStep::Progress(Progress { round, done_bytes, .. }) => {
                if attempt.grown.insert(replica, (round, done_bytes)) != Some((round, done_bytes)) {
                    attempt.grown_at = now;
                }
                return None;
            }
            CheckpointStep::Failed(why) => return Some(Next::GiveUp(CheckpointFailure::NoImage { replica, why })),
            CheckpointStep::Ready => matches!(attempt.stage, Stage::Copying | Stage::Settling),
            CheckpointStep::Stopped(position) => {
                attempt.positions.insert(replica, position);
                attempt.stage == Stage::Stopping
            }
            CheckpointStep::Copied => attempt.stage == Stage::Taking,
            CheckpointStep::Saved(cost, steps) => {
                attempt.costs.insert(replica, (cost, steps));
                attempt.stage == Stage::Writing
            }
        };
        if !fits {
            return Some(Next::GiveUp(CheckpointFailure::OutOfTurn(replica)));
        }
        attempt.grown_at = now;
        attempt.awaited.remove(&replica);
        attempt.awaited.is_empty().then(|| attempt.advance(now))
    }

    /// The store reports progress in copying the checkpoint to other hosts.
    fn moved(&mut self, now: Duration, generation: Generation) {
        if let Some(attempt) = self.attempt_at(generation, Stage::Committing) {
            attempt.grown_at = now;
        }
    }

    /// All messages that a process has sent have reached the other hosts.
    fn quiet(&mut self, now: Duration, replica: ReplicaId) -> Option<Next> {
        // The answer may belong to an attempt that was given up meanwhile.
        let attempt = self.attempt.as_mut().filter(|attempt| attempt.stage == Stage::Quieting)?;
        attempt.awaited.remove(&replica);
        attempt.awaited.is_empty().then(|| attempt.advance(now))
    }

    /// Returns the failure if the loss of these replicas makes the attempt void. With `hosts_too` their unwritten
    /// images are lost as well. An empty list stands for another change of the membership.
    fn lost(&self, replicas: &[ReplicaId], hosts_too: bool) -> Option<Next> {
        let attempt = self.attempt.as_ref()?;
        let is_void = match attempt.stage {
            Stage::Opening | Stage::Copying | Stage::Settling | Stage::Quieting | Stage::Stopping | Stage::Taking => {
                replicas.is_empty() || replicas.iter().any(|replica| attempt.sources.contains(replica))
            }
            Stage::Writing => hosts_too && replicas.iter().any(|replica| attempt.awaited.contains(replica)),
            Stage::Committing => false,
        };
        is_void.then(|| Next::GiveUp(CheckpointFailure::Lost(replicas.first().copied())))
    }

    fn late(&self, now: Duration) -> Option<Next> {
        let attempt = self.attempt.as_ref().filter(|attempt| now >= attempt.deadline())?;
        let awaited = || attempt.awaited.iter().copied().collect();
        let time = now - attempt.since.max(attempt.grown_at);
        Some(Next::GiveUp(match attempt.stage {
            Stage::Quieting | Stage::Stopping | Stage::Taking => CheckpointFailure::Late(awaited()),
            Stage::Copying | Stage::Settling | Stage::Writing => CheckpointFailure::Unwritten(awaited(), time),
            Stage::Opening | Stage::Committing => CheckpointFailure::StoreSilent(time),
        }))
    }

    /// The store has kept a checkpoint. Returns the report, and true if the job is to end with it.
    fn committed(&mut self, now: Duration, generation: Generation) -> Option<(Report, bool)> {
        if self.under_way() != Some(generation) && self.newest.is_none_or(|newest| newest < generation) {
            // The attempt was given up while the store did not answer, and yet the checkpoint is complete.
            (self.newest, self.restart_count) = (Some(generation), 0);
            self.newest_sources = Sources::new();
            return Some((Report::CheckpointKept { generation }, false));
        }
        let attempt = self.attempt_at(generation, Stage::Committing)?;
        let (begun_at, held, elapsed) = (attempt.begun_at, attempt.held, now - attempt.begun_at);
        let (bytes, kept_bytes) = (attempt.bytes(), attempt.costs.values().map(|(cost, _)| cost.kept_bytes).sum());
        let longest = attempt.costs.iter().max_by_key(|(_, (cost, _))| cost.stopped_ns);
        let (longest, (cost, steps)) = longest.map(|(replica, saved)| (*replica, saved.clone())).unwrap_or_default();
        let stopped = Duration::from_nanos(cost.stopped_ns);
        let report = Report::CheckpointTaken { generation, stopped, longest, steps, held, elapsed, bytes, kept_bytes };
        let ends_with_it = attempt.ends;
        self.newest_sources = attempt.sources();
        // Estimate: while images are written, the program runs at most a tenth slower.
        self.cost = Some(elapsed / 10 + stopped);
        self.attempt = None;
        self.newest = Some(generation);
        (self.failure_count, self.restart_count) = (0, 0);
        self.due = self.interval().map(|interval| (begun_at + interval).max(now));
        // The archive lacks this one: the next, with which the job ends, begins at once.
        let is_followed = self.has_archive && self.asked == Some(true) && !ends_with_it;
        let ends = !is_followed && self.asked.take().unwrap_or(false);
        Some((report, ends))
    }

    /// Ends the attempt. The next one follows after a rest, unless only this one was asked for.
    fn gave_up(&mut self, now: Duration) -> Option<Generation> {
        let attempt = self.attempt.take()?;
        let rest = REST_FIRST.saturating_mul(1 << self.failure_count.min(16)).min(REST_MAX);
        self.failure_count += 1;
        self.asked = None;
        self.dropped.insert(attempt.generation);
        self.due = self.interval().map(|interval| now + rest.min(interval));
        Some(attempt.generation)
    }
}

impl Attempt {
    /// Time at which the attempt is given up, if no input comes before.
    fn deadline(&self) -> Duration {
        let rounds = self.stopped_at - self.begun_at;
        match self.stage {
            Stage::Quieting | Stage::Stopping | Stage::Taking => self.since + STOP_TIME_MAX,
            Stage::Opening => self.since + WRITE_TIME_MAX,
            Stage::Copying | Stage::Settling => self.since.max(self.grown_at) + WRITE_TIME_MAX,
            Stage::Writing | Stage::Committing => {
                self.since.max(self.grown_at) + WRITE_TIME_MAX + rounds.saturating_mul(REST_FACTOR)
            }
        }
    }

    /// Moves to the next stage after the last answer in this one.
    fn advance(&mut self, now: Duration) -> Next {
        let (stage, next) = match self.stage {
            // Sources that were early waited for the last one, and their programs wrote memory meanwhile. One more
            // round copies that.
            Stage::Copying => (Stage::Settling, Next::Send(CheckpointOrder::Round)),
            Stage::Settling => (Stage::Quieting, Next::Send(CheckpointOrder::Stop)),
            Stage::Quieting => (Stage::Stopping, Next::Send(CheckpointOrder::Rest)),
            Stage::Stopping => (Stage::Taking, Next::Send(CheckpointOrder::Copy)),
            Stage::Taking => (Stage::Writing, Next::Send(CheckpointOrder::GoOn)),
            Stage::Writing => (Stage::Committing, Next::Commit),
            Stage::Opening | Stage::Committing => unreachable!("no answer of a process fits these stages"),
        };
        match self.stage {
            Stage::Settling => self.stopped_at = now,
            Stage::Taking => self.held = now - self.stopped_at,
            _ => {}
        }
        (self.stage, self.since) = (stage, now);
        self.awaited = self.sources.iter().copied().collect();
        next
    }

    /// The sources that the images were cut of.
    fn sources(&self) -> Sources {
        let life = |source| Some((source, self.view.member(source)?.incarnation));
        self.sources.iter().filter_map(|source| life(*source)).collect()
    }

    fn bytes(&self) -> u64 {
        self.costs.values().map(|(cost, _)| cost.sent_bytes).sum()
    }
}

/// Daly's interval between checkpoints of this cost, of first order (A higher order estimate of the optimum checkpoint
/// interval for restart dumps, 2006). At least the cost itself, and at least a second.
fn daly(cost: Duration, mtbf: Duration) -> Duration {
    let (cost, mtbf) = (cost.as_secs_f64(), mtbf.as_secs_f64());
    Duration::from_secs_f64(((2.0 * cost * mtbf).sqrt() - cost).max(cost).max(1.0))
}
