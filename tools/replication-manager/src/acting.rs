//! The replication manager carries out what its machines ask for, each thing before the next.

use super::effect::{CopyEffect, Effect, Effects, End};
use super::facts::Facts;
use super::machines::Machines;
use super::proofs::Proofs;
use super::recovery::Copies;
use super::{Output, ReplicationManager, Report, RetireReason, SIBLINGS_BELIEVED, SIGKILL, health};
use redrt_types::ReplicaId;
use redrt_wire::daemon::ToDaemon;
use redrt_wire::exit::Exit;
use std::time::Duration;

impl ReplicationManager {
    /// Lets a machine decide, and carries out the consequences.
    pub(super) fn decide(&mut self, now: Duration, decide: impl FnOnce(&mut Machines, Facts<'_>, &mut Effects)) {
        let mut effects = Effects::default();
        let facts = Facts { now, settings: &self.settings, members: &self.members, course: &self.course };
        decide(&mut self.machines, facts, &mut effects);
        effects.into_iter().for_each(|effect| self.follow(now, effect));
    }

    fn follow(&mut self, now: Duration, effect: Effect) {
        match effect {
            Effect::Output(output) => self.outputs.push_back(output),
            Effect::Retire { replica, reason, others_min } => {
                self.retire(replica, reason, others_min);
            }
            Effect::Outvoted { replica, has_parted } => {
                self.follow(now, Effect::Wrong(replica));
                let goes = health::ends_corrupt(self.settings.on_sdc) || has_parted;
                let counted = self.members.counts(replica);
                if goes && self.retire(replica, RetireReason::Outvoted, SIBLINGS_BELIEVED) && counted {
                    self.strike(now, replica);
                }
            }
            Effect::Remove { candidates, reason, or } => {
                // Once the job is over, all processes are leaving, and need nothing from each other.
                let is_over = self.course.is_over();
                if !is_over && !candidates.iter().any(|candidate| self.retire(*candidate, reason.clone(), 1)) {
                    self.end(End::new(or, 1));
                }
            }
            Effect::Kill { replica, reason } => self.kill(replica, reason),
            Effect::Strike(replica) => self.strike(now, replica),
            Effect::Dispute { rank, asker } => {
                self.machines.stall.reset(now);
                self.recover(now, |copies, facts, out| copies.dispute(facts, rank, asker, out));
            }
            Effect::Judged(mismatch) => self.recover(now, |copies, facts, out| copies.judged(facts, &mismatch, out)),
            Effect::PathJudged { rank, culprit, has_parted } => {
                self.recover(now, |copies, _, _| copies.path_judged(now, rank, culprit, has_parted));
            }
            Effect::Copy(effect) => self.follow_copy(now, effect),
            Effect::Doom { replica, fault } => {
                // A victim that has exited or is being ended cannot be killed again.
                if self.members.counts(replica) {
                    self.members.process(replica).is_doomed = true;
                    self.send(ToDaemon::Kill(replica));
                    self.report(Report::Injected { replica, fault });
                }
            }
            Effect::Commit => {
                let on_trial = self.machines.proofs.as_ref().map(Proofs::on_trial);
                let checkpoint = self.machines.checkpoint.as_ref();
                let taken =
                    checkpoint.and_then(|checkpoint| checkpoint.taken(self.facts(now), on_trial.unwrap_or_default()));
                self.outputs.extend(taken.map(|taken| Output::CommitCheckpoint(Box::new(taken))));
            }
            Effect::Try { generation, sources } => self.decide(now, |machines, facts, out| {
                machines.try_checkpoint(facts, generation, sources, out);
            }),
            Effect::Compared { rank, pass } => {
                let sides: Vec<_> = pass.sides.into_iter().collect();
                // Replicas whose memory was proved sound count as kin no longer.
                if self.members.prove(rank, pass.compared, &sides, pass.since) {
                    let kinship = self.view().kinship(rank).clone();
                    self.send(ToDaemon::View(self.view().clone()));
                    self.outputs.push_back(Output::Kinship(rank, kinship));
                }
            }
            Effect::Corrupted => self.decide(now, |machines, facts, out| machines.corrupted(facts, out)),
            Effect::GoBack(back) => self.go_back(now, None, back),
            Effect::Wrong(replica) => self.decide(now, |machines, facts, _| machines.suspect(facts, replica)),
            Effect::End(end) => self.end(end),
            Effect::KillAll => self.kill_all(now),
        }
    }

    /// Lets the machine of copies decide, where lost replicas are replaced.
    pub(super) fn recover(&mut self, now: Duration, decide: impl FnOnce(&mut Copies, Facts<'_>, &mut Effects)) {
        self.decide(now, |machines, facts, out| {
            if let Some(copies) = &mut machines.recovery {
                decide(copies, facts, out);
            }
        });
    }

    fn follow_copy(&mut self, now: Duration, effect: CopyEffect) {
        match effect {
            CopyEffect::Begin { replica, host } => self.members.begin_life(replica, host),
            CopyEffect::Compare(rank) => self.machines.scrub.iter_mut().for_each(|scrub| scrub.demand(now, rank)),
            CopyEffect::Admit(ids) => {
                let Some(copies) = &self.machines.recovery else { return };
                let (admitted, are_to_judge) = copies.clones().admission(&ids);
                self.members.admit(admitted, are_to_judge);
                self.decide(now, |machines, facts, out| machines.membership_changed(facts, out));
                self.recover(now, |copies, facts, out| copies.admitted(facts, &ids, out));
            }
            CopyEffect::InStep(replica) => self.members.process(replica).joins = false,
            CopyEffect::NewcomerEnded(replica) => {
                self.members.process(replica).drained = true;
                self.exited(now, replica, Exit::Signal(SIGKILL));
                self.recover(now, |copies, facts, out| copies.place_freed(facts, replica, out));
            }
            CopyEffect::Leave(replica) => {
                self.members.process(replica).leave();
                self.send(ToDaemon::Kill(replica));
            }
            CopyEffect::Conclude(rank) => {
                self.recover(now, |copies, facts, out| copies.conclude(facts, rank, out));
            }
            CopyEffect::Concluded(rank, verdict) => {
                self.recover(now, |copies, facts, out| copies.concluded(facts, rank, verdict, out));
            }
        }
    }

    pub(super) fn send(&mut self, message: ToDaemon) {
        self.outputs.push_back(Output::Send(message));
    }

    pub(super) fn report(&mut self, report: Report) {
        self.outputs.push_back(Output::Report(report));
    }

    /// Ends a replica that was found to be wrong, if its rank can go on without it. At least `others_min` other
    /// replicas must be fit, where those that share an unproven image count once. Returns false, and does nothing, if
    /// there are fewer or the job is ending. Returns true also if the replica is being ended already.
    ///
    /// Its memory is known to be wrong. Left alone, it could leave the path of its siblings, and the job would wait for
    /// ever for messages or acknowledgements that it never sends.
    pub(super) fn retire(&mut self, replica: ReplicaId, reason: RetireReason, others_min: usize) -> bool {
        if !self.members.counts(replica) {
            return self.members.of(replica).retired;
        }
        if self.members.others_fit(replica) < others_min || self.course.is_ending() {
            return false;
        }
        self.kill(replica, reason);
        true
    }

    /// Ends a replica, whatever its rank has left.
    fn kill(&mut self, replica: ReplicaId, reason: RetireReason) {
        if reason.is_wrong() {
            self.follow(self.latest, Effect::Wrong(replica));
        }
        self.members.process(replica).retired = true;
        self.report(Report::Retired { replica, reason });
        self.send(ToDaemon::Kill(replica));
    }

    /// Counts a replica against its host. A host with too many strikes is closed. Its replicas move away if another
    /// host is open.
    fn strike(&mut self, now: Duration, replica: ReplicaId) {
        let Some(host) = self.members.host_of(replica) else { return };
        let (count, limit) = (self.machines.strikes.add(host), self.settings.strikes_max);
        self.report(Report::Strike { replica, count, limit });
        if count == limit {
            let copies = self.machines.recovery.as_ref();
            let is_drained = copies.is_some_and(|copies| copies.hosts().has_open_besides(host));
            self.report(Report::HostBad { last: replica, strikes: count, is_drained });
            if is_drained {
                self.recover(now, |copies, facts, out| copies.free_host(facts, host, out));
            }
        }
    }
}
