//! `--metrics`: the state of the job as text for Prometheus.

mod counts;
mod text;

pub use counts::Counts;

use super::run::Run;
use redrt_types::VirtualRank;
use text::{Snapshot, Totals};

/// The page for Prometheus.
pub(super) fn page(run: &Run<'_>, counts: &mut Counts) -> String {
    let totals = counts.advance(run.coordinator.manager());
    text::text(&snapshot(run, counts, totals))
}

fn snapshot<'a>(run: &Run<'_>, counts: &'a Counts, totals: Totals) -> Snapshot<'a> {
    let manager = run.coordinator.manager();
    let world = manager.world();
    let mut snapshot = Snapshot::new(counts, totals);
    snapshot.job = format!("{:016x}", run.number);
    snapshot.phase = manager.course().phase();
    snapshot.elapsed = run.now();
    snapshot.redundancy = manager.redundancy().total(run.now());
    snapshot.view = manager.view().number.0;
    snapshot.clones_under_way = manager.attempts().count() as u64;
    snapshot.copies_ready = manager.held().count() as u64;
    for rank in (0..world.rank_count()).map(VirtualRank) {
        snapshot.count_sphere(manager.members().in_step_count(rank), manager.members().degree(rank));
    }
    for (replica, state) in world.replicas().zip(manager.members().states()).filter(|(_, state)| *state != "free") {
        *snapshot.replicas.entry(state).or_default() += 1;
        if state != "lost" && state != "exited" {
            let latest = manager.members().latest(replica);
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
