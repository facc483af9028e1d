//! Sound bytes that were damaged on the way, for tests.

#![forbid(unsafe_code)]

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// What happens to some bytes.
#[derive(Clone, Debug)]
pub struct Damage {
    changed: Vec<(Index, u8, bool)>,
    cut: Option<Index>,
}

impl Damage {
    /// The damaged bytes. There must be at least one.
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

/// Up to three bytes that are others, or have a bit flipped; now and then the end is missing.
pub fn damage() -> impl Strategy<Value = Damage> {
    let changed = vec((any::<Index>(), any::<u8>(), any::<bool>()), 1..4);
    let cut = proptest::option::weighted(0.2, any::<Index>());
    (changed, cut).prop_map(|(changed, cut)| Damage { changed, cut })
}
