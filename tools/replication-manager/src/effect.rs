//! The consequences that the machines of a replication manager ask for.
//!
//! A machine changes nothing but its own state. It appends to [`Effects`], in the order in which things are to happen,
//! and the replication manager carries each of them out before the next.

use super::proofs::Sources;
use super::scrub::Pass;
use super::{Back, EndReason, KILL_GRACE, Output, Report, RetireReason};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::checkpoint::Generation;
use redrt_wire::clone::CloneId;
use redrt_wire::daemon::ToDaemon;
use redrt_wire::event::Mismatch;
use serde::{Deserialize, Serialize};
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
    /// A replica is killed by an injected fault.
    Doom { replica: ReplicaId, fault: String },
    /// A replica counts against its host.
    Strike(ReplicaId),
    /// Copies that stand ready are to judge, because replicas of this rank differ.
    Dispute { rank: VirtualRank, asker: ReplicaId },
    /// A comparison of messages was not unanimous. It is a verdict if copies judge.
    Judged(Box<Mismatch>),
    /// The verdict of copies on paths that differ. `has_parted` says that its siblings do not follow the culprit.
    PathJudged { rank: VirtualRank, culprit: Option<ReplicaId>, has_parted: bool },
    /// A consequence of the making of copies.
    Copy(CopyEffect),
    /// All images of the checkpoint that is being taken are on disk.
    Commit,
    /// A checkpoint is kept, and is to be proven. No sources if they are not known any more.
    Try { generation: Generation, sources: Sources },
    /// All memory of a rank was compared.
    Compared { rank: VirtualRank, pass: Pass },
    /// The memory of a replica is wrong.
    Wrong(ReplicaId),
    /// The job goes back, because its replicas differ.
    GoBack(Back),
    /// Replicas differ, nobody knows which one is wrong, and no process goes on.
    Corrupted,
    /// The job ends.
    End(End),
    /// All processes of a job that ends are killed.
    KillAll,
}

/// A consequence of the making of copies for others.
#[derive(Debug)]
pub(super) enum CopyEffect {
    /// A copy is begun that is to fill a place, on this host.
    Begin { replica: ReplicaId, host: u32 },
    /// The memory of a rank is to be compared soon.
    Compare(VirtualRank),
    /// Copies take their places, all in one view.
    Admit(Vec<CloneId>),
    /// A copy has caught up with its leader.
    InStep(ReplicaId),
    /// A copy has ended that was let in already.
    NewcomerEnded(ReplicaId),
    /// A replica is not needed any more, and is killed.
    Leave(ReplicaId),
    /// The dispute about a rank may be over.
    Conclude(VirtualRank),
    /// The dispute about a rank is over, and its culprit is being ended.
    Concluded(VirtualRank, Verdict),
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

    pub fn copy(&mut self, effect: CopyEffect) {
        self.push(Effect::Copy(effect));
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

/// Decides that a job ends.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct End {
    pub reason: EndReason,
    /// Exit code of the job. None if it follows from the exits of the processes.
    pub code: Option<i32>,
    /// Time until the processes are killed.
    pub grace: Duration,
}

impl End {
    /// An end for which the processes get a short grace.
    pub fn new(reason: EndReason, code: i32) -> Self {
        Self { reason, code: Some(code), grace: KILL_GRACE }
    }
}

/// The end of a dispute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Verdict {
    pub culprit: Option<ReplicaId>,
    /// True if its siblings do not follow its path. It is ended then under every policy.
    pub has_parted: bool,
    pub found_at: Duration,
}

impl Verdict {
    /// The end of a dispute that nobody decides.
    pub fn open(now: Duration) -> Self {
        Self { culprit: None, has_parted: false, found_at: now }
    }
}
