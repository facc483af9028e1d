//! Exits of processes, and their consequences for the others.

use super::{
    Coordinator, EndReason, KILL_GRACE, Loss, Output, Phase, Process, Report, RetireReason, SIGKILL, StreamEnd,
};
use redrt_types::{ReplicaId, ReplicaSet};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::exit::Exit;
use redrt_wire::line::Generation;
use std::time::Duration;

impl Coordinator {
    pub(super) fn could_not_start(&mut self, now: Duration, replica: ReplicaId, message: String) {
        let process = self.process(replica);
        process.exit = Some(Exit::Status(127));
        process.drained = true;
        process.lost = true;
        if let Some(generation) = self.line_being_loaded() {
            self.end(EndReason::Unloadable { generation, replica, message }, Some(1), now);
            return self.kill_all(now);
        }
        self.end(EndReason::NotStarted { replica, message }, Some(127), now + KILL_GRACE);
    }

    pub(super) fn greeted(&mut self, now: Duration, replica: ReplicaId) {
        if std::mem::replace(&mut self.process(replica).phase, Phase::Greeted) != Phase::Started {
            // A script runs two MPI programs. The second would wait for ever, since the job has met already.
            return self.end(EndReason::SecondInit { replica }, Some(1), now + KILL_GRACE);
        }
        let absent = self.world().replicas().find(|other| {
            let process = &self.processes[self.world().process(*other).0 as usize];
            process.exit.is_some() && !process.lost
        });
        if let Some(absent) = absent {
            self.end(EndReason::MissedInit { rank: absent.rank }, Some(1), now + KILL_GRACE);
        }
    }

    pub(super) fn exited(&mut self, now: Duration, replica: ReplicaId, exit: Exit) {
        let (released, ending) = (self.released, self.ending.as_ref().is_some_and(|ending| ending.killed));
        let process = self.process(replica);
        if process.exit.is_some() {
            return;
        }
        process.exit = Some(exit);
        process.killed_at_end = ending && exit.is_killed();
        let greeted = process.phase != Phase::Started;
        let is_loss = if greeted { !released } else { exit != Exit::Status(0) };
        if self.ending.is_some() {
            return;
        }
        if released {
            if exit == Exit::Status(0) {
                self.stragglers.ended(now, replica);
            }
            self.left(now, replica, exit);
        } else if is_loss {
            self.lose(now, &[replica]);
        } else {
            self.report(Report::Exited { replica, exit });
            let any_greeted = self.processes.iter().any(|process| process.phase != Phase::Started && !process.lost);
            if any_greeted {
                self.end(EndReason::MissedInit { rank: replica.rank }, Some(1), now + KILL_GRACE);
            }
        }
    }

    /// Handles an exit after `Release`. A replica that is killed then is lost if a sibling remains: neither its exit
    /// nor the output it still owed counts, but no new view is needed. If it was the last of its rank, the output it
    /// still owed is lost as well, unless the job goes back.
    pub(super) fn left(&mut self, now: Duration, replica: ReplicaId, exit: Exit) {
        if self.ending.is_some() {
            return;
        }
        let sphere = self.world().sphere(replica.rank);
        let is_there = |process: &Process| !process.lost && !process.is_vacant;
        let left = sphere.filter(|other| *other != replica && is_there(self.process(*other))).count();
        let loss = Loss { replica, exit, greeted: true, left, view: self.view.number };
        if left == 0
            && let Some((generation, count)) = self.line_after(&loss)
        {
            return self.go_back(now, loss, generation, count);
        }
        if left == 0 || matches!(exit, Exit::Status(_)) {
            return self.report(Report::Exited { replica, exit });
        }
        self.process(replica).lost = true;
        self.outputs.push_back(Output::StreamLost(replica));
        self.report(Report::Lost(loss));
    }

    /// Ends the job in order to start it again from a checkpoint, as was done `count` times before.
    fn go_back(&mut self, now: Duration, loss: Loss, generation: Generation, count: u32) {
        // No process goes on from here, so there is no grace.
        self.end(EndReason::GoesBack { loss, generation, count: count + 1 }, Some(1), now);
        self.kill_all(now);
    }

    /// Removes replicas, whose exits are recorded, and those that share memory with them from the view. Ends the job if
    /// a sphere has no other replica.
    pub(super) fn lose(&mut self, now: Duration, replicas: &[ReplicaId]) {
        let replicas = &self.with_planes(replicas)[..];
        for replica in replicas {
            if self.process(*replica).exit == Some(Exit::OutOfMemory)
                && let Some(host) = self.host_of(*replica)
            {
                self.memory_ran_out(host);
            }
            self.process(*replica).lost = true;
            self.pace.forget(*replica);
            self.slowness.forget(*replica);
        }
        self.void_line(now, replicas, false);
        self.view = self.view.without(replicas);
        self.interrupt_scrub();
        self.stall.reset(now);
        let mut lost_sphere = None;
        for replica in replicas {
            let exit = self.process(*replica).exit.expect("an exit was recorded before the loss");
            let left = self.view.live(replica.rank).filter(|other| self.is_in_step(*other)).count();
            let greeted = self.process(*replica).phase != Phase::Started;
            let loss = Loss { replica: *replica, exit, greeted, left, view: self.view.number };
            self.outputs.push_back(Output::StreamLost(*replica));
            if left == 0 {
                lost_sphere.get_or_insert(loss);
            } else if self.process(*replica).leaves {
                self.report(Report::Left { replica: *replica });
            } else {
                self.report(Report::Lost(loss));
            }
        }
        match lost_sphere {
            Some(loss) => match self.line_after(&loss) {
                Some((generation, count)) => self.go_back(now, loss, generation, count),
                None => {
                    let spent = self.line_spent_by(&loss);
                    self.end(EndReason::SphereLost { loss, spent }, None, now + KILL_GRACE);
                }
            },
            None => {
                self.send(ToDaemon::View(self.view.clone()));
                self.replace(now, replicas);
                replicas.iter().for_each(|replica| self.vacate(*replica));
                self.check_barriers(now);
            }
        }
    }

    pub(super) fn daemon_lost(&mut self, now: Duration, host: String, why: String, replicas: &[ReplicaId]) {
        let mut alive = Vec::new();
        for replica in replicas {
            let process = self.process(*replica);
            process.drained = true;
            if process.exit.is_none() {
                process.exit = Some(Exit::Signal(SIGKILL));
                alive.push(*replica);
            }
        }
        if self.ending.is_some() {
            return;
        }
        self.host_lost(now, &host);
        self.void_line(now, replicas, true);
        self.report(Report::DaemonLost { host, why, process_count: alive.len() });
        if self.released {
            alive.into_iter().for_each(|replica| self.left(now, replica, Exit::Signal(SIGKILL)));
        } else if !alive.is_empty() {
            self.lose(now, &alive);
        }
    }

    pub(super) fn drained(&mut self, replica: ReplicaId) {
        let process = self.process(replica);
        process.drained = true;
        let lost = process.lost;
        if !lost || self.view.live(replica.rank).next().is_none() {
            let end = match self.ending {
                Some(_) => StreamEnd::CutOff,
                None if self.ends_before_script(replica) => StreamEnd::BeforeScript,
                None => StreamEnd::Complete,
            };
            self.outputs.push_back(Output::StreamEnded { replica, end });
        }
        self.place_freed(replica);
        self.vacate(replica);
    }

    /// Returns true for a copy that lacks the script which started its program, if a sibling has the script. The
    /// sibling's exit counts then.
    pub(super) fn ends_before_script(&self, replica: ReplicaId) -> bool {
        let of = |other: ReplicaId| &self.processes[self.world().process(other).0 as usize];
        let has_script = |process: &Process| !process.lacks_script && !process.lost && !process.is_vacant;
        of(replica).lacks_script && self.world().sphere(replica.rank).any(|other| has_script(of(other)))
    }

    /// Frees the place of a replica that was not needed any more, once it is gone.
    pub(super) fn vacate(&mut self, replica: ReplicaId) {
        let process = self.process(replica);
        if process.leaves && process.lost && process.is_gone() {
            *process = Process::vacant(process.incarnation);
            self.outputs.push_back(Output::Vacated(replica));
        }
    }

    /// Ends a replica that was found to be wrong, if its rank can go on without it. At least `others_min` other
    /// replicas must be fit, where those that share an unproven image count once. Returns false, and does nothing, if
    /// there are fewer or the job is ending. Returns true also if the replica is being ended already.
    ///
    /// Its memory is known to be wrong. Left alone, it could leave the path of its siblings, and the job would wait for
    /// ever for messages or acknowledgements that it never sends.
    pub(super) fn retire(&mut self, replica: ReplicaId, reason: RetireReason, others_min: usize) -> bool {
        let is_fit = |other: &ReplicaId| *other != replica && self.is_plane_whole(*other) && self.is_in_step(*other);
        let fit: ReplicaSet = self.view.live(replica.rank).filter(is_fit).map(|other| other.index).collect();
        let counting = fit.union(ReplicaSet::only(replica.index));
        let others = self.view.kinship(replica.rank).weight(fit, counting);
        let process = self.process(replica);
        if !process.counts() {
            return process.retired;
        }
        if others < others_min || self.ending.is_some() {
            return false;
        }
        self.process(replica).retired = true;
        self.report(Report::Retired { replica, reason });
        self.send(ToDaemon::Kill(replica));
        true
    }
}
