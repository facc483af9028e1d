//! Checkpoints of the job, from the place in the store to the commit.
//!
//! ```text
//!  it is due ─▶ Opening ─opened─▶ Writing: daemons write images ─all are on disk─┐
//!               store                                                            │
//!      ┌─ each host has its part, or all share one ──┬─ on partners ── in pieces ┴┬─ in an object store
//!      │                                             ▼                ▼           ▼
//!      │                                          Copying         Spreading   Uploading
//!      └──────────────▶ Committing ◀─────────────────┴────────────────┴───────────┘
//!                         store └─kept─▶ the newest, to which the job can go back ─due─▶ Archive
//! ```
//! Enters: orders of the replication manager, which follows the processes ([`replication_manager::CheckpointWatch`]);
//! answers of the store; reports of daemons about parts; losses of hosts. Leaves ([`Effect`]): orders for daemons and
//! the store, news for the replication manager, notes for the user. What others know comes in with each input
//! ([`Seen`]).
//!
//! Each stage has what it needs and no more, so nothing of one attempt can be taken for that of another. The
//! replication manager may drop an attempt at each stage. Then the order that the store has is still answered, and the
//! order to remove the attempt after it; if the checkpoint was kept all the same, it is the newest ([`orders`]).

mod archiving;
mod contents;
mod copying;
mod orders;
mod progress;
mod proven;
mod settings;
mod spreading;
mod uploading;
mod waiting;

pub use contents::{Contents, Cut};
pub use orders::{Opened, OrderNumber, StoreAnswer, StoreOrder, StoreWork};
pub use settings::CheckpointSettings;

use super::hosts::Hosts;
use super::mutation::{self, Mutation};
use archiving::{Archive, Next};
use checkpoint_store::{Level, Manifest, StoredCheckpoint, place};
use copying::Copying;
use orders::Orders;
use progress::Images;
use proven::Proven;
use redrt_types::ReplicaId;
use redrt_wire::checkpoint::{Building, CheckpointOrder, Generation, PartOrder, PartStep, Proof};
use redrt_wire::daemon::ToDaemon;
use replication_manager::{StoreFailure, StoreNews};
use serde::{Deserialize, Serialize};
use spreading::Spreading;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use uploading::{Heard, Uploading};
use waiting::Waiting;

/// The view of other machines at an input.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub now: Duration,
    pub hosts: &'a Hosts,
    /// True if the job ends with the checkpoint that is being taken, or that is asked for.
    pub stops: bool,
}

/// A consequence of an input.
#[derive(Debug)]
pub(super) enum Effect {
    /// For the daemon of this host.
    Send(u32, ToDaemon),
    /// For the store.
    Order(StoreOrder),
    /// For the replication manager.
    News(Generation, StoreNews),
    /// For the user.
    Note(CheckpointEvent),
    /// For a return: an older checkpoint was looked for, with the reasons why newer ones are not usable.
    Found(Option<Box<StoredCheckpoint>>, Vec<String>),
}

/// News of a checkpoint for the user and the audit log.
#[derive(Clone, Debug)]
pub enum CheckpointEvent {
    /// A host's part has no copy: the checkpoint does not survive the loss of this host.
    Uncopied {
        /// Number of the checkpoint.
        generation: Generation,
        /// Number of the host.
        host: u32,
        /// The reason.
        why: String,
    },
    /// Copies on partner hosts are complete.
    Copied {
        /// Number of the checkpoint.
        generation: Generation,
        /// Bytes of all copies.
        bytes: u64,
        /// Time since all images were on disk.
        elapsed: Duration,
        /// Number of hosts whose part has a copy.
        host_count: usize,
    },
    /// Pieces of all parts are on their hosts.
    Spread {
        /// Number of the checkpoint.
        generation: Generation,
        /// Bytes of all pieces.
        bytes: u64,
        /// Time since all images were on disk.
        elapsed: Duration,
        /// Number of hosts that have pieces.
        host_count: usize,
    },
    /// The checkpoint survives the loss of fewer hosts than its level promises.
    Weakened {
        /// Number of the checkpoint.
        generation: Generation,
        /// Number of hosts that may be lost together.
        survived: u32,
        /// The number at its level.
        wanted: u32,
        /// The reason.
        why: String,
    },
    /// All parts are in the object store.
    Uploaded {
        /// Number of the checkpoint.
        generation: Generation,
        /// Bytes of all objects.
        bytes: u64,
        /// Time since all images were on disk.
        elapsed: Duration,
        /// Number of objects.
        object_count: usize,
    },
    /// The checkpoint is in the archive too.
    Archived {
        /// Number of the checkpoint.
        generation: Generation,
        /// Bytes of all objects.
        bytes: u64,
        /// Time since it was kept.
        elapsed: Duration,
        /// Number of objects.
        object_count: usize,
    },
    /// A checkpoint is proven, and that is not recorded.
    Unrecorded {
        /// Number of the checkpoint.
        generation: Generation,
        /// The reason.
        why: String,
    },
    /// The checkpoint is kept, and is not in the archive.
    Unarchived {
        /// Number of the checkpoint.
        generation: Generation,
        /// The reason.
        why: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
enum Stage {
    /// The store makes a place for the images.
    Opening(OrderNumber),
    /// Daemons write images.
    Writing(Box<Opened>),
    /// Daemons copy their parts to partners.
    Copying(Box<Copying>),
    /// Daemons cut their parts into pieces for other hosts.
    Spreading(Box<Spreading>),
    /// Daemons send their parts to the object store.
    Uploading(Box<Uploading>),
    /// The store keeps the checkpoint.
    Committing,
}

#[derive(Debug, Serialize, Deserialize)]
struct Attempt {
    generation: Generation,
    stage: Stage,
}

/// Checkpoints of the job: see the module.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Checkpoints {
    /// None where no checkpoints are taken.
    settings: Option<CheckpointSettings>,
    /// The newest that is kept: of this life, or the one that this life began from.
    newest: Option<Box<StoredCheckpoint>>,
    attempt: Option<Attempt>,
    proven: Proven,
    /// None where only one store is used.
    archive: Option<Archive>,
    /// The key of encrypted manifests, sealed for daemons.
    #[serde(with = "serde_bytes")]
    sealed_key: Option<Vec<u8>>,
    /// Access to the archive, sealed for daemons.
    #[serde(with = "serde_bytes")]
    sealed_access: Option<Vec<u8>>,
    orders: Orders,
    images: Images,
    waiting: Waiting,
    /// Always drained before the state is saved.
    #[serde(skip)]
    effects: VecDeque<Effect>,
}

impl Checkpoints {
    /// Checkpoints of a job that begins from this one.
    pub fn new(settings: Option<CheckpointSettings>, from: Option<Box<StoredCheckpoint>>) -> Self {
        let interval = settings.as_ref().and_then(|settings| settings.archive_interval);
        let archived = settings.as_ref().and_then(|settings| settings.archived.clone());
        Self {
            archive: interval.map(|interval| Archive::new(interval, archived)),
            proven: Proven::new(settings.as_ref().and_then(|settings| settings.proven.clone())),
            settings,
            newest: from,
            attempt: None,
            sealed_key: None,
            sealed_access: None,
            orders: Orders::default(),
            images: Images::default(),
            waiting: Waiting::default(),
            effects: VecDeque::new(),
        }
    }

    pub fn newest(&self) -> Option<&StoredCheckpoint> {
        self.newest.as_deref()
    }

    /// The checkpoint with this number that a return may begin from: the newest, or the one that is proven.
    pub fn usable(&self, generation: Generation) -> Option<&StoredCheckpoint> {
        let all = self.newest().into_iter().chain(self.proven.newest());
        all.into_iter().find(|kept| kept.manifest.generation == generation)
    }

    /// The job ends because its replicas differ.
    pub fn differ(&mut self) {
        self.proven.differ();
    }

    /// Bytes of standard input that are in the images of the oldest checkpoint to which the job may go back, besides
    /// the newest.
    pub fn older_input_bytes(&self) -> Option<u64> {
        self.proven.input_bytes()
    }

    /// The checkpoint from which the job is to be resumed, if not from the newest.
    pub fn resumable(&self) -> Option<Generation> {
        self.proven.instead_of(self.newest())
    }

    /// A checkpoint is proven: the store records that, and so do all hosts.
    pub fn prove(&mut self, generation: Generation, proof: Proof) {
        if let Some(manifest) = self.proven.prove(generation, proof, self.newest.as_deref_mut()) {
            let order = self.orders.give(StoreWork::Prove(Box::new(manifest)));
            self.effects.push_back(Effect::Order(order));
        }
    }

    /// The newest that the archive has, as it is loaded from there.
    pub fn archived(&self) -> Option<&StoredCheckpoint> {
        self.archive.as_ref().and_then(Archive::newest)
    }

    /// Orders to the store without an answer. A coordinator that comes back repeats them.
    pub fn unanswered(&self) -> impl Iterator<Item = StoreOrder> + '_ {
        self.orders.to_repeat()
    }

    pub fn images(&self) -> &Images {
        &self.images
    }

    pub fn images_mut(&mut self) -> &mut Images {
        &mut self.images
    }

    pub fn waiting_mut(&mut self) -> &mut Waiting {
        &mut self.waiting
    }

    /// Handles an answer of the store. `sources`: processes whose images the attempt is to have, with their hosts.
    pub fn handle_store(
        &mut self,
        number: OrderNumber,
        answer: StoreAnswer,
        sources: &[(ReplicaId, u32)],
        seen: Seen<'_>,
    ) {
        // Without an order: it was answered before, or belongs to an earlier life.
        let Some((number, work)) = self.orders.answered(number, &answer) else { return };
        let generation = work.generation();
        match (work, answer) {
            (StoreWork::Open { .. }, StoreAnswer::Opened(opened)) => self.opened(number, *opened, sources, seen),
            (StoreWork::Open { .. }, StoreAnswer::Failed(why)) => {
                self.announce(generation, StoreNews::Failed(StoreFailure::NoPlace(why)));
            }
            (StoreWork::Commit(_), StoreAnswer::Kept(kept)) => self.kept(kept, seen),
            (StoreWork::Commit(_), StoreAnswer::Failed(why)) => self.not_kept(generation, why),
            (StoreWork::Archive(_), answer @ (StoreAnswer::Archived(_) | StoreAnswer::Failed(_))) => {
                let archive = self.archive.as_mut();
                let next = archive.map(|archive| archive.published(generation, answer, seen, &mut self.effects));
                self.go_on_archiving(next, seen);
            }
            // Hosts after the store: the daemon here writes to the same directory.
            (StoreWork::Prove(manifest), StoreAnswer::Proven) => self.settle(&manifest, false, seen),
            (StoreWork::Prove(_), StoreAnswer::Failed(why)) => {
                self.effects.push_back(Effect::Note(CheckpointEvent::Unrecorded { generation, why }));
            }
            (StoreWork::Drop(_), StoreAnswer::Dropped(kept)) => {
                kept.into_iter().for_each(|kept| self.kept(kept, seen));
                self.announce(generation, StoreNews::Dropped);
            }
            (StoreWork::FindOlder(_), StoreAnswer::Found { kept, passed_over }) => {
                self.effects.push_back(Effect::Found(kept, passed_over));
            }
            // No other answer fits an order.
            _ => {}
        }
    }

    /// Handles a daemon's report about the part of `source`.
    pub fn handle_part(&mut self, host: u32, generation: Generation, source: u32, step: PartStep, seen: Seen<'_>) {
        let Some(settings) = &self.settings else { return };
        let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.generation == generation) else {
            let archive = self.archive.as_mut();
            let next = archive.map(|archive| archive.handle(host, generation, step, seen, &mut self.effects));
            return self.go_on_archiving(next, seen);
        };
        match &mut attempt.stage {
            Stage::Copying(copying) => {
                copying.handle(host, source, step, &settings.directory, seen, &mut self.effects);
            }
            Stage::Spreading(spreading) => {
                let out = &mut self.effects;
                if let Some(why) = spreading.handle(host, source, step, &settings.directory, seen, out) {
                    self.not_kept(generation, why);
                }
            }
            Stage::Uploading(uploading) => match uploading.handle(host, step, seen) {
                Heard::Nothing => {}
                Heard::Moved => self.announce(generation, StoreNews::Moving),
                Heard::Void(why) => self.not_kept(generation, why),
            },
            Stage::Opening(_) | Stage::Writing(_) | Stage::Committing => {}
        }
        self.commit_when_done(seen);
    }

    /// Handles a host that left the job with all that it had.
    pub fn lose_host(&mut self, host: u32, seen: Seen<'_>) {
        let next = self.archive.as_mut().map(|archive| archive.lose(host, seen, &mut self.effects));
        self.go_on_archiving(next, seen);
        let Some((settings, attempt)) = self.settings.as_ref().zip(self.attempt.as_mut()) else { return };
        let void = match &mut attempt.stage {
            Stage::Copying(copying) => copying.lose(host, seen, &mut self.effects),
            Stage::Spreading(spreading) => spreading.lose(host, &settings.directory, seen, &mut self.effects),
            Stage::Uploading(uploading) => uploading.lose(host, seen),
            // Which images are lost with the host depends on processes: the replication manager decides.
            Stage::Opening(_) | Stage::Writing(_) | Stage::Committing => None,
        };
        match void {
            Some(why) => {
                let generation = attempt.generation;
                self.not_kept(generation, why);
            }
            None => self.commit_when_done(seen),
        }
    }

    /// Has the store look for the newest usable checkpoint before this one.
    pub fn find_older(&mut self, than: Generation) {
        let order = self.orders.give(StoreWork::FindOlder(than));
        self.effects.push_back(Effect::Order(order));
    }

    /// Begins an attempt.
    pub fn open(&mut self, generation: Generation, seen: Seen<'_>) {
        let archive = self.archive.as_mut();
        let is_to_archive = archive.is_some_and(|archive| archive.open(generation, seen, &mut self.effects));
        let may_be_built = !is_to_archive || mutation::is(Mutation::ArchivedWithoutChain);
        let basis = self.newest().filter(|_| may_be_built).map(|kept| kept.manifest.generation);
        let order = self.orders.give(StoreWork::Open { generation, basis });
        self.attempt = Some(Attempt { generation, stage: Stage::Opening(order.number) });
        self.effects.push_back(Effect::Order(order));
    }

    /// All images are on disk: copies them where the level asks for it, and then has them kept.
    pub fn written(&mut self, cut: Cut, seen: Seen<'_>) {
        let Some((settings, attempt)) = self.settings.as_ref().zip(self.attempt.as_mut()) else { return };
        let Stage::Writing(opened) = &attempt.stage else { return };
        let level = settings.level;
        let basis = opened.basis.as_deref();
        let chain = basis.iter().flat_map(|basis| std::iter::once(&basis.generation).chain(&basis.chain));
        let contents = Contents {
            hosts: seen.hosts.names(),
            chain: chain.copied().collect(),
            level,
            copies: if level.is_of_hosts() { vec![None; seen.hosts.count() as usize] } else { Vec::new() },
            objects: Vec::new(),
            pieces: Vec::new(),
            has_host_memory: settings.has_host_memory,
            pinned: pinned_now(self.archive.as_ref(), &self.proven, &cut.taken.on_trial),
            cut,
        };
        if (level.is_fetched() || level.has_copies())
            && !mutation::is(Mutation::LostSourceAsked)
            && let Some(gone) = contents.cut.sources().into_iter().find(|source| !seen.hosts.has(*source))
        {
            let why = lost_before(seen.hosts.name(gone), level);
            return self.not_kept(contents.generation(), why);
        }
        let (directory, out) = (&settings.directory, &mut self.effects);
        if let Some(code) = level.code() {
            let places = settings.places(seen.hosts);
            let spreading = Spreading::begin(contents, code, &places, (directory, &opened.beside), seen, out);
            attempt.stage = Stage::Spreading(Box::new(spreading));
        } else if level.is_fetched() {
            let access = opened.sealed_access.as_deref();
            let uploading = Uploading::begin(contents, directory, access, seen, out);
            attempt.stage = Stage::Uploading(Box::new(uploading));
        } else if level.has_copies() {
            let places = settings.places(seen.hosts);
            let copying = Copying::begin(contents, basis, &places, (directory, &opened.beside), seen, out);
            attempt.stage = Stage::Copying(Box::new(copying));
        } else {
            return self.commit(contents);
        }
        self.commit_when_done(seen);
    }

    /// Gives an attempt up.
    pub fn drop(&mut self, generation: Generation) {
        self.attempt.take_if(|attempt| attempt.generation == generation);
        if let Some(archive) = &mut self.archive {
            archive.drop(generation);
        }
        let order = self.orders.give(StoreWork::Drop(generation));
        self.effects.push_back(Effect::Order(order));
    }

    /// Begins another life from this checkpoint.
    pub fn begin_life(&mut self, from: Option<Box<StoredCheckpoint>>) {
        if let Some(archive) = &mut self.archive {
            archive.begin_life(from.as_ref().map(|from| from.manifest.generation));
        }
        self.proven.begin_life(from.as_ref().map(|from| from.manifest.generation));
        (self.newest, self.attempt) = (from, None);
        self.orders.begin_life();
        self.waiting.begin_life();
    }

    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Has each host begin its images, if the attempt still waits for this place.
    fn opened(&mut self, number: OrderNumber, opened: Opened, sources: &[(ReplicaId, u32)], seen: Seen<'_>) {
        let Some((settings, attempt)) = self.settings.as_ref().zip(self.attempt.as_mut()) else { return };
        if !matches!(attempt.stage, Stage::Opening(awaited) if awaited == number) {
            return;
        }
        let generation = attempt.generation;
        let opened = Opened { basis: opened.basis.filter(|basis| settings.can_build_on(basis, seen.hosts)), ..opened };
        let building = match &opened.basis {
            _ if !settings.are_chained => Building::Alone,
            None => Building::First,
            Some(basis) => Building::On(basis.generation),
        };
        let is_of_hosts = settings.level.is_of_hosts();
        for host in seen.hosts.members() {
            let directory = match is_of_hosts {
                true => place::of_host(&settings.directory, host, generation),
                false => opened.directory.clone(),
            };
            let order = CheckpointOrder::Begin {
                sources: sources.iter().filter(|(_, at)| *at == host).map(|(source, _)| *source).collect(),
                directory,
                own_beside: is_of_hosts.then(|| opened.beside.clone()),
                building,
                compression: settings.compression,
                sealed_key: opened.sealed_key.clone(),
            };
            self.effects.push_back(Effect::Send(host, ToDaemon::Checkpoint { generation, order }));
        }
        self.sealed_key.clone_from(&opened.sealed_key);
        self.sealed_access.clone_from(&opened.sealed_access);
        attempt.stage = Stage::Writing(Box::new(opened));
        self.announce(generation, StoreNews::Opened);
    }

    fn commit_when_done(&mut self, seen: Seen<'_>) {
        let is_done = |attempt: &Attempt| match &attempt.stage {
            Stage::Copying(copying) => copying.is_done(),
            Stage::Spreading(spreading) => spreading.is_done(),
            Stage::Uploading(uploading) => uploading.is_done(),
            Stage::Opening(_) | Stage::Writing(_) | Stage::Committing => false,
        };
        let Some(attempt) = self.attempt.as_mut().filter(|attempt| is_done(attempt)) else { return };
        let contents = match std::mem::replace(&mut attempt.stage, Stage::Committing) {
            Stage::Copying(copying) => copying.finish(seen, &mut self.effects),
            Stage::Spreading(spreading) => spreading.finish(seen, &mut self.effects),
            Stage::Uploading(uploading) => uploading.finish(seen, &mut self.effects),
            Stage::Opening(_) | Stage::Writing(_) | Stage::Committing => unreachable!("it was looked at above"),
        };
        self.commit(contents);
    }

    fn commit(&mut self, contents: Contents) {
        if let Some(attempt) = &mut self.attempt {
            attempt.stage = Stage::Committing;
        }
        let order = self.orders.give(StoreWork::Commit(Box::new(contents)));
        self.effects.push_back(Effect::Order(order));
    }

    /// The store has a checkpoint, perhaps one that was given up while the store did not answer.
    fn kept(&mut self, kept: Box<StoredCheckpoint>, seen: Seen<'_>) {
        let generation = kept.manifest.generation;
        let is_awaited = self.attempt.take_if(|attempt| attempt.generation == generation).is_some();
        let access = self.sealed_access.as_deref().unwrap_or_default();
        let has_to_wait = self
            .settings
            .as_ref()
            .zip(self.archive.as_mut())
            .is_some_and(|(settings, archive)| archive.kept(&kept, (settings, access), seen, &mut self.effects));
        self.settle(&kept.manifest, true, seen);
        if self.newest().is_none_or(|newest| newest.manifest.generation < generation) {
            let before = self.newest.replace(kept);
            self.proven.replaced(before, self.newest.as_deref());
        }
        if is_awaited && has_to_wait {
            return;
        }
        if let Some(archive) = &mut self.archive {
            archive.announced(generation);
        }
        self.announce(generation, StoreNews::Committed);
    }

    fn go_on_archiving(&mut self, next: Option<Next>, seen: Seen<'_>) {
        match next {
            None | Some(Next::Nothing) => {}
            Some(Next::Moving(generation)) => self.announce(generation, StoreNews::Moving),
            Some(Next::Publish(manifest)) => {
                let order = self.orders.give(StoreWork::Archive(manifest));
                self.effects.push_back(Effect::Order(order));
            }
            Some(Next::Over(generation, is_waited_for)) => {
                // Whole files that pieces replace have stayed for the archive.
                if let Some(newest) = self.newest.clone().filter(|newest| newest.manifest.level.code().is_some()) {
                    self.settle(&newest.manifest, true, seen);
                }
                if is_waited_for {
                    self.announce(generation, StoreNews::Committed);
                }
            }
        }
    }

    /// The processes of a life that began with a checkpoint have met: hosts that were not part of the job when it was
    /// taken get its manifest.
    pub fn met(&mut self, seen: Seen<'_>) {
        if let Some(newest) = self.newest.clone() {
            self.settle(&newest.manifest, false, seen);
        }
    }

    /// Has each host of the job keep the manifest of a checkpoint whose parts hosts have: the job can be resumed on any
    /// of them. If the checkpoint is new, hosts remove the whole files that its pieces replace: of this one, those that
    /// it is built on, and the one from which processes were loaded.
    fn settle(&mut self, manifest: &Manifest, is_new: bool, seen: Seen<'_>) {
        let (Some(settings), true, Ok(bytes)) = (&self.settings, manifest.level.is_on_hosts(), manifest.to_bytes())
        else {
            return;
        };
        let before = self.newest.as_deref().map(|kept| &kept.manifest);
        let all = std::iter::once(manifest).chain(before);
        let with_chain = |of: &Manifest| std::iter::once(of.generation).chain(of.chain.clone()).collect::<Vec<_>>();
        let in_pieces = all.clone().filter(|of| is_new && of.level.code().is_some());
        let on_its_way = self.archive.as_ref().and_then(Archive::on_its_way);
        let replaced: BTreeSet<_> =
            in_pieces.flat_map(with_chain).filter(|generation| Some(*generation) != on_its_way).collect();
        let pinned = all.clone().flat_map(|of| of.pinned.clone());
        let pinned = pinned.chain(pinned_now(self.archive.as_ref(), &self.proven, &[])).collect::<Vec<_>>();
        let beside: BTreeSet<_> = all.flat_map(with_chain).chain(pinned).collect();
        for host in seen.hosts.members() {
            let order = PartOrder::Settle {
                job: settings.directory.clone(),
                beside: beside.iter().copied().collect(),
                replaced: replaced.iter().copied().collect(),
                manifest: bytes.clone(),
                sealed_key: self.sealed_key.clone(),
            };
            let message = ToDaemon::Part { generation: manifest.generation, source: host, order };
            self.effects.push_back(Effect::Send(host, message));
        }
    }

    fn not_kept(&mut self, generation: Generation, why: String) {
        // The replication manager gives the attempt up too, and has what is left removed.
        self.attempt.take_if(|attempt| attempt.generation == generation);
        self.announce(generation, StoreNews::Failed(StoreFailure::NotKept(why)));
    }

    fn announce(&mut self, generation: Generation, news: StoreNews) {
        self.effects.push_back(Effect::News(generation, news));
    }
}

/// Checkpoints that stay though newer ones are kept: for the archive, and those of which one is proven or may be.
fn pinned_now(archive: Option<&Archive>, proven: &Proven, on_trial: &[Generation]) -> Vec<Generation> {
    let for_archive = archive.map(Archive::pinned).unwrap_or_default();
    let proven = proven.newest().filter(|_| !mutation::is(Mutation::ProvenNotPinned));
    let proven = proven.map(|proven| proven.manifest.generation);
    let all: BTreeSet<_> = for_archive.into_iter().chain(proven).chain(on_trial.iter().copied()).collect();
    all.into_iter().collect()
}

/// The reason for the user why a checkpoint is of no use without this host.
fn lost_before(name: &str, level: Level) -> String {
    let where_to = match level {
        Level::Object => "in the object store",
        Level::Erasure(_) => "in pieces on other hosts",
        _ => "copied",
    };
    format!("{name} was lost before its part was {where_to}")
}
