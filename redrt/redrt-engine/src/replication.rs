//! Binds the engine to the replication protocol (`quiesce`): carries out the machine's outputs, and feeds it events.
//!
//! ```text
//!   send ──▶ digest ──▶ Replica::send ──▶ Outbound: payload to those this replica supplies, digests to the others
//!   frame ─▶ Replica::handle ──▶ Arrival: matching, payload into place ──▶ payload_received ──▶ Verified: completes
//!                            └─▶ Release: the payload is no longer needed; a large send completes
//! ```
//! A message has a record from its arrival until it is both verified and delivered: until then its payload may have to
//! be fetched again from another replica.

pub(super) mod frames;
pub(super) mod incoming;
mod outcomes;
mod paths;
pub mod reading;
mod routing;
pub mod sphere;
pub mod times;

use super::message::Message;
use super::runtime::Runtime;
use super::traces::Traces;
use frames::Parts;
use incoming::Whole;
use quiesce::matching::Order;
use quiesce::{MessageId, Replica};
use redrt_types::{ContextId, Digest, ProcessIndex, ReplicaId, SeqNum, Tag, View, VirtualRank};
use redrt_wire::control::Options;
use redrt_wire::event::Statistics;
use sdc_detect::{DigestStream, digest};
use sphere::{Outcomes, Sphere};

/// Tests in a row that find nothing, between two flushes.
const IDLE_POLLS_PER_FLUSH: u32 = 32;
/// Flushes of a program that polls in vain, between two checks of sockets that are only written to.
const FLUSHES_PER_LOOK: u32 = 32;

/// Statistics of waits: number, total and longest.
#[derive(Default)]
struct Waited {
    count: u64,
    all_ns: u64,
    longest_ns: u64,
}

/// The protocol state of a process in a replicated world.
pub struct Replication {
    replica: Replica,
    seed: u64,
    outcomes: Outcomes,
    parts: Parts,
    /// Flushes since the last check of the links.
    idle_flushes: u32,
}

impl Replication {
    /// The state at the start of the job.
    pub fn new(replica: Replica, options: &Options, has_siblings: bool) -> Self {
        Self {
            replica,
            seed: options.seed,
            outcomes: Outcomes::new(options.determinism, options.on_sdc.stops_undecided(), has_siblings),
            parts: Parts::new(options.seed),
            idle_flushes: 0,
        }
    }

    /// Records from now on at which positions of the program messages are sent, and outcomes asked for.
    pub(super) fn trace(&mut self, traces: Option<Traces>) {
        self.outcomes.traces = traces;
    }

    /// The replicas of this rank, for questions on which they agree. `program` knows this process's threads.
    #[inline]
    pub(super) fn sphere(&mut self, program: &'static dyn Runtime) -> Sphere<'_> {
        Sphere { replica: &mut self.replica, outcomes: &mut self.outcomes, program }
    }

    /// Returns true if this process decides for its sphere.
    pub(super) fn is_deciding(&self) -> bool {
        self.replica.is_deciding()
    }

    /// Returns true if outcomes have to be agreed with siblings. `polling`: for calls that do not wait.
    pub(super) fn needs_decisions(&self, polling: bool) -> bool {
        self.outcomes.needs_decisions(polling)
    }

    /// Positions in the program at which messages were sent; `None` unless the program is being checked.
    pub(super) fn traces(&self) -> Option<&Traces> {
        self.outcomes.traces.as_ref()
    }

    /// Returns true if sound replicas make the same calls.
    pub(super) fn counts_calls(&self) -> bool {
        self.outcomes.counts_calls()
    }

    /// The chooser of sources for wildcard receives at the start.
    pub fn order(&self) -> Order {
        if self.replica.is_deciding() { Order::Deciding } else { Order::Following }
    }

    /// Counters for the summary. Figures that the protocol does not know are 0.
    pub fn statistics(&self) -> Statistics {
        let counters = self.replica.counters();
        Statistics {
            messages_sent: counters.messages_sent,
            bytes_sent: counters.bytes_sent,
            messages_compared: counters.messages_compared,
            bytes_compared: counters.bytes_compared,
            decisions: self.outcomes.decisions,
            retention_bytes_max: counters.retained_bytes_max,
            messages_resent: counters.messages_resent,
            retention_messages: self.replica.retained_count() as u64,
            retention_bytes: counters.retained_bytes,
            window_messages: self.replica.unsettled_count() as u64,
            stall_ns_max: 0,
            changes_waited: self.outcomes.changes_waited.count,
            change_wait_ns: self.outcomes.changes_waited.all_ns,
            change_wait_ns_max: self.outcomes.changes_waited.longest_ns,
            resident_bytes: 0,
            sent_sum: 0,
            received_sum: 0,
        }
    }

    /// Begins the digest of a message of `length_bytes` that comes in pieces.
    pub(super) fn digest_stream(&self, tag: i32, length_bytes: u64) -> DigestStream {
        DigestStream::new(self.seed, Tag(tag), length_bytes)
    }

    /// The digest of a message with this tag.
    #[inline]
    pub(super) fn digest(&self, tag: Tag, bytes: &[u8]) -> Digest {
        digest(self.seed, tag, bytes)
    }

    /// The digest of a payload that is complete.
    fn digest_of(&self, whole: &Whole<'_>) -> Digest {
        whole.hashed.unwrap_or_else(|| self.digest(Tag(whole.tag), whole.bytes))
    }

    /// Compares a further copy of a message, from this replica.
    pub(super) fn compare_shadow(&mut self, from: ReplicaId, id: MessageId, whole: &Whole<'_>) {
        let computed = self.digest_of(whole);
        self.replica.shadow_received(from, id, computed);
    }

    /// The contribution of a received message to a sum. Its payload is hashed anew.
    pub(super) fn summand_of(&self, message: &Message, bytes: Option<&[u8]>) -> u64 {
        let MessageId { sender, context, sequence } = message.id.expect("it is replicated");
        let found = bytes.map_or(Digest(0), |bytes| self.digest(Tag(message.tag), bytes));
        self.summand(sender, context, sequence, found)
    }

    /// A message's contribution to a sum, independent of the order of messages: threads send in any order, and receives
    /// complete in any.
    pub(super) fn summand(&self, other: VirtualRank, context: ContextId, sequence: SeqNum, payload: Digest) -> u64 {
        let words = [u128::from(context.0) << 64 | u128::from(sequence.0), payload.0].map(u128::to_le_bytes);
        digest(self.seed, Tag(other.0 as i32), words.as_flattened()).0 as u64
    }

    /// The view this process acts on.
    pub fn view(&self) -> &View {
        self.replica.view()
    }

    /// Returns true if the job is to end when nobody knows which replica is wrong.
    pub(super) fn aborts_on_sdc(&self) -> bool {
        self.outcomes.aborts_on_sdc
    }

    /// Returns true if answers to this process's requests are outstanding since a view changed.
    pub(super) fn is_resuming(&self) -> bool {
        self.replica.is_resuming()
    }

    /// Returns true if a copy has heard from its leader.
    pub(super) fn is_in_step(&self) -> bool {
        self.replica.is_in_step()
    }

    /// Returns true if copies of this rank are awaited.
    pub(super) fn expects_sibling(&self) -> bool {
        self.replica.expects_sibling()
    }

    /// Descriptions of the acknowledgements and stable decisions that this process lacks before all it has sent is
    /// over.
    pub(super) fn owed(&self) -> Vec<String> {
        let owed = self.replica.unacknowledged_by().into_iter();
        let mut told: Vec<_> =
            owed.map(|(replica, count)| format!("{replica} to acknowledge {count} messages")).collect();
        let held = self.replica.held_count();
        if held > 0 {
            told.push(format!("siblings to hold the decisions before {held} sends"));
        }
        told
    }

    /// Withdraws a cancelled wildcard receive that had no source.
    pub(super) fn withdraw_wildcard(&mut self, context: ContextId, index: u64) {
        self.replica.withdraw_wildcard(context, index);
    }

    /// Releases spare memory of the channels.
    pub(super) fn shrink(&mut self) {
        self.replica.shrink();
    }

    /// Keeps messages that these newcomers may ask for. For others it keeps only what the view demands.
    pub(super) fn set_pins(&mut self, awaited: &[ReplicaId], ready: &[ReplicaId]) {
        self.outcomes.is_known_hindered = false;
        self.replica.set_pins(awaited, ready);
    }

    /// Starts the connection with a process anew.
    pub(super) fn reset(&mut self, process: ProcessIndex, peer: ReplicaId) {
        self.parts.forget(process);
        self.replica.reset(peer);
    }

    /// Counts a test that found nothing. Siblings and partners may wait for batched frames: returns true now and then,
    /// to have these sent.
    pub(super) fn record_idle_poll(&mut self) -> bool {
        self.outcomes.idle_polls += 1;
        self.outcomes.idle_polls >= IDLE_POLLS_PER_FLUSH
    }

    /// Counts such a flush. Returns true now and then, to have sockets checked that are only written to.
    pub(super) fn record_idle_flush(&mut self) -> bool {
        self.idle_flushes = (self.idle_flushes + 1) % FLUSHES_PER_LOOK;
        self.idle_flushes == 0
    }

    /// Runs in a copy: it takes the place `me`. Frames received in part will come again.
    pub(super) fn become_copy(&mut self, me: ReplicaId) {
        self.parts.clear();
        self.replica.take_place(me);
    }

    /// Returns true if all messages of this process have arrived, and none is held back.
    pub fn is_settled(&self) -> bool {
        !self.replica.is_owing() && self.replica.held_count() == 0
    }
}
