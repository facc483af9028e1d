//! The sender's side: numbering, the retention log, output commit, and serving what receivers ask for.

use super::{Held, Replica};
use crate::channel::{Logged, Outbox};
use crate::error::Breach;
use crate::frame::{Frame, Outbound, Output, PayloadKey};
use crate::hashable_map::ChannelKey;
use crate::mutation::Mutation;
use crate::outcome::{Call, DecisionKey, Place, Question, StreamId};
use crate::view::Service;
use redrt_types::{ContextId, Digest, Envelope, ReplicaId, ReplicaIndex, ReplicaSet, SeqNum, VirtualRank, World};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Maximum number of messages about which siblings are asked at a time. Each sibling checks all claims with each frame.
const CLAIMS_AT_ONCE: usize = 64;

impl Replica {
    /// Sends a message to all replicas of a virtual rank. If that is this one's own rank, it also goes to this process.
    /// The engine keeps the payload until [`Output::Release`], since it may be asked for more than once, or never.
    /// `sent_at` is the thread's place in its program. The frames in the returned value go out first, then those of the
    /// outputs.
    pub fn send(
        &mut self,
        to: VirtualRank,
        context: ContextId,
        envelope: Envelope,
        digest: Digest,
        (payload, sent_at): (PayloadKey, Place),
    ) -> Outbound {
        self.decisions.announce(&mut self.outputs);
        let needed = self.decisions.count();
        let held = self.decisions.stable() < needed && !self.has(Mutation::OutputCommitSkipped);
        let (live, pinned) = (self.live(to), self.pinned[to.0 as usize]);
        let mut unacked = live.union(pinned);
        if self.has(Mutation::ReleasedEarly) {
            unacked = unacked.intersection(ReplicaSet::only(self.me.index));
        }
        self.counters.messages_sent += 1;
        self.counters.bytes_sent += envelope.length_bytes;
        self.counters.retained_bytes += envelope.length_bytes;
        self.counters.retained_bytes_max = self.counters.retained_bytes_max.max(self.counters.retained_bytes);
        let (channel, world) = ((to, context), &self.world);
        let outbox = self.outboxes.get_or_insert_with(channel, || Outbox::new(world.degree(to)));
        let logged = Logged { envelope, digest, sent_at, payload: Some(payload), unacked, held, is_detached: false };
        let sequence = outbox.next();
        let mut outbound = Outbound { sequence, offer_to: ReplicaSet::EMPTY, digest_to: ReplicaSet::EMPTY };
        if held {
            self.held.push_back(Held { needed, channel, sequence });
        } else {
            let services = &self.services[first_process(world, to)..];
            for index in outbox.wanting(sequence, live) {
                match services[usize::from(index.0)] {
                    Service::None => {}
                    Service::Digests => outbound.digest_to.insert(index),
                    Service::Payload => outbound.offer_to.insert(index),
                }
            }
            answer_fetches(outbox, channel, sequence, &logged, &mut self.outputs);
        }
        outbox.push(logged, pinned.without(live), &mut self.released);
        self.release();
        outbound
    }

    /// Transmits the sends whose decisions have become stable.
    pub(super) fn transmit_stable(&mut self) {
        while let Some(Held { needed, channel, sequence }) = self.held.front().copied()
            && needed <= self.decisions.stable()
        {
            self.held.pop_front();
            let live = self.live(channel.0);
            let first = first_process(&self.world, channel.0);
            let outbox = self.outboxes.get_mut(channel).expect("a held send has its channel");
            if let Some(logged) = outbox.get_mut(sequence) {
                logged.held = false;
                let logged = logged.clone();
                let services = &self.services[first..];
                transmit_to_all(services, outbox, channel, sequence, &logged, live, &mut self.outputs);
            }
        }
    }

    pub(super) fn handle_ack(&mut self, from: ReplicaId, context: ContextId, upto: SeqNum) {
        let (degree, awaited) = (self.world.degree(from.rank), self.awaited(from.rank));
        let outbox = self.outboxes.get_or_insert_with((from.rank, context), || Outbox::new(degree));
        outbox.acknowledge(from.index, upto, awaited, &mut self.released);
        self.release();
    }

    pub(super) fn handle_ack_one(&mut self, from: ReplicaId, context: ContextId, sequence: SeqNum) {
        let awaited = self.awaited(from.rank);
        if let Some(outbox) = self.outboxes.get_mut((from.rank, context)) {
            outbox.acknowledge_one(from.index, sequence, awaited, &mut self.released);
            self.release();
        }
    }

    /// Changes the service for a receiver, and repeats messages from the log as it asks.
    pub(super) fn handle_resume(&mut self, from: ReplicaId, service: Service, bookmarks: &[(ContextId, SeqNum)]) {
        let process = self.world.process(from).0 as usize;
        self.services[process] = service;
        let (degree, awaited) = (self.world.degree(from.rank), self.awaited(from.rank));
        for (context, _) in bookmarks {
            // It may know channels that this process has not used yet, if this process lags.
            self.outboxes.get_or_insert_with((from.rank, *context), || Outbox::new(degree));
        }
        let bookmarks: FxHashMap<_, _> = bookmarks.iter().copied().collect();
        for channel in self.outboxes.of(from.rank) {
            let bookmark = bookmarks.get(&channel.1).copied().unwrap_or(SeqNum(0));
            let outbox = self.outboxes.get_mut(channel).expect("it was just listed");
            // Messages before the bookmark are settled there, which is as good as an acknowledgement.
            outbox.acknowledge(from.index, bookmark, awaited, &mut self.released);
            outbox.cursors[usize::from(from.index.0)].from = bookmark.0;
            for sequence in outbox.resumable(bookmark) {
                let logged = outbox.get(sequence).expect("it is in the log");
                if !logged.held && logged.unacked.contains(from.index) {
                    self.counters.messages_resent += u64::from(service == Service::Payload);
                    self.outputs.extend(serve(service, from, channel, sequence, logged));
                }
            }
        }
        self.release();
    }

    /// Acts on a receiver's report that some replicas of this rank have not announced a message. If this process has
    /// sent it, it asks its siblings if they have passed the place. Its own announcement may have been lost in corrupt
    /// memory, so it is repeated. Siblings are asked about a limited number of messages at a time. A message that is
    /// still overdue later is reported again.
    pub(super) fn handle_overdue(&mut self, from: ReplicaId, context: ContextId, sequence: SeqNum) {
        let channel = (from.rank, context);
        let key = DecisionKey { stream: StreamId::Channel(from.rank, context), index: sequence.0 };
        let Some(question) = self.sent(key) else { return };
        let service = self.services[self.world.process(from).0 as usize];
        let logged = self.outboxes.get(channel).and_then(|outbox| outbox.get(sequence));
        if let Some(logged) = logged.filter(|logged| !logged.held && logged.unacked.contains(from.index)) {
            self.outputs.extend(serve(service, from, channel, sequence, logged));
        }
        if self.claims_on_messages() < CLAIMS_AT_ONCE {
            self.claim_sent(key, question);
        }
    }

    /// The message at this position of a channel as a question, while this process keeps it.
    pub(super) fn sent(&self, key: DecisionKey) -> Option<Question> {
        let StreamId::Channel(to, context) = key.stream else { return None };
        let logged = self.outboxes.get((to, context))?.get(SeqNum(key.index))?;
        let data = (logged.digest.0 ^ logged.digest.0 >> 64) as u64;
        Some(Question { call: Call::Send, arguments: 0, data, place: logged.sent_at })
    }

    /// Offers one message again. If it cannot be sent yet, it is sent as soon as it can.
    pub(super) fn handle_fetch(&mut self, from: ReplicaId, context: ContextId, sequence: SeqNum) -> Result<(), Breach> {
        let degree = self.world.degree(from.rank);
        let channel = (from.rank, context);
        let outbox = self.outboxes.get_or_insert_with(channel, || Outbox::new(degree));
        match outbox.get(sequence) {
            Some(logged) if !logged.unacked.contains(from.index) => {
                return Err(Breach::FetchAfterAck { context, sequence });
            }
            Some(logged) if !logged.held => {
                self.counters.messages_resent += 1;
                self.outputs.extend(serve(Service::Payload, from, channel, sequence, logged));
            }
            None if sequence < outbox.next() => return Err(Breach::FetchAfterAck { context, sequence }),
            _ if outbox.fetches.contains(&(from.index, sequence)) => {}
            _ => outbox.fetches.push((from.index, sequence)),
        }
        Ok(())
    }
}

/// Number of the first process of a rank.
#[inline]
fn first_process(world: &World, rank: VirtualRank) -> usize {
    world.process(ReplicaId { rank, index: ReplicaIndex(0) }).0 as usize
}

/// Transmits a message that was held. Each live replica of the receiver gets it by the service it asked for, unless it
/// has acknowledged it before. `services` starts with the receiver's first replica.
fn transmit_to_all(
    services: &[Service],
    outbox: &mut Outbox,
    channel: ChannelKey,
    sequence: SeqNum,
    logged: &Logged,
    live: ReplicaSet,
    outputs: &mut VecDeque<Output>,
) {
    for index in outbox.wanting(sequence, live) {
        let to = ReplicaId { rank: channel.0, index };
        outputs.extend(serve(services[usize::from(index.0)], to, channel, sequence, logged));
    }
    answer_fetches(outbox, channel, sequence, logged, outputs);
}

/// Offers a message to the replicas that have asked for it before it could be sent.
#[inline]
fn answer_fetches(
    outbox: &mut Outbox,
    channel: ChannelKey,
    sequence: SeqNum,
    logged: &Logged,
    outputs: &mut VecDeque<Output>,
) {
    if !outbox.fetches.is_empty() {
        outbox.fetches.retain(|(index, wanted)| {
            let is_this = *wanted == sequence;
            if is_this {
                let to = ReplicaId { rank: channel.0, index: *index };
                outputs.extend(serve(Service::Payload, to, channel, sequence, logged));
            }
            !is_this
        });
    }
}

pub(super) fn serve(
    service: Service,
    to: ReplicaId,
    (_, context): ChannelKey,
    sequence: SeqNum,
    logged: &Logged,
) -> Option<Output> {
    let Logged { envelope, digest, payload, .. } = *logged;
    match service {
        Service::None => None,
        Service::Digests => {
            Some(Output::Transmit { to, frame: Frame::Digest { context, sequence, digest, core: None }, payload: None })
        }
        Service::Payload => {
            let payload = Some(payload?);
            Some(Output::Transmit {
                to,
                frame: Frame::Offer { context, sequence, envelope, digest, core: None },
                payload,
            })
        }
    }
}
