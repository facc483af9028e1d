//! Checkpoints in a job: the times at which one may be taken, the orders to daemons, and how the job ends with a
//! checkpoint or goes back to one.

use super::{CheckpointWatch, Next, RESTARTS_MAX, STORE_TIME_MAX, Stage, TakenCheckpoint};
use crate::effect::{Effect, Effects};
use crate::ending::Course;
use crate::facts::Facts;
use crate::{Back, CheckpointFailure, EndReason, Loss, Output, Report, StoreFailure};
use redrt_types::{Incarnation, ReplicaId};
use redrt_wire::checkpoint::{CheckpointOrder, CheckpointStep, Generation};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::exit::Exit;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Exit code of a job that was ended with a checkpoint, to be resumed: `EX_TEMPFAIL` of sysexits.h.
pub const RESUME_CODE: i32 = 75;

/// News of the store about one checkpoint.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum StoreNews {
    /// A place for the images exists.
    Opened,
    /// More of the checkpoint has been copied to other hosts.
    Moving,
    /// The checkpoint is kept.
    Committed,
    /// The store failed. The checkpoint is not kept.
    Failed(StoreFailure),
    /// The store has finished all earlier orders for a checkpoint that was given up. If it kept the checkpoint, it has
    /// said so before.
    Dropped,
}

/// The job was started without `--checkpoint`, so its processes cannot be saved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this job was started without --checkpoint: its processes cannot be saved")]
pub struct NoCheckpoints;

/// The wait of a job that is to go back, when all its processes are gone, for its store.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum StoreWait {
    /// The begin of the wait.
    Since(Duration),
    /// The user was told of the wait.
    Told,
}

impl StoreWait {
    /// Time at which the user is told. None if the user was.
    pub(crate) fn deadline(self) -> Option<Duration> {
        match self {
            Self::Since(since) => Some(since + STORE_TIME_MAX),
            Self::Told => None,
        }
    }
}

impl CheckpointWatch {
    /// Asks for a checkpoint as soon as possible. With `stops` the job ends with it, to be resumed later.
    pub(crate) fn want(&mut self, stops: bool) {
        *self.asked.get_or_insert(false) |= stops;
    }

    /// Returns true if the job is to end with the checkpoint that is being taken, or with the next one.
    #[must_use]
    pub fn ends_the_job(&self) -> bool {
        self.asked == Some(true)
    }

    /// Returns true if the job is to end with a checkpoint whose images are cut.
    pub(crate) fn is_taken_to_stop(&self) -> bool {
        let attempt = self.attempt.as_ref().filter(|attempt| !self.has_archive || attempt.ends);
        let stage = attempt.map(|attempt| attempt.stage);
        self.asked == Some(true) && matches!(stage, Some(Stage::Taking | Stage::Writing | Stage::Committing))
    }

    /// Returns true if a checkpoint is being taken that a change of the membership would make void.
    pub(crate) fn needs_membership(&self) -> bool {
        self.lost(&[], false).is_some()
    }

    /// The processes whose images are written for the current checkpoint. Empty if none exists.
    pub(crate) fn sources(&self) -> &[ReplicaId] {
        self.attempt.as_ref().map_or(&[], |attempt| &attempt.sources)
    }

    pub(crate) fn next_deadline(&self, facts: Facts<'_>) -> Option<Duration> {
        // A checkpoint that is due and has to wait needs no deadline: it begins with the input that ends the wait.
        let deadline = match facts.course.is_under_way() {
            true => self.attempt_deadline(),
            false => self.start_deadline().filter(|_| !facts.course.have_met()),
        };
        deadline.filter(|deadline| !facts.course.is_ending() && *deadline > facts.now)
    }

    /// Reports to the user once that a checkpoint is wanted and that it waits for processes to call `MPI_Init`.
    fn report_start(&mut self, facts: Facts<'_>, out: &mut Effects) {
        let may_start = !facts.course.have_met() && !facts.course.is_ending();
        if may_start && self.start_deadline().is_some_and(|deadline| facts.now >= deadline) {
            self.told_of_start = true;
            let live = facts.members.live();
            let missing = live.filter(|(_, process)| process.card.is_none()).map(|(missing, _)| missing).collect();
            out.report(Report::CheckpointAwaitsStart { missing });
        }
    }

    /// Begins a checkpoint that is due if nothing is in its way, and gives up one whose deadline has passed. Memory of
    /// the processes that `is_distrusted` selects was contradicted by siblings.
    pub(crate) fn pass_time(
        &mut self,
        facts: Facts<'_>,
        is_quiet: bool,
        is_distrusted: impl Fn(ReplicaId) -> bool,
        out: &mut Effects,
    ) {
        if !facts.course.is_under_way() {
            return self.report_start(facts, out);
        }
        if let Some(next) = self.late(facts.now) {
            self.follow(facts, next, out);
        }
        let members = facts.members;
        let all_run = || members.live().all(|(_, process)| process.counts() && process.card.is_some());
        if !is_quiet || !self.is_due(facts.now) || !all_run() {
            return;
        }
        let sources: Vec<_> = members.ranks().filter_map(|rank| members.view().leader(rank)).collect();
        // All replicas would go on with this memory, which siblings have contradicted.
        let unsound = sources.iter().copied().find(|source| is_distrusted(*source));
        let unfit =
            unsound.map(CheckpointFailure::Distrusted).or(members.source_apart(&sources).map(CheckpointFailure::Apart));
        let generation = self.begin(facts.now, members.view().clone(), sources);
        match unfit {
            Some(why) => self.follow(facts, Next::GiveUp(why), out),
            None => out.output(Output::OpenCheckpoint(generation)),
        }
    }

    pub(crate) fn taken(&self, facts: Facts<'_>, on_trial: Vec<Generation>) -> Option<TakenCheckpoint> {
        let attempt = self.attempt.as_ref()?;
        let members = facts.members;
        Some(TakenCheckpoint {
            generation: attempt.generation,
            view: attempt.view.clone(),
            degrees: members.ranks().map(|rank| members.degree(rank)).collect(),
            next_life: members.next_life(),
            positions: members.world().replicas().map(|replica| attempt.positions.get(&replica).cloned()).collect(),
            taken_at: attempt.stopped_at,
            elapsed: facts.now - attempt.begun_at,
            bytes: attempt.bytes(),
            on_trial,
        })
    }

    /// Handles the progress of one image.
    pub(crate) fn step(
        &mut self,
        facts: Facts<'_>,
        generation: Generation,
        replica: ReplicaId,
        step: CheckpointStep,
        out: &mut Effects,
    ) {
        if let Some(next) = self.heard(facts.now, generation, replica, step) {
            self.follow(facts, next, out);
        }
    }

    /// All messages that a process has sent have reached the other hosts.
    pub(crate) fn is_quiet(&mut self, facts: Facts<'_>, replica: ReplicaId, out: &mut Effects) {
        if let Some(next) = self.quiet(facts.now, replica) {
            self.follow(facts, next, out);
        }
    }

    /// Handles news of the store.
    pub(crate) fn store_says(&mut self, facts: Facts<'_>, generation: Generation, news: StoreNews, out: &mut Effects) {
        match news {
            StoreNews::Opened => self.opened(facts.now, generation),
            StoreNews::Moving => self.moved(facts.now, generation),
            StoreNews::Failed(why) if self.under_way() == Some(generation) => {
                self.follow(facts, Next::GiveUp(CheckpointFailure::Store(why)), out);
            }
            StoreNews::Failed(_) => {}
            StoreNews::Dropped => {
                self.dropped.remove(&generation);
            }
            StoreNews::Committed => {
                let Some((report, stops)) = self.committed(facts.now, generation) else { return };
                out.report(report);
                out.push(Effect::Try { generation, sources: self.newest_sources.clone() });
                if stops {
                    out.end(EndReason::Suspended { generation }, RESUME_CODE);
                    out.push(Effect::KillAll);
                }
            }
        }
    }

    fn follow(&mut self, facts: Facts<'_>, next: Next, out: &mut Effects) {
        match next {
            // Each source reports with which ranks it shares memory before it reports that it is quiet.
            Next::Send(CheckpointOrder::Copy) if let Some(source) = facts.members.source_apart(self.sources()) => {
                self.follow(facts, Next::GiveUp(CheckpointFailure::Apart(source)), out);
            }
            Next::Send(order) => {
                let attempt = self.attempt.as_mut().expect("a checkpoint is under way when somebody is told of it");
                // An image can know no newer view than this one.
                attempt.view.clone_from(facts.members.view());
                out.send(ToDaemon::Checkpoint { generation: attempt.generation, order });
            }
            Next::Commit => out.push(Effect::Commit),
            Next::GiveUp(why) => {
                if let Some(generation) = self.end(facts.now, out) {
                    out.report(Report::CheckpointFailed { generation, why });
                }
            }
        }
    }

    /// Gives up the current checkpoint if the loss of these replicas makes it void. With `hosts_too` their unwritten
    /// images are lost as well.
    pub(crate) fn void(&mut self, facts: Facts<'_>, replicas: &[ReplicaId], hosts_too: bool, out: &mut Effects) {
        if let Some(next) = self.lost(replicas, hosts_too) {
            self.follow(facts, next, out);
        }
    }

    /// The checkpoint from which the whole job is started again after a rank has lost its last replica. None if there
    /// is no usable one, or if the exit was no fault. A program that leaves with a status has chosen to. A crash after
    /// `MPI_Finalize` would happen there again. But a process that is killed after it may not have written all it
    /// printed, so that the job goes back. `proven`: the newest that is.
    pub(crate) fn after(&self, course: &Course, loss: &Loss, proven: Option<Generation>) -> Option<Back> {
        let older = proven.filter(|proven| self.is_suspect() && Some(*proven) < self.newest());
        let generation = older.or(self.newest())?;
        let before = self.count_of(generation);
        let is_usable = loss.is_of_host || before < RESTARTS_MAX;
        let back = Back { generation, count: before + u32::from(!loss.is_of_host), passes_newer: older.is_some() };
        (is_usable && is_fault(course, loss)).then_some(back)
    }

    /// The return of a job whose replicas differ to this checkpoint, which is proven. None if it has gone back to it
    /// too often.
    pub(crate) fn after_difference(&self, proven: Generation) -> Option<Back> {
        let before = self.count_of(proven);
        (before < RESTARTS_MAX).then(|| Back { generation: proven, count: before + 1, passes_newer: true })
    }

    /// Number of starts from a checkpoint because processes ended or differed.
    fn count_of(&self, generation: Generation) -> u32 {
        let of_life = self.restored.filter(|(restored, _)| *restored == generation).map_or(0, |(_, count)| count);
        if Some(generation) == self.newest() { self.restart_count } else { of_life }
    }

    /// A replica is wrong. If its memory is in the newest checkpoint, that is not to be trusted, and another one is
    /// taken soon.
    pub(crate) fn suspect(&mut self, replica: ReplicaId, life: Incarnation) {
        let was_suspect = self.is_suspect();
        self.wrong.insert((replica, life));
        if self.is_suspect() && !was_suspect {
            self.due = self.due.map(|_| Duration::ZERO);
        }
    }

    /// Returns true if the newest checkpoint has memory of a replica that was found to be wrong since.
    fn is_suspect(&self) -> bool {
        self.newest_sources.iter().any(|source| self.wrong.contains(source))
    }

    /// The newest checkpoint, if this loss cannot be repaired because the job was started from it too often. The loss
    /// of a host is always repaired: it is no fault of the program, and another host takes its place.
    pub(crate) fn spent_by(&self, course: &Course, loss: &Loss) -> Option<Generation> {
        self.newest().filter(|_| is_fault(course, loss) && self.after(course, loss, None).is_none())
    }

    /// The checkpoint whose processes are being loaded. None once they have met.
    pub(crate) fn being_loaded(&self, course: &Course) -> Option<Generation> {
        self.newest().filter(|_| !course.have_met())
    }

    /// The checkpoint to go back to, and the number of starts from it with this one. A newer one that was kept
    /// meanwhile replaces `generation`.
    pub(crate) fn kept_since(&self, generation: Generation, count: Option<u32>) -> (Generation, Option<u32>) {
        let newer = self.newest().filter(|newest| *newest > generation);
        newer.map_or((generation, count), |newer| (newer, Some(count.map_or(1, |count| count.min(1)))))
    }

    /// Drops the checkpoint that is being taken. Returns its number.
    pub(crate) fn end(&mut self, now: Duration, out: &mut Effects) -> Option<Generation> {
        let generation = self.gave_up(now)?;
        out.send(ToDaemon::Checkpoint { generation, order: CheckpointOrder::Abandon });
        out.output(Output::DropCheckpoint(generation));
        Some(generation)
    }
}

fn is_fault(course: &Course, loss: &Loss) -> bool {
    match loss.exit {
        exit @ (Exit::Signal(_) | Exit::OutOfMemory) => !course.is_released() || exit.is_killed(),
        Exit::Status(_) => false,
    }
}
