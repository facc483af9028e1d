//! Undisturbed runs of programs. Each is made once in a process, when a campaign first asks for it.

use crate::programs::Program;
use crate::{Ended, Job};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// An undisturbed run of a program.
pub(crate) struct Alone {
    /// Its standard output.
    pub out: String,
    /// Its running time.
    pub took: Duration,
    /// The most messages that a replica of each rank sends, by rank; at least 1.
    pub sends: Vec<u64>,
}

/// A program and its way to run.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    pub program: &'a Program,
    pub degree: u16,
    pub transport: &'a str,
    /// Further options of redrun.
    pub options: &'a [String],
    /// Time after which a job counts as hung.
    pub limit: Duration,
}

type Key = (&'static str, u16, String, Vec<String>);

/// Undisturbed runs so far, shared by all campaigns of this process.
static KNOWN: Mutex<BTreeMap<Key, Arc<Alone>>> = Mutex::new(BTreeMap::new());

impl Way<'_> {
    /// The job, without faults as yet.
    pub fn job(&self) -> Job {
        let options: Vec<_> = self.options.iter().map(String::as_str).collect();
        let job = Job::of(self.program).degree(self.degree).transport(self.transport);
        job.options(&options).limit(self.limit)
    }

    /// The undisturbed run. Its output must be the same as without replicas.
    ///
    /// # Panics
    /// When the output differs, or the job does not end well.
    #[track_caller]
    pub fn alone(&self) -> Arc<Alone> {
        let key = (self.program.name, self.degree, self.transport.to_owned(), self.options.to_vec());
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(alone) = known().get(&key) {
            return alone.clone();
        }
        let mut ended = self.job().run().ended_well();
        if self.degree > 1 {
            ended = ended.printed(&Way { degree: 1, transport: "shm", ..*self }.alone().out);
        }
        let sends = sends(&ended, self.program.rank_count);
        let alone = Arc::new(Alone { out: ended.out, took: ended.took, sends });
        known().insert(key, alone.clone());
        alone
    }
}

/// Sends by rank, from the summary.
fn sends(ended: &Ended, rank_count: u32) -> Vec<u64> {
    let mut sends = vec![1; rank_count as usize];
    for exit in ended.summary["exits"].as_array().into_iter().flatten() {
        let rank = exit["replica"].as_str().and_then(|name| name.split('.').next()?.parse::<usize>().ok());
        let sent = exit["messages_sent"].as_u64();
        if let (Some(rank), Some(sent)) = (rank, sent) {
            sends[rank] = sends[rank].max(sent);
        }
    }
    sends
}
