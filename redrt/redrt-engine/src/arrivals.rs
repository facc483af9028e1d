//! Messages that have arrived and are not delivered yet, and the receives that wait for messages.

use super::matching::{ContextIndex, Contexts};
use super::message::{Data, Message, Pull};
use super::request::RequestId;
use quiesce::MessageId;
use quiesce::matching::{Arrived, Match, Order, Pattern, Posted};
use redrt_types::{ContextId, ProcessIndex, Tag};
use rustc_hash::FxHashSet;
use slab::Slab;

/// A message that a probe has found: source, tag, length in bytes, number.
pub type Probed = (u32, i32, u64, usize);

/// Receives, each with the message that it is matched with.
pub(super) type Matches = Vec<Match<RequestId, usize>>;

/// A posted receive that was taken back.
pub(super) struct Cancelled {
    /// Its number among wildcard receives, if it had no source.
    pub undecided: Option<u64>,
    /// Matches that this makes possible.
    pub matched: Matches,
}

/// All messages that wait, and all receives that do. A message is known by its number until it is removed.
#[derive(Default)]
pub struct Arrivals {
    contexts: Contexts,
    messages: Slab<Message>,
    /// Memory for matches, used again.
    matched: Matches,
}

impl Arrivals {
    /// The number of a context.
    #[inline]
    pub(super) fn index(&mut self, context: u64) -> ContextIndex {
        self.contexts.index(context)
    }

    /// The number that a context has in all processes.
    #[inline]
    pub(super) fn id_of(&mut self, context: ContextIndex) -> ContextId {
        self.contexts.get(context).id
    }

    /// Matches a message that has arrived with the oldest receive that takes it. The message must be inserted next, if
    /// it is not delivered at once.
    #[inline]
    pub(super) fn arrive(&mut self, context: ContextIndex, source: u32, tag: Tag) -> Arrived<RequestId> {
        let key = self.messages.vacant_key();
        self.contexts.get(context).queues.arrive(source, tag, key)
    }

    /// Matches a message whose envelope is agreed only now.
    pub(super) fn arrive_late(&mut self, key: usize) -> Arrived<RequestId> {
        let Message { context, source, tag, .. } = self.messages[key];
        self.contexts.get(context).queues.arrive(source, Tag(tag), key)
    }

    /// Adds a message. Returns its number.
    #[inline]
    pub(super) fn insert(&mut self, message: Message) -> usize {
        self.messages.insert(message)
    }

    /// The message with this number.
    #[inline]
    pub(super) fn message(&mut self, key: usize) -> &mut Message {
        &mut self.messages[key]
    }

    /// Removes a message.
    #[inline]
    pub(super) fn remove(&mut self, key: usize) -> Message {
        self.messages.remove(key)
    }

    /// Matches a receive that is posted with the oldest message that it takes.
    #[inline]
    pub(super) fn post(&mut self, context: ContextIndex, pattern: Pattern, request: RequestId) -> Posted<usize> {
        self.contexts.get(context).queues.post(pattern, request)
    }

    /// Number of the next wildcard receive that is posted in this context.
    pub(super) fn wildcard_count(&mut self, context: ContextIndex) -> u64 {
        self.contexts.get(context).queues.wildcard_count()
    }

    /// Applies the source decided for the wildcard receive that is posted next. No match can result.
    pub(super) fn decide_next(&mut self, context: ContextIndex, index: u64, source: u32) {
        self.contexts.get(context).queues.apply_decision(index, source, &mut Vec::new());
    }

    /// Applies the source decided for a wildcard receive. Returns the matches that this makes possible.
    pub(super) fn decide(&mut self, context: ContextId, index: u64, source: u32) -> Matches {
        let mut matched = std::mem::take(&mut self.matched);
        let context = self.contexts.index(context.0);
        self.contexts.get(context).queues.apply_decision(index, source, &mut matched);
        matched
    }

    /// Changes who chooses the sources of wildcard receives. Returns the matches that this makes possible.
    pub(super) fn set_order(&mut self, order: Order) -> Matches {
        let mut matched = Vec::new();
        self.contexts.set_order(order, &mut matched);
        matched
    }

    /// Takes the memory of matches back, once they were delivered.
    pub(super) fn recycle(&mut self, matched: Matches) {
        debug_assert!(matched.is_empty(), "all were delivered");
        self.matched = matched;
    }

    /// The oldest message that a receive with this pattern would take. `None` without one.
    pub fn probe(&mut self, context: u64, source: Option<u32>, tag: Option<i32>) -> Option<Probed> {
        let context = self.contexts.index(context);
        let (source, tag, key) = self.contexts.get(context).queues.probe(Pattern { source, tag: tag.map(Tag) })?;
        Some((source, tag.0, self.messages[key].length, key))
    }

    /// Takes that message from the queue (`MPI_Mprobe`).
    pub fn take(&mut self, context: u64, source: Option<u32>, tag: Option<i32>) -> Option<Probed> {
        let context = self.contexts.index(context);
        let taken = self.contexts.get(context).queues.take(Pattern { source, tag: tag.map(Tag) })?;
        Some((taken.source, taken.tag.0, self.messages[taken.message].length, taken.message))
    }

    /// Takes a posted receive back. `None` if it has been matched.
    pub(super) fn cancel(&mut self, context: ContextIndex, id: RequestId) -> Option<Cancelled> {
        let queues = &mut self.contexts.get(context).queues;
        let (undecided, mut matched) = (queues.undecided_index(id), Vec::new());
        queues.cancel(id, &mut matched).then_some(Cancelled { undecided, matched })
    }

    /// Keeps a posted receive from being matched. Returns false if it has been matched already.
    pub(super) fn freeze(&mut self, context: ContextIndex, id: RequestId) -> bool {
        self.contexts.get(context).queues.freeze(id)
    }

    /// Lets a frozen receive be matched again. Returns the matches that this makes possible.
    pub(super) fn thaw(&mut self, context: ContextIndex, id: RequestId) -> Matches {
        let mut matched = Vec::new();
        self.contexts.get(context).queues.thaw(id, &mut matched);
        matched
    }

    /// Puts a message where its new envelope belongs, if it waits for a receive. Returns the matches that this makes
    /// possible.
    pub(super) fn refile(&mut self, context: ContextIndex, key: usize, source: u32, tag: Tag) -> Matches {
        let mut matched = Vec::new();
        self.contexts.get(context).queues.refile(key, source, tag, &mut matched);
        matched
    }

    /// The record of a message at this place; `None` once it is verified and delivered.
    pub(super) fn record_at(&self, place: u32, id: MessageId) -> Option<usize> {
        let key = place as usize;
        self.messages.get(key).filter(|message| message.is_record_of(id)).map(|_| key)
    }

    /// Likewise, by a search of all records.
    pub(super) fn record_of(&self, id: MessageId) -> Option<usize> {
        self.messages.iter().find(|(_, message)| message.is_record_of(id)).map(|(key, _)| key)
    }

    /// Drops contexts that freed communicators left behind, if there are many. `receives` are the contexts of receives
    /// under way. With `counts`, siblings know the numbers of wildcard receives. Returns true if it did.
    pub(super) fn sweep(&mut self, receives: impl Iterator<Item = ContextIndex>, counts: bool) -> bool {
        if !self.contexts.is_due() {
            return false;
        }
        let messages = self.messages.iter().map(|(_, message)| message.context);
        let used: FxHashSet<_> = messages.chain(receives).collect();
        self.contexts.sweep(&used, counts);
        true
    }

    /// All posted receives: context and pattern.
    pub(super) fn posted(&self) -> impl Iterator<Item = (u64, Pattern)> + '_ {
        self.contexts.posted()
    }

    /// Descriptions of matched messages that are not complete: their payload is missing, or their verdict.
    pub(super) fn incomplete(&self) -> impl Iterator<Item = String> + '_ {
        let matched = self.messages.iter().map(|(_, message)| message).filter(|message| {
            let receives = message.receive.is_some() && !message.is_shadow;
            receives && matches!(message.data, Data::Placed | Data::RendezvousBuffer(_))
        });
        matched.map(|message| {
            let what = if message.verified { "the payload" } else { "the digests of other replicas" };
            format!("{what} of a message from rank {}, tag {}", message.source, message.tag)
        })
    }

    /// Drops further copies of messages, only wanted for comparison, that were to come from a process. Returns the
    /// transfers that were under way.
    pub(super) fn drop_shadows_of(&mut self, process: ProcessIndex) -> Vec<Pull> {
        let is_void = |message: &Message| match &message.data {
            Data::Remote(from, _) => *from == process,
            _ => message.pull.as_ref().is_some_and(|pull| pull.from == process),
        };
        let shadows = self.messages.iter().filter(|(_, message)| message.is_shadow);
        let void: Vec<_> = shadows.filter(|(_, message)| is_void(message)).map(|(key, _)| key).collect();
        void.into_iter().filter_map(|key| self.messages.remove(key).pull.map(|pull| *pull)).collect()
    }

    /// Runs in a copy: payloads that were under way to its source are offered again.
    pub(super) fn become_copy(&mut self) {
        self.messages.retain(|_, message| !message.is_shadow);
        for (_, message) in &mut self.messages {
            message.pull = None;
            if matches!(message.data, Data::Remote(..) | Data::RendezvousBuffer(_)) {
                message.data = Data::Awaited;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrt_transport::RendezvousBufferId;
    use redrt_transport::frame::Rendezvous;

    const FROM: [ProcessIndex; 2] = [ProcessIndex(3), ProcessIndex(4)];

    /// A further copy of a message, which `pull` brings.
    fn shadow(data: Data, pull: Option<Pull>) -> Message {
        let mut message = Message::new(0, 0, 1, 8);
        (message.data, message.pull, message.is_shadow) = (data, pull.map(Box::new), true);
        message
    }

    #[test]
    fn a_message_that_waits_is_found_by_its_number() {
        let mut arrivals = Arrivals::default();
        let context = arrivals.index(7);
        assert!(matches!(arrivals.arrive(context, 2, Tag(5)), Arrived::Queued));
        let key = arrivals.insert(Message::new(context, 2, 5, 8));
        assert_eq!(arrivals.probe(7, None, Some(5)), Some((2, 5, 8, key)));
        assert_eq!(arrivals.probe(7, Some(1), None), None);
        let posted = arrivals.post(context, Pattern { source: Some(2), tag: None }, RequestId(9));
        assert!(matches!(posted, Posted::Matched(taken) if taken.message == key));
        assert_eq!(arrivals.take(7, None, None), None, "a receive has it");
    }

    #[test]
    fn only_shadows_of_a_process_go_with_it() {
        let mut arrivals = Arrivals::default();
        let rendezvous = Rendezvous { length: 8, address: 0, offer: 1 };
        let pull = |rendezvous_buffer, from| {
            Some(Pull { rendezvous_buffer: RendezvousBufferId(rendezvous_buffer), from, start: 0 })
        };
        arrivals.insert(shadow(Data::Remote(FROM[0], rendezvous), None));
        arrivals.insert(shadow(Data::RendezvousBuffer(None), pull(1, FROM[0])));
        let other = arrivals.insert(shadow(Data::RendezvousBuffer(None), pull(2, FROM[1])));
        let mut first = shadow(Data::RendezvousBuffer(None), pull(3, FROM[0]));
        first.is_shadow = false;
        let first = arrivals.insert(first);
        let given_up = arrivals.drop_shadows_of(FROM[0]);
        assert_eq!(given_up.iter().map(|pull| pull.rendezvous_buffer).collect::<Vec<_>>(), [RendezvousBufferId(1)]);
        assert!(arrivals.message(other).pull.is_some() && arrivals.message(first).pull.is_some());
        assert_eq!(arrivals.messages.len(), 2);
    }
}
