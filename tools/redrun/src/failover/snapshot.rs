//! The complete state of a coordinator at one moment. It replaces older records, so a journal does not grow for as long
//! as its job runs.
//!
//! A snapshot is taken in a moment of calm: no request to store, pool or user is open, no host is being added, all
//! output has been written. Otherwise work under way would have to be part of the snapshot; records have it already.

use super::super::Shell;
use super::super::attribution::Attribution;
use super::super::fleet::HostBefore;
use super::super::folding::Folding;
use super::super::metrics::Counts;
use super::super::output::Written;
use super::super::summary::Tally;
use anyhow::{Context, Result};
use control_network::identity::Machine;
use job_coordinator::Coordinator;
use placement::plan::PlannedHost;
use redrt_wire::daemon::Launch;
use redrt_wire::frame::{decode_body, encode_long};
use redrt_wire::secret::Secret;
use redrt_wire::tree::Term;
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// Time since the job began.
    now: Duration,
    /// Term of the coordinator that wrote it.
    pub term: Term,
    /// Machine of that coordinator.
    pub machine: Machine,
    /// The job's secret in its present life.
    pub secret: Secret,
    /// The job's hosts, including added ones.
    pub planned: Vec<PlannedHost>,
    /// State of each of `planned`.
    pub hosts: Vec<HostBefore>,
    /// Bytes read of standard input.
    pub input_bytes: u64,
    input_has_ended: bool,
    /// Lengths of the files of `--output-dir` when the job began.
    pub file_bytes: Vec<u64>,
    coordinator: Coordinator,
    launch: Option<Box<Launch>>,
    written: Written,
    reports: Tally,
    counts: Counts,
    attribution: Attribution,
    folding: Folding,
    injected: Vec<u64>,
}

/// Copies by encoding and decoding: the coordinator's state is not `Clone`.
fn copy<T: Serialize + for<'de> Deserialize<'de>>(value: &T) -> Result<T> {
    decode_body(&encode_long(value)).ok().context("The state of the coordinator cannot be written down")
}

impl Snapshot {
    /// Bytes of each stream that were shown: at a snapshot, all that was printed.
    pub fn shown_bytes(&self) -> [u64; 2] {
        self.written.handed_bytes()
    }
    /// True if a snapshot has everything that another coordinator needs to go on.
    pub(super) fn is_possible(shell: &Shell<'_>) -> bool {
        let store_is_idle = shell.run.coordinator.manager().checkpoint_under_way().is_none();
        let nothing_is_due = shell.due.is_none() && shell.ending.code.is_none();
        let nobody_comes =
            shell.coming.joining.is_empty() && shell.reporter.clones.is_empty() && shell.inbox.inputs.is_empty();
        // Requests to and answers of a site's pool are in records alone.
        let has_pool = shell.run.job.pool.is_some();
        store_is_idle
            && nothing_is_due
            && nobody_comes
            && !has_pool
            && shell.run.coordinator.is_launched()
            && shell.run.coordinator.unanswered().next().is_none()
            && shell.run.fleet.is_settled()
    }

    /// The state of a coordinator, all of whose output is written.
    pub(super) fn of(shell: &Shell<'_>, written: Written) -> Result<Self> {
        Ok(Self {
            now: shell.run.now(),
            term: shell.run.fleet.term(),
            machine: Machine::here(),
            secret: shell.run.fleet.secret().clone(),
            planned: shell.run.fleet.plan().hosts.clone(),
            hosts: shell.run.fleet.hosts_before(),
            input_bytes: shell.ledger.input_bytes(),
            input_has_ended: shell.input.has_ended(),
            file_bytes: shell.outputs.file_bytes(),
            coordinator: copy(&shell.run.coordinator)?,
            launch: shell.coming.launch.clone().map(Box::new),
            written,
            reports: copy(&shell.reporter.reported.tally)?,
            counts: copy(&shell.reporter.reported.counts)?,
            attribution: copy(&shell.reporter.reported.attribution)?,
            folding: copy(&shell.reporter.reported.folding)?,
            injected: shell.reporter.reported.injections.counts(),
        })
    }

    /// Takes over a killed coordinator's state from its snapshot; the fleet has its part already. Returns the job's
    /// time.
    pub(super) fn go_on(self, shell: &mut Shell<'_>) -> Duration {
        shell.run.coordinator = self.coordinator;
        shell.coming.launch = self.launch.map(|launch| *launch);
        shell.outputs.begin_behind(self.written);
        (shell.reporter.reported.tally, shell.reporter.reported.counts) = (self.reports, self.counts);
        (shell.reporter.reported.attribution, shell.reporter.reported.folding) = (self.attribution, self.folding);
        shell.reporter.reported.injections.resume(&self.injected);
        if self.input_has_ended {
            shell.input.end();
        }
        self.now
    }
}
