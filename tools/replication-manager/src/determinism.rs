//! The findings of `--check-determinism`: messages that differ between two replicas, the place in the program at which
//! each was sent, and the bytes that differ.
//!
//! Receivers report a message. The senders are then asked for the stacks of the send, which they remember for a while.
//! Both receivers report the same message, which is recorded once. The first difference causes later ones, so messages
//! are ordered by the time of sending, not of reporting.

use super::effect::Effects;
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::event::{Evidence, Finding, Mismatch, OutcomeId, Parting, PathMismatch, PathStack, ReadingAlone};
use redrt_wire::trace::{Sending, Trace, TracePoint};
use replica_output::mismatch::OutputMismatch;
use sdc_detect::Difference;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Maximum number of messages that are recorded. Further ones are only counted.
const MESSAGES_MAX: usize = 256;
/// The same for lines of output, and for findings besides messages and output.
const LINES_MAX: usize = 32;

/// A message whose payload differed between replicas of its sender.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Nondeterministic {
    /// The rank that sent it.
    pub sender: VirtualRank,
    /// The receiving rank, the context and the sequence number.
    pub sending: Sending,
    /// Name of the communicator.
    pub communicator: String,
    /// Tag of the message.
    pub tag: i32,
    /// Length of the payload in bytes.
    pub length_bytes: u64,
    /// The stack of the send, by replica. Empty until the replicas answer.
    pub traces: BTreeMap<ReplicaId, Trace>,
    /// The replicas that supplied the two payloads, and the difference. None if the payloads could not be compared.
    pub difference: Option<([ReplicaId; 2], Difference)>,
}

impl Nondeterministic {
    /// The earliest time of sending, in nanoseconds. `u64::MAX` if no replica has answered.
    #[must_use]
    pub fn sent_at_ns(&self) -> u64 {
        self.traces.values().map(|trace| trace.time_ns).min().unwrap_or(u64::MAX)
    }
}

/// A path that one replica took alone, outside of messages and output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Apart {
    /// The replica itself noticed that it had left its leader's path.
    #[error(transparent)]
    Diverged(#[from] Parting),
    /// Replicas of its rank asked for different things at one outcome.
    #[error("{path}")]
    Path {
        /// A description of the paths.
        path: String,
        /// The outcome at which they differ.
        outcome: OutcomeId,
    },
    /// The replica gave up.
    #[error("{message}")]
    GaveUp {
        /// The reason, as its library printed it.
        message: String,
    },
}

/// All findings so far.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Check {
    messages: BTreeMap<(VirtualRank, Sending), Nondeterministic>,
    /// Lines of output that differ, with the rank that printed them.
    pub lines: Vec<(VirtualRank, OutputMismatch)>,
    /// Findings outside of messages and output, with the replica concerned.
    pub others: Vec<(ReplicaId, Apart)>,
    /// The stacks at which replicas asked for outcomes that differ, by replica.
    pub stacks: BTreeMap<OutcomeId, BTreeMap<ReplicaId, Trace>>,
    /// The thread of each replica that left its leader's path there.
    pub parted: BTreeMap<ReplicaId, u64>,
    /// Positions of such threads: that at which it stands in the replica that left, and of its latest lock in others.
    pub standing: BTreeMap<(VirtualRank, u64), BTreeMap<ReplicaId, Trace>>,
    /// Clock readings that a replica made alone, one for each stack. They are no differences by themselves.
    pub alone: Vec<ReadingAlone>,
    /// Number of findings that were dropped because of the limits on messages, lines and others.
    pub untold_count: u64,
}

impl Check {
    /// Returns true if no message, line or other difference was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.messages.is_empty() && self.lines.is_empty() && self.others.is_empty()
    }

    /// The messages, ordered by the time of sending as far as clocks tell.
    #[must_use]
    pub fn messages(&self) -> Vec<&Nondeterministic> {
        let mut all: Vec<_> = self.messages.values().collect();
        all.sort_by_key(|one| one.sent_at_ns());
        all
    }

    pub(super) fn line(&mut self, rank: VirtualRank, mismatch: &OutputMismatch) {
        match self.lines.len() {
            LINES_MAX.. => self.untold_count += 1,
            _ => self.lines.push((rank, mismatch.clone())),
        }
    }

    pub(super) fn other(&mut self, replica: ReplicaId, what: Apart) {
        match self.others.len() {
            LINES_MAX.. => self.untold_count += 1,
            _ => self.others.push((replica, what)),
        }
    }

    /// Records a difference of paths that the replica `by` reported.
    pub(super) fn path(&mut self, by: ReplicaId, path: &PathMismatch) {
        self.other(by, Apart::Path { path: path.to_string(), outcome: path.outcome });
    }

    /// Records a clock reading that no sibling makes. A second one with the same stack is ignored.
    pub(super) fn reading_alone(&mut self, alone: &ReadingAlone) {
        let what = |one: &ReadingAlone| (one.clock, one.thread, one.trace.frames.clone());
        if self.alone.len() < LINES_MAX && !self.alone.iter().any(|known| what(known) == what(alone)) {
            self.alone.push(alone.clone());
        }
    }

    /// Records the stack at which a replica asked for a disputed outcome.
    pub(super) fn locate(&mut self, stack: &PathStack) {
        if self.stacks.len() < LINES_MAX {
            self.stacks.entry(stack.outcome).or_default().insert(stack.replica, stack.trace.clone());
        }
    }

    /// Records a message whose comparison was undecidable, and asks its senders for their stacks.
    pub(super) fn message(&mut self, mismatch: &Mismatch, out: &mut Effects) {
        if mismatch.finding != Finding::Undecidable {
            return;
        }
        let Mismatch { sender, receiver, context, sequence, .. } = *mismatch;
        let sending = Sending { to: receiver.rank, context, sequence };
        if self.messages.contains_key(&(sender, sending)) {
            return;
        }
        if self.messages.len() == MESSAGES_MAX {
            self.untold_count += 1;
            return;
        }
        let new = Nondeterministic {
            sender,
            sending,
            communicator: mismatch.communicator.clone(),
            tag: mismatch.tag,
            length_bytes: mismatch.length_bytes,
            traces: BTreeMap::new(),
            difference: None,
        };
        self.messages.insert((sender, sending), new);
        mismatch.votes.iter().for_each(|vote| out.send(ToDaemon::Trace(vote.replica, TracePoint::Send(sending))));
    }

    /// Records the difference between two payloads of a message.
    pub(super) fn evidence(&mut self, evidence: &Evidence) {
        let Evidence { sender, receiver, context, sequence, .. } = *evidence;
        let sending = Sending { to: receiver.rank, context, sequence };
        if let Some(known) = self.messages.get_mut(&(sender, sending)) {
            known.difference = Some((evidence.suppliers, evidence.difference.clone()));
        }
    }

    /// Records the position of a thread that is or was on its way to leave the path of its leader. Returns true for the
    /// first one of a thread: that of the replica that has left.
    pub(super) fn standing(&mut self, replica: ReplicaId, thread: u64, trace: Option<Trace>) -> bool {
        let count = self.standing.len();
        let known = self.standing.entry((replica.rank, thread));
        let is_first = matches!(known, Entry::Vacant(_));
        if is_first && count >= LINES_MAX {
            return false;
        }
        let known = known.or_default();
        if is_first {
            self.parted.insert(replica, thread);
        }
        if let Some(trace) = trace {
            known.insert(replica, trace);
        }
        is_first
    }

    /// Records the stack at which a replica sent a message.
    pub(super) fn trace(&mut self, replica: ReplicaId, sending: Sending, trace: Option<Trace>) {
        let known = self.messages.get_mut(&(replica.rank, sending));
        if let (Some(known), Some(trace)) = (known, trace) {
            known.traces.insert(replica, trace);
        }
    }
}
