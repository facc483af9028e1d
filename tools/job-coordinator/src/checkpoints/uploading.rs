//! Upload of each host's part of a checkpoint to the object store, while the program runs. The commit follows.

use super::contents::Contents;
use super::{CheckpointEvent, Effect, Seen, lost_before};
use checkpoint_store::names::Name;
use checkpoint_store::place;
use redrt_wire::checkpoint::{Generation, PartOrder, PartStep};
use redrt_wire::daemon::ToDaemon;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::time::Duration;

/// The uploads of one checkpoint.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Uploading {
    contents: Contents,
    /// Hosts whose part is not in the object store yet.
    awaited: BTreeSet<u32>,
    begun_at: Duration,
}

/// The consequence of a daemon's report.
pub(super) enum Heard {
    Nothing,
    /// More has been moved: the upload is not late.
    Moved,
    /// A part cannot be stored, for this reason: the checkpoint is of no use.
    Void(String),
}

impl Uploading {
    /// Has each host send its part.
    pub fn begin(
        contents: Contents,
        directory: &Path,
        sealed_access: Option<&[u8]>,
        seen: Seen<'_>,
        out: &mut VecDeque<Effect>,
    ) -> Self {
        let (generation, awaited) = (contents.generation(), contents.cut.sources());
        let access = sealed_access.unwrap_or_default();
        order_uploads(generation, &awaited, |source| contents.files(source), (directory, access), out);
        Self { contents, awaited, begun_at: seen.now }
    }

    /// Handles a daemon's report about its upload.
    pub fn handle(&mut self, host: u32, step: PartStep, seen: Seen<'_>) -> Heard {
        match step {
            PartStep::Moved(_) => return Heard::Moved,
            PartStep::Stored(objects) => {
                if self.awaited.remove(&host) {
                    self.contents.objects.extend(objects);
                }
            }
            PartStep::Failed(why) if self.awaited.contains(&host) => {
                return Heard::Void(format!("on {}: {why}", seen.hosts.name(host)));
            }
            PartStep::Failed(_) | PartStep::Listening(_) | PartStep::Kept(_) => {}
        }
        Heard::Nothing
    }

    /// Handles a lost host. Returns why the checkpoint is of no use, if its part was not stored.
    pub fn lose(&self, host: u32, seen: Seen<'_>) -> Option<String> {
        self.awaited.contains(&host).then(|| lost_before(seen.hosts.name(host), self.contents.level))
    }

    /// True if all parts are in the object store.
    pub fn is_done(&self) -> bool {
        self.awaited.is_empty()
    }

    /// The checkpoint with its objects, to be committed.
    pub fn finish(self, seen: Seen<'_>, out: &mut VecDeque<Effect>) -> Contents {
        out.push_back(Effect::Note(CheckpointEvent::Uploaded {
            generation: self.contents.generation(),
            bytes: self.contents.objects.iter().map(|stored| stored.facts.bytes).sum(),
            object_count: self.contents.objects.len(),
            elapsed: seen.now - self.begun_at,
        }));
        Contents { hosts: seen.hosts.names(), ..self.contents }
    }
}

/// Has each of these hosts send its files of a checkpoint. `directory`: that of the job.
pub(super) fn order_uploads(
    generation: Generation,
    sources: &BTreeSet<u32>,
    files: impl Fn(u32) -> Vec<String>,
    (directory, sealed_access): (&Path, &[u8]),
    out: &mut VecDeque<Effect>,
) {
    for source in sources.iter().copied() {
        let order = PartOrder::Store {
            directory: place::of_host(directory, source, generation),
            files: files(source),
            prefix: Name::whole(generation).to_string(),
            sealed_access: sealed_access.to_vec(),
        };
        out.push_back(Effect::Send(source, ToDaemon::Part { generation, source, order }));
    }
}
