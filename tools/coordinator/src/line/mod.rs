//! Lines: images of one process of each rank, from which the whole job is started again when a rank has lost its last
//! replica.
//!
//! ```text
//!  Resting ─due, asked─▶ Opening ─▶ Copying ─▶ Settling ─all ready─▶ Quieting ─▶ Stopping ─▶ Taking ─copied─▶ Writing
//!     ▲                   store       the program runs              │  no source sends, then none runs     runs again
//!     │                                                             └─ a loss, or late ─▶ given up      all saved │
//!     └───────────────────────────── committed ◀── Committing (store) ◀───────────────────────────────────────────┘
//! ```
//! [`LineWatch`] is that machine. It is told the sources once, at the begin of an attempt: if one is lost before all go
//! on, or somebody joins, it is void. After that the images are complete, wherever they are written from, and a loss of
//! a process changes nothing. Siblings of sources are neither stopped nor waited for.
//!
//! The source of a rank is its leader. What a rank changes outside, in files, its leader does, when it decides: so its
//! image has gone through all that was done, and nothing else, and nobody changes anything while all sources are
//! stopped. A sibling may not have heard yet what was done, and would do it again.
//!
//! Where messages have numbers, what is on its way to a source when it is stopped is sent again by the process that
//! goes on from the images. All sources are stopped before the first is copied: so none has let go, or decided, what
//! the image of another would need of it.

mod taking;

pub use taking::{NoLines, RESUME_CODE, StoreNews, StoreWait};

use crate::{LineFailure, Report};
use redrt_types::{Incarnation, ReplicaId, View};
use redrt_wire::clone::{Cost, Position, Progress};
use redrt_wire::line::{Generation, LineOrder, LineStep, Step};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A job that does not run after this time may never do so: a script, or a program without MPI.
const START_TIME_USUAL: Duration = Duration::from_secs(5);
/// How long processes may take to stop, and to be copied, before they are let go without a line. A process that is
/// stopped, or a host that was lost and is not known to be, must not keep all others.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(10);
/// How long nothing need be heard of a line while the program runs, of images that are written or of the store, before
/// the line is given up. A disk that does not answer, or a message that was lost, must not hold all later lines.
pub const WRITE_TIME_MAX: Duration = Duration::from_secs(600);
/// How long a job that is to go back waits for its store until the user is told so.
pub const STORE_TIME_MAX: Duration = Duration::from_secs(2);
/// What is left when all is copied, and copies for other hosts, may take this many times as long as the rounds before.
const REST_FACTOR: u32 = 10;
/// The rest after an attempt that failed; it doubles with each.
const REST_FIRST: Duration = Duration::from_secs(1);
/// The longest rest.
const REST_MAX: Duration = Duration::from_secs(300);
/// Maximum number of times a job is started again from one line. A program that fails by itself fails each time.
pub const RESTARTS_MAX: u32 = 3;

/// When lines are taken.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Schedule {
    /// When somebody asks.
    Asked,
    /// At this interval.
    Every(Duration),
    /// At the interval that Daly's formula gives, from what a line costs and this mean time between failures of the
    /// job.
    Auto {
        /// Mean time between failures of the whole job.
        mtbf: Duration,
    },
}

/// What the coordinator is told of lines.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LineSettings {
    /// When they are taken.
    pub schedule: Schedule,
    /// Before this time of the job none is taken unless somebody asks: what it has done until then is sooner done
    /// again. It concerns a job that has none yet.
    pub first: Option<Duration>,
    /// The number of the next one.
    pub next: Generation,
    /// The line that the job was started from, if it was.
    pub restored: Option<Generation>,
    /// How often it was started from that one.
    pub restart_count: u32,
}

/// A line, all of whose images are on the disk.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TakenLine {
    /// Its number.
    pub generation: Generation,
    /// Who lived.
    pub view: View,
    /// How many replicas each rank is to have.
    pub degrees: Vec<u16>,
    /// Greater than the number of any life that a place has had.
    pub next_life: Incarnation,
    /// Where the standard streams of each source were, in order of process number.
    pub positions: Vec<Option<Position>>,
    /// When it was, since the job began.
    pub taken_at: Duration,
    /// From the begin until all was on the disk.
    pub elapsed: Duration,
    /// Bytes of all images.
    pub bytes: u64,
}

/// How far an attempt is.
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
    /// Since when it is in this stage.
    since: Duration,
    /// When an image was last heard to have grown, or some of its copy to have gone.
    grown_at: Duration,
    /// How far each is: the round, and bytes of it.
    grown: BTreeMap<ReplicaId, (u32, u64)>,
    stopped_at: Duration,
    held: Duration,
    /// The membership when all was copied.
    view: View,
    /// Whose images are in it: one of each rank.
    sources: Vec<ReplicaId>,
    /// Whose answer of this stage is awaited.
    awaited: BTreeSet<ReplicaId>,
    positions: BTreeMap<ReplicaId, Position>,
    costs: BTreeMap<ReplicaId, (Cost, Vec<Step>)>,
}

/// What follows from something that was heard.
#[derive(Clone, PartialEq, Debug)]
enum Next {
    /// All daemons are to do this.
    Tell(LineOrder),
    /// All is on the disk: the store is to keep it.
    Commit,
    /// Nothing comes of it.
    GiveUp(LineFailure),
}

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LineWatch {
    schedule: Schedule,
    first: Option<Duration>,
    next: Generation,
    /// When one is due; none before the job runs, or where none is until somebody asks.
    due: Option<Duration>,
    /// Somebody has asked; `true` if the job is to end with it.
    asked: Option<bool>,
    attempt: Option<Attempt>,
    /// Given up, and the store has not said what has become of them.
    dropped: BTreeSet<Generation>,
    failure_count: u32,
    newest: Option<Generation>,
    restart_count: u32,
    /// What the last one cost the program, as far as is known.
    cost: Option<Duration>,
    /// The user knows that the first one waits until the job runs.
    told_of_start: bool,
}

impl LineWatch {
    /// Nothing was taken yet in this life of the job.
    #[must_use]
    pub fn new(settings: &LineSettings) -> Self {
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
            restart_count: settings.restart_count,
            cost: None,
            told_of_start: false,
        }
    }

    /// The line from which the job can be started again, and how often it was. None if there is none, or the job was
    /// started from it too often.
    #[must_use]
    pub fn usable(&self) -> Option<(Generation, u32)> {
        self.newest.filter(|_| self.restart_count < RESTARTS_MAX).map(|newest| (newest, self.restart_count))
    }

    /// The newest line, however often the job was started from it.
    #[must_use]
    pub fn newest(&self) -> Option<Generation> {
        self.newest
    }

    /// The newest line is of no use any more. Which it was.
    fn forget(&mut self) -> Option<Generation> {
        self.newest.take()
    }

    /// A line that was given up, and may be kept all the same: the store has not answered.
    fn unsettled(&self) -> Option<Generation> {
        self.dropped.last().copied()
    }

    /// The line that is being taken.
    #[must_use]
    pub fn under_way(&self) -> Option<Generation> {
        self.attempt.as_ref().map(|attempt| attempt.generation)
    }

    /// Whether processes may be stopped for a line.
    pub(super) fn is_stopping(&self) -> bool {
        self.attempt
            .as_ref()
            .is_some_and(|attempt| matches!(attempt.stage, Stage::Quieting | Stage::Stopping | Stage::Taking))
    }

    /// How far the one that is being taken is, in a word.
    #[cfg(test)]
    pub(super) fn stage(&self) -> Option<String> {
        self.attempt.as_ref().map(|attempt| format!("{:?}", attempt.stage).to_lowercase())
    }

    /// Whether one is to be begun now, if nothing is in its way.
    fn is_due(&self, now: Duration) -> bool {
        self.attempt.is_none() && (self.asked.is_some() || self.due.is_some_and(|due| now >= due))
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.attempt.as_ref().map_or(self.due, |attempt| Some(attempt.deadline()))
    }

    /// When the user is to be told that the job does not run yet, so that there is no line to go back to.
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

    /// The job runs from now on.
    fn job_runs(&mut self, now: Duration) {
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
            // Before anything is known of its cost, the first one shows it.
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
            view,
            awaited: sources.iter().copied().collect(),
            sources,
            positions: BTreeMap::new(),
            costs: BTreeMap::new(),
        });
        generation
    }

    /// The store has a place for it: images are being written from now on.
    fn opened(&mut self, now: Duration, generation: Generation) {
        if let Some(attempt) = self.attempt_at(generation, Stage::Opening) {
            (attempt.stage, attempt.since) = (Stage::Copying, now);
        }
    }

    fn attempt_at(&mut self, generation: Generation, stage: Stage) -> Option<&mut Attempt> {
        self.attempt.as_mut().filter(|attempt| attempt.generation == generation && attempt.stage == stage)
    }

    /// The image of a process has come so far.
    fn heard(&mut self, now: Duration, generation: Generation, replica: ReplicaId, step: LineStep) -> Option<Next> {
        let attempt = self.attempt.as_mut().filter(|attempt| attempt.generation == generation)?;
        let fits = match step {
            LineStep::Progress(Progress { round, done_bytes, .. }) => {
                if attempt.grown.insert(replica, (round, done_bytes)) != Some((round, done_bytes)) {
                    attempt.grown_at = now;
                }
                return None;
            }
            LineStep::Failed(why) => return Some(Next::GiveUp(LineFailure::NoImage { replica, why })),
            LineStep::Ready => matches!(attempt.stage, Stage::Copying | Stage::Settling),
            LineStep::Stopped(position) => {
                attempt.positions.insert(replica, position);
                attempt.stage == Stage::Stopping
            }
            LineStep::Copied => attempt.stage == Stage::Taking,
            LineStep::Saved(cost, steps) => {
                attempt.costs.insert(replica, (cost, steps));
                attempt.stage == Stage::Writing
            }
        };
        if !fits {
            return Some(Next::GiveUp(LineFailure::OutOfTurn(replica)));
        }
        attempt.grown_at = now;
        attempt.awaited.remove(&replica);
        attempt.awaited.is_empty().then(|| attempt.advance(now))
    }

    /// Something of what is copied elsewhere has gone.
    fn moved(&mut self, now: Duration, generation: Generation) {
        if let Some(attempt) = self.attempt_at(generation, Stage::Committing) {
            attempt.grown_at = now;
        }
    }

    /// All that a process has sent has reached the other hosts.
    fn quiet(&mut self, now: Duration, replica: ReplicaId) -> Option<Next> {
        // One that was given up may still have been on its way.
        let attempt = self.attempt.as_mut().filter(|attempt| attempt.stage == Stage::Quieting)?;
        attempt.awaited.remove(&replica);
        attempt.awaited.is_empty().then(|| attempt.advance(now))
    }

    /// These processes are lost, with their hosts if `hosts_too`: what they had not written is not written any more.
    /// With none, the membership changes otherwise.
    fn lost(&self, replicas: &[ReplicaId], hosts_too: bool) -> Option<Next> {
        let attempt = self.attempt.as_ref()?;
        let is_void = match attempt.stage {
            Stage::Opening | Stage::Copying | Stage::Settling | Stage::Quieting | Stage::Stopping | Stage::Taking => {
                replicas.is_empty() || replicas.iter().any(|replica| attempt.sources.contains(replica))
            }
            Stage::Writing => hosts_too && replicas.iter().any(|replica| attempt.awaited.contains(replica)),
            Stage::Committing => false,
        };
        is_void.then(|| Next::GiveUp(LineFailure::Lost(replicas.first().copied())))
    }

    fn late(&self, now: Duration) -> Option<Next> {
        let attempt = self.attempt.as_ref().filter(|attempt| now >= attempt.deadline())?;
        let awaited = || attempt.awaited.iter().copied().collect();
        let time = now - attempt.since.max(attempt.grown_at);
        Some(Next::GiveUp(match attempt.stage {
            Stage::Quieting | Stage::Stopping | Stage::Taking => LineFailure::Late(awaited()),
            Stage::Copying | Stage::Settling | Stage::Writing => LineFailure::Unwritten(awaited(), time),
            Stage::Opening | Stage::Committing => LineFailure::StoreSilent(time),
        }))
    }

    /// The line is kept. What is to be told of it, and `true` if the job is to end with it.
    fn committed(&mut self, now: Duration, generation: Generation) -> Option<(Report, bool)> {
        if self.under_way() != Some(generation) && self.newest.is_none_or(|newest| newest < generation) {
            // It was given up while the store did not answer, and is whole all the same.
            (self.newest, self.restart_count) = (Some(generation), 0);
            return Some((Report::LineKept { generation }, false));
        }
        let attempt = self.attempt_at(generation, Stage::Committing)?;
        let (begun_at, held, elapsed) = (attempt.begun_at, attempt.held, now - attempt.begun_at);
        let (bytes, kept_bytes) = (attempt.bytes(), attempt.costs.values().map(|(cost, _)| cost.kept_bytes).sum());
        let longest = attempt.costs.iter().max_by_key(|(_, (cost, _))| cost.stopped_ns);
        let (longest, (cost, steps)) = longest.map(|(replica, saved)| (*replica, saved.clone())).unwrap_or_default();
        let stopped = Duration::from_nanos(cost.stopped_ns);
        let report = Report::LineTaken { generation, stopped, longest, steps, held, elapsed, bytes, kept_bytes };
        // The program runs while images are written, at most a tenth slower.
        self.cost = Some(elapsed / 10 + stopped);
        self.attempt = None;
        self.newest = Some(generation);
        (self.failure_count, self.restart_count) = (0, 0);
        self.due = self.interval().map(|interval| (begun_at + interval).max(now));
        Some((report, self.asked.take().unwrap_or(false)))
    }

    /// Another attempt follows after a rest, unless nobody asked for more than this one.
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
    /// When it is given up, if nothing is heard until then.
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

    /// All have answered in this stage.
    fn advance(&mut self, now: Duration) -> Next {
        let (stage, next) = match self.stage {
            // Who was early waited for the last, and its program went on writing.
            Stage::Copying => (Stage::Settling, Next::Tell(LineOrder::Round)),
            Stage::Settling => (Stage::Quieting, Next::Tell(LineOrder::Stop)),
            Stage::Quieting => (Stage::Stopping, Next::Tell(LineOrder::Rest)),
            Stage::Stopping => (Stage::Taking, Next::Tell(LineOrder::Copy)),
            Stage::Taking => (Stage::Writing, Next::Tell(LineOrder::GoOn)),
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

    fn bytes(&self) -> u64 {
        self.costs.values().map(|(cost, _)| cost.sent_bytes).sum()
    }
}

/// Daly's interval between checkpoints of this cost, of first order (A higher order estimate of the optimum checkpoint
/// interval for restart dumps, 2006): at least the cost itself.
fn daly(cost: Duration, mtbf: Duration) -> Duration {
    let (cost, mtbf) = (cost.as_secs_f64(), mtbf.as_secs_f64());
    Duration::from_secs_f64(((2.0 * cost * mtbf).sqrt() - cost).max(cost).max(1.0))
}
