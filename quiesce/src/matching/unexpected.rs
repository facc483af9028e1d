//! Messages that arrived before a receive took them, in order of arrival.

use super::arena::{Arena, List};
use super::{LINEAR_LIMIT, Pattern};
use redrt_types::Tag;
use rustc_hash::FxHashMap;
use std::hash::Hash;

const ALL: usize = 0;
const BY_SOURCE: usize = 1;
const BY_TAG: usize = 2;
const BY_BOTH: usize = 3;

#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting<M> {
    pub(super) source: u32,
    pub(super) tag: Tag,
    pub(super) message: M,
    pub(super) binned: bool,
}

/// The unexpected queue: a list that is scanned while short. Beyond that there are also lists by source, by tag and by
/// both, so that each of the four kinds of pattern finds its first message at the head of one list.
#[derive(Clone, Debug)]
pub(super) struct UnexpectedQueue<M> {
    arena: Arena<Waiting<M>, 4>,
    all: List,
    /// True while the lists below are maintained, which ends when the queue is empty again.
    binned: bool,
    by_source: FxHashMap<u32, List>,
    by_tag: FxHashMap<Tag, List>,
    by_both: FxHashMap<(u32, Tag), List>,
}

impl<M: Copy> UnexpectedQueue<M> {
    pub(super) fn new() -> Self {
        Self {
            arena: Arena::new(),
            all: List::EMPTY,
            binned: false,
            by_source: FxHashMap::default(),
            by_tag: FxHashMap::default(),
            by_both: FxHashMap::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.arena.len()
    }

    pub(super) fn get(&self, key: u32) -> &Waiting<M> {
        self.arena.get(key)
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        self.all.first()
    }

    pub(super) fn after(&self, key: u32) -> Option<u32> {
        self.arena.after(ALL, key)
    }

    /// The message that arrived first of those the pattern accepts.
    #[inline]
    pub(super) fn first(&self, pattern: Pattern) -> Option<u32> {
        if self.all.is_empty() {
            return None;
        }
        if !self.binned {
            let mut next = self.all.first();
            while let Some(key) = next {
                let waiting = self.arena.get(key);
                if pattern.accepts(waiting.source, waiting.tag) {
                    return Some(key);
                }
                next = self.after(key);
            }
            return None;
        }
        match (pattern.source, pattern.tag) {
            (Some(source), Some(tag)) => self.by_both.get(&(source, tag)).copied(),
            (Some(source), None) => self.by_source.get(&source).copied(),
            (None, Some(tag)) => self.by_tag.get(&tag).copied(),
            (None, None) => Some(self.all),
        }?
        .first()
    }

    pub(super) fn push(&mut self, source: u32, tag: Tag, message: M) {
        let key = self.arena.insert(Waiting { source, tag, message, binned: false });
        self.arena.push_back(ALL, &mut self.all, key);
        if self.binned {
            self.bin(key);
        } else if self.arena.len() > LINEAR_LIMIT {
            self.binned = true;
            let mut next = self.all.first();
            while let Some(key) = next {
                self.bin(key);
                next = self.after(key);
            }
        }
    }

    pub(super) fn remove(&mut self, key: u32) -> Waiting<M> {
        self.arena.unlink(ALL, &mut self.all, key);
        if self.arena.get(key).binned {
            self.unbin_all(key);
            self.binned = !self.all.is_empty();
        }
        self.arena.remove(key)
    }

    /// Changes the source and the tag of a message, which keeps its place. Returns false if it is not there, or has
    /// them already. Rare, so all lists are rebuilt.
    pub(super) fn refile(&mut self, message: M, source: u32, tag: Tag) -> bool
    where
        M: Eq,
    {
        let keys: Vec<_> = std::iter::successors(self.oldest(), |key| self.after(*key)).collect();
        let found = keys.iter().copied().find(|key| self.get(*key).message == message);
        let Some(key) = found.filter(|key| (self.get(*key).source, self.get(*key).tag) != (source, tag)) else {
            return false;
        };
        if self.binned {
            keys.iter().for_each(|key| self.unbin_all(*key));
        }
        let waiting = self.arena.get_mut(key);
        (waiting.source, waiting.tag) = (source, tag);
        if self.binned {
            keys.iter().for_each(|key| self.bin(*key));
        }
        true
    }

    fn unbin_all(&mut self, key: u32) {
        let Waiting { source, tag, .. } = *self.arena.get(key);
        unbin(&mut self.arena, BY_SOURCE, &mut self.by_source, source, key);
        unbin(&mut self.arena, BY_TAG, &mut self.by_tag, tag, key);
        unbin(&mut self.arena, BY_BOTH, &mut self.by_both, (source, tag), key);
    }

    fn bin(&mut self, key: u32) {
        self.arena.get_mut(key).binned = true;
        let Waiting { source, tag, .. } = *self.arena.get(key);
        self.arena.push_back(BY_SOURCE, self.by_source.entry(source).or_insert(List::EMPTY), key);
        self.arena.push_back(BY_TAG, self.by_tag.entry(tag).or_insert(List::EMPTY), key);
        self.arena.push_back(BY_BOTH, self.by_both.entry((source, tag)).or_insert(List::EMPTY), key);
    }
}

/// Unlinks an entry from its bin. An empty bin is removed, so that the maps hold no more than the queue does.
pub(super) fn unbin<T, K: Hash + Eq, const LISTS: usize>(
    arena: &mut Arena<T, LISTS>,
    kind: usize,
    bins: &mut FxHashMap<K, List>,
    bin: K,
    key: u32,
) {
    let list = bins.get_mut(&bin).expect("a binned entry has its bin");
    arena.unlink(kind, list, key);
    if list.is_empty() {
        bins.remove(&bin);
    }
}
