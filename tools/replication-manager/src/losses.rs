//! Exits of processes, and their consequences for the others.

use super::{
    Back, End, EndReason, Loss, Output, Phase, Process, RESUME_CODE, ReplicationManager, Report, SIGKILL, StreamEnd,
};
use redrt_types::ReplicaId;
use redrt_wire::daemon::ToDaemon;
use redrt_wire::exit::Exit;
use std::time::Duration;

impl ReplicationManager {
    pub(super) fn could_not_start(&mut self, now: Duration, replica: ReplicaId, message: String) {
        self.members.exited(replica, Exit::Status(127), false);
        self.members.process(replica).drained = true;
        self.members.lose(&[replica]);
        if let Some(generation) = self.machines.checkpoint_being_loaded(&self.course) {
            let reason = EndReason::Unloadable { generation, replica, message };
            self.end(End { grace: Duration::ZERO, ..End::new(reason, 1) });
            return self.kill_all(now);
        }
        self.end(End::new(EndReason::NotStarted { replica, message }, 127));
    }

    pub(super) fn greeted(&mut self, replica: ReplicaId) {
        if !self.members.process(replica).greeted() {
            // A script runs two MPI programs. The second would wait for ever, since the job has met already.
            return self.end(End::new(EndReason::SecondInit { replica }, 1));
        }
        let is_absent = |process: &Process| process.exit.is_some() && !process.lost;
        let absent = self.members.all().find(|(_, process)| is_absent(process)).map(|(absent, _)| absent.rank);
        if let Some(rank) = absent {
            self.end(End::new(EndReason::MissedInit { rank }, 1));
        }
    }

    pub(super) fn exited(&mut self, now: Duration, replica: ReplicaId, exit: Exit) {
        let was_killed = self.course.are_killed() && exit.is_killed();
        if !self.members.exited(replica, exit, was_killed) || self.course.is_ending() {
            return;
        }
        let is_released = self.course.is_released();
        let is_loss = if self.members.has_begun(replica) { !is_released } else { exit != Exit::Status(0) };
        if is_released {
            if exit == Exit::Status(0) {
                self.machines.stragglers.ended(now, replica);
            }
            self.left(now, replica, exit, false);
        } else if is_loss {
            self.lose(now, &[replica], false);
        } else {
            self.report(Report::Exited { replica, exit });
            let has_begun = |process: &Process| process.phase != Phase::Started && !process.lost;
            if self.members.all().any(|(_, process)| has_begun(process)) {
                self.end(End::new(EndReason::MissedInit { rank: replica.rank }, 1));
            }
        }
    }

    /// Handles an exit after `Release`. A replica that is killed then is lost if a sibling remains: neither its exit
    /// nor the output it still owed counts, but no new view is needed. If it was the last of its rank, the output it
    /// still owed is lost as well, unless the job goes back.
    fn left(&mut self, now: Duration, replica: ReplicaId, exit: Exit, is_of_host: bool) {
        if self.course.is_ending() {
            return;
        }
        let sphere = self.world().sphere(replica.rank);
        let is_there = |process: &Process| !process.lost && !process.is_vacant;
        let left = sphere.filter(|other| *other != replica && is_there(self.members.of(*other))).count();
        let loss = Loss { replica, exit, is_of_host, greeted: true, left, view: self.view().number };
        if left == 0
            && let Some(back) = self.machines.back_after(self.facts(now), &loss)
        {
            return self.go_back(now, Some(loss), back);
        }
        if left == 0 || matches!(exit, Exit::Status(_)) {
            return self.report(Report::Exited { replica, exit });
        }
        self.members.lose(&[replica]);
        self.outputs.push_back(Output::StreamLost(replica));
        self.report(Report::Lost(loss));
    }

    /// Ends the job in order to start it again from a checkpoint.
    pub(super) fn go_back(&mut self, now: Duration, loss: Option<Loss>, back: Back) {
        // No process goes on from here, so there is no grace.
        let reason = EndReason::GoesBack { loss, back };
        self.end(End { grace: Duration::ZERO, ..End::new(reason, 1) });
        self.kill_all(now);
    }

    /// Removes replicas, whose exits are recorded, and those that share memory with them from the view. Ends the job if
    /// a sphere has no other replica.
    /// `is_of_host`: they are lost with their host.
    pub(super) fn lose(&mut self, now: Duration, replicas: &[ReplicaId], is_of_host: bool) {
        let replicas = &self.with_planes(replicas)[..];
        for replica in replicas {
            if self.members.of(*replica).exit == Some(Exit::OutOfMemory)
                && let Some(host) = self.members.host_of(*replica)
            {
                self.recover(now, |copies, _, _| copies.hosts_mut().memory_ran_out(host));
            }
            self.machines.pace.forget(*replica);
            self.machines.slowness.forget(*replica);
        }
        self.members.lose(replicas);
        self.decide(now, |machines, facts, out| machines.void_checkpoint(facts, replicas, false, out));
        self.members.remove(replicas);
        self.decide(now, |machines, facts, out| machines.membership_changed(facts, out));
        let mut lost_sphere = None;
        for replica in replicas {
            let exit = self.members.of(*replica).exit.expect("an exit was recorded before the loss");
            let left = self.members.in_step_count(replica.rank);
            let greeted = self.members.has_begun(*replica);
            let loss = Loss { replica: *replica, exit, is_of_host, greeted, left, view: self.view().number };
            self.outputs.push_back(Output::StreamLost(*replica));
            if left == 0 {
                lost_sphere.get_or_insert(loss);
            } else if self.members.of(*replica).leaves {
                self.report(Report::Left { replica: *replica });
            } else {
                self.report(Report::Lost(loss));
            }
        }
        match lost_sphere {
            Some(loss) => {
                let checkpoint = self.machines.checkpoint.as_ref();
                let spent = checkpoint.and_then(|checkpoint| checkpoint.spent_by(&self.course, &loss));
                match self.machines.back_after(self.facts(now), &loss) {
                    Some(back) => self.go_back(now, Some(loss), back),
                    None => {
                        // A process that was killed from outside may live next time.
                        let is_killed = spent.is_some() && loss.exit == Exit::Signal(SIGKILL);
                        let code = is_killed.then_some(RESUME_CODE);
                        self.end(End { code, ..End::new(EndReason::SphereLost { loss, spent }, 1) });
                    }
                }
            }
            None => {
                self.send(ToDaemon::View(self.view().clone()));
                self.recover(now, |copies, facts, out| copies.replace(facts, replicas, out));
                let vacated = replicas.iter().copied().filter(|replica| self.members.vacate(*replica));
                self.outputs.extend(vacated.map(Output::Vacated));
                self.check_barriers(now);
            }
        }
    }

    /// Returns these lost replicas, followed by the rest of their planes, which is ended here.
    fn with_planes(&mut self, lost: &[ReplicaId]) -> Vec<ReplicaId> {
        let all = self.members.planes_of(lost);
        let ended = all[lost.len()..].to_vec();
        if let (Some(replica), false) = (lost.first().copied(), ended.is_empty()) {
            self.report(Report::PlaneLost { replica, others: ended.clone() });
        }
        for other in ended {
            // It is not in the next view, so its real exit does not matter.
            self.members.exited(other, Exit::Signal(SIGKILL), false);
            self.send(ToDaemon::Kill(other));
        }
        all
    }

    pub(super) fn daemon_lost(&mut self, now: Duration, host: String, why: String, replicas: &[ReplicaId]) {
        let exit = Exit::Signal(SIGKILL);
        let alive = self.members.daemon_lost(replicas, exit);
        if self.course.is_ending() {
            return;
        }
        self.recover(now, |copies, facts, out| copies.host_lost(facts, &host, out));
        self.decide(now, |machines, facts, out| machines.void_checkpoint(facts, replicas, true, out));
        self.report(Report::DaemonLost { host, why, process_count: alive.len() });
        if self.course.is_released() {
            alive.into_iter().for_each(|replica| self.left(now, replica, exit, true));
        } else if !alive.is_empty() {
            self.lose(now, &alive, true);
        }
    }

    pub(super) fn drained(&mut self, now: Duration, replica: ReplicaId) {
        self.members.process(replica).drained = true;
        if !self.members.of(replica).lost || self.view().live(replica.rank).next().is_none() {
            let end = match self.course.is_ending() {
                true => StreamEnd::CutOff,
                false if self.members.ends_before_script(replica) => StreamEnd::BeforeScript,
                false => StreamEnd::Complete,
            };
            self.outputs.push_back(Output::StreamEnded { replica, end });
        }
        self.recover(now, |copies, facts, out| copies.place_freed(facts, replica, out));
        if self.members.vacate(replica) {
            self.outputs.push_back(Output::Vacated(replica));
        }
    }
}
