//! Progress of a checkpoint's images, for the user.

use super::Shell;
use super::clones::{progress_json, progress_text};
use redrt_types::ReplicaId;
use redrt_wire::clone::Progress;
use redrt_wire::line::Generation;
use serde_json::Value;
use std::collections::BTreeMap;

/// Progress by replica, for the newest checkpoint.
#[derive(Default)]
pub struct Saving {
    generation: Option<Generation>,
    images: BTreeMap<ReplicaId, Progress>,
}

impl Saving {
    fn note(&mut self, generation: Generation, replica: ReplicaId, progress: Progress) {
        if self.generation.replace(generation) != Some(generation) {
            self.images.clear();
        }
        self.images.insert(replica, progress);
    }

    /// Sum over all images. The round is that of the slowest.
    fn total(&self, generation: Generation) -> Option<Progress> {
        let images = || self.images.values().filter(|_| self.generation == Some(generation));
        let sum = |part: fn(&Progress) -> u64| images().map(part).sum();
        Some(Progress {
            round: images().map(|image| image.round).min()?,
            done_bytes: sum(|image| image.done_bytes),
            total_bytes: sum(|image| image.total_bytes),
            bytes_per_second: sum(|image| image.bytes_per_second),
        })
    }
}

impl Shell<'_> {
    /// Notes the progress of a process's image.
    pub(super) fn note_saving(&mut self, generation: Generation, replica: ReplicaId, progress: Progress) {
        self.saving.note(generation, replica, progress);
        self.note_clones();
    }

    fn saving_progress(&self) -> Option<(Generation, Progress)> {
        let generation = self.root.coordinator().line_under_way()?;
        Some((generation, self.saving.total(generation)?))
    }

    /// Progress of the checkpoint as a line.
    pub(super) fn saving_text(&self) -> Option<String> {
        let (generation, progress) = self.saving_progress()?;
        Some(format!("checkpoint {generation}: {}", progress_text(&progress)))
    }

    /// Progress of the checkpoint as JSON.
    pub(super) fn saving_json(&self) -> Option<Value> {
        self.saving_progress().map(|(_, progress)| progress_json(&progress))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_images_of_the_same_checkpoint_are_added_up() {
        let of = |round, done_bytes| Progress { round, done_bytes, total_bytes: 1 << 30, bytes_per_second: 1 << 27 };
        let mut saving = Saving::default();
        assert_eq!(saving.total(Generation(1)), None);
        saving.note(Generation(1), ReplicaId::new(0, 0), of(3, 1 << 29));
        saving.note(Generation(2), ReplicaId::new(0, 0), of(2, 1 << 28));
        saving.note(Generation(2), ReplicaId::new(1, 0), of(1, 1 << 28));
        assert_eq!(saving.total(Generation(1)), None);
        let total = saving.total(Generation(2)).unwrap();
        assert_eq!((total.round, total.done_bytes, total.total_bytes), (1, 1 << 29, 1 << 31));
        assert_eq!(progress_text(&total), "round 1, 25 % of 2.0 GiB, 256.0 MiB/s, 6 s left");
    }
}
