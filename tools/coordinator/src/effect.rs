//! The consequences that the machines of a coordinator ask for.
//!
//! A machine changes nothing but its own state. It appends to [`Effects`], in the order in which things are to happen,
//! and the coordinator carries each of them out before the next.

use super::ending::End;
use super::facts::Facts;
use super::{Coordinator, EndReason, Machines, Output, Report, RetireReason, SIBLINGS_BELIEVED, health};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::event::Mismatch;
use std::time::Duration;

/// A consequence for others than the machine itself.
#[derive(Debug)]
pub(super) enum Effect {
    /// An action for `redrun`.
    Output(Output),
    /// A replica is wrong, and is ended if its rank has this many others that are fit.
    Retire { replica: ReplicaId, reason: RetireReason, others_min: usize },
    /// A replica was outvoted, and is ended if the policy says so or its siblings do not follow its path.
    Outvoted { replica: ReplicaId, has_parted: bool },
    /// The first of these that its rank can do without is ended, else the job.
    Remove { candidates: Vec<ReplicaId>, reason: RetireReason, or: EndReason },
    /// A replica is ended, whatever its rank has left.
    Kill { replica: ReplicaId, reason: RetireReason },
    /// A replica counts against its host.
    Strike(ReplicaId),
    /// Copies that stand ready are to judge, because replicas of this rank differ.
    Dispute { rank: VirtualRank, asker: ReplicaId },
    /// A comparison of messages was not unanimous. It is a verdict if copies judge.
    Judged(Box<Mismatch>),
    /// The verdict of copies on paths that differ. `has_parted` says that its siblings do not follow the culprit.
    PathJudged { rank: VirtualRank, culprit: Option<ReplicaId>, has_parted: bool },
    /// The job ends.
    End(End),
    /// All processes of a job that ends are killed.
    KillAll,
}

/// The consequences of an input, in order.
#[derive(Debug, Default)]
pub(super) struct Effects(Vec<Effect>);

impl Effects {
    pub fn push(&mut self, effect: Effect) {
        self.0.push(effect);
    }

    pub fn output(&mut self, output: Output) {
        self.push(Effect::Output(output));
    }

    /// Sends a message to every daemon.
    pub fn send(&mut self, message: ToDaemon) {
        self.output(Output::Send(message));
    }

    pub fn report(&mut self, report: Report) {
        self.output(Output::Report(report));
    }

    pub fn retire(&mut self, replica: ReplicaId, reason: RetireReason, others_min: usize) {
        self.push(Effect::Retire { replica, reason, others_min });
    }

    pub fn end(&mut self, reason: EndReason, code: i32) {
        self.push(Effect::End(End::new(reason, code)));
    }
}

impl IntoIterator for Effects {
    type Item = Effect;
    type IntoIter = std::vec::IntoIter<Effect>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Coordinator {
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
            Effect::Outvoted { replica, has_parted } => self.end_outvoted(now, replica, has_parted),
            Effect::Remove { candidates, reason, or } => {
                // Once the job is over, all processes are leaving, and need nothing from each other.
                let is_over = self.course.is_over();
                if !is_over && !candidates.iter().any(|candidate| self.retire(*candidate, reason.clone(), 1)) {
                    self.end(End::new(or, 1));
                }
            }
            Effect::Kill { replica, reason } => self.kill(replica, reason),
            Effect::Strike(replica) => self.strike(now, replica),
            Effect::Dispute { rank, asker } => self.dispute(now, rank, asker),
            Effect::Judged(mismatch) => self.judged(now, &mismatch),
            Effect::PathJudged { rank, culprit, has_parted } => self.judged_path(now, rank, culprit, has_parted),
            Effect::End(end) => self.end(end),
            Effect::KillAll => self.kill_all(now),
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
        self.members.retire(replica);
        self.report(Report::Retired { replica, reason });
        self.send(ToDaemon::Kill(replica));
    }

    /// Ends a replica that was outvoted, if the policy says so or if `has_parted`: its siblings do not follow its path.
    pub(super) fn end_outvoted(&mut self, now: Duration, replica: ReplicaId, has_parted: bool) {
        let goes = health::ends_corrupt(self.settings.on_sdc) || has_parted;
        let counted = self.members.counts(replica);
        if goes && self.retire(replica, RetireReason::Outvoted, SIBLINGS_BELIEVED) && counted {
            self.strike(now, replica);
        }
    }

    /// Counts a replica against its host. A host with too many strikes is closed. Its replicas move away if another
    /// host is open.
    fn strike(&mut self, now: Duration, replica: ReplicaId) {
        let Some(host) = self.members.host_of(replica) else { return };
        let (count, limit) = (self.machines.strikes.add(host), self.settings.strikes_max);
        self.report(Report::Strike { replica, count, limit });
        if count == limit {
            let is_drained = self.has_open_host_besides(host);
            self.report(Report::HostBad { last: replica, strikes: count, is_drained });
            if is_drained {
                self.free_host(now, host);
            }
        }
    }
}
