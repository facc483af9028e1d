//! Images of a checkpoint, and what the store and the hosts do with them.

use super::*;
use checkpoint_store::pieces::parse_piece;

impl Job {
    /// Carries out the oldest order to the store.
    pub(super) fn work_on_store(&mut self) {
        let fails = self.scenario.random.u8(0..15) == 0;
        let generation = self.storage.next_generation();
        if let Some((number, answer)) = self.storage.work_on(fails, self.scenario.mistake) {
            let crossing = match answer {
                StoreAnswer::Opened(_) => Crossing::Opened,
                StoreAnswer::Kept(_) => Crossing::Kept,
                StoreAnswer::Failed(_)
                | StoreAnswer::Archived(_)
                | StoreAnswer::Proven
                | StoreAnswer::Dropped(_)
                | StoreAnswer::Found { .. } => Crossing::Other,
            };
            self.crossings.entry(generation.expect("an order was carried out")).or_default().push(crossing);
            self.later(Input::Store { number, answer });
        }
    }

    /// Lets daemons copy or upload a host's part of a checkpoint. Each step may fail.
    pub(super) fn part(&mut self, host: u32, generation: Generation, source: u32, order: PartOrder) {
        let fails = self.scenario.random.u8(0..10) == 0;
        let is_in_pieces = self.scenario.level.code().is_some();
        let step = match order {
            // These are not answered.
            PartOrder::Settle { .. } | PartOrder::Fetch { .. } => return,
            _ if fails => {
                self.storage.piece_failed(generation, source);
                PartStep::Failed(NoImage::NoJob)
            }
            PartOrder::Serve { .. } => PartStep::Listening(([127, 0, 0, 1], 9).into()),
            PartOrder::Keep { files, .. } if is_in_pieces => {
                let pieces = files.iter().filter_map(|name| Some(parse_piece(name)?.1)).collect();
                self.piece_addresses.push(host);
                self.record_together(generation, source, pieces);
                PartStep::Listening(([127, 0, 0, 1], self.piece_addresses.len() as u16).into())
            }
            PartOrder::Cut { outlets, .. } => return self.cut_part(host, generation, outlets),
            PartOrder::Keep { .. } => {
                self.partners.insert((generation, source), host);
                PartStep::Listening(([127, 0, 0, 1], 9).into())
            }
            PartOrder::Give { .. } => {
                let Some(partner) = self.partners.get(&(generation, source)).copied() else { return };
                if !self.dead_hosts.contains(&host) && !self.dead_hosts.contains(&partner) {
                    self.storage.copied(generation, source, partner);
                    self.host_says(partner, FromDaemon::Part { generation, source, step: PartStep::Kept(10) });
                }
                return;
            }
            PartOrder::Store { prefix, .. } => {
                self.host_says(host, FromDaemon::Part { generation, source, step: PartStep::Moved(5) });
                if !self.dead_hosts.contains(&host) {
                    self.storage.uploaded(generation, source);
                }
                let facts = Facts { bytes: 10, digest: String::new() };
                PartStep::Stored(vec![Stored { key: format!("{prefix}/{source}"), facts }])
            }
        };
        self.host_says(host, FromDaemon::Part { generation, source, step });
    }

    /// Lets a host cut its part, and the others say what they have of it: at once, late, or never.
    fn cut_part(&mut self, host: u32, generation: Generation, outlets: Vec<Outlet>) {
        for Outlet { pieces, address } in outlets {
            let holder = address.map_or(host, |address| self.piece_addresses[usize::from(address.port()) - 1]);
            self.record_together(generation, host, pieces.clone());
            if self.dead_hosts.contains(&host) || self.dead_hosts.contains(&holder) {
                continue;
            }
            let fails = self.scenario.random.u8(0..20) == 0;
            let step = match fails {
                true => {
                    self.storage.piece_failed(generation, host);
                    PartStep::Failed(NoImage::NoJob)
                }
                false => {
                    pieces.iter().for_each(|index| self.storage.piece(generation, host, *index, holder));
                    PartStep::Kept(10)
                }
            };
            self.host_says(holder, FromDaemon::Part { generation, source: host, step });
        }
    }

    /// Notes pieces of one part that are on one host where there are enough hosts.
    fn record_together(&mut self, generation: Generation, source: u32, pieces: Vec<u8>) {
        let living = self.living_machine_count();
        let living = *self.machine_counts.entry(generation).or_insert(living);
        let code = self.scenario.level.code();
        let wrong = pieces.len() > 1 && code.is_some_and(|code| living >= code.piece_count().into());
        self.record_wrong(wrong.then(|| format!("{generation}: pieces {pieces:?} of host {source} are on one host")));
    }

    fn living_machine_count(&self) -> usize {
        let is_there = |host: &u32| self.coordinator.has_host(*host) && !self.dead_hosts.contains(host);
        let machines = (0..self.hosts.len() as u32).filter(is_there).map(|host| &self.hosts[host as usize]);
        machines.collect::<BTreeSet<_>>().len()
    }

    /// Lets the helper of some process report that its image is on disk.
    pub(super) fn write_image(&mut self) {
        let Some((generation, missing)) = &self.writing else { return };
        let (generation, missing) = (*generation, missing.clone());
        let Some((replica, host)) = self.scenario.random.choice(missing) else { return };
        let at_cut = self.coordinator.homes.host_at_checkpoint(self.coordinator.world.process(replica));
        assert_eq!(at_cut, Some(host), "the image of {replica} is elsewhere");
        if let Some((_, missing)) = self.writing.as_mut().filter(|_| !self.dead_hosts.contains(&host)) {
            missing.remove(&replica);
            let is_written = missing.is_empty();
            self.writing.take_if(|_| is_written);
            let step = CheckpointStep::Saved(Cost { sent_bytes: 10, ..Cost::default() }, Vec::new());
            self.give(Input::Daemon { host, message: FromDaemon::Checkpoint { generation, replica, step } });
            let follows = ["Commit(", "Part {", "CheckpointFailed"];
            let goes_on = self.outputs.last().is_some_and(|said| follows.iter().any(|what| said.contains(what)));
            assert!(
                self.is_over || !is_written || goes_on,
                "all images of {generation} are written, and it does not count"
            );
        }
    }

    /// Brings the images of a checkpoint that was opened close to completion.
    pub(super) fn open_checkpoint(&mut self) {
        let under_way =
            self.coordinator.manager().checkpoint_under_way().filter(|under_way| self.begun == Some(*under_way));
        let Some(generation) = under_way else { return };
        for replica in self.sources() {
            // Once each. A process that answers out of turn is a fault.
            if self.ready.insert((generation, replica)) || !self.scenario.is_calm {
                self.says(replica, |replica| FromDaemon::Checkpoint {
                    generation,
                    replica,
                    step: CheckpointStep::Ready,
                });
            }
        }
    }

    pub(super) fn ask_for_checkpoint(&mut self) {
        let Some(replica) = self.any_live() else { return };
        self.asker_count += 1;
        let number = self.asker_count;
        self.checkpoint_askers.insert((replica, number));
        self.agent(replica, FromAgent::Dynamic(number, redrt_wire::dynamic::Request::Checkpoint));
    }

    /// The sources of the current checkpoint that live.
    pub(super) fn sources(&self) -> Vec<ReplicaId> {
        let live = self.live();
        self.coordinator.manager().checkpoint_sources().iter().copied().filter(|source| live.contains(source)).collect()
    }
}
