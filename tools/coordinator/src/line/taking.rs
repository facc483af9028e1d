//! Lines in a job: when one may be taken, what the others are told, how the job ends with one or goes back to one.

use super::{Next, STORE_TIME_MAX, Stage, TakenLine};
use crate::{Coordinator, EndReason, KILL_GRACE, LineFailure, Loss, Output, Report, StoreFailure};
use redrt_types::{Incarnation, ReplicaId, VirtualRank};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::exit::Exit;
use redrt_wire::line::{Generation, LineOrder, LineStep};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The exit code of a job that was ended with a line, to be resumed: `EX_TEMPFAIL` of sysexits.h.
pub const RESUME_CODE: i32 = 75;

/// What the store says of a line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum StoreNews {
    /// There is a place for it.
    Opened,
    /// More of it has gone to where it is kept.
    Moving,
    /// It is kept.
    Committed,
    /// It is not.
    Failed(StoreFailure),
    /// The store has done all that it was asked before it was to drop the line. If it keeps the line, it has said so.
    Dropped,
}

/// No line can be taken of this job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this job was started without --checkpoint: its processes cannot be saved")]
pub struct NoLines;

/// All processes of a job that is to go back are gone, and it waits for its store.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum StoreWait {
    /// It has done so since then.
    Since(Duration),
    /// The user was told.
    Told,
}

impl StoreWait {
    /// When the user is to be told.
    pub(crate) fn deadline(self) -> Option<Duration> {
        match self {
            Self::Since(since) => Some(since + STORE_TIME_MAX),
            Self::Told => None,
        }
    }
}

impl Coordinator {
    /// Somebody wants a line now; `stops` if the job is to end with it, to be resumed.
    ///
    /// # Errors
    /// When none can be taken of this job.
    pub fn want_line(&mut self, now: Duration, stops: bool) -> Result<(), NoLines> {
        let line = self.line.as_mut().ok_or(NoLines)?;
        let asked = line.asked.get_or_insert(false);
        *asked |= stops;
        self.handle(now, crate::Input::Tick);
        Ok(())
    }

    /// The line that is being taken.
    #[must_use]
    pub fn line_under_way(&self) -> Option<Generation> {
        self.line.as_ref()?.under_way()
    }

    /// Whether the job is being ended with a line, and what it prints now is printed again when it is resumed.
    #[must_use]
    pub fn is_suspending(&self) -> bool {
        let is_taken = |line: &super::LineWatch| {
            let stage = line.attempt.as_ref().map(|attempt| attempt.stage);
            line.asked == Some(true) && matches!(stage, Some(Stage::Taking | Stage::Writing | Stage::Committing))
        };
        self.is_suspended() || self.ending.is_none() && self.line.as_ref().is_some_and(is_taken)
    }

    /// Whether the job ends with a line.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.code == Some(RESUME_CODE))
    }

    /// Whether processes may be stopped for a line.
    #[must_use]
    pub fn is_stopping_for_line(&self) -> bool {
        self.line.as_ref().is_some_and(super::LineWatch::is_stopping)
    }

    /// The newest line that is kept.
    #[must_use]
    pub fn newest_line(&self) -> Option<Generation> {
        self.line.as_ref()?.newest()
    }

    /// The job cannot go back to its newest line any more. Which that was, if it could.
    pub fn forget_line(&mut self) -> Option<Generation> {
        self.line.as_mut()?.forget()
    }

    /// Whether a line is being taken that a change of the membership would make void.
    pub(crate) fn line_needs_membership(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.lost(&[], false).is_some())
    }

    pub(crate) fn next_line_deadline(&self) -> Option<Duration> {
        let line = self.line.as_ref().filter(|_| self.ending.is_none())?;
        // One that is due and has to wait is begun when what is in its way has gone, which is an input.
        let deadline = match self.is_under_way() {
            true => line.next_deadline()?,
            false => line.start_deadline().filter(|_| !self.cards_sent)?,
        };
        (deadline > self.latest).then_some(deadline)
    }

    /// A line that is wanted waits until all processes have called `MPI_Init`.
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

    /// Begins a line that is due, and gives up one that takes too long to stop the program.
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
        // All would go on with the memory that others of its rank have contradicted.
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

    /// Whose images are written for the line that is being taken.
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
            // Each has said with whom it shares memory before it said that it is quiet.
            Next::Tell(LineOrder::Copy) if let Some(source) = self.source_apart(self.line_sources()) => {
                self.follow(now, Next::GiveUp(LineFailure::Apart(source)));
            }
            Next::Tell(order) => {
                let attempt = self.line.as_mut().and_then(|line| line.attempt.as_mut());
                let attempt = attempt.expect("a line is under way when somebody is told of it");
                // What an image has not heard yet is not newer than this.
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

    /// Replicas are lost, or the membership changes otherwise: what does not fit it any more is given up.
    pub(crate) fn void_line(&mut self, now: Duration, replicas: &[ReplicaId], hosts_too: bool) {
        if let Some(next) = self.line.as_ref().and_then(|line| line.lost(replicas, hosts_too)) {
            self.follow(now, next);
        }
    }

    /// A rank has lost its last replica: the line from which the whole job is to be started again, if there is one and
    /// that is of use. A program that leaves with a status has chosen to. One that crashes after `MPI_Finalize` would
    /// crash there again; but one that somebody kills then may have yet to write what it has printed.
    pub(crate) fn line_after(&self, loss: &Loss) -> Option<(Generation, u32)> {
        self.line.as_ref().filter(|_| self.is_fault(loss))?.usable()
    }

    /// The line that is of no use after this loss, because the job was started from it too often.
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

    /// The line whose processes are being loaded, if they are.
    pub(crate) fn line_being_loaded(&self) -> Option<Generation> {
        self.line.as_ref().filter(|_| !self.cards_sent)?.newest()
    }

    /// Whether the job cannot go back yet: a line that was given up may be kept all the same, and is the one to go back
    /// to then. Kept after the job was told from where it goes on, it would be taken for the one before.
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

    /// The line to go back to, and how often it is with this time, where it was to be this one.
    pub(crate) fn line_kept_since(&self, generation: Generation, count: u32) -> (Generation, u32) {
        let newer = self.newest_line().filter(|newest| *newest > generation);
        newer.map_or((generation, count), |newer| (newer, 1))
    }

    /// Drops the line that is being taken, if one is. Which it was.
    pub(crate) fn end_line(&mut self, now: Duration) -> Option<Generation> {
        let generation = self.line.as_mut()?.gave_up(now)?;
        self.send(ToDaemon::Line { generation, order: LineOrder::Abandon });
        self.outputs.push_back(Output::DropLine(generation));
        Some(generation)
    }
}
