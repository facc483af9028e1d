//! The store of checkpoints, and the parts that hosts have. The store carries out one order after another, late or
//! never.

use super::Mistake;
use crate::{Contents, OrderNumber, StoreAnswer, StoreOrder, StoreWork};
use checkpoint_store::pieces::Code;
use checkpoint_store::{Level, Manifest, StoredCheckpoint};
use redrt_types::World;
use redrt_wire::checkpoint::Generation;
use redrt_wire::control::Options;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The store, and what is on hosts.
#[derive(Default)]
pub struct Storage {
    /// Orders that were not carried out.
    work: VecDeque<StoreOrder>,
    /// Numbers of all orders so far. A coordinator that came back repeats some.
    given: BTreeSet<OrderNumber>,
    /// True while the store does nothing.
    pub is_stuck: bool,
    /// Places for images.
    places: BTreeSet<Generation>,
    /// Checkpoints that the store has kept.
    kept: BTreeMap<Generation, StoredCheckpoint>,
    /// Checkpoints in the archive.
    archived: BTreeMap<Generation, StoredCheckpoint>,
    /// Copies that are whole: checkpoint, host whose part it is, host that has the copy.
    copied: BTreeSet<(Generation, u32, u32)>,
    /// Parts in the object store.
    uploaded: BTreeSet<(Generation, u32)>,
    /// Pieces that are whole: checkpoint, host whose part it is, index, host that has the piece.
    pieces: BTreeSet<(Generation, u32, u8, u32)>,
    /// Parts of which a daemon has failed to make or to keep pieces.
    failed: BTreeSet<(Generation, u32)>,
    /// The places of the job.
    pub world: Option<World>,
}

impl Storage {
    pub fn newest(&self) -> Option<&StoredCheckpoint> {
        self.kept.values().next_back()
    }

    pub fn has_work(&self) -> bool {
        !self.work.is_empty()
    }

    pub fn work(&self) -> &VecDeque<StoreOrder> {
        &self.work
    }

    /// True if daemons can write images of this checkpoint.
    pub fn has_place(&self, generation: Generation) -> bool {
        self.places.contains(&generation)
    }

    pub fn copied(&mut self, generation: Generation, source: u32, partner: u32) {
        self.copied.insert((generation, source, partner));
    }

    pub fn uploaded(&mut self, generation: Generation, source: u32) {
        self.uploaded.insert((generation, source));
    }

    pub fn piece(&mut self, generation: Generation, source: u32, index: u8, holder: u32) {
        self.pieces.insert((generation, source, index, holder));
    }

    pub fn piece_failed(&mut self, generation: Generation, source: u32) {
        self.failed.insert((generation, source));
    }

    /// A part in pieces that does not give it back, or of which a piece is missing for no reason.
    fn lost_pieces(&self, contents: &Contents, code: Code, source: u32, dead_hosts: &BTreeSet<u32>) -> Option<String> {
        let generation = contents.cut.taken.generation;
        let pieces: Vec<_> = (0..).zip(contents.pieces[source as usize].iter().copied()).collect();
        let has = |index: u8, holder: u32| self.pieces.contains(&(generation, source, index, holder));
        for (index, holder) in &pieces {
            match holder {
                Some(holder) if !has(*index, *holder) || dead_hosts.contains(holder) => {
                    return Some(format!(
                        "{generation}: host {holder} has no piece {index} of the part of host {source}"
                    ));
                }
                None if dead_hosts.is_empty() && !self.failed.contains(&(generation, source)) => {
                    return Some(format!(
                        "{generation} is to be committed before piece {index} of host {source} is kept"
                    ));
                }
                Some(_) | None => {}
            }
        }
        let left = pieces.iter().filter(|(_, holder)| holder.is_some()).count();
        let is_lost = left < code.data.into();
        is_lost.then(|| format!("{generation} is to be committed, and the part of host {source} is lost"))
    }

    /// The job is loaded from this checkpoint: newer ones are of no use.
    pub fn abandon_newer(&mut self, than: Generation) {
        self.kept.retain(|generation, _| *generation <= than);
        self.archived.retain(|generation, _| *generation <= than);
    }

    /// The process of the store ends, and its orders with it.
    pub fn lose_process(&mut self) {
        self.work.clear();
    }

    /// Takes an order. Returns what is wrong with it.
    pub fn take(&mut self, order: StoreOrder, dead_hosts: &BTreeSet<u32>) -> Option<String> {
        let wrong = match &order.work {
            // A repeated order is as right as it was. Hosts may have been lost since.
            StoreWork::Commit(contents) if self.given.insert(order.number) => self.lost_part(contents, dead_hosts),
            StoreWork::Archive(manifest) if self.given.insert(order.number) => self.missing_in_archive(manifest),
            _ => None,
        };
        self.work.push_back(order);
        wrong
    }

    /// A host whose part of a checkpoint that is to be committed is nowhere.
    fn lost_part(&self, contents: &Contents, dead_hosts: &BTreeSet<u32>) -> Option<String> {
        let generation = contents.cut.taken.generation;
        let has_copy = |source: u32, partner: u32| self.copied.contains(&(generation, source, partner));
        for source in contents.cut.members.iter().map(|member| member.host) {
            if let Some(code) = contents.level.code() {
                match self.lost_pieces(contents, code, source, dead_hosts) {
                    None => continue,
                    wrong => return wrong,
                }
            }
            let partner = contents.copies.get(source as usize).copied().flatten();
            if let Some(partner) = partner.filter(|partner| !has_copy(source, *partner) || dead_hosts.contains(partner))
            {
                return Some(format!("{generation}: host {partner} has no copy of the part of host {source}"));
            }
            let is_there = match contents.level {
                Level::Object => self.uploaded.contains(&(generation, source)),
                Level::Partner | Level::Memory => partner.is_some() || !dead_hosts.contains(&source),
                Level::Local | Level::Shared | Level::Erasure(_) => true,
            };
            if !is_there {
                return Some(format!("{generation} is to be committed, and the part of host {source} is lost"));
            }
        }
        None
    }

    /// A part of a checkpoint that the archive lacks.
    fn missing_in_archive(&self, manifest: &Manifest) -> Option<String> {
        let generation = manifest.generation;
        if let Some(link) = manifest.chain.first() {
            return Some(format!("the archive has {generation}, built on {link}, which it lacks"));
        }
        let mut sources = manifest.members.iter().map(|member| member.host);
        let missing = sources.find(|source| !self.uploaded.contains(&(generation, *source)));
        missing.map(|source| format!("the archive has {generation}, and lacks the part of host {source}"))
    }

    /// True if this checkpoint can be loaded from the archive.
    pub fn is_archived(&self, generation: Generation) -> bool {
        self.archived.contains_key(&generation)
    }

    /// The checkpoint of the oldest order.
    pub fn next_generation(&self) -> Option<Generation> {
        self.work.front().map(|order| order.work.generation())
    }

    /// Carries out the oldest order. Returns its answer, with the order's number.
    pub fn work_on(&mut self, fails: bool, mistake: Option<Mistake>) -> Option<(OrderNumber, StoreAnswer)> {
        let StoreOrder { number, work } = self.work.pop_front()?;
        let newest = self.work.iter().rev().find(|order| matches!(order.work, StoreWork::Open { .. }));
        let is_open = matches!(work, StoreWork::Open { .. });
        let answered = newest.filter(|_| is_open && mistake == Some(Mistake::NewestAnswered));
        let number = answered.map_or(number, |order| order.number);
        let answer = match work {
            StoreWork::Drop(generation) => {
                self.places.remove(&generation);
                StoreAnswer::Dropped(self.kept.get(&generation).cloned().map(Box::new))
            }
            StoreWork::Open { .. } | StoreWork::Commit(_) | StoreWork::Archive(_) | StoreWork::Prove(_) if fails => {
                StoreAnswer::Failed("the disk is full".into())
            }
            StoreWork::Archive(manifest) => {
                let kept = StoredCheckpoint { directory: "job/line".into(), manifest: *manifest };
                self.archived.insert(kept.manifest.generation, kept.clone());
                StoreAnswer::Archived(Box::new(kept))
            }
            StoreWork::Prove(manifest) => {
                let kept = self.kept.get_mut(&manifest.generation).expect("what is proven is kept");
                kept.manifest.proof = manifest.proof;
                StoreAnswer::Proven
            }
            StoreWork::Open { generation, basis } => {
                self.places.insert(generation);
                let basis = basis.and_then(|basis| self.kept.get(&basis)).map(|kept| Box::new(kept.manifest.clone()));
                StoreAnswer::Opened(Box::new(crate::Opened {
                    directory: "line".into(),
                    beside: self.kept.keys().copied().collect(),
                    basis,
                    sealed_key: None,
                    sealed_access: None,
                }))
            }
            StoreWork::FindOlder(than) => {
                let kept = self.kept.range(..than).next_back().map(|(_, kept)| Box::new(kept.clone()));
                StoreAnswer::Found { kept, passed_over: Vec::new() }
            }
            StoreWork::Commit(contents) => {
                let world = self.world.clone().expect("the job has begun");
                let kept = StoredCheckpoint { directory: "job/line".into(), manifest: manifest(*contents, world) };
                // A checkpoint that is kept is not kept again.
                let kept = self.kept.entry(kept.manifest.generation).or_insert(kept);
                StoreAnswer::Kept(Box::new(kept.clone()))
            }
        };
        Some((number, answer))
    }
}

fn manifest(contents: Contents, world: World) -> Manifest {
    let Contents { cut, hosts, chain, level, copies, objects, pieces, pinned, .. } = contents;
    Manifest {
        pinned,
        job: 1,
        generation: cut.taken.generation,
        taken_at_ns: 0,
        job_time_ns: 0,
        program_version: String::new(),
        hosts,
        world,
        view: cut.taken.view,
        degrees: cut.taken.degrees,
        next_life: cut.taken.next_life,
        placement: cut.placement,
        members: cut.members,
        applications: Vec::new(),
        application_of_rank: Vec::new(),
        options: Options::default(),
        host_name: String::new(),
        input_bytes: cut.input_bytes,
        files: Vec::new(),
        image_bytes: cut.taken.bytes,
        chain,
        level,
        has_shared_log: false,
        copies,
        objects,
        pieces,
        proof: None,
    }
}
