//! Frames and messages that no sound process sends, and the choice of the process that is ended for them.
//!
//! Of a process that sent such a frame and one that refused it, one is corrupt. It is hardly ever the one that refused,
//! since a process checks far less than it sends. So the sender is ended, as if it had died. If the sender is the last
//! of its rank, the other is ended. If that one was sound, its siblings refuse the same frames, and the job ends at
//! last. A process that refuses frames of two others is ended itself, and so is one that cannot say who sent the frame.

use super::report::Refusal;
use super::{Coordinator, EndReason, KILL_GRACE, Report, RetireReason, scrub};
use redrt_types::ReplicaId;
use redrt_wire::control::FromAgent;
use redrt_wire::event::Event;
use redrt_wire::lack::Lack;
use std::time::Duration;

/// A message that no sound process sends. The text follows on the name of the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Implausible {
    /// It names a rank beyond the job's.
    #[error("speaks of ranks there are not")]
    NoSuchRank,
    /// It names a replica beyond the job's.
    #[error("speaks of replicas there are not")]
    NoSuchReplica,
    /// Its card, by which others connect, has the number of another process.
    #[error("has another's card")]
    CardOfAnother,
    /// It judges the path of a rank that is not its own.
    #[error("tells which way replicas of another rank have gone")]
    PathOfAnother,
    /// It has digests of more memory than a round of comparisons covers.
    #[error("tells of more memory than it was asked for")]
    MoreThanAsked,
}

impl Coordinator {
    /// Checks that a message can be meant: all ranks and replicas that it names must exist.
    pub(super) fn check(&self, replica: ReplicaId, message: &FromAgent) -> Result<(), Implausible> {
        let world = self.world();
        let named = match message {
            FromAgent::Trace(sending, _) if sending.to.0 >= world.rank_count() => {
                return Err(Implausible::NoSuchRank);
            }
            FromAgent::Shares(ranks) if ranks.iter().any(|rank| rank.0 >= world.rank_count()) => {
                return Err(Implausible::NoSuchRank);
            }
            FromAgent::Ready(card) if card.process != world.process(replica) => return Err(Implausible::CardOfAnother),
            FromAgent::Suspect { peer, .. } => vec![*peer],
            FromAgent::Pinned(others) => others.clone(),
            FromAgent::Scrubbed { answer, .. } if !scrub::is_plausible(answer) => {
                return Err(Implausible::MoreThanAsked);
            }
            FromAgent::Refused { peer, .. } => peer.iter().copied().collect(),
            FromAgent::Event(Event::Mismatch(mismatch)) => {
                let voters = mismatch.votes.iter().map(|vote| vote.replica);
                voters.chain([mismatch.receiver, mismatch.supplier]).chain(mismatch.culprit).collect()
            }
            FromAgent::Event(Event::Evidence(evidence)) => {
                let [one, other] = evidence.suppliers;
                vec![evidence.receiver, one, other]
            }
            FromAgent::Event(Event::Path(path)) => {
                let steps = path.steps.iter().map(|step| step.replica);
                let named = steps.chain(path.culprits.iter().copied()).chain(path.parted.iter().copied());
                if path.outcome.rank != replica.rank || named.clone().any(|named| named.rank != replica.rank) {
                    return Err(Implausible::PathOfAnother);
                }
                named.collect()
            }
            FromAgent::Event(Event::PathStack(stack)) => {
                if stack.outcome.rank != replica.rank || stack.replica != replica {
                    return Err(Implausible::PathOfAnother);
                }
                vec![replica]
            }
            FromAgent::Event(Event::ReadingAlone(alone)) => vec![alone.replica],
            FromAgent::Event(Event::Reconnected { replica, peer }) => vec![*replica, *peer],
            FromAgent::Event(
                Event::Divergence { replica, .. }
                | Event::Injected { replica, .. }
                | Event::Unsupported { replica, .. },
            ) => vec![*replica],
            FromAgent::Hello
            | FromAgent::InStep
            | FromAgent::Quiet
            | FromAgent::Hindered
            | FromAgent::Ready(_)
            | FromAgent::Finalizing { .. }
            | FromAgent::Abort { .. }
            | FromAgent::Unable(_)
            | FromAgent::Shares(_)
            | FromAgent::Trace(..)
            | FromAgent::Dynamic(..)
            | FromAgent::Answer { .. }
            | FromAgent::Pace { .. }
            | FromAgent::AwaitsFlip { .. }
            | FromAgent::Scrubbed { .. } => Vec::new(),
        };
        if named.iter().all(|named| world.contains(*named)) { Ok(()) } else { Err(Implausible::NoSuchReplica) }
    }

    /// Ends the sender of an impossible message, or the job.
    pub(super) fn refuse(&mut self, now: Duration, replica: ReplicaId, what: Implausible) {
        let refusal = Refusal { by: None, peer: Some(replica), what: what.to_string() };
        self.report(Report::Refused(refusal.clone()));
        self.remove(now, &[replica], refusal);
    }

    /// Acts on the report of `by` that it refused a frame of `peer`.
    pub(super) fn refused(&mut self, now: Duration, by: ReplicaId, peer: Option<ReplicaId>, what: String) {
        let peer = peer.filter(|peer| *peer != by);
        let refusal = Refusal { by: Some(by), peer, what };
        self.report(Report::Refused(refusal.clone()));
        if !self.process(by).counts() || peer.is_some_and(|peer| !self.process(peer).counts()) {
            // One of the two is being ended already.
            return;
        }
        let refuses_another = match (self.process(by).refuses, peer) {
            (Some(first), Some(peer)) => first != peer,
            _ => false,
        };
        self.process(by).refuses = self.process(by).refuses.or(peer);
        match peer {
            Some(peer) if refuses_another => self.remove(now, &[by, peer], refusal),
            Some(peer) => self.remove(now, &[peer, by], refusal),
            None => self.remove(now, &[by], refusal),
        }
    }

    /// Ends a process that lacks something of its host. Its siblings on other hosts may have it.
    pub(super) fn unable(&mut self, now: Duration, replica: ReplicaId, lack: Lack) {
        let is_over = self.released || self.ending.is_some();
        if !is_over && !self.retire(replica, RetireReason::Unable(lack), 1) {
            self.end(EndReason::Unable { replica, lack }, Some(1), now + KILL_GRACE);
        }
    }

    /// Ends the first of these candidates that its rank can do without, or the job.
    fn remove(&mut self, now: Duration, candidates: &[ReplicaId], refusal: Refusal) {
        if self.released || self.ending.is_some() {
            // All processes are leaving, and need nothing from each other.
            return;
        }
        if !candidates.iter().any(|candidate| self.retire(*candidate, RetireReason::Refused(refusal.clone()), 1)) {
            self.end(EndReason::Refused(refusal), Some(1), now + KILL_GRACE);
        }
    }
}
