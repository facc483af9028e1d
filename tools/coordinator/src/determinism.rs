//! What `--check-determinism` gathers: messages that differ between two replicas, where each of the two sent them, and
//! in what they differ.
//!
//! The receivers tell of a message; the senders are asked for their stacks, which they remember for a while. Both
//! receivers tell of the same message. After the first difference others follow from it, so when it was sent counts,
//! not when it was told.

use super::Coordinator;
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::daemon::ToDaemon;
use redrt_wire::event::{Evidence, Finding, Mismatch, OutcomeId, Parting, PathMismatch, PathStack, ReadingAlone};
use redrt_wire::trace::{Sending, Trace};
use replica_output::mismatch::OutputMismatch;
use sdc_detect::Difference;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Number of messages that are looked at; what follows is counted.
const MESSAGES_MAX: usize = 256;
/// The same of lines, and of what was found besides both.
const LINES_MAX: usize = 32;

/// A message that was not the same.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Nondeterministic {
    /// Who sent it.
    pub sender: VirtualRank,
    /// To whom, and which.
    pub sending: Sending,
    /// Name of the communicator.
    pub communicator: String,
    /// Message tag.
    pub tag: i32,
    /// Payload bytes.
    pub length_bytes: u64,
    /// Where it was sent, by replica.
    pub traces: BTreeMap<ReplicaId, Trace>,
    /// The replicas and in what their payloads differ, if that is known.
    pub difference: Option<([ReplicaId; 2], Difference)>,
}

impl Nondeterministic {
    /// When it was sent, as far as that is known.
    #[must_use]
    pub fn sent_at_ns(&self) -> u64 {
        self.traces.values().map(|trace| trace.time_ns).min().unwrap_or(u64::MAX)
    }
}

/// A path that one replica took alone, outside of messages and output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Apart {
    /// It noticed that it had parted from its leader.
    #[error(transparent)]
    Diverged(#[from] Parting),
    /// Replicas of its rank took different paths.
    #[error("{path}")]
    Path {
        /// Which.
        path: String,
        /// The outcome in which they differ.
        outcome: OutcomeId,
    },
    /// It gave up.
    #[error("{message}")]
    GaveUp {
        /// Why, as its library told the user.
        message: String,
    },
}

/// All that was found.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Check {
    messages: BTreeMap<(VirtualRank, Sending), Nondeterministic>,
    /// Lines of output, and of which rank.
    pub lines: Vec<(VirtualRank, OutputMismatch)>,
    /// What was found outside of messages and output, by whom.
    pub others: Vec<(ReplicaId, Apart)>,
    /// Where outcomes were asked for in which replicas differ, by replica.
    pub stacks: BTreeMap<OutcomeId, BTreeMap<ReplicaId, Trace>>,
    /// Readings of clocks that a replica made alone, one for each stack: no differences by themselves.
    pub alone: Vec<ReadingAlone>,
    /// What is not among these because there is too much of it.
    pub untold_count: u64,
}

impl Check {
    /// Whether nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.messages.is_empty() && self.lines.is_empty() && self.others.is_empty()
    }

    /// The messages, in the order in which they were sent as far as clocks tell.
    #[must_use]
    pub fn messages(&self) -> Vec<&Nondeterministic> {
        let mut all: Vec<_> = self.messages.values().collect();
        all.sort_by_key(|one| one.sent_at_ns());
        all
    }

    /// Takes a line that differs.
    pub(super) fn line(&mut self, rank: VirtualRank, mismatch: &OutputMismatch) {
        match self.lines.len() {
            LINES_MAX.. => self.untold_count += 1,
            _ => self.lines.push((rank, mismatch.clone())),
        }
    }

    /// Takes something else that differs.
    pub(super) fn other(&mut self, replica: ReplicaId, what: Apart) {
        match self.others.len() {
            LINES_MAX.. => self.untold_count += 1,
            _ => self.others.push((replica, what)),
        }
    }

    /// Takes a difference of paths, which this replica has told.
    pub(super) fn path(&mut self, by: ReplicaId, path: &PathMismatch) {
        self.other(by, Apart::Path { path: path.to_string(), outcome: path.outcome });
    }

    /// Takes a reading that no sibling makes. One by the same stack is not news.
    pub(super) fn reading_alone(&mut self, alone: &ReadingAlone) {
        let what = |one: &ReadingAlone| (one.clock, one.thread, one.trace.frames.clone());
        if self.alone.len() < LINES_MAX && !self.alone.iter().any(|known| what(known) == what(alone)) {
            self.alone.push(alone.clone());
        }
    }

    /// Takes where a replica was when they parted.
    pub(super) fn locate(&mut self, stack: &PathStack) {
        if self.stacks.len() < LINES_MAX {
            self.stacks.entry(stack.outcome).or_default().insert(stack.replica, stack.trace.clone());
        }
    }

    /// Takes a report. Who is to be asked.
    fn message(&mut self, mismatch: &Mismatch) -> Vec<(ReplicaId, Sending)> {
        if mismatch.finding != Finding::Undecidable {
            return Vec::new();
        }
        let Mismatch { sender, receiver, context, sequence, .. } = *mismatch;
        let sending = Sending { to: receiver.rank, context, sequence };
        if self.messages.contains_key(&(sender, sending)) {
            return Vec::new();
        }
        if self.messages.len() == MESSAGES_MAX {
            self.untold_count += 1;
            return Vec::new();
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
        mismatch.votes.iter().map(|vote| (vote.replica, sending)).collect()
    }
}

impl Coordinator {
    /// Everything that differs is gathered from now on.
    pub fn check_determinism(&mut self) {
        self.check = Some(Check::default());
    }

    /// What was found, if that was asked for.
    #[must_use]
    pub fn determinism(&self) -> Option<&Check> {
        self.check.as_ref()
    }

    pub(super) fn check_message(&mut self, mismatch: &Mismatch) {
        let asked = self.check.as_mut().map(|check| check.message(mismatch)).unwrap_or_default();
        for (replica, sending) in asked {
            self.send(ToDaemon::Trace(replica, sending));
        }
    }

    pub(super) fn check_evidence(&mut self, evidence: &Evidence) {
        let Evidence { sender, receiver, context, sequence, .. } = *evidence;
        let sending = Sending { to: receiver.rank, context, sequence };
        let known = self.check.as_mut().and_then(|check| check.messages.get_mut(&(sender, sending)));
        if let Some(known) = known {
            known.difference = Some((evidence.suppliers, evidence.difference.clone()));
        }
    }

    pub(super) fn check_trace(&mut self, replica: ReplicaId, sending: Sending, trace: Option<Trace>) {
        let known = self.check.as_mut().and_then(|check| check.messages.get_mut(&(replica.rank, sending)));
        if let (Some(known), Some(trace)) = (known, trace) {
            known.traces.insert(replica, trace);
        }
    }
}
