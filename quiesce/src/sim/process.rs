//! One simulated process: the machine, the matching queues and the program, joined as an engine joins them.

use super::app::{App, Part};
use super::broken::Broken;
use super::paths::Departure;
use super::program::{Instruction, LARGE_BYTES};
use crate::decision::Lookup;
use crate::error::ProtocolError;
use crate::frame::{Arrival, Frame, MessageId, MismatchReport, Outbound, Output, PayloadKey};
use crate::hashable_map::HashableMap;
use crate::matching::{Arrived, Match, MatchQueues, Order, Pattern, Posted, Taken};
use crate::outcome::{Call, DecisionKey, Outcome, Question, StreamId};
use crate::path::PathReport;
use crate::replica::{Config, Replica};
use redrt_types::{ContextId, Digest, Envelope, ReplicaId, Tag, View, VirtualRank};
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

/// A packet between processes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Packet {
    /// A frame. An eager offer comes with its payload, an announced one with the handle to pull it by.
    Frame {
        /// The frame of the protocol.
        frame: Frame,
        /// The payload of an eager offer.
        eager: Option<u64>,
        /// The handle of an announced offer.
        handle: Option<PayloadKey>,
    },
    /// A request for an announced payload.
    Pull {
        /// The message, for the answer.
        message: MessageId,
        /// The handle of its payload.
        handle: PayloadKey,
        /// True if it is for a further copy.
        shadow: bool,
    },
    /// The answer to a `Pull`. It may overtake all other packets.
    Data {
        /// The message that it answers.
        message: MessageId,
        /// The envelope that was sent.
        envelope: Envelope,
        /// The payload's bytes, as one number.
        payload: u64,
        /// True if it is for a further copy.
        shadow: bool,
    },
}

/// A message of the coordinator to a process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Control {
    /// A new view of the job.
    View(View),
    /// The pins: copies are to join in the places `awaited`, or have joined and are not in step yet. Others stand ready
    /// to be arbiters in `ready`.
    Pins {
        /// Places of copies that are to join.
        awaited: Vec<ReplicaId>,
        /// Places of copies that stand ready.
        ready: Vec<ReplicaId>,
    },
}

#[cfg(test)]
impl Control {
    /// Pins for copies that are to join, where none stands ready.
    pub(super) fn pins(awaited: Vec<ReplicaId>) -> Self {
        Self::Pins { awaited, ready: Vec::new() }
    }
}

#[derive(Clone, Hash, Debug)]
pub struct Incoming {
    pub(super) message: MessageId,
    pub(super) envelope: Envelope,
    pub(super) payload: Option<u64>,
    supplier: ReplicaId,
    /// The handle of a payload that was not pulled, because no receive matched.
    announced: Option<PayloadKey>,
    matched: bool,
    pub(super) verified: bool,
}

#[derive(Clone, Copy, Hash, Debug, Default)]
pub struct Request {
    pub(super) incoming: Option<usize>,
}

#[derive(Clone, Hash, Debug)]
pub struct Process {
    pub(super) replica: Replica,
    pub(super) app: App,
    queues: BTreeMap<ContextId, MatchQueues<usize, usize>>,
    pub(super) incoming: Vec<Incoming>,
    by_message: HashableMap<MessageId, usize>,
    pub(super) requests: Vec<Request>,
    payloads: HashableMap<PayloadKey, (u64, Envelope)>,
    /// Large sends that are complete, though newcomers may ask for them.
    detached: HashableMap<PayloadKey, ()>,
    next_payload: u64,
    /// Number of large sends that are not complete.
    pub(super) sends_open: usize,
    /// Messages of the coordinator on their way to this process.
    pub(super) controls: VecDeque<Control>,
    pub(super) alive: bool,
    /// True if the process is not in the view, does not know it and runs on.
    pub(super) fenced: bool,
    pub(super) reports: Vec<MismatchReport>,
    /// Reports on paths that the coordinator has not taken.
    pub(super) partings: Vec<PathReport>,
    /// Number of times the connection with each other process has begun anew, as far as this one knows.
    epochs: BTreeMap<ReplicaId, u32>,
    /// Packets for the wire, with the epoch of the connection.
    pub(super) outgoing: Vec<(ReplicaId, u32, Packet)>,
    /// The first violation of a property.
    pub(super) failure: Option<Broken>,
    /// The messages this process has sent: context, destination, payload.
    pub(super) sent: Vec<(VirtualRank, ContextId, u64, u64)>,
    /// Number of the send whose payload is to be corrupted in memory.
    pub(super) corrupt_send: Option<usize>,
    /// The message that was corrupted, on the channel to `sender`.
    pub(super) corrupted: Option<MessageId>,
    /// Number of the send whose payload is to be corrupted in the log, followed by the message that was.
    pub(super) corrupt_log: Option<usize>,
    pub(super) log_corrupted: Option<MessageId>,
    /// True if the cause of the corruption is in memory already, and so in a copy.
    pub(super) is_latent: bool,
    /// The part to be corrupted at rest, and the number of sends before that.
    pub(super) corrupt_at_rest: Option<(Part, usize)>,
    /// True if memory was corrupted, here or in the process that this is a copy of.
    pub(super) is_tainted: bool,
    /// The call at which its program leaves the path of its siblings, and the way.
    pub(super) leaves_path: Option<(u64, Departure)>,
    /// True if its next announcement of a message is lost.
    pub(super) loses_word: bool,
    /// The reading of an outside clock, different in each process.
    pub(super) clock: u64,
    /// True if its runtime reads clocks at moments of its own.
    pub(super) collects: bool,
    /// Number of calls after which code of the program was generated.
    pub(super) generates_after: u64,
    /// Number of readings that the runtime made alone.
    pub(super) alone_count: u64,
    /// Writes since the world took them: positions in its rank's file, and values.
    pub(super) changes: Vec<(u64, u64)>,
    /// True if its program can go on only when copies that stand ready are dropped.
    pub(super) is_hindered: bool,
    /// True if an event has reached it since its program blocked.
    pub(super) runnable: bool,
}

/// The simulator's digest of a message. Its payload is one number, whatever its length in the envelope.
pub(super) fn digest(tag: Tag, length_bytes: u64, payload: u64) -> Digest {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&payload.to_le_bytes());
    bytes[8..].copy_from_slice(&length_bytes.to_le_bytes());
    sdc_detect::digest(0, tag, &bytes)
}

impl Process {
    pub(super) fn new(config: Config, contexts: &[ContextId], program: Vec<Instruction>) -> Self {
        let mut replica = Replica::new(config);
        replica.withhold_corrupt();
        let order = if replica.is_deciding() { Order::Deciding } else { Order::Following };
        Self {
            app: App::new(replica.me().rank.0, replica.view().rank_count(), program),
            replica,
            queues: contexts.iter().map(|context| (*context, MatchQueues::new(order))).collect(),
            incoming: Vec::new(),
            by_message: HashableMap::default(),
            requests: Vec::new(),
            payloads: HashableMap::default(),
            detached: HashableMap::default(),
            next_payload: 0,
            sends_open: 0,
            controls: VecDeque::new(),
            alive: true,
            fenced: false,
            reports: Vec::new(),
            partings: Vec::new(),
            epochs: BTreeMap::new(),
            outgoing: Vec::new(),
            failure: None,
            sent: Vec::new(),
            corrupt_send: None,
            corrupted: None,
            corrupt_log: None,
            log_corrupted: None,
            is_latent: false,
            corrupt_at_rest: None,
            is_tainted: false,
            leaves_path: None,
            loses_word: false,
            clock: 0,
            collects: false,
            generates_after: 0,
            alone_count: 0,
            changes: Vec::new(),
            is_hindered: false,
            runnable: true,
        }
    }

    pub(super) fn me(&self) -> ReplicaId {
        self.replica.me()
    }

    /// Returns true if a message has arrived from any replica.
    pub(super) fn knows(&self, message: MessageId) -> bool {
        self.by_message.contains_key(&message)
    }

    /// Returns true if the payload of a message is to come from this replica.
    pub(super) fn awaits(&self, from: ReplicaId, message: MessageId) -> bool {
        self.by_message.get(&message).is_some_and(|token| {
            let incoming = &self.incoming[*token];
            incoming.supplier == from && incoming.payload.is_none()
        })
    }

    /// The epoch of the connection with another process.
    pub(super) fn epoch(&self, peer: ReplicaId) -> u32 {
        self.epochs.get(&peer).copied().unwrap_or(0)
    }

    /// Begins a new epoch of a connection.
    pub(super) fn begin_epoch(&mut self, peer: ReplicaId, epoch: u32) {
        self.epochs.insert(peer, epoch);
        self.replica.reset(peer);
        self.drain();
    }

    /// Forgets the connection with a place, which another process has taken.
    pub(super) fn forget_epoch(&mut self, place: ReplicaId) {
        self.epochs.remove(&place);
    }

    fn put(&mut self, to: ReplicaId, packet: Packet) {
        self.outgoing.push((to, self.epoch(to), packet));
    }

    /// Takes a packet. Those of an old connection are dropped. Those of a newer one show that it has begun.
    pub(super) fn receive(&mut self, from: ReplicaId, epoch: u32, packet: Packet) {
        match epoch.cmp(&self.epoch(from)) {
            Ordering::Less => return,
            Ordering::Greater => self.begin_epoch(from, epoch),
            Ordering::Equal => {}
        }
        match packet {
            Packet::Frame { frame, eager, handle } => {
                let offered = match frame {
                    Frame::Offer { context, sequence, envelope, .. } => {
                        Some((MessageId { sender: from.rank, context, sequence }, envelope))
                    }
                    _ => None,
                };
                let arrival = self.replica.handle(from, frame);
                let arrival = self.record(arrival).unwrap_or(Arrival::Nothing);
                if let Some((message, envelope)) = offered {
                    self.take_offer(arrival, message, envelope, (from, eager, handle));
                }
                self.drain();
            }
            Packet::Pull { message, handle, shadow } => {
                if let Some((payload, envelope)) = self.payloads.get(&handle).copied() {
                    self.put(from, Packet::Data { message, envelope, payload, shadow });
                }
            }
            Packet::Data { message, envelope, payload, shadow } => {
                self.receive_data(from, message, envelope, payload, shadow);
            }
        }
    }

    fn receive_data(&mut self, from: ReplicaId, message: MessageId, envelope: Envelope, payload: u64, shadow: bool) {
        let incoming = &mut self.incoming[self.by_message[&message]];
        let digest = digest(envelope.tag, envelope.length_bytes, payload);
        if shadow {
            self.replica.shadow_received(from, message, digest);
        } else if incoming.supplier == from {
            incoming.payload = Some(payload);
            self.replica.payload_received(from, message, digest);
        }
        self.drain();
    }

    pub(super) fn apply_view(&mut self, view: View) {
        let applied = self.replica.apply_view(view);
        self.record(applied);
        self.record_passed();
    }

    /// Records a refusal as a failure, since no replica of the simulator sends an impossible frame.
    fn record<T>(&mut self, handled: Result<T, ProtocolError>) -> Option<T> {
        let by = self.me();
        match handled {
            Ok(value) => Some(value),
            Err(error) => {
                self.failure.get_or_insert(Broken::Refused { by, error });
                None
            }
        }
    }

    /// Returns true in a copy that no view contains yet.
    pub(super) fn is_new(&self) -> bool {
        self.replica.is_joining()
    }

    pub(super) fn set_pins(&mut self, awaited: &[ReplicaId], ready: &[ReplicaId]) {
        self.replica.set_pins(awaited, ready);
        self.drain();
    }

    /// Copies this process for another place of its sphere.
    pub(super) fn copy(&self, place: ReplicaId) -> Self {
        let mut copy = self.clone();
        copy.replica.take_place(place);
        for queues in copy.queues.values_mut() {
            queues.set_order(Order::Following, &mut Vec::new());
        }
        for incoming in &mut copy.incoming {
            incoming.announced = None;
        }
        copy.controls.clear();
        copy.epochs.clear();
        copy.reports.clear();
        copy.partings.clear();
        copy.corrupt_at_rest = None;
        copy.leaves_path = copy.leaves_path.filter(|_| copy.is_latent);
        copy.clock = u64::from(place.index.0) + 100;
        copy.corrupt_send = copy.corrupt_send.filter(|_| copy.is_latent);
        (copy.runnable, copy.is_hindered) = (false, false);
        copy
    }

    pub(super) fn flush(&mut self) {
        self.replica.flush();
        self.drain();
    }

    pub(super) fn send(&mut self, to: u32, context: ContextId, tag: Tag, length_bytes: u64, payload: u64) {
        let key = PayloadKey(self.next_payload);
        self.next_payload += 1;
        let is_corrupt = self.corrupt_send == Some(self.sent.len());
        let payload = if is_corrupt { payload ^ 0x10 } else { payload };
        let envelope = Envelope { source: self.me().rank.0, tag, length_bytes };
        self.payloads.insert(key, (payload, envelope));
        self.sends_open += usize::from(length_bytes >= LARGE_BYTES);
        let digest = digest(tag, length_bytes, payload);
        let outbound = self.replica.send(VirtualRank(to), context, envelope, digest, (key, self.app.told_place()));
        let Outbound { sequence, .. } = outbound;
        self.put_out(VirtualRank(to), context, (envelope, digest, key), outbound);
        if is_corrupt {
            self.corrupted = Some(MessageId { sender: VirtualRank(to), context, sequence });
        }
        let is_log_corrupt = self.corrupt_log == Some(self.sent.len());
        self.sent.push((VirtualRank(to), context, sequence.0, payload));
        self.drain();
        if is_log_corrupt && let Some((kept, _)) = self.payloads.get_mut(&key) {
            *kept ^= 1 << 20;
            self.log_corrupted = Some(MessageId { sender: VirtualRank(to), context, sequence });
        }
    }

    pub(super) fn post(&mut self, context: ContextId, pattern: Pattern) -> usize {
        let request = self.requests.len();
        self.requests.push(Request::default());
        let queues = self.queues.get_mut(&context).expect("all contexts exist");
        if pattern.source.is_none() {
            let index = queues.wildcard_count();
            let arguments = pattern.tag.map_or(0, |tag| 1 + u64::from(tag.0.cast_unsigned()));
            let question = Question { call: Call::Receive, arguments, data: 0, place: self.app.place() };
            if let Some(source) = self.replica.post_wildcard(context, index, question) {
                queues.apply_decision(index, source, &mut Vec::new());
            }
        }
        let posted = queues.post(pattern, request);
        if let Posted::Matched(taken) = posted {
            self.pair(context, request, taken);
        }
        self.drain();
        request
    }

    pub(super) fn probe(&self, context: ContextId, pattern: Pattern) -> Option<(u32, Tag)> {
        self.queues[&context].probe(pattern).map(|(source, tag, _)| (source, tag))
    }

    pub(super) fn take(&mut self, context: ContextId, pattern: Pattern) -> Option<usize> {
        let taken = self.queues.get_mut(&context).expect("all contexts exist").take(pattern)?;
        let request = self.requests.len();
        self.requests.push(Request::default());
        self.pair(context, request, taken);
        self.drain();
        Some(request)
    }

    pub(super) fn freeze(&mut self, context: ContextId, request: usize) -> bool {
        self.queues.get_mut(&context).expect("all contexts exist").freeze(request)
    }

    pub(super) fn thaw(&mut self, context: ContextId, request: usize) {
        let mut matched = Vec::new();
        self.queues.get_mut(&context).expect("all contexts exist").thaw(request, &mut matched);
        self.pair_all(context, matched);
        self.drain();
    }

    pub(super) fn cancel(&mut self, context: ContextId, request: usize) -> bool {
        let mut matched = Vec::new();
        let queues = self.queues.get_mut(&context).expect("all contexts exist");
        let undecided = queues.undecided_index(request);
        let done = queues.cancel(request, &mut matched);
        undecided.into_iter().for_each(|index| self.replica.withdraw_wildcard(context, index));
        self.pair_all(context, matched);
        self.drain();
        done
    }

    pub(super) fn cast_ballot(&mut self, index: u64, question: Question, agrees: bool) {
        self.replica.cast_ballot(DecisionKey { stream: StreamId::Thread(0), index }, question, agrees.into());
        self.drain();
    }

    pub(super) fn count_ballots(&self, index: u64, question: Question) -> Option<bool> {
        self.replica.count_ballots(DecisionKey { stream: StreamId::Thread(0), index }, question)
    }

    pub(super) fn record_hindrance(&mut self, index: u64, question: Question) {
        self.is_hindered |= self.replica.is_hindered(DecisionKey { stream: StreamId::Thread(0), index }, question);
    }

    pub(super) fn lookup(&mut self, index: u64, question: Question) -> Lookup {
        let found = self.replica.lookup(DecisionKey { stream: StreamId::Thread(0), index }, question);
        self.drain();
        found
    }

    /// Returns true if a majority asks for the change that this process is to make.
    pub(super) fn is_backed(&self, index: u64) -> bool {
        self.replica.is_backed(DecisionKey { stream: StreamId::Thread(0), index })
    }

    pub(super) fn decide(&mut self, index: u64, question: Question, outcome: Outcome) {
        self.replica.decide(DecisionKey { stream: StreamId::Thread(0), index }, question, outcome);
        self.drain();
    }

    /// Source, tag and payload of a receive that is complete.
    pub(super) fn completed(&self, request: usize) -> Option<(u32, Tag, u64)> {
        let incoming = &self.incoming[self.requests[request].incoming?];
        let payload = incoming.payload.filter(|_| incoming.verified)?;
        Some((incoming.envelope.source, incoming.envelope.tag, payload))
    }

    /// Gives a message to a receive: pulls its payload, and records the decision if its source was open.
    fn pair(&mut self, context: ContextId, request: usize, taken: Taken<usize>) {
        self.requests[request].incoming = Some(taken.message);
        if let Some(index) = taken.decided {
            self.replica.decide_source(context, index, taken.source);
        }
        let incoming = &mut self.incoming[taken.message];
        incoming.matched = true;
        if let Some(handle) = incoming.announced.take() {
            let pull = Packet::Pull { message: incoming.message, handle, shadow: false };
            let supplier = incoming.supplier;
            self.put(supplier, pull);
        }
    }

    fn pair_all(&mut self, context: ContextId, matched: Vec<Match<usize, usize>>) {
        for Match { receive, taken } in matched {
            self.pair(context, receive, taken);
        }
    }

    /// Transmits the frames of a new message that go out at once.
    fn put_out(
        &mut self,
        to: VirtualRank,
        context: ContextId,
        (envelope, digest, key): (Envelope, Digest, PayloadKey),
        Outbound { sequence, offer_to, digest_to }: Outbound,
    ) {
        for index in offer_to.union(digest_to).iter() {
            let to = ReplicaId { rank: to, index };
            if offer_to.contains(index) {
                self.transmit(to, Frame::Offer { context, sequence, envelope, digest, core: None }, Some(key));
            } else {
                self.transmit(to, Frame::Digest { context, sequence, digest, core: None }, None);
            }
        }
    }

    /// Carries out the machine's task for an offer. `brought` is the sender, and the payload or handle.
    fn take_offer(
        &mut self,
        arrival: Arrival,
        message: MessageId,
        envelope: Envelope,
        brought: (ReplicaId, Option<u64>, Option<PayloadKey>),
    ) {
        match arrival {
            Arrival::Nothing => {}
            Arrival::New { is_agreed } => {
                self.arrived(message, envelope, brought.0, is_agreed);
                self.payload_offered(message, envelope, brought, false);
            }
            Arrival::Again { place } => {
                let token = self.token(message, place);
                let incoming = &mut self.incoming[token];
                incoming.envelope = envelope;
                incoming.supplier = brought.0;
                incoming.payload = None;
                incoming.announced = None;
                self.payload_offered(message, envelope, brought, false);
                let mut matched = Vec::new();
                let queues = self.queues.get_mut(&message.context).expect("all contexts exist");
                queues.refile(token, envelope.source, envelope.tag, &mut matched);
                self.pair_all(message.context, matched);
            }
            Arrival::Shadow => self.payload_offered(message, envelope, brought, true),
        }
    }

    /// Carries out the machine's outputs.
    pub(super) fn drain(&mut self) {
        while let Some(output) = self.replica.poll_output() {
            match output {
                Output::Transmit { to, frame, payload } => self.transmit(to, frame, payload),
                Output::Agreed { message, place } => {
                    let token = self.token(message, place);
                    self.agreed(token);
                }
                Output::Verified { message, place } => {
                    let token = self.token(message, place);
                    let incoming = &mut self.incoming[token];
                    if incoming.verified || incoming.payload.is_none() {
                        self.failure.get_or_insert(Broken::Verified(message));
                    }
                    incoming.verified = true;
                }
                Output::Mismatch(report) => self.reports.push(*report),
                Output::Parted(report) => self.partings.push(*report),
                Output::Release { payload } => match self.payloads.remove(&payload) {
                    Some((_, envelope)) => {
                        let was_open = self.detached.remove(&payload).is_none();
                        self.sends_open -= usize::from(envelope.length_bytes >= LARGE_BYTES && was_open);
                    }
                    None => _ = self.failure.get_or_insert(Broken::Released(payload)),
                },
                Output::Detach { payload } => match self.payloads.get(&payload) {
                    Some((_, envelope)) => {
                        self.sends_open -= usize::from(envelope.length_bytes >= LARGE_BYTES);
                        if self.detached.insert(payload, ()).is_some() {
                            self.failure.get_or_insert(Broken::Detached(payload));
                        }
                    }
                    None => _ = self.failure.get_or_insert(Broken::Detached(payload)),
                },
                Output::WildcardDecided { context, index, source } => {
                    let mut matched = Vec::new();
                    let queues = self.queues.get_mut(&context).expect("all contexts exist");
                    queues.apply_decision(index, source, &mut matched);
                    self.pair_all(context, matched);
                }
                Output::Decided { .. } => {}
                Output::BecameLeader => self.lead(),
            }
        }
    }

    fn lead(&mut self) {
        let contexts: Vec<_> = self.queues.keys().copied().collect();
        for context in contexts {
            let mut matched = Vec::new();
            self.queues.get_mut(&context).expect("it was listed").set_order(Order::Deciding, &mut matched);
            self.pair_all(context, matched);
        }
    }

    fn transmit(&mut self, to: ReplicaId, frame: Frame, payload: Option<PayloadKey>) {
        if self.loses_word && matches!(frame, Frame::Offer { .. } | Frame::Digest { .. }) {
            self.loses_word = false;
            return;
        }
        let (mut eager, mut handle) = (None, None);
        if let Some(key) = payload {
            match self.payloads.get(&key) {
                Some((payload, envelope)) if envelope.length_bytes < LARGE_BYTES => eager = Some(*payload),
                Some(_) => handle = Some(key),
                None => _ = self.failure.get_or_insert(Broken::SentLate(key)),
            }
        }
        self.put(to, Packet::Frame { frame, eager, handle });
    }

    fn arrived(&mut self, message: MessageId, envelope: Envelope, from: ReplicaId, is_agreed: bool) {
        let token = self.incoming.len();
        let incoming = Incoming {
            message,
            envelope,
            payload: None,
            supplier: from,
            announced: None,
            matched: false,
            verified: false,
        };
        self.incoming.push(incoming);
        if self.by_message.insert(message, token).is_some() {
            self.failure.get_or_insert(Broken::Arrived(message));
        }
        self.replica.set_place(message, token as u32);
        if is_agreed {
            self.agreed(token);
        }
    }

    /// The number of a message, which the machine must return as it was set.
    fn token(&mut self, message: MessageId, place: u32) -> usize {
        let token = self.by_message[&message];
        if token != place as usize {
            self.failure.get_or_insert(Broken::Misnumbered { message, place, token });
        }
        token
    }

    /// Gives a message to matching, because its envelope is agreed.
    fn agreed(&mut self, token: usize) {
        let Incoming { message, envelope: Envelope { source, tag, .. }, .. } = self.incoming[token];
        let queues = self.queues.get_mut(&message.context).expect("all contexts exist");
        if let Arrived::Matched { receive, decided } = queues.arrive(source, tag, token) {
            self.pair(message.context, receive, Taken { message: token, source, tag, decided });
        }
    }

    /// Takes the payload of an offer, or pulls it when it is needed.
    fn payload_offered(
        &mut self,
        message: MessageId,
        envelope: Envelope,
        (from, eager, handle): (ReplicaId, Option<u64>, Option<PayloadKey>),
        shadow: bool,
    ) {
        let incoming = &mut self.incoming[self.by_message[&message]];
        match (eager, handle) {
            (Some(payload), _) => {
                let digest = digest(envelope.tag, envelope.length_bytes, payload);
                if shadow {
                    self.replica.shadow_received(from, message, digest);
                } else {
                    incoming.payload = Some(payload);
                    self.replica.payload_received(from, message, digest);
                }
            }
            (None, Some(handle)) if shadow || incoming.matched => {
                self.put(from, Packet::Pull { message, handle, shadow });
            }
            (None, handle) => {
                incoming.announced = handle;
                self.replica.payload_awaits_match(message);
            }
        }
    }
}
