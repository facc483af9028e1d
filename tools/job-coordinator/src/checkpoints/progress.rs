//! Progress of the images of the newest attempt, for the user.

use redrt_types::ReplicaId;
use redrt_wire::checkpoint::Generation;
use redrt_wire::clone::Progress;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Progress by process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Images {
    generation: Option<Generation>,
    progress: BTreeMap<ReplicaId, Progress>,
}

impl Images {
    pub fn record(&mut self, generation: Generation, replica: ReplicaId, progress: Progress) {
        if self.generation.replace(generation) != Some(generation) {
            self.progress.clear();
        }
        self.progress.insert(replica, progress);
    }

    /// Sum over all images of this attempt. The round is that of the slowest.
    pub fn total(&self, generation: Generation) -> Option<Progress> {
        let images = || self.progress.values().filter(|_| self.generation == Some(generation));
        let sum = |part: fn(&Progress) -> u64| images().map(part).sum();
        Some(Progress {
            round: images().map(|image| image.round).min()?,
            done_bytes: sum(|image| image.done_bytes),
            total_bytes: sum(|image| image.total_bytes),
            bytes_per_second: sum(|image| image.bytes_per_second),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_images_of_the_same_checkpoint_are_added_up() {
        let of = |round, done_bytes| Progress { round, done_bytes, total_bytes: 1 << 30, bytes_per_second: 1 << 27 };
        let mut images = Images::default();
        assert_eq!(images.total(Generation(1)), None);
        images.record(Generation(1), ReplicaId::new(0, 0), of(3, 1 << 29));
        images.record(Generation(2), ReplicaId::new(0, 0), of(2, 1 << 28));
        images.record(Generation(2), ReplicaId::new(1, 0), of(1, 1 << 28));
        assert_eq!(images.total(Generation(1)), None);
        let total = images.total(Generation(2)).unwrap();
        assert_eq!((total.round, total.done_bytes, total.total_bytes), (1, 1 << 29, 1 << 31));
    }
}
