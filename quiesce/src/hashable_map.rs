//! Maps that implement `Hash`, so that the model checker can compare whole machines.

use redrt_types::{ContextId, VirtualRank};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

/// An [`FxHashMap`] whose own hash does not depend on the order of its entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HashableMap<K: Eq + Hash, V>(FxHashMap<K, V>);

impl<K: Eq + Hash, V> Default for HashableMap<K, V> {
    fn default() -> Self {
        Self(FxHashMap::default())
    }
}

impl<K: Eq + Hash, V> Deref for HashableMap<K, V> {
    type Target = FxHashMap<K, V>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<K: Eq + Hash, V> DerefMut for HashableMap<K, V> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<K: Eq + Hash, V: Hash> Hash for HashableMap<K, V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let entry = |entry| {
            let mut hasher = FxHasher::default();
            Hash::hash(&entry, &mut hasher);
            hasher.finish()
        };
        self.0.iter().map(entry).fold(0_u64, u64::wrapping_add).hash(state);
    }
}

/// A channel seen from one end: the virtual rank at the other end, and the context.
pub(crate) type ChannelKey = (VirtualRank, ContextId);

/// The channels of one direction, by peer rank and context.
pub(crate) type Channels<T> = Table<ChannelKey, T>;

/// A map that is mostly asked for the same key again: consecutive frames tend to belong to one channel, and consecutive
/// questions to one thread. So the latest entry is tried before the index. Entries are never removed.
#[derive(Clone, Debug)]
pub(crate) struct Table<K, T> {
    index: FxHashMap<K, u32>,
    all: Vec<(K, T)>,
    last: usize,
    /// Number of entries at the latest call of [`Table::new_ones`].
    seen: usize,
}

impl<K: Copy + Eq + Hash, T> Table<K, T> {
    pub(crate) fn new() -> Self {
        Self { index: FxHashMap::default(), all: Vec::new(), last: 0, seen: 0 }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut T> {
        let at = self.find(key)?;
        self.all.get_mut(at).map(|(_, entry)| entry)
    }

    #[inline]
    pub(crate) fn get(&self, key: K) -> Option<&T> {
        match self.all.get(self.last) {
            Some((last, entry)) if *last == key => Some(entry),
            _ => self.all.get(*self.index.get(&key)? as usize).map(|(_, entry)| entry),
        }
    }

    /// The entry of `key`, made if it does not exist.
    #[inline]
    pub(crate) fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> T) -> &mut T {
        let at = match self.find(key) {
            Some(at) => at,
            None => self.insert(key, make()),
        };
        &mut self.all[at].1
    }

    #[cold]
    fn insert(&mut self, key: K, entry: T) -> usize {
        self.last = self.all.len();
        self.index.insert(key, self.last as u32);
        self.all.push((key, entry));
        self.last
    }

    /// The entries that were made since the latest call.
    pub(crate) fn new_ones(&mut self) -> impl Iterator<Item = &mut T> {
        let first = std::mem::replace(&mut self.seen, self.all.len());
        self.all[first..].iter_mut().map(|(_, entry)| entry)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.all.iter().map(|(_, entry)| entry)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.all.iter_mut().map(|(_, entry)| entry)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        self.all.iter().map(|(key, entry)| (*key, entry))
    }

    #[inline]
    fn find(&mut self, key: K) -> Option<usize> {
        match self.all.get(self.last) {
            Some((last, _)) if *last == key => Some(self.last),
            _ => self.lookup(key),
        }
    }

    /// Not inlined: a caller that finds the latest entry again needs none of the registers that this takes.
    #[inline(never)]
    fn lookup(&mut self, key: K) -> Option<usize> {
        self.last = *self.index.get(&key)? as usize;
        Some(self.last)
    }
}

impl<T> Channels<T> {
    /// The channels to or from one virtual rank, by context.
    pub(crate) fn of(&self, rank: VirtualRank) -> Vec<ChannelKey> {
        let mut keys: Vec<_> = self.all.iter().map(|(key, _)| *key).filter(|key| key.0 == rank).collect();
        keys.sort_unstable();
        keys
    }
}

impl<K: Hash, T: Hash> Hash for Table<K, T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let entry = |entry| {
            let mut hasher = FxHasher::default();
            Hash::hash(entry, &mut hasher);
            hasher.finish()
        };
        self.all.iter().map(entry).fold(0_u64, u64::wrapping_add).hash(state);
    }
}
