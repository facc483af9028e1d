//! Upload of each host's part of a checkpoint to the object store, while the program runs. The commit follows.
//!
//! All steps follow from inputs of the root alone, so a root that comes back is in the same state.

use super::Shell;
use coordinator::{StoreFailure, StoreNews, TakenLine};
use line_store::names::Name;
use redrt_wire::daemon::ToDaemon;
use redrt_wire::line::{Generation, PartOrder, PartStep};
use redrt_wire::object::Stored;
use std::collections::BTreeSet;
use std::time::Instant;

/// Uploads for one checkpoint.
pub struct Storing {
    taken: TakenLine,
    awaited: BTreeSet<u32>,
    objects: Vec<Stored>,
    begun: Instant,
}

impl Storing {
    pub fn generation(&self) -> Generation {
        self.taken.generation
    }
}

impl Shell<'_> {
    /// Begins the uploads for a checkpoint whose images are all on their hosts' disks.
    pub(super) fn store_line(&mut self, taken: TakenLine) {
        let generation = taken.generation;
        let sealed = match self.sealed_access() {
            Ok(sealed) => sealed.unwrap_or_default(),
            Err(error) => {
                let why = StoreFailure::NotKept(format!("{error:#}"));
                return self.hear_of_line(generation, StoreNews::Failed(why));
            }
        };
        let awaited = self.sources_of(&taken);
        for source in &awaited {
            let order = PartOrder::Store {
                directory: self.place(*source, generation),
                files: self.files_of(&taken, *source),
                prefix: Name::whole(generation).to_string(),
                sealed_access: sealed.clone(),
            };
            self.relay(Some(*source), &ToDaemon::Part { generation, source: *source, order });
        }
        self.storing = Some(Storing { taken, awaited, objects: Vec::new(), begun: Instant::now() });
    }

    /// Handles a daemon's report about its upload.
    pub(super) fn hear_of_storing(&mut self, host: u32, generation: Generation, step: PartStep) {
        let Some(storing) = self.storing.as_mut().filter(|storing| storing.generation() == generation) else { return };
        match step {
            PartStep::Moved(_) => self.hear_of_line(generation, StoreNews::Moving),
            PartStep::Stored(objects) => {
                if storing.awaited.remove(&host) {
                    storing.objects.extend(objects);
                }
                self.finish_storing();
            }
            PartStep::Failed(why) if storing.awaited.contains(&host) => {
                let why = format!("on {}: {why}", self.fleet.name(host));
                self.give_up_storing(generation, why);
            }
            PartStep::Failed(_) | PartStep::Listening(_) | PartStep::Kept(_) => {}
        }
    }

    /// Gives the checkpoint up if the lost host had not finished its upload.
    pub(super) fn storer_lost(&mut self, host: u32) {
        let Some(storing) = self.storing.as_ref().filter(|storing| storing.awaited.contains(&host)) else { return };
        let generation = storing.generation();
        let why = format!("{} was lost before its part was in the object store", self.fleet.name(host));
        self.give_up_storing(generation, why);
    }

    fn give_up_storing(&mut self, generation: Generation, why: String) {
        self.storing = None;
        self.hear_of_line(generation, StoreNews::Failed(StoreFailure::NotKept(why)));
    }

    fn finish_storing(&mut self) {
        let Some(storing) = self.storing.take_if(|storing| storing.awaited.is_empty()) else { return };
        let bytes: u64 = storing.objects.iter().map(|stored| stored.facts.bytes).sum();
        let fields = serde_json::json!({
            "generation": storing.generation().0, "bytes": bytes, "objects": storing.objects.len(),
            "seconds": storing.begun.elapsed().as_secs_f64(),
        });
        self.record("checkpoint-stored", &fields);
        self.keep_line(storing.taken, &[], storing.objects);
    }
}
