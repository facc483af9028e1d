//! Counters of `--metrics` that add up events.

use super::text::Totals;
use redrt_types::{Incarnation, ReplicaId};
use redrt_wire::event::{Event, Finding, Statistics};
use replication_manager::{EndReason, Purpose, ReplicationManager, Report};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Subject and finding of a verdict.
pub type VerdictKind = (Cow<'static, str>, Cow<'static, str>);

/// Counters: see the module.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    pub(super) verdicts: BTreeMap<VerdictKind, u64>,
    /// By host of the outvoted replica.
    pub(super) host_verdicts: BTreeMap<String, u64>,
    pub(super) strikes: BTreeMap<String, u64>,
    bad_hosts: BTreeSet<String>,
    pub(super) divergences: u64,
    pub(super) injected: u64,
    pub(super) losses: u64,
    pub(super) clones_begun: u64,
    pub(super) clones_failed: u64,
    pub(super) clones_done: u64,
    /// Checkpoints by outcome.
    pub(super) checkpoints: BTreeMap<Cow<'static, str>, u64>,
    pub(super) returns: u64,
    /// Disputes that were put to arbiters, by outcome.
    pub(super) arbitrations: BTreeMap<Cow<'static, str>, u64>,
    /// Number of vulnerability windows that have closed.
    pub(super) windows: u64,
    pub(super) window_time: Duration,
    pub(super) window_longest: Duration,
    /// Last known statistics of each process.
    latest: BTreeMap<ReplicaId, (Incarnation, Statistics)>,
    totals: Totals,
}

fn finding_name(finding: Finding) -> &'static str {
    match finding {
        Finding::ReplicaCorrupt => "replica-corrupt",
        Finding::TransportCorrupt => "transport-corrupt",
        Finding::Undecidable => "undecidable",
    }
}

impl Counts {
    /// Counts a report.
    pub fn count(&mut self, report: &Report, host: &dyn Fn(ReplicaId) -> String) {
        match report {
            Report::Event(Event::Mismatch(mismatch)) => {
                *self.verdicts.entry(("message".into(), finding_name(mismatch.finding).into())).or_default() += 1;
                if let Some(culprit) = mismatch.culprit {
                    *self.host_verdicts.entry(host(culprit)).or_default() += 1;
                }
            }
            Report::OutputMismatch { rank, mismatch, .. } => {
                let finding = match mismatch.culprit {
                    Some(_) => Finding::ReplicaCorrupt,
                    None => Finding::Undecidable,
                };
                *self.verdicts.entry(("output".into(), finding_name(finding).into())).or_default() += 1;
                if let Some(index) = mismatch.culprit {
                    *self.host_verdicts.entry(host(ReplicaId { rank: *rank, index })).or_default() += 1;
                }
            }
            Report::Event(Event::Divergence { .. } | Event::Path(_)) => self.divergences += 1,
            Report::Event(Event::Injected { .. }) | Report::Injected { .. } => self.injected += 1,
            Report::Lost(_) => self.losses += 1,
            // An arbiter replaces no lost replica.
            Report::CloneBegun { purpose: Purpose::Arbitration, .. } => {}
            Report::Recovered(recovered) if recovered.purpose == Purpose::Arbitration => {}
            Report::Arbitrated(arbitration) => {
                let verdict = if arbitration.culprit.is_some() { "named" } else { "open" };
                *self.arbitrations.entry(verdict.into()).or_default() += 1;
            }
            Report::CheckpointTaken { .. } => *self.checkpoints.entry("taken".into()).or_default() += 1,
            Report::CheckpointFailed { .. } => *self.checkpoints.entry("failed".into()).or_default() += 1,
            Report::Ending(EndReason::GoesBack { .. } | EndReason::Unloadable { .. }) => self.returns += 1,
            Report::CloneBegun { .. } => self.clones_begun += 1,
            Report::CloneFailed { .. } => self.clones_failed += 1,
            Report::Recovered(recovered) => {
                self.clones_done += 1;
                if recovered.purpose == Purpose::Loss {
                    self.windows += 1;
                    self.window_time += recovered.window;
                    self.window_longest = self.window_longest.max(recovered.window);
                }
            }
            Report::Strike { replica, .. } => *self.strikes.entry(host(*replica)).or_default() += 1,
            Report::HostBad { last, .. } => {
                self.bad_hosts.insert(host(*last));
            }
            _ => {}
        }
    }

    pub(super) fn is_bad(&self, host: &str) -> bool {
        self.bad_hosts.contains(host)
    }

    /// Sums of all processes' statistics. A copy starts with its source's values, which must count once.
    pub(super) fn advance(&mut self, manager: &ReplicationManager) -> Totals {
        let told: BTreeMap<_, _> = manager.members().statistics().collect();
        for (replica, at_end) in told {
            let now = at_end.unwrap_or_else(|| manager.members().latest(replica));
            let incarnation = manager.members().incarnation(replica);
            let first = if incarnation == Incarnation(0) { Statistics::default() } else { now };
            let is_same = |(known, _): &(Incarnation, Statistics)| *known == incarnation;
            let before = self.latest.get(&replica).copied().filter(is_same).map_or(first, |(_, before)| before);
            self.totals.add(&before, &now);
            // A copy's starting point is unknown until its first statistics.
            if now != Statistics::default() {
                self.latest.insert(replica, (incarnation, now));
            }
        }
        self.totals
    }
}
