//! Between the protocol of replicas and the engine's other parts: outputs of the protocol are carried out, frames and
//! views are handed to it.

use super::frames::{acknowledgement, core_of, digest_header, offer_header, sequence_of};
use super::incoming::{Offered, Whole};
use super::sphere::{Act, Sphere};
use crate::Engine;
use crate::arrivals::Matches;
use crate::cloning::Joining;
use crate::evidence::{self, Examined};
use crate::message::{Data, Message};
use crate::outgoing::OutgoingId;
use crate::refusal::Fault;
use crate::verdict::Verdict;
use quiesce::matching::{Arrived, Match, Order};
use quiesce::{Arrival, Frame, MessageId, MismatchReport, Output, PayloadKey, StreamId};
use redrt_transport::frame::{FrameKind, Header, Rendezvous};
use redrt_types::{ContextId, Digest, Envelope, ProcessIndex, ReplicaId, Tag, View};
use redrt_wire::control::FromAgent;
use redrt_wire::event::Event;
use sdc_detect::Element;
use tracing::{debug, warn};

impl Engine {
    /// Has the replicas of this rank agree, and carries out what follows. In a world that is replicated only.
    #[inline]
    pub fn agree<T>(&mut self, act: impl FnOnce(&mut Sphere<'_>) -> T) -> T {
        let program = self.runtime;
        let value = act(&mut self.replication().sphere(program));
        self.carry_out_agreed();
        value
    }

    /// Carries out what a [`Sphere`] has asked for.
    #[inline]
    pub(crate) fn carry_out_agreed(&mut self) {
        if !self.replication().outcomes.acts.is_empty() {
            self.do_acts();
        }
        self.carry_out();
    }

    /// Does the acts that a [`Sphere`] has asked for, and carries out the machine's outputs between the reports and the
    /// rest.
    #[cold]
    fn do_acts(&mut self) {
        let acts = std::mem::take(&mut self.replication().outcomes.acts);
        let (reports, others): (Vec<_>, Vec<_>) =
            acts.into_iter().partition(|act| matches!(act, Act::Send(_) | Act::Abort(_)));
        reports.into_iter().for_each(|act| self.do_one(act));
        self.carry_out();
        others.into_iter().for_each(|act| self.do_one(act));
    }

    fn do_one(&mut self, act: Act) {
        match act {
            Act::Send(message) => self.runtime.report(message),
            Act::Abort(why) => self.runtime.abort(1, why),
            Act::Ask(sibling, thread) => {
                self.links.send(self.world.process(sibling), Header::new(FrameKind::Whereabouts, thread), None, &[]);
            }
            Act::Answer(sibling, thread, whereabouts) => {
                let header = Header::new(FrameKind::Whereabouts, thread);
                self.links.send(self.world.process(sibling), header, None, &whereabouts.to_bytes());
            }
            Act::Alarm(at_ns) => crate::cell().set_alarm(self, at_ns),
            Act::Stir => self.requests.completions += 1,
        }
    }

    fn transmit(&mut self, to: ReplicaId, frame: Frame, payload: Option<PayloadKey>) {
        let process = self.world.process(to);
        match frame {
            Frame::Offer { context, sequence, envelope, digest, .. } => {
                let id = OutgoingId(payload.expect("an offer has a payload").0);
                let header = offer_header(context, sequence, envelope, evidence::core());
                self.outgoing.transmit_offer(&mut self.links, process, header, digest, id);
            }
            Frame::Digest { context, sequence, digest, .. } => {
                let header = digest_header(context, sequence, evidence::core());
                self.links.send(process, header, Some(digest.0), &[]);
            }
            Frame::Ack { context, upto } => {
                self.links.send(process, acknowledgement(FrameKind::Ack, context, upto), None, &[]);
            }
            Frame::AckOne { context, sequence } => {
                self.links.send(process, acknowledgement(FrameKind::AckOne, context, sequence), None, &[]);
            }
            other => {
                let injection = self.outgoing.injection().filter(|_| matches!(other, Frame::Decisions { .. }));
                let inject = |length| injection.and_then(|injection| injection.decision_bit(length));
                let Some(replication) = &self.replication else { return };
                if let Err(length) = replication.parts.send(&mut self.links, process, &other, inject) {
                    let (me, to) = (self.me, process.0);
                    self.runtime.abort(1, format!("replica {me} has {length} bytes to tell {to} at once: too many"));
                }
            }
        }
    }

    /// Carries out the machine's outputs.
    pub(crate) fn carry_out(&mut self) {
        while let Some(output) = self.replication().replica.poll_output() {
            self.act(output);
        }
    }

    fn act(&mut self, output: Output) {
        match output {
            Output::Transmit { to, frame, payload } => self.transmit(to, frame, payload),
            Output::Verified { message: id, place } => {
                let Some(key) = self.arrivals.record_at(place, id) else { return };
                let message = self.arrivals.message(key);
                message.verified = true;
                if message.receive.is_some() {
                    self.finish_verified(key);
                }
            }
            Output::Agreed { message, place } => self.agreed(message, place),
            Output::Release { payload } => {
                let id = OutgoingId(payload.0);
                self.outgoing.release(&mut self.links, &mut self.requests, id);
            }
            Output::Detach { payload } => {
                self.outgoing.give_back(&mut self.links, &mut self.requests, OutgoingId(payload.0));
            }
            Output::Parted(report) => {
                let program = self.runtime;
                self.replication().sphere(program).report_path(&report);
                let acts = std::mem::take(&mut self.replication().outcomes.acts);
                acts.into_iter().for_each(|act| self.do_one(act));
            }
            Output::Mismatch(report) => self.mismatch_found(&report),
            Output::WildcardDecided { context, index, source } => {
                let matched = self.arrivals.decide(context, index, source);
                self.deliver_all(matched);
            }
            Output::Decided { key } => {
                self.signals.handle_decision(key.stream);
                self.requests.completions += 1;
                if let StreamId::Readings(thread) = key.stream {
                    let program = self.runtime;
                    self.replication().sphere(program).pass_times(thread);
                }
            }
            Output::BecameLeader => {
                let matched = self.arrivals.set_order(Order::Deciding);
                self.deliver_all(matched);
                self.requests.completions += 1;
            }
        }
    }

    pub(crate) fn deliver_all(&mut self, mut matched: Matches) {
        for Match { receive, taken, .. } in matched.drain(..) {
            let context = self.arrivals.message(taken.message).context;
            self.record_match(context, taken.decided, taken.source);
            self.deliver(taken.message, receive);
        }
        self.arrivals.recycle(matched);
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
                replication.parts.forget(process);
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
        self.agree(|sphere| sphere.record_passed());
        if let Some(replication) = &self.replication
            && self.joining.advance(replication.is_in_step())
        {
            self.runtime.report(FromAgent::InStep);
        }
        self.requests.completions += 1;
        if has_lost && self.waiters.are_served() {
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
            replication.outcomes.idle_polls = 0;
            self.carry_out();
        }
    }
}

impl Engine {
    /// Handles a frame of the replication protocol.
    pub(crate) fn handle_replicated(
        &mut self,
        from: ProcessIndex,
        kind: FrameKind,
        header: &Header,
        digest: u128,
        body: &[u8],
    ) -> Result<(), Fault> {
        let replica = self.world.replica(from);
        let (context, sequence) = (ContextId(header.context), sequence_of(header));
        match kind {
            FrameKind::Eager => self.handle_offer(from, header, digest, Offered::Eager(body)),
            FrameKind::Offer => {
                let rendezvous = Rendezvous::from_bytes(body).ok_or(Fault::Undecodable)?;
                self.handle_offer(from, header, digest, Offered::Remote(rendezvous))
            }
            FrameKind::Digest => {
                let core = core_of(header);
                self.follow(replica, Frame::Digest { context, sequence, digest: Digest(digest), core })
            }
            FrameKind::Ack => self.follow(replica, Frame::Ack { context, upto: sequence }),
            FrameKind::AckOne => self.follow(replica, Frame::AckOne { context, sequence }),
            FrameKind::Protocol => match self.replication().parts.collect(from, header, digest, body)? {
                Some(frame) => {
                    let heeded = self.follow(replica, frame);
                    self.agree(|sphere| {
                        sphere.answer_siblings();
                        sphere.sibling_spoke();
                    });
                    heeded
                }
                None => Ok(()),
            },
            FrameKind::Whereabouts => self.agree(|sphere| sphere.handle_whereabouts(replica, header.context, body)),
            FrameKind::Moved => Err(Fault::Misplaced(kind)),
            FrameKind::ClearToSend | FrameKind::Data | FrameKind::Done => unreachable!("these are the engine's own"),
        }
    }

    /// Hands the machine a frame that is no offer. Inlined, so that short frames are not built in memory.
    #[inline(always)]
    fn follow(&mut self, from: ReplicaId, frame: Frame) -> Result<(), Fault> {
        let handled = self.replication().replica.handle(from, frame);
        self.carry_out();
        handled?;
        Ok(())
    }

    fn handle_offer(
        &mut self,
        from: ProcessIndex,
        header: &Header,
        digest: u128,
        offered: Offered,
    ) -> Result<(), Fault> {
        let length_bytes = match offered {
            Offered::Eager(bytes) => bytes.len() as u64,
            Offered::Remote(rendezvous) => rendezvous.length,
        };
        let envelope = Envelope { source: header.source, tag: Tag(header.tag), length_bytes };
        let (context, sequence) = (ContextId(header.context), sequence_of(header));
        let (digest, core) = (Digest(digest), core_of(header));
        let replica = self.world.replica(from);
        let id = MessageId { sender: replica.rank, context, sequence };
        let frame = Frame::Offer { context, sequence, envelope, digest, core };
        match self.replication().replica.handle(replica, frame)? {
            Arrival::Nothing => {}
            Arrival::New { is_agreed } => {
                let element = Element::from_number(header.element);
                self.arrived(id, (envelope, element, is_agreed), from, offered);
            }
            Arrival::Again { place } => self.again(id, place, envelope, from, offered),
            Arrival::Shadow => self.shadow(id, envelope, from, offered),
        }
        self.carry_out();
        Ok(())
    }

    fn arrived(
        &mut self,
        id: MessageId,
        (envelope, element, is_agreed): (Envelope, Element, bool),
        from: ProcessIndex,
        offered: Offered,
    ) {
        let context = self.arrivals.index(id.context.0);
        let Envelope { source, tag, length_bytes } = envelope;
        let arrived = is_agreed.then(|| self.arrivals.arrive(context, source, tag));
        let (receive, decided) = match arrived {
            Some(Arrived::Matched { receive, decided }) => (Some(receive), decided),
            Some(Arrived::Queued) => {
                self.requests.record_queued(self.waiters.any());
                (None, None)
            }
            None => (None, None),
        };
        let data = offered.place(&mut self.requests, receive, from);
        let message = Message::new(context, source, tag.0, length_bytes);
        let key = self.arrivals.insert(Message { element, data, receive, id: Some(id), ..message });
        // The number fits: more messages would need more memory than there is.
        self.replication().replica.set_place(id, key as u32);
        self.record_match(context, decided, source);
        self.payload_offered(id, key, tag.0, from, offered);
        if !is_agreed && matches!(offered, Offered::Remote(_)) {
            self.replication().replica.payload_awaits_match(id);
        }
    }

    /// Hands a message to matching, once its envelope is agreed.
    pub(crate) fn agreed(&mut self, id: MessageId, place: u32) {
        let key = self.arrivals.record_at(place, id).expect("it cannot be delivered before");
        let Message { context, source, .. } = *self.arrivals.message(key);
        match self.arrivals.arrive_late(key) {
            Arrived::Matched { receive, decided } => {
                self.record_match(context, decided, source);
                self.deliver(key, receive);
            }
            Arrived::Queued => self.requests.record_queued(self.waiters.any()),
        }
    }

    /// Has the payload of a recorded message compared, or pulled if a receive wants it.
    fn payload_offered(&mut self, id: MessageId, key: usize, tag: i32, from: ProcessIndex, offered: Offered) {
        match offered {
            Offered::Eager(bytes) => self.payload_complete(id, key, &Whole { from, tag, bytes, hashed: None }),
            Offered::Remote(_) => {
                if self.arrivals.message(key).receive.is_some() {
                    self.pull(key);
                }
            }
        }
    }

    /// Has a payload that is complete in memory compared.
    pub(crate) fn payload_complete(&mut self, id: MessageId, key: usize, whole: &Whole) {
        let (from, computed) = (self.world.replica(whole.from), self.replication().digest_of(whole));
        let compared = self.arrivals.message(key).compare_with_suspect(from, Tag(whole.tag), whole.bytes);
        self.replication().replica.payload_received(from, id, computed);
        self.carry_out();
        let Some(compared) = compared else { return };
        let key = self.arrivals.record_of(id);
        match key.map(|key| self.arrivals.message(key)).filter(|message| !message.verified) {
            Some(message) => message.suspect = Some(compared.into_suspect()),
            None => {
                let evidence = Box::new(compared.into_evidence(self.me, id));
                self.runtime.report(FromAgent::Event(Event::Evidence(evidence)));
            }
        }
    }

    /// Reports a mismatch, and ends the job if the policy asks for that. Keeps the payload for a later comparison, or
    /// adds an excerpt of it to the report.
    pub(crate) fn mismatch_found(&mut self, report: &MismatchReport) {
        let (mut element, mut excerpt) = (Element::Unknown, None);
        let is_checked = self.traces().is_some();
        if let Some(message) = self.arrivals.record_of(report.message).map(|key| self.arrivals.message(key)) {
            element = message.element;
            match self.excerpts.examine(report, element, is_checked, || message.payload(&mut self.requests)) {
                Examined::Nothing => {}
                Examined::Excerpt(found) => excerpt = Some(found),
                Examined::Suspect(suspect) => {
                    // Several replicas may be reported for one payload; the first report keeps it.
                    message.suspect.get_or_insert(suspect);
                }
            }
        }
        let communicator = self.runtime.label_of_context(report.message.context.0);
        let aborts_on_sdc = self.replication().aborts_on_sdc();
        let verdict = Verdict { report, receiver: self.me, communicator, element, excerpt, aborts_on_sdc };
        let (aborts, mismatch) = (verdict.aborts(), verdict.into_mismatch());
        let text = format!(
            "replicas of rank {} disagree on a message to rank {} (tag {}, number {})",
            mismatch.sender, mismatch.receiver.rank, mismatch.tag, mismatch.sequence.0
        );
        warn!(target: "engine", %text, finding = ?mismatch.finding, action = ?mismatch.action, "a mismatch");
        self.runtime.report(FromAgent::Event(Event::Mismatch(Box::new(mismatch))));
        if aborts {
            self.runtime.abort(1, text);
        }
    }

    /// Takes in that a message comes again, which was recorded.
    fn again(&mut self, id: MessageId, place: u32, envelope: Envelope, from: ProcessIndex, offered: Offered) {
        let key = self.arrivals.record_at(place, id).expect("it is not delivered");
        // The first offer's envelope may have been corrupt. A receive that was matched by it stays matched, but gets
        // the right status.
        let message = self.arrivals.message(key);
        (message.source, message.tag, message.length) = (envelope.source, envelope.tag.0, envelope.length_bytes);
        if let Some(pull) = self.arrivals.message(key).pull.take() {
            self.fetches.give_up(&pull);
        }
        let Message { context, receive, .. } = *self.arrivals.message(key);
        self.arrivals.message(key).data = offered.place(&mut self.requests, receive, from);
        // The message may be delivered by that.
        self.payload_offered(id, key, envelope.tag.0, from, offered);
        if receive.is_none() {
            let matched = self.arrivals.refile(context, key, envelope.source, envelope.tag);
            self.deliver_all(matched);
        }
    }

    fn shadow(&mut self, id: MessageId, envelope: Envelope, from: ProcessIndex, offered: Offered) {
        match offered {
            Offered::Eager(bytes) => {
                let (replica, tag) = (self.world.replica(from), envelope.tag.0);
                self.replication().compare_shadow(replica, id, &Whole { from, tag, bytes, hashed: None });
            }
            Offered::Remote(rendezvous) => {
                let mut message = Message::new(0, envelope.source, envelope.tag.0, envelope.length_bytes);
                message.id = Some(id);
                message.data = Data::Remote(from, rendezvous);
                message.is_shadow = true;
                let key = self.arrivals.insert(message);
                self.pull(key);
            }
        }
    }

    /// Completes a receive whose message is verified, with the payload in its buffer.
    pub(crate) fn finish_verified(&mut self, key: usize) {
        let message = self.arrivals.remove(key);
        let receive = message.receive.expect("it was matched");
        if let (Some(injection), Some(replication)) = (self.outgoing.injection(), &self.replication) {
            // It is hashed anew, whatever digest was found before.
            let summand = replication.summand_of(&message, message.payload(&mut self.requests).as_deref());
            let target = self.requests.target(receive);
            injection.hit_received(target, message.length.min(target.capacity), summand);
        }
        let placed = message.length.min(self.requests.target(receive).capacity);
        self.requests.complete_receive(receive, placed, &message);
    }
}
