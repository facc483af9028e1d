//! Checkpoints in a job: the times at which one may be taken, the orders to daemons, and how the job ends with a
//! checkpoint or goes back to one.

use super::{Next, STORE_TIME_MAX, Stage, TakenLine};
use crate::{Coordinator, EndReason, KILL_GRACE, LineFailure, Loss, Output, Report, StoreFailure};
use redrt_types::{Incarnation, ReplicaId, VirtualRank};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::exit::Exit;
use redrt_wire::line::{Generation, LineOrder, LineStep};
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
pub struct NoLines;

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

impl Coordinator {
    /// Asks for a checkpoint as soon as possible. With `stops` the job ends with it, to be resumed later.
    ///
    /// # Errors
    /// [`NoLines`] if this job cannot take checkpoints.
    pub fn want_line(&mut self, now: Duration, stops: bool) -> Result<(), NoLines> {
        let line = self.line.as_mut().ok_or(NoLines)?;
        let asked = line.asked.get_or_insert(false);
        *asked |= stops;
        self.handle(now, crate::Input::Tick);
        Ok(())
    }

    /// The checkpoint that is being taken.
    #[must_use]
    pub fn line_under_way(&self) -> Option<Generation> {
        self.line.as_ref()?.under_way()
    }

    /// Returns true if the job is being ended with a checkpoint whose images are cut. Output from then on is printed
    /// again when the job is resumed.
    #[must_use]
    pub fn is_suspending(&self) -> bool {
        let is_taken = |line: &super::LineWatch| {
            let stage = line.attempt.as_ref().map(|attempt| attempt.stage);
            line.asked == Some(true) && matches!(stage, Some(Stage::Taking | Stage::Writing | Stage::Committing))
        };
        self.is_suspended() || self.ending.is_none() && self.line.as_ref().is_some_and(is_taken)
    }

    /// Returns true if the job is ending with a checkpoint that is kept.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.code == Some(RESUME_CODE))
    }

    /// Returns true if processes may be stopped for a checkpoint.
    #[must_use]
    pub fn is_stopping_for_line(&self) -> bool {
        self.line.as_ref().is_some_and(super::LineWatch::is_stopping)
    }

    /// The newest checkpoint that is kept.
    #[must_use]
    pub fn newest_line(&self) -> Option<Generation> {
        self.line.as_ref()?.newest()
    }

    /// Discards the newest checkpoint, to which the job cannot go back any more. Returns its number.
    pub fn forget_line(&mut self) -> Option<Generation> {
        self.line.as_mut()?.forget()
    }

    /// Returns true if a checkpoint is being taken that a change of the membership would make void.
    pub(crate) fn line_needs_membership(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.lost(&[], false).is_some())
    }

    pub(crate) fn next_line_deadline(&self) -> Option<Duration> {
        let line = self.line.as_ref().filter(|_| self.ending.is_none())?;
        // A checkpoint that is due and has to wait needs no deadline: it begins with the input that ends the wait.
        let deadline = match self.is_under_way() {
            true => line.next_deadline()?,
            false => line.start_deadline().filter(|_| !self.cards_sent)?,
        };
        (deadline > self.latest).then_some(deadline)
    }

    /// Tells the user once that a checkpoint is wanted and that it waits for processes to call `MPI_Init`.
    fn tell_of_start(&mut self, now: Duration) {
        let may_start = !self.cards_sent && self.ending.is_none();
        let Some(line) = self.line.as_mut().filter(|_| may_start) else { return };
        if line.start_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        line.told_of_start = true;
        let (world, view) = (&self.settings.world, &self.view);
        let is_missing = |replica: &ReplicaId| self.processes[world.process(*replica).0 as usize].card.is_none();
        let missing = world.replicas().filter(|replica| view.is_live(*replica) && is_missing(replica)).collect();
        self.report(Report::LineAwaitsStart { missing });
    }

    /// Begins a checkpoint that is due, and gives up one whose deadline has passed.
    pub(crate) fn pass_line_time(&mut self, now: Duration) {
        if !self.is_under_way() {
            return self.tell_of_start(now);
        }
        if let Some(next) = self.line.as_ref().and_then(|line| line.late(now)) {
            self.follow(now, next);
        }
        let is_quiet = self.broken_links.is_empty() && self.recovery.as_ref().is_none_or(|recovery| recovery.is_idle());
        if !is_quiet || !self.line.as_ref().is_some_and(|line| line.is_due(now)) {
            return;
        }
        let mut live = self.settings.world.replicas().filter(|replica| self.view.is_live(*replica));
        let all_run = live.all(|replica| {
            let process = &self.processes[self.settings.world.process(replica).0 as usize];
            process.counts() && process.card.is_some()
        });
        drop(live);
        if !all_run {
            return;
        }
        let ranks = (0..self.settings.world.rank_count()).map(VirtualRank);
        let sources: Vec<_> = ranks.filter_map(|rank| self.view.leader(rank)).collect();
        // All replicas would go on with this memory, which siblings have contradicted.
        let unsound = sources.iter().copied().find(|source| self.is_distrusted(*source));
        let unfit = unsound.map(LineFailure::Distrusted).or(self.source_apart(&sources).map(LineFailure::Apart));
        if let Some(line) = &mut self.line {
            let generation = line.begin(now, self.view.clone(), sources);
            match unfit {
                Some(why) => self.follow(now, Next::GiveUp(why)),
                None => self.outputs.push_back(Output::OpenLine(generation)),
            }
        }
    }

    /// The processes whose images are written for the current checkpoint. Empty if none exists.
    #[must_use]
    pub fn line_sources(&self) -> &[ReplicaId] {
        let attempt = self.line.as_ref().and_then(|line| line.attempt.as_ref());
        attempt.map_or(&[], |attempt| &attempt.sources)
    }

    pub(crate) fn taken(&self, now: Duration) -> Option<TakenLine> {
        let attempt = self.line.as_ref()?.attempt.as_ref()?;
        let world = &self.settings.world;
        let lives = self.processes.iter().map(|process| process.incarnation.0).max().unwrap_or(0);
        Some(TakenLine {
            generation: attempt.generation,
            view: attempt.view.clone(),
            degrees: (0..world.rank_count()).map(|rank| self.degree(VirtualRank(rank))).collect(),
            next_life: Incarnation(lives + 1),
            positions: world.replicas().map(|replica| attempt.positions.get(&replica).cloned()).collect(),
            taken_at: attempt.stopped_at,
            elapsed: now - attempt.begun_at,
            bytes: attempt.bytes(),
        })
    }

    pub(crate) fn line_job_runs(&mut self, now: Duration) {
        if let Some(line) = &mut self.line {
            line.job_runs(now);
        }
    }

    pub(crate) fn line_step(&mut self, now: Duration, generation: Generation, replica: ReplicaId, step: LineStep) {
        let next = self.line.as_mut().and_then(|line| line.heard(now, generation, replica, step));
        if let Some(next) = next {
            self.follow(now, next);
        }
    }

    pub(crate) fn quiet(&mut self, now: Duration, replica: ReplicaId) {
        if let Some(next) = self.line.as_mut().and_then(|line| line.quiet(now, replica)) {
            self.follow(now, next);
        }
    }

    pub(crate) fn store_says(&mut self, now: Duration, generation: Generation, news: StoreNews) {
        let Some(line) = &mut self.line else { return };
        match news {
            StoreNews::Opened => line.opened(now, generation),
            StoreNews::Moving => line.moved(now, generation),
            StoreNews::Failed(why) if line.under_way() == Some(generation) => {
                self.follow(now, Next::GiveUp(LineFailure::Store(why)));
            }
            StoreNews::Failed(_) => {}
            StoreNews::Dropped => {
                line.dropped.remove(&generation);
            }
            StoreNews::Committed => {
                let Some((report, stops)) = line.committed(now, generation) else { return };
                self.report(report);
                if stops {
                    self.end(EndReason::Suspended { generation }, Some(RESUME_CODE), now + KILL_GRACE);
                    self.kill_all(now);
                }
            }
        }
    }

    fn follow(&mut self, now: Duration, next: Next) {
        match next {
            // Each source reports with which ranks it shares memory before it reports that it is quiet.
            Next::Tell(LineOrder::Copy) if let Some(source) = self.source_apart(self.line_sources()) => {
                self.follow(now, Next::GiveUp(LineFailure::Apart(source)));
            }
            Next::Tell(order) => {
                let attempt = self.line.as_mut().and_then(|line| line.attempt.as_mut());
                let attempt = attempt.expect("a line is under way when somebody is told of it");
                // An image can know no newer view than this one.
                attempt.view.clone_from(&self.view);
                let generation = attempt.generation;
                self.send(ToDaemon::Line { generation, order });
            }
            Next::Commit => {
                let taken = self.taken(now);
                self.outputs.extend(taken.map(|taken| Output::CommitLine(Box::new(taken))));
            }
            Next::GiveUp(why) => {
                let Some(generation) = self.end_line(now) else { return };
                self.report(Report::LineFailed { generation, why });
            }
        }
    }

    /// Gives up the current checkpoint if the loss of these replicas makes it void.
    pub(crate) fn void_line(&mut self, now: Duration, replicas: &[ReplicaId], hosts_too: bool) {
        if let Some(next) = self.line.as_ref().and_then(|line| line.lost(replicas, hosts_too)) {
            self.follow(now, next);
        }
    }

    /// The checkpoint from which the whole job is started again after a rank has lost its last replica. None if there
    /// is no usable one, or if the exit was no fault. A program that leaves with a status has chosen to. A crash after
    /// `MPI_Finalize` would happen there again. But a process that is killed after it may not have written all it
    /// printed, so that the job goes back.
    pub(crate) fn line_after(&self, loss: &Loss) -> Option<(Generation, u32)> {
        self.line.as_ref().filter(|_| self.is_fault(loss))?.usable()
    }

    /// The newest checkpoint, if this loss cannot be repaired because the job was started from it too often.
    pub(crate) fn line_spent_by(&self, loss: &Loss) -> Option<Generation> {
        let line = self.line.as_ref().filter(|line| self.is_fault(loss) && line.usable().is_none())?;
        line.newest()
    }

    fn is_fault(&self, loss: &Loss) -> bool {
        match loss.exit {
            exit @ (Exit::Signal(_) | Exit::OutOfMemory) => !self.released || exit.is_killed(),
            Exit::Status(_) => false,
        }
    }

    /// The checkpoint whose processes are being loaded. None once they have met.
    pub(crate) fn line_being_loaded(&self) -> Option<Generation> {
        self.line.as_ref().filter(|_| !self.cards_sent)?.newest()
    }

    /// Returns true if the job cannot go back yet. The trap: a checkpoint that was given up may be kept all the same,
    /// and is then the one to go back to. If it were kept after the start point was chosen, a later restart would take
    /// it for the older one.
    pub(crate) fn awaits_store(&mut self) -> bool {
        let Some(generation) = self.line.as_ref().and_then(super::LineWatch::unsettled) else { return false };
        let now = self.latest;
        let Some(ending) = &mut self.ending else { return false };
        match *ending.store.get_or_insert(StoreWait::Since(now)) {
            StoreWait::Since(since) if now >= since + STORE_TIME_MAX => {
                ending.store = Some(StoreWait::Told);
                self.report(Report::StoreAwaited { generation });
            }
            StoreWait::Since(_) | StoreWait::Told => {}
        }
        true
    }

    /// The checkpoint to go back to, and the number of starts from it with this one. A newer one that was kept
    /// meanwhile replaces `generation`.
    pub(crate) fn line_kept_since(&self, generation: Generation, count: u32) -> (Generation, u32) {
        let newer = self.newest_line().filter(|newest| *newest > generation);
        newer.map_or((generation, count), |newer| (newer, 1))
    }

    /// Drops the checkpoint that is being taken. Returns its number.
    pub(crate) fn end_line(&mut self, now: Duration) -> Option<Generation> {
        let generation = self.line.as_mut()?.gave_up(now)?;
        self.send(ToDaemon::Line { generation, order: LineOrder::Abandon });
        self.outputs.push_back(Output::DropLine(generation));
        Some(generation)
    }
}
