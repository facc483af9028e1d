//! Frames and messages that no sound process sends, and the choice of the process that is ended for them.
//!
//! Of a process that sent such a frame and one that refused it, one is corrupt. It is hardly ever the one that refused,
//! since a process checks far less than it sends. So the sender is ended, as if it had died. If the sender is the last
//! of its rank, the other is ended. If that one was sound, its siblings refuse the same frames, and the job ends at
//! last. A process that refuses frames of two others is ended itself, and so is one that cannot say who sent the frame.

use super::effect::{Effect, Effects};
use super::facts::Facts;
use super::report::Refusal;
use super::{EndReason, Report, RetireReason, scrub};
use redrt_types::{Incarnation, ReplicaId, World};
use redrt_wire::control::FromAgent;
use redrt_wire::event::Event;
use redrt_wire::lack::Lack;
use redrt_wire::trace::TracePoint;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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

/// The first process whose frame each process has refused.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Refusals(BTreeMap<(ReplicaId, Incarnation), ReplicaId>);

impl Refusals {
    /// Acts on a message of `replica` that no sound process sends.
    pub(super) fn implausible(replica: ReplicaId, what: Implausible, out: &mut Effects) {
        let refusal = Refusal { by: None, peer: Some(replica), what: what.to_string() };
        out.report(Report::Refused(refusal.clone()));
        remove(vec![replica], refusal, out);
    }

    /// Ends a process that lacks something of its host. Its siblings on other hosts may have it.
    pub(super) fn unable(replica: ReplicaId, lack: Lack, out: &mut Effects) {
        let (reason, or) = (RetireReason::Unable(lack), EndReason::Unable { replica, lack });
        out.push(Effect::Remove { candidates: vec![replica], reason, or });
    }

    /// Acts on the report of `by` that it refused a frame of `peer`.
    pub(super) fn refused(
        &mut self,
        facts: Facts<'_>,
        by: ReplicaId,
        peer: Option<ReplicaId>,
        what: String,
        out: &mut Effects,
    ) {
        let peer = peer.filter(|peer| *peer != by);
        let refusal = Refusal { by: Some(by), peer, what };
        out.report(Report::Refused(refusal.clone()));
        let members = facts.members;
        if !members.counts(by) || peer.is_some_and(|peer| !members.counts(peer)) {
            // One of the two is being ended already.
            return;
        }
        let Some(peer) = peer else { return remove(vec![by], refusal, out) };
        let first = *self.0.entry((by, members.incarnation(by))).or_insert(peer);
        remove(if first == peer { vec![peer, by] } else { vec![by, peer] }, refusal, out);
    }
}

/// Ends the first of these candidates that its rank can do without, or the job.
fn remove(candidates: Vec<ReplicaId>, refusal: Refusal, out: &mut Effects) {
    let (reason, or) = (RetireReason::Refused(refusal.clone()), EndReason::Refused(refusal));
    out.push(Effect::Remove { candidates, reason, or });
}

/// Checks that a message can be meant: all ranks and replicas that it names must exist.
pub(super) fn check(world: &World, replica: ReplicaId, message: &FromAgent) -> Result<(), Implausible> {
    let named = match message {
        FromAgent::Trace(TracePoint::Send(sending), _) if sending.to.0 >= world.rank_count() => {
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
            | Event::Unordered { replica }
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
