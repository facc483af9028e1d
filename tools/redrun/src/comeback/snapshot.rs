//! The complete state of a root at one moment. It replaces older records, so a journal does not grow for as long as its
//! job runs.
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
use job_root::Root;
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
    /// Term of the root that wrote it.
    pub term: Term,
    /// Machine of that root.
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
    root: Root,
    launch: Option<Box<Launch>>,
    lost_host: Option<String>,
    lost_output: Option<i32>,
    written: Written,
    reports: Tally,
    counts: Counts,
    attribution: Attribution,
    folding: Folding,
    injected: Vec<u64>,
}

/// Copies by encoding and decoding: the root's state is not `Clone`.
fn copy<T: Serialize + for<'de> Deserialize<'de>>(value: &T) -> Result<T> {
    decode_body(&encode_long(value)).ok().context("The state of the root cannot be written down")
}

impl Snapshot {
    /// Bytes of each stream that were shown: at a snapshot, all that was printed.
    pub fn shown_bytes(&self) -> [u64; 2] {
        self.written.handed_bytes()
    }
}

impl Shell<'_> {
    /// True if a snapshot has everything that another root needs to go on.
    fn is_calm(&self) -> bool {
        let store_is_idle = self.run.root.coordinator().line_under_way().is_none();
        let nothing_is_due =
            self.returns.due.is_none() && self.returns.under_way.is_none() && self.ending.code.is_none();
        let nobody_comes =
            self.coming.joining.is_empty() && self.teller.clones.is_empty() && self.inbox.inputs.is_empty();
        // Requests to and answers of a site's pool are in records alone.
        let has_pool = self.run.job.pool.is_some();
        store_is_idle
            && nothing_is_due
            && nobody_comes
            && !has_pool
            && self.run.root.is_launched()
            && self.run.root.unanswered().next().is_none()
            && self.run.fleet.is_settled()
    }

    /// Replaces a journal that has become long by a snapshot.
    pub(in super::super) fn shorten_journal(&mut self) {
        if self.ledger.is_long()
            && self.is_calm()
            && let Some(written) = self.outputs.written()
        {
            match self.all_of_it(written) {
                Ok(snapshot) => self.ledger.shorten(self.run.fleet.launchers_before(), encode_long(&snapshot)),
                Err(error) => self.ledger.give_up(&format!("{error:#}")),
            }
        }
    }

    fn all_of_it(&self, written: Written) -> Result<Snapshot> {
        Ok(Snapshot {
            now: self.run.now(),
            term: self.run.fleet.term(),
            machine: Machine::here(),
            secret: self.run.fleet.secret().clone(),
            planned: self.run.fleet.plan().hosts.clone(),
            hosts: self.run.fleet.hosts_before(),
            input_bytes: self.ledger.input_bytes(),
            input_has_ended: self.input.has_ended(),
            file_bytes: self.outputs.file_bytes(),
            root: copy(&self.run.root)?,
            launch: self.coming.launch.clone().map(Box::new),
            lost_host: self.ending.lost_host.clone(),
            lost_output: self.ending.lost_output,
            written,
            reports: copy(&self.teller.reported.tally)?,
            counts: copy(&self.teller.reported.counts)?,
            attribution: copy(&self.teller.reported.attribution)?,
            folding: copy(&self.teller.reported.folding)?,
            injected: self.teller.reported.injections.counts(),
        })
    }

    /// Takes over a killed root's state from its snapshot; the fleet has its part already. Returns the job's time.
    pub(super) fn begin_at(&mut self, snapshot: Snapshot) -> Duration {
        self.run.root = snapshot.root;
        self.coming.launch = snapshot.launch.map(|launch| *launch);
        self.ending.lost_host = snapshot.lost_host;
        self.ending.lost_output = snapshot.lost_output;
        self.outputs.begin_behind(snapshot.written);
        (self.teller.reported.tally, self.teller.reported.counts) = (snapshot.reports, snapshot.counts);
        (self.teller.reported.attribution, self.teller.reported.folding) = (snapshot.attribution, snapshot.folding);
        self.teller.reported.injections.resume(&snapshot.injected);
        if snapshot.input_has_ended {
            self.input.end();
        }
        snapshot.now
    }
}
