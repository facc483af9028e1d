//! Slab storage whose entries are members of several ordered lists at once.
//!
//! A message waits in the list of all messages, of its source, of its tag and of both: one entry, one pair of links
//! per list, no allocation once the slab has grown to the deepest queue seen.

use slab::Slab;

/// Marks the end of a list.
const END: u32 = u32::MAX;

/// First and last entry of one list.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { head: END, tail: END };

    pub(super) fn is_empty(self) -> bool {
        self.head == END
    }

    pub(super) fn first(self) -> Option<u32> {
        some(self.head)
    }

    pub(super) fn last(self) -> Option<u32> {
        some(self.tail)
    }
}

#[derive(Clone, Copy, Debug)]
struct Links {
    before: u32,
    after: u32,
}

#[derive(Clone, Debug)]
struct LinkedEntry<T, const LISTS: usize> {
    value: T,
    links: [Links; LISTS],
}

/// The entries. `LISTS` is the number of kinds of lists that each can be a member of.
#[derive(Clone, Debug)]
pub(super) struct Arena<T, const LISTS: usize> {
    entries: Slab<LinkedEntry<T, LISTS>>,
}

impl<T, const LISTS: usize> Arena<T, LISTS> {
    pub(super) fn new() -> Self {
        Self { entries: Slab::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(super) fn get(&self, key: u32) -> &T {
        &self.entries[key as usize].value
    }

    pub(super) fn get_mut(&mut self, key: u32) -> &mut T {
        &mut self.entries[key as usize].value
    }

    /// Stores a value that is in no list yet.
    #[inline]
    pub(super) fn insert(&mut self, value: T) -> u32 {
        let key = self.entries.insert(LinkedEntry { value, links: [Links { before: END, after: END }; LISTS] });
        assert!(key < END as usize, "more than {END} entries in one matching queue");
        key as u32
    }

    /// Removes a value that has been unlinked from every list.
    #[inline]
    pub(super) fn remove(&mut self, key: u32) -> T {
        self.entries.remove(key as usize).value
    }

    #[inline]
    pub(super) fn after(&self, kind: usize, key: u32) -> Option<u32> {
        some(self.entries[key as usize].links[kind].after)
    }

    pub(super) fn before(&self, kind: usize, key: u32) -> Option<u32> {
        some(self.entries[key as usize].links[kind].before)
    }

    #[inline]
    pub(super) fn push_back(&mut self, kind: usize, list: &mut List, key: u32) {
        self.insert_before(kind, list, None, key);
    }

    /// Links `key` in front of `next`, or at the end when that is `None`.
    #[inline]
    pub(super) fn insert_before(&mut self, kind: usize, list: &mut List, next: Option<u32>, key: u32) {
        let after = next.unwrap_or(END);
        let before = if after == END { list.tail } else { self.entries[after as usize].links[kind].before };
        self.entries[key as usize].links[kind] = Links { before, after };
        self.join(kind, list, before, key);
        self.join(kind, list, key, after);
    }

    #[inline]
    pub(super) fn unlink(&mut self, kind: usize, list: &mut List, key: u32) {
        let Links { before, after } = self.entries[key as usize].links[kind];
        self.join(kind, list, before, after);
    }

    #[inline]
    fn join(&mut self, kind: usize, list: &mut List, before: u32, after: u32) {
        match some(before) {
            Some(key) => self.entries[key as usize].links[kind].after = after,
            None => list.head = after,
        }
        match some(after) {
            Some(key) => self.entries[key as usize].links[kind].before = before,
            None => list.tail = before,
        }
    }
}

fn some(key: u32) -> Option<u32> {
    (key != END).then_some(key)
}
