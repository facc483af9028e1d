//! Receiving: takes in frames, matches them, and puts payloads into place.

use super::arrivals::Cancelled;
use super::message::{Data, Message};
use super::outgoing::OutgoingId;
use super::payload::{Scatter, Target};
use super::refusal::Fault;
use super::rendezvous::{Fetched, Wanted, say_done};
use super::replication::incoming::Whole;
use super::request::{Operation, RequestId, Requests, Status};
use super::{Engine, contact};
use quiesce::matching::{Arrived, Pattern, Posted};
use redrt_transport::frame::{ClearToSend, FLAG_DIGEST, Fragment, FrameError, FrameKind, Header, Rendezvous};
use redrt_transport::network::{Received, Source};
use redrt_transport::shm::Inbox;
use redrt_transport::{Body, RendezvousBufferId};
use redrt_types::{Digest, ProcessIndex, Tag, World};

/// Longest message to oneself that is copied instead of waiting in the application's buffer.
pub const COPY_BYTES_MAX: usize = 64 << 10;

/// Frames taken from one ring before the others have their turn.
const FRAMES_IN_A_ROW: u32 = 16;

/// `MPI_ERR_TRUNCATE` of the standard ABI.
pub const ERR_TRUNCATE: i32 = 15;

impl Engine {
    /// Drops contexts that freed communicators left behind, if there are many.
    pub fn sweep_contexts(&mut self) {
        let receives = self.requests.iter().filter_map(|request| match request.operation {
            Operation::Receive { context, .. } => Some(context),
            _ => None,
        });
        if self.arrivals.sweep(receives, self.replication.is_some())
            && let Some(replication) = &mut self.replication
        {
            replication.shrink();
        }
    }

    /// Takes a few frames at most from one ring, until `enough` operations are complete. Returns false when no ring has
    /// any.
    pub(super) fn receive_from_rings(&mut self, enough: u64) -> bool {
        let Some(from) = self.links.inbox().and_then(Inbox::next_sender) else { return false };
        for _ in 0..FRAMES_IN_A_ROW {
            let consumer = self.links.inbox().expect("it did not go away").consumer(from);
            let (header, kind, start) = match consumer.front() {
                Ok(Some(front)) => front,
                Ok(None) => break,
                Err(error) => {
                    self.refuse(Some(from), &error.into());
                    break;
                }
            };
            let digest_bytes = header.digest_bytes();
            // SAFETY: - the record holds digest and body, and stays unchanged until it is consumed below.
            let whole = unsafe { Body::new(start, digest_bytes + header.body_bytes()) };
            let digest = if digest_bytes > 0 {
                u128::from_le_bytes(whole.bytes()[..16].try_into().expect("16 bytes"))
            } else {
                0
            };
            let handled = self.handle_frame(from, kind, &header, digest, whole.skip(digest_bytes));
            self.links.inbox().expect("it did not go away").consumer(from).consume();
            if let Err(fault) = handled {
                self.refuse(Some(from), &fault);
                break;
            }
            if self.requests.completions >= enough {
                // A waiter may be done.
                break;
            }
        }
        true
    }

    pub(super) fn receive_from_networks(&mut self, enough: u64) -> bool {
        let mut progressed = false;
        for _ in 0..self.links.receivers().len() {
            let Some(at) = self.links.next_receiver() else { break };
            for _ in 0..16 {
                let receiver = &mut self.links.receivers()[at];
                let from = receiver.name.from;
                // A link is closed only here, when the frame in its buffer is no longer used.
                let fault = match receiver.next(self.fetches.rendezvous_buffers()) {
                    Received::Frame(header, FrameKind::Moved, ..) if header.flags == 0 => {
                        if !self.links.moved(at) {
                            self.refuse(Some(from), &Fault::Misplaced(FrameKind::Moved));
                        }
                        return true;
                    }
                    Received::Frame(header, kind, digest, body) => {
                        self.handle_frame(from, kind, &header, digest, body).err()
                    }
                    Received::Landed(rendezvous_buffer, count) => {
                        self.landed(rendezvous_buffer, count);
                        None
                    }
                    Received::Nothing => break,
                    Received::Closed => {
                        let receiver = self.links.receivers().remove(at);
                        self.links.lost_receiver(&receiver);
                        return true;
                    }
                    Received::Rubbish(rubbish) => Some(rubbish.into()),
                };
                if let Some(fault) = fault {
                    self.refuse(Some(from), &fault);
                    return true;
                }
                progressed = true;
                if self.requests.completions >= enough && !self.links.receivers()[at].inlet().has_bytes() {
                    // A waiter may be done. A further look, at an empty socket, would take as long as a message.
                    return true;
                }
            }
        }
        progressed
    }

    fn handle_frame(
        &mut self,
        from: ProcessIndex,
        kind: FrameKind,
        header: &Header,
        digest: u128,
        body: Body,
    ) -> Result<(), Fault> {
        let is_message = matches!(kind, FrameKind::Eager | FrameKind::Offer);
        let flags = if self.is_replicated() && (is_message || matches!(kind, FrameKind::Digest | FrameKind::Protocol)) {
            FLAG_DIGEST
        } else {
            0
        };
        if header.flags != flags {
            return Err(FrameError::Flags { kind, flags: header.flags }.into());
        }
        // A communicator with members of other jobs may have more ranks, and its messages may come before this process
        // knows it.
        let rank_count = if contact::are_met() { World::RANK_COUNT_MAX } else { self.world.rank_count() };
        if is_message && header.source >= rank_count {
            return Err(Fault::Source { source_rank: header.source, rank_count });
        }
        if self.is_replicated() && !matches!(kind, FrameKind::ClearToSend | FrameKind::Data | FrameKind::Done) {
            return self.handle_replicated(from, kind, header, digest, body.bytes());
        }
        let is_none = FrameError::Body { kind, length: header.body_bytes() as u32 };
        match kind {
            FrameKind::Eager => self.arrive_eager(header, body.bytes()),
            FrameKind::Offer => {
                let rendezvous = Rendezvous::from_bytes(body.bytes()).ok_or(is_none)?;
                self.arrive_offer(from, header, rendezvous);
            }
            FrameKind::ClearToSend => {
                let clear_to_send = ClearToSend::from_bytes(body.bytes()).ok_or(is_none)?;
                // Its death may have ended the need for this payload, and nothing is kept for it.
                let is_dead = self.view().is_some_and(|view| !view.is_live(self.world.replica(from)));
                if !is_dead {
                    let is_replicated = self.is_replicated();
                    let rank = contact::rank_of(&self.world, is_replicated, from);
                    self.outgoing.granted(&mut self.links, (from, rank), clear_to_send, is_replicated)?;
                }
            }
            FrameKind::Data => {
                let fragment = Fragment::from_bytes(body.bytes()).ok_or(is_none)?;
                let bytes = body.skip(Fragment::BYTES);
                self.fetches.write(from, &fragment, bytes.bytes())?;
                self.landed(RendezvousBufferId(fragment.rendezvous_buffer), bytes.bytes().len());
            }
            FrameKind::Done if self.is_replicated() => return Err(Fault::Misplaced(kind)),
            FrameKind::Done => {
                let offer = OutgoingId(u64::from(header.sequence) | u64::from(header.source) << 32);
                let rank = contact::rank_of(&self.world, false, from);
                self.outgoing.payload_read(&mut self.requests, rank, offer)?;
            }
            // These belong to the replication protocol, which this job does not use, or to the connection itself.
            FrameKind::Digest
            | FrameKind::Ack
            | FrameKind::AckOne
            | FrameKind::Protocol
            | FrameKind::Whereabouts
            | FrameKind::Moved => {
                return Err(Fault::Misplaced(kind));
            }
        }
        Ok(())
    }

    #[inline]
    fn arrive_eager(&mut self, header: &Header, bytes: &[u8]) {
        let context = self.arrivals.index(header.context);
        match self.arrivals.arrive(context, header.source, Tag(header.tag)) {
            Arrived::Matched { receive, decided } => {
                if decided.is_some() {
                    self.record_match(context, decided, header.source);
                }
                let placed = self.requests.copy_to(receive, bytes);
                let length = bytes.len() as u64;
                self.requests.complete_received(receive, placed, header.source, header.tag, length);
            }
            Arrived::Queued => {
                let message = Message::new(context, header.source, header.tag, bytes.len() as u64);
                self.arrivals.insert(Message { data: Data::Bytes(bytes.into()), ..message });
                self.requests.record_queued(self.waiters.any());
            }
        }
    }

    fn arrive_offer(&mut self, from: ProcessIndex, header: &Header, rendezvous: Rendezvous) {
        let context = self.arrivals.index(header.context);
        let mut message = Message::new(context, header.source, header.tag, rendezvous.length);
        message.data = Data::Remote(from, rendezvous);
        match self.arrivals.arrive(context, header.source, Tag(header.tag)) {
            Arrived::Matched { receive, decided } => {
                self.record_match(context, decided, header.source);
                message.receive = Some(receive);
                let key = self.arrivals.insert(message);
                self.pull(key);
            }
            Arrived::Queued => {
                self.arrivals.insert(message);
                self.requests.record_queued(self.waiters.any());
            }
        }
    }

    /// Posts a receive. `source` and `tag` are `None` for the wildcards.
    #[inline(always)]
    pub fn post(&mut self, context: u64, source: Option<u32>, tag: Option<i32>, target: Target) -> RequestId {
        let Target { start, capacity, scatter } = target;
        self.post_parts(context, source, tag, start, capacity, scatter)
    }

    /// Posts a receive whose target comes in parts. Passed as a whole it would be written in small parts and read in
    /// large ones ([`super::payload`]).
    #[inline(never)]
    fn post_parts(
        &mut self,
        context: u64,
        source: Option<u32>,
        tag: Option<i32>,
        start: *mut u8,
        capacity: u64,
        scatter: Option<Box<dyn Scatter>>,
    ) -> RequestId {
        let target = Target { start, capacity, scatter };
        let context = self.arrivals.index(context);
        let request = self.requests.insert(Operation::Receive { target, context });
        let pattern = Pattern { source, tag: tag.map(Tag) };
        if source.is_none() {
            self.prepare_wildcard(context, tag);
        }
        match self.arrivals.post(context, pattern, request) {
            Posted::Queued => {}
            Posted::Matched(taken) => {
                self.record_match(context, taken.decided, taken.source);
                self.deliver(taken.message, request);
            }
        }
        request
    }

    /// Receives a message that a matched probe has taken from the queue (`MPI_Mrecv`).
    pub fn post_matched(&mut self, message: usize, target: Target) -> RequestId {
        let context = self.arrivals.message(message).context;
        let request = self.requests.insert(Operation::Receive { target, context });
        self.deliver(message, request);
        request
    }

    /// Takes a posted receive back. Returns false if it has been matched.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        let request = self.requests.get(id);
        let Operation::Receive { context, .. } = request.operation else { return false };
        if request.complete {
            return false;
        }
        let Some(Cancelled { undecided, matched }) = self.arrivals.cancel(context, id) else { return false };
        if let (Some(index), Some(replication)) = (undecided, &mut self.replication) {
            replication.withdraw_wildcard(self.arrivals.id_of(context), index);
        }
        self.requests.complete(id, Status { cancelled: true, ..Status::EMPTY });
        self.deliver_all(matched);
        true
    }

    /// Records the source of a wildcard receive that was matched here, as a decision for the followers.
    #[inline]
    pub(super) fn record_match(&mut self, context: u32, decided: Option<u64>, source: u32) {
        let (Some(index), true) = (decided, self.is_replicated()) else { return };
        let context = self.arrivals.id_of(context);
        self.agree(|sphere| sphere.decide_source(context, index, source));
    }

    /// Applies the source decided for a wildcard receive that is about to be posted, if there is one.
    fn prepare_wildcard(&mut self, context: u32, tag: Option<i32>) {
        if !self.is_replicated() {
            return;
        }
        let (id, index) = (self.arrivals.id_of(context), self.arrivals.wildcard_count(context));
        let source = self.agree(|sphere| sphere.post_wildcard(id, index, tag));
        if let Some(source) = source {
            self.arrivals.decide_next(context, index, source);
        }
    }

    /// Joins a message and its receive.
    pub(super) fn deliver(&mut self, key: usize, receive: RequestId) {
        let message = self.arrivals.message(key);
        message.receive = Some(receive);
        match std::mem::replace(&mut message.data, Data::Placed) {
            remote @ Data::Remote(..) => {
                message.data = remote;
                self.pull(key);
            }
            Data::Local(outgoing) => {
                let message = self.arrivals.remove(key);
                // No thread that waits for the send gets its buffer back before the engine's lock is released.
                let payload = self.outgoing.gone(&mut self.requests, outgoing).expect("its message waits here");
                self.requests.place(receive, payload.bytes(), &message);
            }
            Data::Bytes(bytes) if message.id.is_some() => {
                let verified = message.verified;
                self.requests.copy_to(receive, &bytes);
                if verified {
                    self.finish_verified(key);
                }
            }
            Data::Bytes(bytes) => {
                let message = self.arrivals.remove(key);
                self.requests.place(receive, &bytes, &message);
            }
            Data::Awaited => message.data = Data::Awaited,
            Data::RendezvousBuffer(_) | Data::Placed => {
                unreachable!("a payload is placed only after its message was matched")
            }
        }
    }

    /// Fetches the payload of a matched message, or of a shadow, from its sender.
    pub(super) fn pull(&mut self, key: usize) {
        let message = self.arrivals.message(key);
        let Data::Remote(from, rendezvous) = &message.data else { unreachable!("only remote payloads are pulled") };
        let (from, rendezvous, tag) = (*from, *rendezvous, message.tag);
        let mut buffer = None;
        if let Some(receive) = message.receive {
            let target = self.requests.target(receive);
            buffer = target.contiguous(rendezvous.length);
            // Not with replication: there the whole payload may be needed as evidence.
            if buffer.is_none()
                && self.replication.is_none()
                && let Some(placed) = self.fetches.spread(&self.links, from, &rendezvous, target)
            {
                say_done(&mut self.links, from, rendezvous.offer);
                let message = self.arrivals.remove(key);
                return self.requests.complete_receive(receive, placed, &message);
            }
        }
        let replication = self.replication.as_deref();
        let hashing = || Some(replication?.digest_stream(tag, rendezvous.length));
        let wanted = Wanted { key, from, rendezvous, buffer };
        match self.fetches.fetch(&mut self.links, &wanted, hashing) {
            Fetched::NoMemory => self.faults.push((from, Fault::Memory(rendezvous.length))),
            Fetched::Asked { staged, pull } => {
                self.arrivals.message(key).data = Data::RendezvousBuffer(staged);
                self.arrivals.message(key).pull = Some(Box::new(pull));
            }
            Fetched::Whole { staged, start, hashed } => {
                self.arrivals.message(key).data = Data::RendezvousBuffer(staged);
                if self.replication.is_none() {
                    say_done(&mut self.links, from, rendezvous.offer);
                }
                self.payload_in_place(key, from, start, hashed);
            }
        }
    }

    /// Takes in that bytes of a rendezvous buffer have arrived.
    fn landed(&mut self, rendezvous_buffer: RendezvousBufferId, count: usize) {
        if let Some(key) = self.fetches.advance(rendezvous_buffer, count) {
            let pull = self.arrivals.message(key).pull.take().expect("it has a rendezvous buffer");
            self.payload_in_place(key, pull.from, pull.start as *mut u8, None);
        }
    }

    /// Takes in that the whole payload of a message is at `start`, in the receive's buffer or staged. `hashed` is its
    /// digest, if known.
    fn payload_in_place(&mut self, key: usize, from: ProcessIndex, start: *mut u8, hashed: Option<Digest>) {
        let message = self.arrivals.message(key);
        let Some(id) = message.id else {
            let message = self.arrivals.remove(key);
            let receive = message.receive.expect("the message was matched");
            return match &message.data {
                Data::RendezvousBuffer(Some(bytes)) => self.requests.place(receive, bytes.bytes(), &message),
                _ => self.requests.complete_receive(receive, message.length, &message),
            };
        };
        let tag = message.tag;
        if message.is_shadow {
            let message = self.arrivals.remove(key);
            let Data::RendezvousBuffer(Some(bytes)) = &message.data else { unreachable!("a shadow is staged") };
            let (replica, whole) = (self.world.replica(from), Whole { from, tag, bytes: bytes.bytes(), hashed });
            self.replication().compare_shadow(replica, id, &whole);
            return self.carry_out();
        }
        let receive = message.receive.expect("the message was matched");
        match std::mem::replace(&mut message.data, Data::Placed) {
            Data::RendezvousBuffer(Some(bytes)) => {
                self.requests.copy_to(receive, bytes.bytes());
                self.payload_complete(id, key, &Whole { from, tag, bytes: bytes.bytes(), hashed });
            }
            _ => {
                let length = message.length as usize;
                // SAFETY: - the payload's bytes, just written to the receive's buffer, which is lent until it
                // completes.
                let bytes = if length == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(start, length) } };
                self.payload_complete(id, key, &Whole { from, tag, bytes, hashed });
            }
        }
        // The sender waits for the acknowledgement.
        self.flush();
    }
}

impl Requests {
    /// Takes note of an unmatched message: a thread that does not poll may wait for it in a probe.
    #[inline]
    pub(super) fn record_queued(&mut self, others_wait: bool) {
        if others_wait {
            self.completions += 1;
        }
    }

    /// Destination of a receive's payload.
    #[inline]
    pub(super) fn target(&mut self, receive: RequestId) -> &Target {
        match &self.get(receive).operation {
            Operation::Receive { target, .. } => target,
            _ => unreachable!("only receives are matched"),
        }
    }

    /// Copies as much of a payload as fits into the receive's buffer. Returns the number of bytes copied.
    #[inline(always)]
    pub(super) fn copy_to(&mut self, receive: RequestId, bytes: &[u8]) -> u64 {
        // SAFETY: - the application lent the buffer until the receive completes, and it has not.
        unsafe { self.target(receive).place(bytes) }
    }

    /// Puts a payload into the receive's buffer and completes it.
    pub(super) fn place(&mut self, receive: RequestId, bytes: &[u8], message: &Message) {
        let placed = self.copy_to(receive, bytes);
        self.complete_receive(receive, placed, message);
    }

    /// Completes the receive of a message, of which the first `placed` bytes are in the receive's buffer.
    pub(super) fn complete_receive(&mut self, receive: RequestId, placed: u64, message: &Message) {
        self.complete_received(receive, placed, message.source, message.tag, message.length);
    }

    /// Completes a receive whose first `placed` bytes are in its buffer.
    #[inline]
    pub(super) fn complete_received(&mut self, receive: RequestId, placed: u64, source: u32, tag: i32, length: u64) {
        let error = if placed < length { ERR_TRUNCATE } else { 0 };
        let status = Status { source: source as i32, tag, error, bytes: placed, cancelled: false };
        self.complete(receive, status);
    }
}
