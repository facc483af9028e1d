//! Damage to intact bytes, for tests.

#![forbid(unsafe_code)]

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// A damage: changed bytes, and perhaps a cut end.
#[derive(Clone, Debug)]
pub struct Damage {
    changed: Vec<(Index, u8, bool)>,
    cut: Option<Index>,
}

impl Damage {
    /// The damaged bytes. `bytes` must not be empty.
    pub fn done_to(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for (place, value, is_flip) in &self.changed {
            let byte = place.get_mut(&mut bytes);
            *byte = if *is_flip { *byte ^ 1 << (value % 8) } else { *value };
        }
        if let Some(cut) = self.cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        bytes
    }
}

/// Damages of up to three bytes, replaced or with a bit flipped; now and then the end is cut.
pub fn damage() -> impl Strategy<Value = Damage> {
    let changed = vec((any::<Index>(), any::<u8>(), any::<bool>()), 1..4);
    let cut = proptest::option::weighted(0.2, any::<Index>());
    (changed, cut).prop_map(|(changed, cut)| Damage { changed, cut })
}
