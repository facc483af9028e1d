//! Contexts: the matching queues of each communicator context.

use quiesce::matching::{Match, MatchQueues, Order, Pattern};
use redrt_types::ContextId;
use rustc_hash::{FxHashMap, FxHashSet};
use slab::Slab;

use super::request::RequestId;

/// Number of a context within the process.
pub type ContextIndex = u32;

/// A communicator context within this process.
pub struct Context {
    /// Its number in all processes.
    pub id: ContextId,
    /// Posted receives and unexpected messages.
    pub queues: MatchQueues<RequestId, usize>,
}

/// All contexts of a process. A context appears when a receive is posted in it or its first message arrives, whichever
/// comes first. A freed communicator leaves its contexts behind. A context in which nothing waits holds no information,
/// so it can go at any time and appears again when needed.
pub struct Contexts {
    list: Slab<Context>,
    by_id: FxHashMap<u64, ContextIndex>,
    last: (u64, ContextIndex),
    order: Order,
    /// A sweep is due when there are more contexts than this.
    sweep_at: usize,
}

/// Contexts that are kept in any case.
const FEW: usize = 64;

impl Default for Contexts {
    fn default() -> Self {
        Self {
            list: Slab::new(),
            by_id: FxHashMap::default(),
            last: (0, u32::MAX),
            order: Order::Deciding,
            sweep_at: FEW,
        }
    }
}

impl Contexts {
    /// The number of a context.
    #[inline]
    pub fn index(&mut self, id: u64) -> ContextIndex {
        if self.last == (id, self.last.1) && self.last.1 != u32::MAX {
            return self.last.1;
        }
        let index = match self.by_id.get(&id) {
            Some(index) => *index,
            None => self.insert(id),
        };
        self.last = (id, index);
        index
    }

    #[cold]
    fn insert(&mut self, id: u64) -> ContextIndex {
        let index =
            self.list.insert(Context { id: ContextId(id), queues: MatchQueues::new(self.order) }) as ContextIndex;
        self.by_id.insert(id, index);
        index
    }

    /// Returns true if a sweep is worth its cost.
    pub fn is_due(&self) -> bool {
        self.list.len() > self.sweep_at
    }

    /// Drops contexts in which nothing waits and that are not in `used`. With `counts`, siblings know the numbers of
    /// wildcard receives, and a context that has had some stays.
    pub fn sweep(&mut self, used: &FxHashSet<ContextIndex>, counts: bool) {
        let can_go = |index: ContextIndex, context: &Context| !used.contains(&index) && context.queues.is_idle(counts);
        self.list.retain(|index, context| !can_go(index as ContextIndex, context));
        let list = &self.list;
        self.by_id.retain(|_, index| list.contains(*index as usize));
        self.list.shrink_to_fit();
        self.last = (0, u32::MAX);
        // Next sweep once as many again have appeared.
        self.sweep_at = 2 * self.list.len() + FEW;
    }

    /// Number of contexts.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// Changes who chooses the sources of wildcard receives. Adds the matches that this makes possible to `matched`.
    pub fn set_order(&mut self, order: Order, matched: &mut Vec<Match<RequestId, usize>>) {
        self.order = order;
        for (_, context) in &mut self.list {
            context.queues.set_order(order, matched);
        }
    }

    /// All posted receives: context and pattern.
    pub fn posted(&self) -> impl Iterator<Item = (u64, Pattern)> + '_ {
        self.list.iter().flat_map(|(_, context)| context.queues.posted().map(|(pattern, _)| (context.id.0, pattern)))
    }

    /// The context with this number.
    #[inline]
    pub fn get(&mut self, index: ContextIndex) -> &mut Context {
        &mut self.list[index as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiesce::matching::Arrived;
    use redrt_types::Tag;

    #[test]
    fn contexts_in_which_nothing_waits_go_and_the_others_stay() {
        let mut contexts = Contexts::default();
        let waiting = contexts.index(7);
        let arrived = contexts.get(waiting).queues.arrive(0, Tag(1), 5);
        assert!(matches!(arrived, Arrived::Queued));
        let held = contexts.index(8);
        let used = FxHashSet::from_iter([held]);
        for id in 1000..11_000 {
            contexts.index(id);
            if contexts.is_due() {
                contexts.sweep(&used, true);
                assert_eq!(contexts.count(), 2);
            }
        }
        assert!(contexts.count() <= 2 * FEW + 4, "{}", contexts.count());
        assert_eq!((contexts.index(7), contexts.index(8)), (waiting, held));
        assert_eq!(contexts.get(waiting).queues.unexpected_depth(), 1);
    }
}
