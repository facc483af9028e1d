//! `--metrics`: the state of the job as text for Prometheus.

mod counts;
mod text;

pub use counts::Counts;

use super::run::Run;
use redrt_types::VirtualRank;
use text::{Snapshot, Totals};

/// The page for Prometheus.
pub(super) fn page(run: &Run<'_>, counts: &mut Counts) -> String {
    let totals = counts.advance(run.root.coordinator());
    text::text(&snapshot(run, counts, totals))
}

fn snapshot<'a>(run: &Run<'_>, counts: &'a Counts, totals: Totals) -> Snapshot<'a> {
    let coordinator = run.root.coordinator();
    let world = coordinator.world();
    let mut snapshot = Snapshot::new(counts, totals);
    snapshot.job = format!("{:016x}", run.number);
    snapshot.phase = coordinator.phase();
    snapshot.elapsed = run.now();
    snapshot.redundancy = coordinator.redundancy().total(run.now());
    snapshot.view = coordinator.view().number.0;
    snapshot.clones_under_way = coordinator.attempts().count() as u64;
    snapshot.copies_ready = coordinator.held().count() as u64;
    for rank in (0..world.rank_count()).map(VirtualRank) {
        snapshot.count_sphere(coordinator.members().in_step_count(rank), coordinator.members().degree(rank));
    }
    for (replica, state) in world.replicas().zip(coordinator.members().states()).filter(|(_, state)| *state != "free") {
        *snapshot.replicas.entry(state).or_default() += 1;
        if state != "lost" && state != "exited" {
            let latest = coordinator.members().latest(replica);
            let host = run.host_name(replica);
            *snapshot.retention_bytes.entry(host.clone()).or_default() += latest.retention_bytes;
            *snapshot.processes.entry(host).or_default() += 1;
        }
    }
    for host in 0..run.fleet.plan().hosts.len() as u32 {
        let state = match (run.fleet.is_dead(host), counts.is_bad(run.fleet.name(host))) {
            (true, _) => "dead",
            (false, true) => "bad",
            (false, false) => "alive",
        };
        *snapshot.hosts.entry(state).or_default() += 1;
    }
    snapshot
}
