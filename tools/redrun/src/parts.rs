//! Copies to other hosts of each host's part of a checkpoint. They are made while the program runs, before the commit.
//!
//! All steps follow from inputs of the root alone, so a root that comes back is in the same state.

use super::Shell;
use coordinator::{StoreFailure, StoreNews, TakenLine};
use line_store::copies::{Copies, Place, Uncopied, partners, stay_with};
use line_store::{Manifest, place};
use redrt_types::ReplicaId;
use redrt_wire::control::Transport;
use redrt_wire::daemon::ToDaemon;
use redrt_wire::line::{Generation, PartOrder, PartStep, image_path, memory_path};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Copies for one checkpoint.
pub struct Parts {
    taken: TakenLine,
    copies: Copies,
    begun: Instant,
    byte_count: u64,
}

impl Parts {
    pub fn generation(&self) -> Generation {
        self.taken.generation
    }
}

impl Shell<'_> {
    /// Commits a checkpoint whose images are all on their hosts' disks, after its copies.
    pub(super) fn commit_line(&mut self, taken: TakenLine) {
        if self.level().is_fetched() {
            return self.store_line(taken);
        }
        if !self.level().has_copies() {
            return self.keep_line(taken, &[], Vec::new());
        }
        let sources: Vec<_> = self.sources_of(&taken).into_iter().collect();
        let places = self.places();
        let mut partners = partners(&sources, &places);
        let basis = self.lines.as_ref().and_then(|lines| lines.basis.as_deref());
        let keepers = basis.map(Manifest::keepers).unwrap_or_default();
        stay_with(&mut partners, &keepers, &places);
        let copies = Copies::new(&partners);
        let pairs: Vec<_> = copies.pairs().collect();
        let generation = taken.generation;
        self.parts = Some(Parts { taken, copies, begun: Instant::now(), byte_count: 0 });
        for source in partners.into_iter().filter(|(_, partner)| partner.is_none()).map(|(source, _)| source) {
            let why = match keepers.get(&source) {
                Some(Some(_)) => "the host with the copy of what it is built on is lost",
                _ => "no other host is left",
            };
            self.tell_uncopied(generation, source, why);
        }
        for (source, partner) in pairs {
            let order = PartOrder::Keep {
                directory: self.place(partner, generation),
                own_beside: self.lines_beside(),
                files: self.files_of_parts(source),
            };
            self.relay(Some(partner), &ToDaemon::Part { generation, source, order });
        }
        self.finish_copies();
    }

    /// All hosts, as candidates for copies.
    fn places(&self) -> Vec<Place> {
        let racks = &self.fleet.plan().racks;
        let place = |host| {
            let machine = self.fleet.name(host).to_owned();
            let rack = racks.iter().find(|(name, _)| *name == machine).map(|(_, rack)| *rack);
            Place { machine, rack, is_there: self.root.has_host(host) }
        };
        (0..self.fleet.plan().hosts.len() as u32).map(place).collect()
    }

    /// True if copies would go to the same hosts as those of `basis`, or it has none.
    pub(super) fn has_partners_of(&self, basis: &Manifest) -> bool {
        if !basis.level.has_copies() {
            return true;
        }
        let keepers = basis.keepers();
        partners(&keepers.keys().copied().collect::<Vec<_>>(), &self.places()) == keepers
    }

    /// Hosts with images of the checkpoint.
    pub(super) fn sources_of(&self, taken: &TakenLine) -> BTreeSet<u32> {
        self.saved(taken).filter_map(|replica| self.root.host_at_line(replica)).collect()
    }

    fn saved<'a>(&'a self, taken: &'a TakenLine) -> impl Iterator<Item = ReplicaId> + 'a {
        let saved = self.job.world.replicas().zip(&taken.positions);
        saved.filter(|(_, position)| position.is_some()).map(|(replica, _)| replica)
    }

    /// Directory of a host's part.
    pub(super) fn place(&self, host: u32, generation: Generation) -> PathBuf {
        let job = self.lines.as_ref().map(|lines| lines.directory().to_owned()).unwrap_or_default();
        place::of_host(&job, host, generation)
    }

    fn files_of_parts(&self, host: u32) -> Vec<String> {
        self.parts.as_ref().map_or_else(Vec::new, |parts| self.files_of(&parts.taken, host))
    }

    /// Names of a host's files in a checkpoint that is being taken.
    pub(super) fn files_of(&self, taken: &TakenLine, host: u32) -> Vec<String> {
        let images = self.saved(taken).filter(|replica| self.root.host_at_line(*replica) == Some(host));
        let images = images.map(|replica| image_path(Path::new(""), replica.rank));
        let has_memory = self.job.options.transport != Transport::Tcp && !self.job.world.is_replicated();
        let memory = has_memory.then(|| memory_path(Path::new(""), host));
        images.chain(memory).map(|path| path.display().to_string()).collect()
    }

    /// Handles a daemon's report about a copy.
    pub(super) fn hear_of_part(&mut self, host: u32, generation: Generation, source: u32, step: PartStep) {
        if self.storing.is_some() {
            return self.hear_of_storing(host, generation, step);
        }
        let Some(parts) = self.parts.as_mut().filter(|parts| parts.generation() == generation) else { return };
        match step {
            PartStep::Listening(address) => {
                if parts.copies.listens(source, host) {
                    let (directory, files) = (self.place(source, generation), self.files_of_parts(source));
                    let order = PartOrder::Give { directory, files, address };
                    self.relay(Some(source), &ToDaemon::Part { generation, source, order });
                }
            }
            PartStep::Kept(byte_count) => {
                parts.copies.kept(source, host);
                parts.byte_count += byte_count;
            }
            PartStep::Moved(_) | PartStep::Stored(_) => {}
            PartStep::Failed(why) => {
                if let Some(Uncopied { source, .. }) = parts.copies.failed(source, host) {
                    let why = format!("on {}: {why}", self.fleet.name(host));
                    self.tell_uncopied(generation, source, &why);
                }
            }
        }
        self.finish_copies();
    }

    /// Handles a lost host: its part, if it was not copied yet, and the copies it was to keep.
    pub(super) fn part_lost(&mut self, host: u32) {
        self.storer_lost(host);
        let Some(parts) = &mut self.parts else { return };
        let (generation, lost) = (parts.generation(), parts.copies.host_lost(host));
        let name = self.fleet.name(host).to_owned();
        if lost.iter().any(|uncopied| uncopied.source == host) {
            self.parts = None;
            let why = StoreFailure::NotKept(format!("{name} was lost before its part was copied"));
            return self.hear_of_line(generation, StoreNews::Failed(why));
        }
        for Uncopied { source, .. } in lost {
            self.tell_uncopied(generation, source, &format!("{name} was lost, which was to keep it"));
        }
        self.finish_copies();
    }

    fn tell_uncopied(&mut self, generation: Generation, source: u32, why: &str) {
        let source = self.fleet.name(source).to_owned();
        let fields = serde_json::json!({ "generation": generation.0, "host": source, "why": why });
        self.record("checkpoint-uncopied", &fields);
        self.console.warning(&format!(
            "checkpoint {generation} does not survive the loss of {source}, whose part has no copy: {why}"
        ));
    }

    fn finish_copies(&mut self) {
        let Some(parts) = self.parts.take_if(|parts| parts.copies.are_done()) else { return };
        let keepers = parts.copies.keepers(self.fleet.plan().hosts.len() as u32);
        let fields = serde_json::json!({
            "generation": parts.generation().0, "bytes": parts.byte_count,
            "seconds": parts.begun.elapsed().as_secs_f64(), "hosts": keepers.iter().flatten().count(),
        });
        self.record("checkpoint-copied", &fields);
        self.keep_line(parts.taken, &keepers, Vec::new());
    }
}
