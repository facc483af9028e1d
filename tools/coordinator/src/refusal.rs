//! Frames and messages that no sound process sends: who goes.
//!
//! Of two processes, one that sent such a frame and one that refused it, one is corrupt, and it is hardly ever the one
//! that refused: a process checks far less than it sends. So the sender goes, as if it had died. If it is the last of
//! its rank, the other goes: if that was the sound one, its siblings refuse the same, and the job ends at last. One
//! that refuses frames of two processes goes itself, and so does one that cannot say who sent the frame.

use super::report::Refusal;
use super::{Coordinator, EndReason, KILL_GRACE, Report, RetireReason, scrub};
use redrt_types::ReplicaId;
use redrt_wire::control::FromAgent;
use redrt_wire::event::Event;
use redrt_wire::lack::Lack;
use std::time::Duration;

/// What no sound process says, in words that follow on its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Implausible {
    /// A rank beyond the job's.
    #[error("speaks of ranks there are not")]
    NoSuchRank,
    /// A replica beyond the job's.
    #[error("speaks of replicas there are not")]
    NoSuchReplica,
    /// Where others reach it, of another process.
    #[error("has another's card")]
    CardOfAnother,
    /// The path of a rank is for its own replicas to judge.
    #[error("tells which way replicas of another rank have gone")]
    PathOfAnother,
    /// Digests of memory that nobody asked for.
    #[error("tells of more memory than it was asked for")]
    MoreThanAsked,
}

impl Coordinator {
    /// Whether a process can have meant what it says: those it speaks of must exist.
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

    /// A process said what cannot be.
    pub(super) fn refuse(&mut self, now: Duration, replica: ReplicaId, what: Implausible) {
        let refusal = Refusal { by: None, peer: Some(replica), what: what.to_string() };
        self.report(Report::Refused(refusal.clone()));
        self.remove(now, &[replica], refusal);
    }

    /// A process refused a frame.
    pub(super) fn refused(&mut self, now: Duration, by: ReplicaId, peer: Option<ReplicaId>, what: String) {
        let peer = peer.filter(|peer| *peer != by);
        let refusal = Refusal { by: Some(by), peer, what };
        self.report(Report::Refused(refusal.clone()));
        if !self.process(by).counts() || peer.is_some_and(|peer| !self.process(peer).counts()) {
            // One of them is on its way out already.
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

    /// A process lacks something of its host: its siblings may have it.
    pub(super) fn unable(&mut self, now: Duration, replica: ReplicaId, lack: Lack) {
        let is_over = self.released || self.ending.is_some();
        if !is_over && !self.retire(replica, RetireReason::Unable(lack), 1) {
            self.end(EndReason::Unable { replica, lack }, Some(1), now + KILL_GRACE);
        }
    }

    /// Ends the first of these that its rank can do without, or the job.
    fn remove(&mut self, now: Duration, candidates: &[ReplicaId], refusal: Refusal) {
        if self.released || self.ending.is_some() {
            // All leave anyway, and nobody needs anything from anyone.
            return;
        }
        if !candidates.iter().any(|candidate| self.retire(*candidate, RetireReason::Refused(refusal.clone()), 1)) {
            self.end(EndReason::Refused(refusal), Some(1), now + KILL_GRACE);
        }
    }
}
