//! The agreement of this rank's replicas, as the engine's other parts see it: outcomes, readings, paths.
//!
//! ```text
//!   Engine::agree ──▶ Sphere: outcomes, times, readings, paths ──▶ quiesce::Replica
//!        ▲                    │
//!        └── Act ◀────────────┘   reports before any frame leaves, questions and answers to siblings after them
//! ```
//! A [`Sphere`] sends nothing and reports nothing by itself. Frames are outputs of the protocol, and all else is an
//! `Act`; the engine carries out both when it is given back.

use super::Waited;
use super::reading::Readings;
use crate::runtime::Runtime;
use crate::traces::Traces;
use quiesce::{Outbound, PayloadKey, Replica};
use redrt_transport::frame::Whereabouts;
use redrt_types::{ContextId, Digest, Envelope, ReplicaId, VirtualRank};
use redrt_wire::control::{Determinism, FromAgent};
use redrt_wire::event::Coverage;
use redrt_wire::trace::Sending;
use std::collections::BTreeMap;

/// An act that a [`Sphere`] asks of the engine.
#[derive(Debug)]
pub(crate) enum Act {
    /// Tells `redrun`, before any frame leaves: a replica that has parted from its leader is ended once either has
    /// reported that.
    Send(FromAgent),
    /// Ends the job, with this message for the user.
    Abort(String),
    /// Asks a sibling for the progress of this thread of its program.
    Ask(ReplicaId, u64),
    /// Answers that question of a sibling, after the decisions that the answer counts.
    Answer(ReplicaId, u64, Whereabouts),
    /// Makes waiting threads look again at this time, by this machine's monotonic clock.
    Alarm(u64),
    /// Makes waiting threads look again now.
    Stir,
}

/// State of the questions for outcomes, beside that of the protocol.
pub(crate) struct Outcomes {
    pub(super) determinism: Determinism,
    /// True if the job ends when nobody knows which replica is wrong.
    pub(super) aborts_on_sdc: bool,
    /// True if the own sphere has several replicas, which must agree on outcomes.
    pub(super) has_siblings: bool,
    /// Number of outcomes taken or decided, sources of receives included.
    pub(super) decisions: u64,
    pub(super) ahead_count: u32,
    /// Polls in vain since batched frames went out.
    pub(super) idle_polls: u32,
    /// True once `redrun` knows that this process cannot go on while copies of its rank stand ready.
    pub(super) is_known_hindered: bool,
    /// True while a waiter needs followers to come near enough ([`Sphere::is_crowded`]).
    pub(super) is_crowded: bool,
    pub(super) changes_waited: Waited,
    /// Positions in the program of sends and questions; `Some` if the program is being checked.
    pub(super) traces: Option<Traces>,
    pub(super) readings: Readings,
    /// Acts that the engine has yet to carry out.
    pub(super) acts: Vec<Act>,
}

impl Outcomes {
    pub(super) fn new(determinism: Determinism, aborts_on_sdc: bool, has_siblings: bool) -> Self {
        Self {
            determinism,
            aborts_on_sdc,
            has_siblings,
            decisions: 0,
            ahead_count: 0,
            idle_polls: 0,
            is_known_hindered: false,
            is_crowded: false,
            changes_waited: Waited::default(),
            traces: None,
            readings: Readings::default(),
            acts: Vec::new(),
        }
    }

    /// Returns true if outcomes have to be agreed with siblings. `polling`: for calls that do not wait.
    pub(super) fn needs_decisions(&self, polling: bool) -> bool {
        self.has_siblings && !(polling && self.determinism == Determinism::Sends)
    }

    /// Returns true if sound replicas make the same calls.
    pub(super) fn counts_calls(&self) -> bool {
        self.determinism == Determinism::Full
    }
}

/// The replicas of this rank, for questions on which they agree. See [`crate::Engine::agree`].
pub struct Sphere<'a> {
    pub(crate) replica: &'a mut Replica,
    pub(crate) outcomes: &'a mut Outcomes,
    /// Positions and progress of the program's threads.
    pub(crate) program: &'static dyn Runtime,
}

impl Sphere<'_> {
    /// This process's place in the job.
    pub(crate) fn me(&self) -> ReplicaId {
        self.replica.me()
    }

    pub(crate) fn readings(&mut self) -> &mut Readings {
        &mut self.outcomes.readings
    }

    /// Numbers a message and logs it. Returns the receivers of its payload, and of its digest.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        to: VirtualRank,
        context: ContextId,
        envelope: Envelope,
        digest: Digest,
        key: PayloadKey,
    ) -> Outbound {
        let place = self.program_place();
        let outbound = self.replica.send(to, context, envelope, digest, (key, place));
        if let Some(traces) = &mut self.outcomes.traces {
            traces.record(Sending { to, context, sequence: outbound.sequence }, self.program.place().thread);
        }
        outbound
    }

    /// Compared messages and bytes, by communicator.
    pub fn coverage(&self) -> Vec<Coverage> {
        let mut named = BTreeMap::<String, (u64, u64)>::new();
        for (context, (messages, bytes)) in self.replica.coverage() {
            let total = named.entry(self.program.label_of_context(context.0)).or_default();
            *total = (total.0 + messages, total.1.saturating_add(bytes));
        }
        let one = |(communicator, (messages, bytes))| Coverage { communicator, messages, bytes };
        named.into_iter().map(one).collect()
    }

    /// Has the engine carry this out.
    pub(crate) fn ask_for(&mut self, act: Act) {
        self.outcomes.acts.push(act);
    }

    /// Sends batched acknowledgements and decisions.
    pub fn flush(&mut self) {
        self.replica.flush();
        self.outcomes.idle_polls = 0;
    }
}
