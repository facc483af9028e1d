//! Contexts: the matching queues of each communicator context.

use quiesce::matching::{Match, MatchQueues, Order, Pattern};
use redrt_types::ContextId;
use rustc_hash::FxHashMap;

use super::request::RequestId;

/// Number of a context within the process.
pub type ContextIndex = u32;

/// One context.
pub struct Context {
    /// Its identity in all processes.
    pub id: ContextId,
    /// Posted receives and unexpected messages.
    pub queues: MatchQueues<RequestId, usize>,
}

/// All contexts of a process. One appears when its communicator is made or when the first message for it arrives,
/// whichever comes first.
pub struct Contexts {
    list: Vec<Context>,
    by_id: FxHashMap<u64, ContextIndex>,
    last: (u64, ContextIndex),
    order: Order,
}

impl Default for Contexts {
    fn default() -> Self {
        Self { list: Vec::new(), by_id: FxHashMap::default(), last: (0, u32::MAX), order: Order::Deciding }
    }
}

impl Contexts {
    /// The number of a context.
    #[inline]
    pub fn index(&mut self, id: u64) -> ContextIndex {
        if self.last == (id, self.last.1) && self.last.1 != u32::MAX {
            return self.last.1;
        }
        let next = self.list.len() as u32;
        let index = *self.by_id.entry(id).or_insert(next);
        if index == next {
            self.list.push(Context { id: ContextId(id), queues: MatchQueues::new(self.order) });
        }
        self.last = (id, index);
        index
    }

    /// Changes who chooses the sources of wildcard receives; the matches that this makes possible.
    pub fn set_order(&mut self, order: Order, matched: &mut Vec<Match<RequestId, usize>>) {
        self.order = order;
        for context in &mut self.list {
            context.queues.set_order(order, matched);
        }
    }

    /// All posted receives: context and pattern.
    pub fn posted(&self) -> impl Iterator<Item = (u64, Pattern)> + '_ {
        self.list.iter().flat_map(|context| context.queues.posted().map(|(pattern, _)| (context.id.0, pattern)))
    }

    /// The context with this number.
    #[inline]
    pub fn get(&mut self, index: ContextIndex) -> &mut Context {
        &mut self.list[index as usize]
    }
}
