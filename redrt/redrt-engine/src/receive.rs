//! Receiving: takes in frames, matches them, and puts payloads into place.

use super::message::{Data, Message};
use super::outgoing::OutgoingId;
use super::payload::{Scatter, Target};
use super::refusal::Fault;
use super::request::{Operation, RequestId, Status};
use super::{Engine, contact};
use quiesce::matching::{Arrived, Pattern, Posted};
use redrt_transport::frame::{FLAG_DIGEST, Fragment, FrameError, Grant, Header, Kind, Rendezvous};
use redrt_transport::network::{Incoming, Received, Source};
use redrt_transport::shm::Inbox;
use redrt_transport::{Body, LandingId};
use redrt_types::{ProcessIndex, Tag, World};

/// Longest message to oneself that is copied instead of waiting in the application's buffer.
pub const COPY_BYTES_MAX: usize = 64 << 10;

/// Frames taken from one ring before the others have their turn.
const FRAMES_IN_A_ROW: u32 = 16;

/// `MPI_ERR_TRUNCATE` of the standard ABI.
pub const ERR_TRUNCATE: i32 = 15;

impl Engine {
    /// Drops contexts that freed communicators left behind, if there are many.
    pub fn sweep_contexts(&mut self) {
        if !self.contexts.is_due() {
            return;
        }
        let receives = self.requests.iter().filter_map(|request| match request.operation {
            Operation::Receive { context, .. } => Some(context),
            _ => None,
        });
        let messages = self.messages.iter().map(|(_, message)| message.context);
        let used = messages.chain(receives).collect();
        self.contexts.sweep(&used, self.replication.is_some());
        if let Some(replication) = &mut self.replication {
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

    /// Takes over a link that another process has opened.
    pub(super) fn add_receiver(&mut self, mut receiver: Incoming) {
        if receiver.name.job != self.links.job() {
            // It proved knowledge of the secret of this job's links, so this job has given it away.
            return match self.meet_stranger(receiver.name.job, receiver.name.from) {
                Some(process) => {
                    receiver.name.from = process;
                    self.admit(receiver);
                }
                None => self.refuse(None, &Fault::Stranger(receiver.name.from.0)),
            };
        }
        let ProcessIndex(number) = receiver.name.from;
        if number >= self.world.process_count() || receiver.name.from == self.world.process(self.me) {
            return self.refuse(None, &Fault::Stranger(number));
        }
        self.admit(receiver);
    }

    pub(super) fn receive_from_networks(&mut self, enough: u64) -> bool {
        let mut progressed = false;
        for _ in 0..self.links.receivers().len() {
            let Some(at) = self.links.next_receiver() else { break };
            for _ in 0..16 {
                let receiver = &mut self.links.receivers()[at];
                let from = receiver.name.from;
                // A link is closed only here, when the frame in its buffer is no longer used.
                let fault = match receiver.next(&mut self.landings) {
                    Received::Frame(header, Kind::Moved, ..) if header.flags == 0 => {
                        if !self.links.moved(at) {
                            self.refuse(Some(from), &Fault::Misplaced(Kind::Moved));
                        }
                        return true;
                    }
                    Received::Frame(header, kind, digest, body) => {
                        self.handle_frame(from, kind, &header, digest, body).err()
                    }
                    Received::Landed(landing, count) => {
                        self.landed(landing, count);
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
        kind: Kind,
        header: &Header,
        digest: u128,
        body: Body,
    ) -> Result<(), Fault> {
        let is_message = matches!(kind, Kind::Eager | Kind::Offer);
        let flags = if self.is_replicated() && (is_message || matches!(kind, Kind::Digest | Kind::Protocol)) {
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
        if self.is_replicated() && !matches!(kind, Kind::Grant | Kind::Data | Kind::Done) {
            return self.handle_replicated(from, kind, header, digest, body.bytes());
        }
        let is_none = FrameError::Body { kind, length: header.body_bytes() as u32 };
        match kind {
            Kind::Eager => self.arrive_eager(header, body.bytes()),
            Kind::Offer => {
                let rendezvous = Rendezvous::from_bytes(body.bytes()).ok_or(is_none)?;
                self.arrive_offer(from, header, rendezvous);
            }
            Kind::Grant => {
                let grant = Grant::from_bytes(body.bytes()).ok_or(is_none)?;
                self.granted(from, grant)?;
            }
            Kind::Data => {
                let fragment = Fragment::from_bytes(body.bytes()).ok_or(is_none)?;
                let bytes = body.skip(Fragment::BYTES);
                self.landings.write(from, LandingId(fragment.landing), fragment.offset, bytes.bytes())?;
                self.landed(LandingId(fragment.landing), bytes.bytes().len());
            }
            Kind::Done => {
                self.payload_read(from, OutgoingId(u64::from(header.sequence) | u64::from(header.source) << 32))?;
            }
            // These belong to the replication protocol, which this job does not use, or to the connection itself.
            Kind::Digest | Kind::Ack | Kind::AckOne | Kind::Protocol | Kind::Whereabouts | Kind::Moved => {
                return Err(Fault::Misplaced(kind));
            }
        }
        Ok(())
    }

    #[inline]
    fn arrive_eager(&mut self, header: &Header, bytes: &[u8]) {
        let context = self.contexts.index(header.context);
        let key = self.messages.vacant_key();
        match self.contexts.get(context).queues.arrive(header.source, Tag(header.tag), key) {
            Arrived::Matched { receive, decided } => {
                self.record_match(context, decided, header.source);
                let placed = self.copy_to(receive, bytes);
                self.complete_receive(receive, placed, header.source, header.tag, bytes.len() as u64);
            }
            Arrived::Queued => {
                let message = Message::new(context, header.source, header.tag, bytes.len() as u64);
                self.messages.insert(Message { data: Data::Bytes(bytes.into()), ..message });
                self.note_queued();
            }
        }
    }

    fn arrive_offer(&mut self, from: ProcessIndex, header: &Header, rendezvous: Rendezvous) {
        let context = self.contexts.index(header.context);
        let key = self.messages.vacant_key();
        let mut message = Message::new(context, header.source, header.tag, rendezvous.length);
        message.data = Data::Remote(from, rendezvous);
        match self.contexts.get(context).queues.arrive(header.source, Tag(header.tag), key) {
            Arrived::Matched { receive, decided } => {
                self.record_match(context, decided, header.source);
                message.receive = Some(receive);
                let key = self.messages.insert(message);
                self.pull(key);
            }
            Arrived::Queued => {
                self.messages.insert(message);
                self.note_queued();
            }
        }
    }

    /// Takes note of an unmatched message: a thread that does not poll may wait for it in a probe.
    #[inline]
    pub(super) fn note_queued(&mut self) {
        if self.waiters.any() {
            self.requests.completions += 1;
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
        let context = self.contexts.index(context);
        let request = self.requests.insert(Operation::Receive { target, context });
        let pattern = Pattern { source, tag: tag.map(Tag) };
        if source.is_none() {
            self.prepare_wildcard(context, tag);
        }
        match self.contexts.get(context).queues.post(pattern, request) {
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
        let context = self.messages[message].context;
        let request = self.requests.insert(Operation::Receive { target, context });
        self.deliver(message, request);
        request
    }

    /// The oldest message that a receive with this pattern would take: source, tag, length in bytes, number. `None`
    /// without one.
    pub fn probe(&mut self, context: u64, source: Option<u32>, tag: Option<i32>) -> Option<(u32, i32, u64, usize)> {
        let context = self.contexts.index(context);
        let (source, tag, key) = self.contexts.get(context).queues.probe(Pattern { source, tag: tag.map(Tag) })?;
        Some((source, tag.0, self.messages[key].length, key))
    }

    /// Takes that message from the queue (`MPI_Mprobe`).
    pub fn take(&mut self, context: u64, source: Option<u32>, tag: Option<i32>) -> Option<(u32, i32, u64, usize)> {
        let context = self.contexts.index(context);
        let taken = self.contexts.get(context).queues.take(Pattern { source, tag: tag.map(Tag) })?;
        Some((taken.source, taken.tag.0, self.messages[taken.message].length, taken.message))
    }

    /// Takes a posted receive back. Returns false if it has been matched.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        let request = self.requests.get(id);
        let Operation::Receive { context, .. } = request.operation else { return false };
        if request.complete {
            return false;
        }
        let mut freed = Vec::new();
        let queues = &mut self.contexts.get(context).queues;
        let undecided = queues.undecided_index(id);
        if !queues.cancel(id, &mut freed) {
            return false;
        }
        self.withdraw_wildcard(context, undecided);
        self.requests.complete(id, Status { cancelled: true, ..Status::EMPTY });
        self.deliver_all(freed);
        true
    }

    /// Keeps a posted receive from being matched. Returns false if it has been matched already.
    pub(super) fn freeze(&mut self, id: RequestId) -> bool {
        let request = self.requests.get(id);
        let Operation::Receive { context, .. } = request.operation else { return false };
        !request.complete && self.contexts.get(context).queues.freeze(id)
    }

    /// Lets a frozen receive be matched again.
    pub(super) fn thaw(&mut self, id: RequestId) {
        let Operation::Receive { context, .. } = self.requests.get(id).operation else { return };
        let mut matched = Vec::new();
        self.contexts.get(context).queues.thaw(id, &mut matched);
        self.deliver_all(matched);
    }

    /// Joins a message and its receive.
    pub(super) fn deliver(&mut self, key: usize, receive: RequestId) {
        let message = &mut self.messages[key];
        message.receive = Some(receive);
        match std::mem::replace(&mut message.data, Data::Placed) {
            remote @ Data::Remote(..) => {
                message.data = remote;
                self.pull(key);
            }
            Data::Local(outgoing) => {
                let message = self.messages.remove(key);
                // No thread that waits for the send gets its buffer back before the engine's lock is released.
                let payload = self.outgoing_gone(outgoing).expect("its message waits here");
                self.place(receive, payload.bytes(), &message);
            }
            Data::Bytes(bytes) if message.id.is_some() => {
                let verified = message.verified;
                self.copy_to(receive, &bytes);
                if verified {
                    self.finish_verified(key);
                }
            }
            Data::Bytes(bytes) => {
                let message = self.messages.remove(key);
                self.place(receive, &bytes, &message);
            }
            Data::Awaited => message.data = Data::Awaited,
            Data::Landing(_) | Data::Placed => unreachable!("a payload is placed only after its message was matched"),
        }
    }

    /// Copies as much of a payload as fits into the receive's buffer. Returns the number of bytes copied.
    pub(super) fn copy_to(&mut self, receive: RequestId, bytes: &[u8]) -> u64 {
        let Operation::Receive { target, .. } = &self.requests.get(receive).operation else {
            unreachable!("only receives are matched")
        };
        // SAFETY: - the application lent the buffer until the receive completes, and it has not.
        unsafe { target.place(bytes) }
    }

    /// Bound on the packed bytes that the receive takes.
    pub(super) fn capacity_of(&mut self, receive: RequestId) -> u64 {
        match &self.requests.get(receive).operation {
            Operation::Receive { target, .. } => target.capacity,
            _ => unreachable!("only receives are matched"),
        }
    }

    /// Puts a payload into the receive's buffer and completes it.
    pub(super) fn place(&mut self, receive: RequestId, bytes: &[u8], message: &Message) {
        let placed = self.copy_to(receive, bytes);
        self.complete_receive(receive, placed, message.source, message.tag, message.length);
    }

    /// Completes a receive whose first `placed` bytes are in its buffer.
    #[inline]
    pub(super) fn complete_receive(&mut self, receive: RequestId, placed: u64, source: u32, tag: i32, length: u64) {
        let error = if placed < length { ERR_TRUNCATE } else { 0 };
        let status = Status { source: source as i32, tag, error, bytes: placed, cancelled: false };
        self.requests.complete(receive, status);
    }
}
