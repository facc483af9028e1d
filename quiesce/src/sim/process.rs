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

/// What travels between processes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Packet {
    /// A frame; an eager offer brings its payload, an announced one the handle to pull it by.
    Frame {
        /// The frame.
        frame: Frame,
        /// The payload of an eager offer.
        eager: Option<u64>,
        /// The handle of an announced offer.
        handle: Option<PayloadKey>,
    },
    /// Asks for an announced payload.
    Pull {
        /// Which message it is, for the answer.
        message: MessageId,
        /// The handle.
        handle: PayloadKey,
        /// Whether it is for a further copy.
        shadow: bool,
    },
    /// The answer, which may overtake everything.
    Data {
        /// Which message it is.
        message: MessageId,
        /// What it was sent with.
        envelope: Envelope,
        /// The payload.
        payload: u64,
        /// Whether it is for a further copy.
        shadow: bool,
    },
}

/// What the coordinator tells a process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Control {
    /// A new view.
    View(View),
    /// Copies are to join in the places `awaited`, or have and are not in step yet, and stand ready to be arbiters in
    /// `ready`.
    Pins {
        /// The former.
        awaited: Vec<ReplicaId>,
        /// The latter.
        ready: Vec<ReplicaId>,
    },
}

#[cfg(test)]
impl Control {
    /// Copies are to join in these places, and none stands ready.
    pub(super) fn pins(awaited: Vec<ReplicaId>) -> Self {
        Self::Pins { awaited, ready: Vec::new() }
    }
}

/// A message that has arrived.
#[derive(Clone, Hash, Debug)]
pub struct Incoming {
    pub(super) message: MessageId,
    pub(super) envelope: Envelope,
    pub(super) payload: Option<u64>,
    supplier: ReplicaId,
    /// The handle of a payload that has not been asked for, because no receive matched.
    announced: Option<PayloadKey>,
    matched: bool,
    pub(super) verified: bool,
}

/// A receive.
#[derive(Clone, Copy, Hash, Debug, Default)]
pub struct Request {
    pub(super) incoming: Option<usize>,
}

/// One process.
#[derive(Clone, Hash, Debug)]
pub struct Process {
    pub(super) replica: Replica,
    pub(super) app: App,
    queues: BTreeMap<ContextId, MatchQueues<usize, usize>>,
    pub(super) incoming: Vec<Incoming>,
    by_message: HashableMap<MessageId, usize>,
    pub(super) requests: Vec<Request>,
    payloads: HashableMap<PayloadKey, (u64, Envelope)>,
    /// Those of large sends that are complete, though somebody may ask for them.
    detached: HashableMap<PayloadKey, ()>,
    next_payload: u64,
    /// Large sends that are not complete.
    pub(super) sends_open: usize,
    /// What is on its way to this process from the coordinator.
    pub(super) controls: VecDeque<Control>,
    pub(super) alive: bool,
    /// Out of the view, but does not know it and runs on.
    pub(super) fenced: bool,
    pub(super) reports: Vec<MismatchReport>,
    /// What it has said of paths since the coordinator looked.
    pub(super) partings: Vec<PathReport>,
    /// How often the connection with each other process has begun anew, as far as this one knows.
    epochs: BTreeMap<ReplicaId, u32>,
    /// Packets to be put on the wire, with the epoch of the connection.
    pub(super) outgoing: Vec<(ReplicaId, u32, Packet)>,
    /// The first thing that went wrong.
    pub(super) failure: Option<Broken>,
    /// The messages this process has sent: context, destination, payload.
    pub(super) sent: Vec<(VirtualRank, ContextId, u64, u64)>,
    /// The send whose payload is to be corrupted in memory, by its number.
    pub(super) corrupt_send: Option<usize>,
    /// The message that was: on the channel to `sender`.
    pub(super) corrupted: Option<MessageId>,
    /// The send whose payload is to be corrupted where it is kept, by its number, and the message that was.
    pub(super) corrupt_log: Option<usize>,
    pub(super) log_corrupted: Option<MessageId>,
    /// Whether what is to corrupt it is in its memory already, and so in a copy.
    pub(super) is_latent: bool,
    /// What is to be corrupted at rest, and after which number of sends.
    pub(super) corrupt_at_rest: Option<(Part, usize)>,
    /// Whether it was, here or in whom this is a copy of.
    pub(super) is_tainted: bool,
    /// At which call its program leaves the path of its siblings, and how.
    pub(super) leaves_path: Option<(u64, Departure)>,
    /// The next word on a message that it has for anybody is lost.
    pub(super) loses_word: bool,
    /// What a clock outside shows: another number in each process.
    pub(super) clock: u64,
    /// Whether its runtime reads clocks at moments of its own.
    pub(super) collects: bool,
    /// After how many calls it has generated code of the program.
    pub(super) generates_after: u64,
    /// How often that was alone.
    pub(super) alone_count: u64,
    /// What it has changed outside since the world looked: positions in its rank's file, and what is there.
    pub(super) changes: Vec<(u64, u64)>,
    /// Its program can go on only when copies that stand ready are dropped.
    pub(super) is_hindered: bool,
    /// Whether something has changed since its program blocked.
    pub(super) runnable: bool,
}

/// What a message is, whatever its length: the simulator's digest.
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

    /// Whether a message has arrived from anybody.
    pub(super) fn knows(&self, message: MessageId) -> bool {
        self.by_message.contains_key(&message)
    }

    /// Whether the payload of a message is to come from this replica.
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

    /// The connection begins anew.
    pub(super) fn begin_epoch(&mut self, peer: ReplicaId, epoch: u32) {
        self.epochs.insert(peer, epoch);
        self.replica.reset(peer);
        self.drain();
    }

    /// Another process has taken a place, to which there is no connection yet.
    pub(super) fn forget_epoch(&mut self, place: ReplicaId) {
        self.epochs.remove(&place);
    }

    fn put(&mut self, to: ReplicaId, packet: Packet) {
        self.outgoing.push((to, self.epoch(to), packet));
    }

    /// A packet of a connection that is over is dropped; one of a new connection is the first that is heard of it.
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
                let arrival = self.note(arrival).unwrap_or(Arrival::Nothing);
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
        self.note(applied);
        self.note_passed();
    }

    /// No replica of the simulator sends what is refused.
    fn note<T>(&mut self, handled: Result<T, ProtocolError>) -> Option<T> {
        let by = self.me();
        match handled {
            Ok(value) => Some(value),
            Err(error) => {
                self.failure.get_or_insert(Broken::Refused { by, error });
                None
            }
        }
    }

    /// Whether this is a copy that no view has yet.
    pub(super) fn is_new(&self) -> bool {
        self.replica.is_joining()
    }

    pub(super) fn set_pins(&mut self, awaited: &[ReplicaId], ready: &[ReplicaId]) {
        self.replica.set_pins(awaited, ready);
        self.drain();
    }

    /// A copy of this process for another place of its sphere.
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

    pub(super) fn note_hindrance(&mut self, index: u64, question: Question) {
        self.is_hindered |= self.replica.is_hindered(DecisionKey { stream: StreamId::Thread(0), index }, question);
    }

    pub(super) fn lookup(&mut self, index: u64, question: Question) -> Lookup {
        let found = self.replica.lookup(DecisionKey { stream: StreamId::Thread(0), index }, question);
        self.drain();
        found
    }

    /// Whether a majority asks for the change that this process is to make.
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

    /// A receive has taken a message: its payload is pulled now, and a choice that was made is put on record.
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

    /// Puts out what goes at once of a message that is sent.
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

    /// Does what the machine wants done with an offer. `brought` is who has sent it, and what came with it.
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

    /// Does what the machine asks for.
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

    /// The number of a message that the machine speaks of, which it has been told.
    fn token(&mut self, message: MessageId, place: u32) -> usize {
        let token = self.by_message[&message];
        if token != place as usize {
            self.failure.get_or_insert(Broken::Misnumbered { message, place, token });
        }
        token
    }

    /// The envelope of a message is agreed: matching gets it.
    fn agreed(&mut self, token: usize) {
        let Incoming { message, envelope: Envelope { source, tag, .. }, .. } = self.incoming[token];
        let queues = self.queues.get_mut(&message.context).expect("all contexts exist");
        if let Arrived::Matched { receive, decided } = queues.arrive(source, tag, token) {
            self.pair(message.context, receive, Taken { message: token, source, tag, decided });
        }
    }

    /// Takes the payload of the offer in hand, or asks for it when it is needed.
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
