//! `--metrics`: the state of the job as text for Prometheus.

mod counts;
mod text;

pub use counts::Counts;

use super::Shell;
use redrt_types::VirtualRank;
use text::{Snapshot, Totals};

impl Shell<'_> {
    /// The page for Prometheus.
    pub(super) fn metrics_text(&mut self) -> String {
        let totals = self.reported.counts.advance(self.root.coordinator());
        text::text(&self.snapshot(totals))
    }

    fn snapshot(&self, totals: Totals) -> Snapshot<'_> {
        let coordinator = self.root.coordinator();
        let world = coordinator.world();
        let mut snapshot = Snapshot::new(&self.reported.counts, totals);
        snapshot.job = format!("{:016x}", self.job_number);
        snapshot.phase = coordinator.phase();
        snapshot.elapsed = self.now();
        snapshot.redundancy = coordinator.redundancy().total(self.now());
        snapshot.view = coordinator.view().number.0;
        snapshot.clones_under_way = coordinator.attempts().count() as u64;
        snapshot.copies_ready = coordinator.held().count() as u64;
        for rank in (0..world.rank_count()).map(VirtualRank) {
            snapshot.count_sphere(coordinator.in_step_count(rank), coordinator.degree(rank));
        }
        for (replica, state) in world.replicas().zip(coordinator.states()).filter(|(_, state)| *state != "free") {
            *snapshot.replicas.entry(state).or_default() += 1;
            if state != "lost" && state != "exited" {
                let latest = coordinator.latest(replica);
                let host = self.host_name(replica);
                *snapshot.retention_bytes.entry(host.clone()).or_default() += latest.retention_bytes;
                *snapshot.processes.entry(host).or_default() += 1;
            }
        }
        for host in 0..self.fleet.plan().hosts.len() as u32 {
            let state = match (self.fleet.is_dead(host), self.reported.counts.is_bad(self.fleet.name(host))) {
                (true, _) => "dead",
                (false, true) => "bad",
                (false, false) => "alive",
            };
            *snapshot.hosts.entry(state).or_default() += 1;
        }
        snapshot
    }
}
