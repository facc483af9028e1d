//! Copies of each host's part of a checkpoint on partner hosts. They are made while the program runs, before the
//! commit.
//!
//! Enters: reports of the daemons, losses of hosts. Leaves: orders for daemons, parts that have no copy, the end. Which
//! copies count is decided by [`Copies`].

use super::contents::Contents;
use super::{CheckpointEvent, Effect, Seen, lost_before};
use crate::mutation::{self, Mutation};
use checkpoint_store::copies::{Copies, Place, Uncopied, partners, stay_with};
use checkpoint_store::{Manifest, place};
use redrt_wire::checkpoint::{Generation, PartOrder, PartStep};
use redrt_wire::daemon::ToDaemon;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::Duration;

/// The copies of one checkpoint.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Copying {
    contents: Contents,
    copies: Copies,
    begun_at: Duration,
    byte_count: u64,
}

impl Copying {
    /// Begins the copies of all parts. `places`: all hosts, by number. `beside`: checkpoints that stay.
    pub fn begin(
        contents: Contents,
        basis: Option<&Manifest>,
        places: &[Place],
        (directory, beside): (&Path, &[Generation]),
        seen: Seen<'_>,
        out: &mut VecDeque<Effect>,
    ) -> Self {
        let sources: Vec<_> = contents.cut.sources().into_iter().collect();
        let mut partners = partners(&sources, places);
        let copy_hosts = basis.map(Manifest::copy_hosts).unwrap_or_default();
        stay_with(&mut partners, &copy_hosts, places);
        let copying = Self { copies: Copies::new(&partners), contents, begun_at: seen.now, byte_count: 0 };
        for source in partners.into_iter().filter(|(_, partner)| partner.is_none()).map(|(source, _)| source) {
            let why = match copy_hosts.get(&source) {
                Some(Some(_)) => "the host with the copy of what it is built on is lost",
                _ => "no other host is left",
            };
            out.push_back(copying.uncopied(source, why.to_owned()));
        }
        let generation = copying.contents.generation();
        for (source, partner) in copying.copies.pairs() {
            let order = PartOrder::Keep {
                directory: place::of_host(directory, partner, generation),
                own_beside: beside.to_vec(),
                files: copying.contents.files(source),
            };
            out.push_back(Effect::Send(partner, ToDaemon::Part { generation, source, order }));
        }
        copying
    }

    /// Handles a daemon's report about the copy of the part of `source`.
    pub fn handle(
        &mut self,
        host: u32,
        source: u32,
        step: PartStep,
        directory: &Path,
        seen: Seen<'_>,
        out: &mut VecDeque<Effect>,
    ) {
        let generation = self.contents.generation();
        match step {
            PartStep::Listening(address) => {
                if self.copies.listens(source, host) {
                    let directory = place::of_host(directory, source, generation);
                    let order = PartOrder::Give { directory, files: self.contents.files(source), address };
                    out.push_back(Effect::Send(source, ToDaemon::Part { generation, source, order }));
                }
            }
            PartStep::Kept(byte_count) => {
                self.copies.kept(source, host);
                self.byte_count += byte_count;
            }
            PartStep::Moved(_) | PartStep::Stored(_) => {}
            PartStep::Failed(why) => {
                if let Some(Uncopied { source, .. }) = self.copies.failed(source, host) {
                    out.push_back(self.uncopied(source, format!("on {}: {why}", seen.hosts.name(host))));
                }
            }
        }
    }

    /// Handles a lost host, and the copies that it was to keep. Returns why the checkpoint is of no use, if no partner
    /// has the host's own part. The trap: its copy may have failed before, and then nothing is under way for it.
    pub fn lose(&mut self, host: u32, seen: Seen<'_>, out: &mut VecDeque<Effect>) -> Option<String> {
        let name = seen.hosts.name(host);
        let lost = self.copies.host_lost(host);
        let has_copy = self.copies.copy_hosts(host + 1)[host as usize].is_some();
        let is_lost = self.contents.cut.sources().contains(&host) && !has_copy;
        if is_lost && !mutation::is(Mutation::LostPartCommitted) {
            return Some(lost_before(name, self.contents.level));
        }
        for Uncopied { source, .. } in lost {
            out.push_back(self.uncopied(source, format!("{name} was lost, which was to keep it")));
        }
        None
    }

    /// True if no copy is being made.
    pub fn is_done(&self) -> bool {
        self.copies.are_done()
    }

    /// The checkpoint with its copies, to be committed.
    pub fn finish(self, seen: Seen<'_>, out: &mut VecDeque<Effect>) -> Contents {
        let copies = self.copies.copy_hosts(seen.hosts.count());
        out.push_back(Effect::Note(CheckpointEvent::Copied {
            generation: self.contents.generation(),
            bytes: self.byte_count,
            elapsed: seen.now - self.begun_at,
            host_count: copies.iter().flatten().count(),
        }));
        Contents { copies, hosts: seen.hosts.names(), ..self.contents }
    }

    fn uncopied(&self, source: u32, why: String) -> Effect {
        Effect::Note(CheckpointEvent::Uncopied { generation: self.contents.generation(), host: source, why })
    }
}

/// True if copies of a new checkpoint would go to the same hosts as those of `basis`, or it has none.
pub(super) fn are_partners_of(basis: &Manifest, places: &[Place]) -> bool {
    if !basis.level.has_copies() {
        return true;
    }
    let copy_hosts: BTreeMap<_, _> = basis.copy_hosts();
    // A host of the basis that is not known any more has no partner.
    copy_hosts.keys().all(|source| (*source as usize) < places.len())
        && partners(&copy_hosts.keys().copied().collect::<Vec<_>>(), places) == copy_hosts
}
