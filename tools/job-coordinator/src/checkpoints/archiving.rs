//! Copies of kept checkpoints in the archive: a store that survives the loss of all hosts, for levels that do not.
//!
//! ```text
//!              opened, due        kept          all parts stored         published
//!    Resting ────────────▶ Full ────────▶ Sending ───────────▶ Publishing ─────────▶ Resting
//!       ▲                   │ given up       │ a host fails, is lost,     │ the store fails
//!       └───────────────────┴────────────────┴─ or says nothing ──────────┘
//! ```
//! The program runs meanwhile, and further checkpoints are taken. One that goes to the archive has all memory: the
//! checkpoints that it would be built on are not there. It stays on its hosts until the archive has it. The job may
//! wait for it: one that ends with the checkpoint does, since it may not get these hosts again.

use super::contents::files_of;
use super::uploading::order_uploads;
use super::{CheckpointEvent, CheckpointSettings, Effect, Seen, StoreAnswer};
use crate::mutation::{self, Mutation};
use checkpoint_store::{Manifest, StoredCheckpoint, archived_manifest};
use redrt_wire::checkpoint::{Generation, PartStep};
use redrt_wire::object::Stored;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// After a failure the next attempt is made after this part of the interval.
const RETRY_PART: u32 = 4;
/// Time without news after which an attempt is given up.
const SILENCE_MAX: Duration = replication_manager::WRITE_TIME_MAX;

#[derive(Debug, Default, Serialize, Deserialize)]
enum Stage {
    #[default]
    Resting,
    /// This checkpoint is being taken.
    Full(Generation),
    /// Hosts send their parts of this one.
    Sending(Box<Sending>),
    /// The store publishes its manifest.
    Publishing(Box<Sending>),
}

#[derive(Debug, Serialize, Deserialize)]
struct Sending {
    manifest: Box<Manifest>,
    /// Hosts whose part is not in the archive yet.
    awaited: BTreeSet<u32>,
    objects: Vec<Stored>,
    begun_at: Duration,
    heard_at: Duration,
    /// True if the checkpoint counts only when it is in the archive, or cannot be.
    is_waited_for: bool,
}

/// The consequence of an input.
#[derive(Debug)]
pub(super) enum Next {
    Nothing,
    /// The archive has all parts: the store is to publish this manifest.
    Publish(Box<Manifest>),
    /// The attempt is over. True if the checkpoint's commit waited for it.
    Over(Generation, bool),
    /// More was sent of a checkpoint whose commit waits.
    Moving(Generation),
}

/// The archive of a job: see the module.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Archive {
    interval: Duration,
    due: Duration,
    stage: Stage,
    /// The newest that is there, as it is loaded from there.
    newest: Option<Box<StoredCheckpoint>>,
}

impl Archive {
    /// An archive that gets a checkpoint at this interval. `newest`: the one that is there.
    pub fn new(interval: Duration, newest: Option<Box<StoredCheckpoint>>) -> Self {
        Self { interval, due: interval, stage: Stage::Resting, newest }
    }

    pub fn newest(&self) -> Option<&StoredCheckpoint> {
        self.newest.as_deref()
    }

    /// An attempt to take a checkpoint begins. Returns true if it is to be archived: then it must have all memory.
    pub fn open(&mut self, generation: Generation, seen: Seen<'_>, out: &mut VecDeque<Effect>) -> bool {
        if let Stage::Sending(sending) | Stage::Publishing(sending) = &self.stage
            && seen.now > sending.heard_at + SILENCE_MAX
        {
            let _ = self.fail(format!("nothing was heard of it for {} s", SILENCE_MAX.as_secs()), seen, out);
        }
        // The one with which the job ends takes the place of an older one on its way.
        let is_last = seen.stops && !mutation::is(Mutation::StopUnarchived);
        let is_free = matches!(self.stage, Stage::Resting | Stage::Full(_));
        let is_wanted = is_last || is_free && seen.now >= self.due;
        if is_wanted {
            self.stage = Stage::Full(generation);
        }
        is_wanted
    }

    /// The checkpoint that is to be archived: it has to stay on its hosts until it is.
    pub fn on_its_way(&self) -> Option<Generation> {
        match &self.stage {
            Stage::Resting => None,
            Stage::Full(generation) => Some(*generation),
            Stage::Sending(sending) | Stage::Publishing(sending) => Some(sending.manifest.generation),
        }
    }

    /// Checkpoints that have to stay on hosts though newer ones are kept.
    pub fn pinned(&self) -> Vec<Generation> {
        self.on_its_way().into_iter().chain(self.newest().map(|newest| newest.manifest.generation)).collect()
    }

    /// A checkpoint is kept: each host sends its part if it is to be archived. Returns true if its commit has to wait
    /// for that.
    pub fn kept(
        &mut self,
        kept: &StoredCheckpoint,
        (settings, sealed_access): (&CheckpointSettings, &[u8]),
        seen: Seen<'_>,
        out: &mut VecDeque<Effect>,
    ) -> bool {
        let manifest = &kept.manifest;
        let generation = manifest.generation;
        if !matches!(self.stage, Stage::Full(wanted) if wanted == generation) {
            return false;
        }
        let awaited: BTreeSet<_> = manifest.members.iter().map(|member| member.host).collect();
        if let Some(gone) = awaited.iter().find(|source| !seen.hosts.has(**source)) {
            let why = lost_before_stored(seen.hosts.name(*gone));
            self.give_up(generation, why, seen, out);
            return false;
        }
        let files = |source| files_of(&manifest.members, settings.has_host_memory, source);
        order_uploads(generation, &awaited, files, (&settings.directory, sealed_access), out);
        self.stage = Stage::Sending(Box::new(Sending {
            manifest: Box::new(manifest.clone()),
            awaited,
            objects: Vec::new(),
            begun_at: seen.now,
            heard_at: seen.now,
            is_waited_for: seen.stops,
        }));
        seen.stops
    }

    /// A checkpoint was given up.
    pub fn drop(&mut self, generation: Generation) {
        if matches!(self.stage, Stage::Full(wanted) if wanted == generation) {
            self.stage = Stage::Resting;
        }
    }

    /// Stops waiting: the commit of this checkpoint is announced already.
    pub fn announced(&mut self, generation: Generation) {
        if let Stage::Sending(sending) | Stage::Publishing(sending) = &mut self.stage
            && sending.manifest.generation == generation
        {
            sending.is_waited_for = false;
        }
    }

    /// Handles a daemon's report about its part.
    pub fn handle(
        &mut self,
        host: u32,
        generation: Generation,
        step: PartStep,
        seen: Seen<'_>,
        out: &mut VecDeque<Effect>,
    ) -> Next {
        let Stage::Sending(sending) = &mut self.stage else { return Next::Nothing };
        if sending.manifest.generation != generation || !sending.awaited.contains(&host) {
            return Next::Nothing;
        }
        sending.heard_at = seen.now;
        match step {
            PartStep::Moved(_) if sending.is_waited_for => Next::Moving(generation),
            PartStep::Stored(objects) => {
                sending.awaited.remove(&host);
                sending.objects.extend(objects);
                let is_complete = sending.awaited.is_empty() || mutation::is(Mutation::ArchivedInPart);
                if is_complete { self.publish() } else { Next::Nothing }
            }
            PartStep::Failed(why) => self.fail(format!("on {}: {why}", seen.hosts.name(host)), seen, out),
            PartStep::Moved(_) | PartStep::Listening(_) | PartStep::Kept(_) => Next::Nothing,
        }
    }

    fn publish(&mut self) -> Next {
        let Stage::Sending(sending) = std::mem::take(&mut self.stage) else { return Next::Nothing };
        let manifest = archived_manifest(&sending.manifest, sending.objects.clone());
        self.stage = Stage::Publishing(sending);
        Next::Publish(Box::new(manifest))
    }

    /// A host left the job.
    pub fn lose(&mut self, host: u32, seen: Seen<'_>, out: &mut VecDeque<Effect>) -> Next {
        match &self.stage {
            Stage::Sending(sending) if sending.awaited.contains(&host) => {
                self.fail(lost_before_stored(seen.hosts.name(host)), seen, out)
            }
            _ => Next::Nothing,
        }
    }

    /// The store has answered.
    pub fn published(
        &mut self,
        generation: Generation,
        answer: StoreAnswer,
        seen: Seen<'_>,
        out: &mut VecDeque<Effect>,
    ) -> Next {
        let sending = match std::mem::take(&mut self.stage) {
            Stage::Publishing(sending) if sending.manifest.generation == generation => sending,
            other => {
                self.stage = other;
                return Next::Nothing;
            }
        };
        let kept = match answer {
            StoreAnswer::Archived(kept) => kept,
            StoreAnswer::Failed(why) => {
                self.give_up(generation, why, seen, out);
                return Next::Over(generation, sending.is_waited_for);
            }
            _ => return Next::Nothing,
        };
        self.due = sending.begun_at + self.interval;
        out.push_back(Effect::Note(CheckpointEvent::Archived {
            generation,
            bytes: sending.objects.iter().map(|stored| stored.facts.bytes).sum(),
            elapsed: seen.now - sending.begun_at,
            object_count: sending.objects.len(),
        }));
        self.newest = Some(kept);
        Next::Over(generation, sending.is_waited_for)
    }

    fn fail(&mut self, why: String, seen: Seen<'_>, out: &mut VecDeque<Effect>) -> Next {
        let (Stage::Sending(sending) | Stage::Publishing(sending)) = std::mem::take(&mut self.stage) else {
            return Next::Nothing;
        };
        let generation = sending.manifest.generation;
        self.give_up(generation, why, seen, out);
        Next::Over(generation, sending.is_waited_for)
    }

    fn give_up(&mut self, generation: Generation, why: String, seen: Seen<'_>, out: &mut VecDeque<Effect>) {
        self.stage = Stage::Resting;
        self.due = seen.now + self.interval / RETRY_PART;
        out.push_back(Effect::Note(CheckpointEvent::Unarchived { generation, why }));
    }

    /// A life begins from this checkpoint: newer ones do not count any more.
    pub fn begin_life(&mut self, from: Option<Generation>) {
        self.stage = Stage::Resting;
        self.newest.take_if(|newest| from.is_none_or(|from| newest.manifest.generation > from));
    }
}

fn lost_before_stored(name: &str) -> String {
    format!("{name} was lost before its part was there")
}
