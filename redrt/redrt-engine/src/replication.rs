//! Binds the engine to the replication protocol (`quiesce`): carries out the machine's outputs, and feeds it events.
//!
//! ```text
//!   send ──▶ digest ──▶ Replica::send ──▶ Outbound: payload to those this replica supplies, digests to the others
//!   frame ─▶ Replica::handle ──▶ Arrival: matching, payload into place ──▶ payload_received ──▶ Verified: completes
//!                            └─▶ Release: the payload is no longer needed; a large send completes
//! ```
//! A message has a record from its arrival until it is both verified and delivered: until then its payload may have to
//! be fetched again from another replica.

mod incoming;
mod outcomes;
pub mod times;

pub use incoming::Whole;

use super::cloning::Joining;
use super::evidence;
use super::link::Body;
use super::outgoing::OutgoingId;
use super::send::{EAGER_BYTES_MAX, SendArguments, Sent};
use super::{Engine, has_faults};
use quiesce::matching::{Match, Order};
use quiesce::{Frame, Outbound, Output, PayloadKey, Replica, StreamId};
use redrt_transport::frame::{FLAG_DIGEST, Header, Kind, Rendezvous};
use redrt_transport::memory;
use redrt_transport::network::Source;
use redrt_types::{ContextId, Digest, Envelope, ProcessIndex, ReplicaId, SeqNum, Tag, View, VirtualRank};
use redrt_wire::control::{Determinism, OnSdc, Options};
use redrt_wire::event::{Coverage, Statistics};
use redrt_wire::profile::SentTo;
use redrt_wire::trace::Sending;
use rustc_hash::FxHashMap;
use sdc_detect::{DigestStream, digest};
use std::collections::BTreeMap;
use tracing::debug;

/// Flag of `Header::tag`: more parts of this protocol frame follow.
const MORE: i32 = 1;
const PROTOCOL_PART_BYTES: usize = EAGER_BYTES_MAX;
/// Bound on a protocol frame: room for millions of decisions.
const PROTOCOL_BYTES_MAX: usize = 64 << 20;

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
    /// Sums over all messages sent, and over all received; only where faults are injected.
    sums: Option<[u64; 2]>,
    determinism: Determinism,
    /// True if the job ends when nobody knows which replica is wrong.
    aborts_on_sdc: bool,
    /// True if the own sphere has several replicas, which must agree on outcomes.
    has_siblings: bool,
    /// Number of outcomes taken or decided, sources of receives included.
    decisions: u64,
    /// Received parts of protocol frames that are incomplete.
    partial: FxHashMap<ProcessIndex, Vec<u8>>,
    idle_polls: u32,
    /// Flushes since the last check of the links.
    idle_flushes: u32,
    ahead_count: u32,
    /// True once `redrun` knows that this process cannot go on while copies of its rank stand ready.
    is_known_hindered: bool,
    /// True while a waiter needs followers to come near enough ([`Engine::is_crowded`]).
    is_crowded: bool,
    changes_waited: Waited,
    matched: Vec<Match<super::request::RequestId, usize>>,
}

impl Replication {
    /// The state at the start of the job.
    pub fn new(replica: Replica, options: &Options, has_siblings: bool) -> Self {
        Self {
            replica,
            seed: options.seed,
            sums: options.sums_messages.then_some([0; 2]),
            determinism: options.determinism,
            aborts_on_sdc: options.on_sdc == OnSdc::Abort,
            has_siblings,
            decisions: 0,
            partial: FxHashMap::default(),
            idle_polls: 0,
            idle_flushes: 0,
            ahead_count: 0,
            is_known_hindered: false,
            is_crowded: false,
            changes_waited: Waited::default(),
            matched: Vec::new(),
        }
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
            decisions: self.decisions,
            retention_bytes_max: counters.retained_bytes_max,
            messages_resent: counters.messages_resent,
            retention_messages: self.replica.retained_count() as u64,
            retention_bytes: counters.retained_bytes,
            window_messages: self.replica.unsettled_count() as u64,
            stall_ns_max: 0,
            changes_waited: self.changes_waited.count,
            change_wait_ns: self.changes_waited.all_ns,
            change_wait_ns_max: self.changes_waited.longest_ns,
            resident_bytes: 0,
            sent_sum: self.sums.unwrap_or_default()[0],
            received_sum: self.sums.unwrap_or_default()[1],
        }
    }

    /// Begins the digest of a message of `length_bytes` that comes in pieces.
    pub(super) fn digest_stream(&self, tag: i32, length_bytes: u64) -> DigestStream {
        DigestStream::new(self.seed, Tag(tag), length_bytes)
    }

    /// A message's contribution to a sum, independent of the order of messages: threads send in any order, and receives
    /// complete in any.
    fn summand(&self, other: VirtualRank, context: ContextId, sequence: SeqNum, payload: Digest) -> u64 {
        let words = [u128::from(context.0) << 64 | u128::from(sequence.0), payload.0].map(u128::to_le_bytes);
        digest(self.seed, Tag(other.0 as i32), words.as_flattened()).0 as u64
    }

    /// Adds a sent message to its sum, where faults are injected.
    fn sum_up(&mut self, to: VirtualRank, context: ContextId, sequence: SeqNum, sent: Digest) {
        if let Some([sum, _]) = self.sums {
            let summand = self.summand(to, context, sequence, sent);
            self.sums.as_mut().expect("just found")[0] = sum.wrapping_add(summand);
        }
    }

    /// The view this process acts on.
    pub fn view(&self) -> &View {
        self.replica.view()
    }

    /// Returns true if the job is to end when nobody knows which replica is wrong.
    pub(super) fn aborts_on_sdc(&self) -> bool {
        self.aborts_on_sdc
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

    /// Releases spare memory of the channels.
    pub(super) fn shrink(&mut self) {
        self.replica.shrink();
    }

    /// Keeps messages that these newcomers may ask for. For others it keeps only what the view demands.
    pub(super) fn set_pins(&mut self, awaited: &[ReplicaId], ready: &[ReplicaId]) {
        self.is_known_hindered = false;
        self.replica.set_pins(awaited, ready);
    }

    /// Starts the connection with a process anew.
    pub(super) fn reset(&mut self, process: ProcessIndex, peer: ReplicaId) {
        self.partial.remove(&process);
        self.replica.reset(peer);
    }

    /// Counts a flush of a program that polls in vain. Returns true at each `count`th.
    pub(super) fn note_idle_flush(&mut self, count: u32) -> bool {
        self.idle_flushes = (self.idle_flushes + 1) % count;
        self.idle_flushes == 0
    }

    /// Runs in a copy: it takes the place `me`. Frames received in part will come again.
    pub(super) fn become_copy(&mut self, me: ReplicaId) {
        self.partial.clear();
        self.replica.take_place(me);
    }

    /// Returns true if all messages of this process have arrived, and none is held back.
    pub fn is_settled(&self) -> bool {
        !self.replica.is_owing() && self.replica.held_count() == 0
    }
}

#[inline(always)]
fn set_sequence(header: &mut Header, sequence: SeqNum) {
    header.sequence = sequence.0 as u32;
    header.index = (sequence.0 >> 32) as u16;
}

/// Header of an eager message; a rendezvous changes its kind.
#[inline(always)]
fn offer_header(context: ContextId, sequence: SeqNum, envelope: Envelope, core: u16) -> Header {
    let mut header = Header::new(Kind::Eager, context.0);
    (header.flags, header.core) = (FLAG_DIGEST, core);
    (header.tag, header.source) = (envelope.tag.0, envelope.source);
    set_sequence(&mut header, sequence);
    header
}

#[inline(always)]
fn digest_header(context: ContextId, sequence: SeqNum, core: u16) -> Header {
    let mut header = Header::new(Kind::Digest, context.0);
    (header.flags, header.core) = (FLAG_DIGEST, core);
    set_sequence(&mut header, sequence);
    header
}

impl Engine {
    /// Returns true if any virtual rank of the world has more than one replica.
    #[inline]
    pub fn is_replicated(&self) -> bool {
        self.replication.is_some()
    }

    /// Returns true if outcomes have to be agreed with siblings. `polling`: for calls that do not wait.
    pub fn needs_decisions(&self, polling: bool) -> bool {
        self.replication.as_ref().is_some_and(|replication| {
            replication.has_siblings && !(polling && replication.determinism == Determinism::Sends)
        })
    }

    /// Number of decisions that some sibling may not hold yet.
    pub fn unstable_count(&self) -> u64 {
        self.replication.as_ref().map_or(0, |replication| replication.replica.unstable_count())
    }

    /// Returns true if a decision that can wait should wait; see `quiesce::Replica::is_far_ahead`.
    pub fn is_far_ahead(&self, stream: StreamId) -> bool {
        self.replication.as_ref().is_some_and(|replication| replication.replica.is_far_ahead(stream))
    }

    /// Returns true if all messages of this process have arrived, or at least left.
    pub fn is_settled(&self) -> bool {
        !self.links.is_busy() && self.replication.as_ref().is_none_or(|replication| replication.is_settled())
    }

    /// The view that this process acts on; `None` in a world that is not replicated.
    pub fn view(&self) -> Option<&View> {
        self.replication.as_ref().map(|replication| replication.view())
    }

    /// Number of the view this process acts on; that of `initial` in a world that is not replicated.
    pub fn view_number(&self, initial: &View) -> redrt_types::ViewNumber {
        self.replication.as_ref().map_or(initial.number, |replication| replication.view().number)
    }

    /// Counters for the summary.
    pub fn statistics(&self) -> Statistics {
        let replicated = self.replication.as_ref().map(|replication| replication.statistics());
        Statistics {
            stall_ns_max: self.stalls.longest_ns(),
            resident_bytes: memory::resident_bytes(),
            ..replicated.unwrap_or_default()
        }
    }

    /// Traffic by receiver; `None` if it was not asked for.
    pub fn sent(&self) -> Option<Vec<SentTo>> {
        self.traffic.as_ref().map(|traffic| traffic.sent())
    }

    /// Compared messages and bytes, by communicator.
    pub fn coverage(&self) -> Vec<Coverage> {
        let compared = self.replication.as_ref().map(|replication| replication.replica.coverage());
        let mut named = BTreeMap::<String, (u64, u64)>::new();
        for (context, (messages, bytes)) in compared.unwrap_or_default() {
            let total = named.entry(self.runtime.label_of_context(context.0)).or_default();
            *total = (total.0 + messages, total.1.saturating_add(bytes));
        }
        let one = |(communicator, (messages, bytes))| Coverage { communicator, messages, bytes };
        named.into_iter().map(one).collect()
    }

    #[inline]
    pub(super) fn replication(&mut self) -> &mut Replication {
        self.replication.as_mut().expect("the world is replicated")
    }

    pub(super) fn send_replicated(&mut self, arguments: SendArguments) -> Sent {
        let length = arguments.payload.len();
        let eager = arguments.is_short(length);
        let SendArguments { context, source, to, tag, payload, element, .. } = arguments;
        if let Some(traffic) = &mut self.traffic {
            traffic.note(to, length);
        }
        let payload = if eager { payload.into_owned() } else { payload };
        let digest = digest(self.replication().seed, Tag(tag), payload.bytes());
        let id = self.keep(payload, element, Some(to), eager);
        let envelope = Envelope { source, tag: Tag(tag), length_bytes: length as u64 };
        let context = ContextId(context);
        let place = self.program_place();
        let replication = self.replication();
        let outbound = replication.replica.send(to, context, envelope, digest, (PayloadKey(id.0), place));
        let sequence = outbound.sequence;
        replication.sum_up(to, context, sequence, digest);
        if let Some(traces) = &mut self.traces {
            traces.note(Sending { to, context, sequence });
        }
        self.put_out((to, context), envelope, digest, id, outbound);
        self.carry_out();
        if has_faults()
            && let Some(outgoing) = self.outgoing.get_mut(id)
            && let Some(payload) = self.runtime.corrupt_kept(&outgoing.payload)
        {
            outgoing.payload = payload;
        }
        // All receivers may have acknowledged it already, if this replica lags behind its siblings.
        let waits = !eager || self.outgoing.is_crowded();
        let is_needed = waits && self.outgoing.get(id).is_some_and(|outgoing| !outgoing.detached);
        if is_needed { Sent::Pending(id) } else { Sent::Complete }
    }

    /// Transmits the frames of a message that go out at once.
    #[inline(always)]
    fn put_out(
        &mut self,
        (rank, context): (VirtualRank, ContextId),
        envelope: Envelope,
        digest: Digest,
        id: OutgoingId,
        outbound: Outbound,
    ) {
        let Outbound { sequence, offer_to, digest_to } = outbound;
        let core = evidence::core();
        for index in offer_to.iter() {
            let process = self.world.process(ReplicaId { rank, index });
            self.transmit_offer(process, offer_header(context, sequence, envelope, core), digest, id);
        }
        for index in digest_to.iter() {
            let process = self.world.process(ReplicaId { rank, index });
            self.links.send(process, digest_header(context, sequence, core), Some(digest.0), &[]);
        }
    }

    /// Carries out the machine's outputs.
    pub(super) fn carry_out(&mut self) {
        while let Some(output) = self.replication().replica.poll_output() {
            self.act(output);
        }
    }

    fn act(&mut self, output: Output) {
        match output {
            Output::Transmit { to, frame, payload } => self.transmit(to, frame, payload),
            Output::Verified { message, place } => self.verified(message, place),
            Output::Agreed { message, place } => self.agreed(message, place),
            Output::Release { payload } => {
                let id = OutgoingId(payload.0);
                if let Some(outgoing) = self.outgoing.get(id).filter(|outgoing| outgoing.granted) {
                    self.links.cancel_pushes(id, &outgoing.payload);
                }
                self.outgoing_gone(id);
            }
            Output::Detach { payload } => self.detach(OutgoingId(payload.0)),
            Output::Parted(report) => self.report_path(&report),
            Output::Mismatch(report) => {
                let (element, excerpt) = self.look_at(&report);
                self.report(&report, element, excerpt);
            }
            Output::WildcardDecided { context, index, source } => {
                let context = self.contexts.index(context.0);
                let mut matched = std::mem::take(&mut self.replication().matched);
                self.contexts.get(context).queues.apply_decision(index, source, &mut matched);
                self.deliver_all(matched);
            }
            Output::Decided { key } => {
                self.signals.is_told |= key.stream == StreamId::Signals;
                self.requests.completions += 1;
                if let StreamId::Readings(thread) = key.stream {
                    self.pass_times(thread);
                }
            }
            Output::BecameLeader => self.lead(),
        }
    }

    pub(super) fn deliver_all(&mut self, mut matched: Vec<Match<super::request::RequestId, usize>>) {
        for Match { receive, taken, .. } in matched.drain(..) {
            let context = self.messages[taken.message].context;
            self.record_match(context, taken.decided, taken.source);
            self.deliver(taken.message, receive);
        }
        if let Some(replication) = &mut self.replication {
            replication.matched = matched;
        }
    }

    /// Takes in that this process has become the leader.
    fn lead(&mut self) {
        let mut matched = Vec::new();
        self.contexts.set_order(Order::Deciding, &mut matched);
        self.deliver_all(matched);
        self.requests.completions += 1;
    }

    fn transmit(&mut self, to: ReplicaId, frame: Frame, payload: Option<PayloadKey>) {
        let process = self.world.process(to);
        match frame {
            Frame::Offer { context, sequence, envelope, digest, .. } => {
                let id = OutgoingId(payload.expect("an offer has a payload").0);
                let header = offer_header(context, sequence, envelope, evidence::core());
                self.transmit_offer(process, header, digest, id);
            }
            Frame::Digest { context, sequence, digest, .. } => {
                let header = digest_header(context, sequence, evidence::core());
                self.links.send(process, header, Some(digest.0), &[]);
            }
            Frame::Ack { context, upto } => {
                let mut header = Header::new(Kind::Ack, context.0);
                set_sequence(&mut header, upto);
                self.links.send(process, header, None, &[]);
            }
            Frame::AckOne { context, sequence } => {
                let mut header = Header::new(Kind::AckOne, context.0);
                set_sequence(&mut header, sequence);
                self.links.send(process, header, None, &[]);
            }
            other => self.transmit_protocol(process, &other),
        }
    }

    #[inline(always)]
    fn transmit_offer(&mut self, to: ProcessIndex, mut header: Header, digest: Digest, id: OutgoingId) {
        let outgoing = self.outgoing.get_mut(id).expect("it is kept until it is released");
        let payload = &outgoing.payload;
        header.element = outgoing.element as u8;
        let flip = if has_faults() { self.runtime.take_wire_bit(payload.len()) } else { None };
        if outgoing.eager {
            if let Some(bit) = flip {
                let mut bytes = payload.bytes().to_vec();
                bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
                return self.links.send(to, header, Some(digest.0), &bytes);
            }
            if !self.links.try_send(to, &header, Some(digest.0), payload.bytes()) {
                self.links.queue(to, header, Some(digest.0), Body::Shared(outgoing.payload.share()), None);
            }
            return;
        }
        header.kind = Kind::Offer as u8;
        let direct = self.links.local_pid(to).is_some() && flip.is_none();
        let address = if direct { payload.address() } else { 0 };
        if let Some(bit) = flip {
            self.links.flip_pushed_bit(id, bit);
        }
        let body = Rendezvous { length: payload.len() as u64, address, offer: id.0 };
        self.links.send(to, header, Some(digest.0), &body.to_bytes());
    }

    fn transmit_protocol(&mut self, to: ProcessIndex, frame: &Frame) {
        let bytes = postcard::to_stdvec(frame).expect("protocol frames are plain data");
        if bytes.len() > PROTOCOL_BYTES_MAX {
            let message = format!("replica {} has {} bytes to tell {} at once: too many", self.me, bytes.len(), to.0);
            self.runtime.abort(1, message);
        }
        let seed = self.replication().seed;
        let is_hit = has_faults() && matches!(frame, Frame::Decisions { .. });
        let flip = if is_hit { self.runtime.take_decision_bit(bytes.len()) } else { None };
        let mut sent_bytes = 0;
        let mut parts = bytes.chunks(PROTOCOL_PART_BYTES).peekable();
        while let Some(part) = parts.next() {
            let mut header = Header::new(Kind::Protocol, 0);
            header.flags = FLAG_DIGEST;
            header.tag = if parts.peek().is_some() { MORE } else { 0 };
            let digest = digest(seed, Tag(header.tag), part);
            match flip.and_then(|bit| bit.checked_sub(8 * sent_bytes)).filter(|bit| *bit < 8 * part.len() as u64) {
                None => self.links.send(to, header, Some(digest.0), part),
                Some(bit) => {
                    let mut part = part.to_vec();
                    part[(bit / 8) as usize] ^= 1 << (bit % 8);
                    self.links.send(to, header, Some(digest.0), &part);
                }
            }
            sent_bytes += part.len() as u64;
        }
    }

    /// Applies a new view, if it is later than the present one.
    pub fn apply_view(&mut self, view: View) {
        let Some(replication) = &mut self.replication else { return };
        let before = replication.replica.view().clone();
        if view.number <= before.number {
            return;
        }
        debug!(target: "engine", view = view.number.0, "a view");
        self.runtime.view_changed(&self.world, &before, &view);
        let has_lost = self.world.replicas().any(|replica| before.is_live(replica) && !view.is_live(replica));
        for replica in self.world.replicas() {
            let Some(member) = before.member(replica) else { continue };
            if view.member(replica) != Some(member) {
                let process = self.world.process(replica);
                self.links.close(process, member.incarnation);
                replication.partial.remove(&process);
            }
        }
        for replica in self.world.replicas().filter(|replica| *replica != self.me) {
            if let Some(member) = view.member(replica).filter(|member| before.member(replica) != Some(*member)) {
                self.links.join(self.world.process(replica), member.incarnation);
            }
        }
        if self.joining == Joining::Outside && view.is_live(self.me) {
            self.joining = Joining::InView;
        }
        let applied = replication.replica.apply_view(view);
        self.note_passed();
        if self.joining == Joining::InView {
            self.tell_in_step();
        }
        self.requests.completions += 1;
        if has_lost && self.polling {
            self.stalls.begin(self.requests.completions);
        }
        if let Err(error) = applied {
            self.refuse(None, &error.into());
        }
    }

    /// Sends batched acknowledgements and decisions.
    pub fn flush(&mut self) {
        if let Some(replication) = &mut self.replication {
            replication.replica.flush();
            replication.idle_polls = 0;
            self.carry_out();
        }
    }

    /// Counts a test that found nothing. Siblings and partners may wait for batched frames, so these go out now and
    /// then.
    pub(super) fn idle_poll(&mut self) {
        if let Some(replication) = &mut self.replication {
            replication.idle_polls += 1;
            if replication.idle_polls >= 32 {
                self.flush();
                self.look_at_links();
            }
        }
    }
}
