//! A hash map that can be hashed itself, so that whole machines can be compared by the model checker.

use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

/// An [`FxHashMap`] whose own hash does not depend on the order of its entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Table<K: Eq + Hash, V>(FxHashMap<K, V>);

impl<K: Eq + Hash, V> Default for Table<K, V> {
    fn default() -> Self {
        Self(FxHashMap::default())
    }
}

impl<K: Eq + Hash, V> Deref for Table<K, V> {
    type Target = FxHashMap<K, V>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<K: Eq + Hash, V> DerefMut for Table<K, V> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<K: Eq + Hash, V: Hash> Hash for Table<K, V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let entry = |entry| {
            let mut hasher = FxHasher::default();
            Hash::hash(&entry, &mut hasher);
            hasher.finish()
        };
        self.0.iter().map(entry).fold(0_u64, u64::wrapping_add).hash(state);
    }
}
