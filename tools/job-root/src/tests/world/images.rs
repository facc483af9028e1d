//! Images of a checkpoint, and what the store and the hosts do with them.

use super::*;

impl Job {
    /// Carries out the oldest order to the store.
    pub(super) fn work_on_store(&mut self) {
        let fails = self.scenario.random.u8(0..15) == 0;
        if let Some((number, answer)) = self.storage.work_on(fails, self.scenario.mistake) {
            self.later(Input::Store { number, answer });
        }
    }

    /// Lets daemons copy or upload a host's part of a checkpoint. Each step may fail.
    pub(super) fn part(&mut self, host: u32, generation: Generation, source: u32, order: PartOrder) {
        let fails = self.scenario.random.u8(0..10) == 0;
        let step = match order {
            _ if fails => PartStep::Failed(NoImage::NoJob),
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

    /// Lets the helper of some process report that its image is on disk.
    pub(super) fn write_image(&mut self) {
        let Some((generation, missing)) = &self.writing else { return };
        let (generation, missing) = (*generation, missing.clone());
        let Some((replica, host)) = self.scenario.random.choice(missing) else { return };
        let at_cut = self.root.homes.host_at_line(self.root.world.process(replica));
        assert_eq!(at_cut, Some(host), "the image of {replica} is elsewhere");
        if let Some((_, missing)) = self.writing.as_mut().filter(|_| !self.dead_hosts.contains(&host)) {
            missing.remove(&replica);
            let is_written = missing.is_empty();
            self.writing.take_if(|_| is_written);
            let step = LineStep::Saved(Cost { sent_bytes: 10, ..Cost::default() }, Vec::new());
            self.give(Input::Daemon { host, message: FromDaemon::Line { generation, replica, step } });
            let follows = ["Commit(", "Part {", "LineFailed"];
            let goes_on = self.outputs.last().is_some_and(|said| follows.iter().any(|what| said.contains(what)));
            assert!(
                self.is_over || !is_written || goes_on,
                "all images of {generation} are written, and it does not count"
            );
        }
    }

    /// Brings the images of a checkpoint that was opened close to completion.
    pub(super) fn open_line(&mut self) {
        let under_way = self.root.coordinator().line_under_way().filter(|under_way| self.begun == Some(*under_way));
        let Some(generation) = under_way else { return };
        for replica in self.sources() {
            // Once each. A process that answers out of turn is a fault.
            if self.ready.insert((generation, replica)) || !self.scenario.is_calm {
                self.says(replica, |replica| FromDaemon::Line { generation, replica, step: LineStep::Ready });
            }
        }
    }

    pub(super) fn ask_for_line(&mut self) {
        let Some(replica) = self.any_live() else { return };
        self.asker_count += 1;
        let number = self.asker_count;
        self.line_askers.insert((replica, number));
        self.agent(replica, FromAgent::Dynamic(number, redrt_wire::dynamic::Request::Checkpoint));
    }

    /// The sources of the current checkpoint that live.
    pub(super) fn sources(&self) -> Vec<ReplicaId> {
        let live = self.live();
        self.root.coordinator().line_sources().iter().copied().filter(|source| live.contains(source)).collect()
    }
}
