//! The injection campaign: jobs with one fault each, in all places where a bit can flip, and the fault's fate.
//!
//! ```text
//!   programs, degrees, kinds, seed ──▶ draw: trials ──▶ a job each ──▶ judge: record ──▶ table
//!                                                        ▲                  │
//!                                                        └── file of records: its faults are not injected again
//! ```
//! The verdicts are not the evidence of a fault's effect. In jobs with faults each process reports sums over all
//! messages that it sent, and that its program received: when sums of one rank's replicas differ, something wrong was
//! sent or received. The right output is that of an undisturbed job.

pub mod calm;
mod draw;
mod judge;
mod table;

pub use judge::{Fate, Record};
pub use table::{Calm, calm_text, put_between_marks};

use crate::alone::{Alone, Way};
use crate::programs::Program;
use crate::{Ended, Job};
use clap::ValueEnum;
use std::collections::{HashMap, VecDeque};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Places where a bit can flip.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum FlipSite {
    /// In a payload before it is sent.
    Payload,
    /// In the program's heap or static data.
    Heap,
    /// In a register or on the stack of a thread of the program.
    Thread,
    /// In a payload in flight.
    Flight,
    /// In a buffer with a received and verified message.
    Received,
    /// In a payload in the retention log. A flip in flight or a death makes a receiver ask for it.
    Log,
    /// In a line of standard output.
    Output,
    /// In an outcome that the program is given: of a test, a probe, a clock or a read from a file.
    Path,
}

impl FlipSite {
    /// All places, in the order of the table's rows.
    pub const ALL: [Self; 8] =
        [Self::Payload, Self::Heap, Self::Thread, Self::Flight, Self::Received, Self::Log, Self::Output, Self::Path];

    /// The place's name in records and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Payload => "payload before send",
            Self::Heap => "heap and static data",
            Self::Thread => "registers and stack",
            Self::Flight => "in flight",
            Self::Received => "received buffer",
            Self::Log => "retention log",
            Self::Output => "standard output",
            Self::Path => "outcome",
        }
    }

    /// The place of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|place| place.name() == name)
    }
}

/// A campaign's jobs: all combinations of these.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Programs to inject into.
    pub programs: Vec<Program>,
    /// Degrees of replication, 2 or more.
    pub degrees: Vec<u16>,
    /// Places of the flips, in turn.
    pub places: Vec<FlipSite>,
    /// True when at r = 2 copies stand ready to judge.
    pub arbitrates: bool,
    /// Number of faults, spread evenly over programs, degrees and places.
    pub fault_count: usize,
    /// Seed that everything is drawn from.
    pub seed: u64,
    /// Jobs at once.
    pub parallel: usize,
    /// Time after which a job counts as hung.
    pub limit: Duration,
    /// File that records are appended to; a fault on record there is not injected again.
    pub records: Option<PathBuf>,
}

/// Limit on the lines shown of each job with a wrong fate.
const SAID_MAX: usize = 12;

/// Copies are made from the begin on, and often: jobs of the campaign are short.
const ARBITRATE: &str = "--arbitrate=0.5";

/// One job: a fault and the way to run it.
#[derive(Clone, Debug)]
struct Trial {
    program: Program,
    degree: u16,
    place: FlipSite,
    /// The replica in which the bit flips.
    target: (u64, u16),
    /// The fault, as a value of `--inject`.
    fault: String,
    options: Vec<&'static str>,
}

impl Trial {
    /// The trial's name in the file of records.
    fn id(&self, seed: u64) -> String {
        format!("{} r={} {} {} seed={seed}", self.program.name, self.degree, self.fault, self.options.join(" "))
    }

    fn job(&self, seed: u64, limit: Duration) -> Job {
        let job = Job::of(&self.program).degree(self.degree).options(&self.options).inject(&self.fault);
        job.options(&["--seed", &seed.to_string()]).limit(limit)
    }

    /// True when the one wrong replica can be told from its siblings.
    fn can_name(&self) -> bool {
        self.degree > 2 || self.options.contains(&ARBITRATE)
    }

    fn is_deferred(&self) -> bool {
        self.options.contains(&"deferred")
    }
}

/// Results of a campaign.
#[derive(Debug, Default)]
pub struct Findings {
    /// One record for each fault.
    pub records: Vec<Record>,
    /// Jobs whose fate is not as it should be.
    pub failures: Vec<(String, Ended)>,
}

impl Campaign {
    /// Runs the campaign. `tell` is called after every job with the number of jobs that are done, and of all.
    pub fn run(&self, tell: &(dyn Fn(usize, usize) + Sync)) -> Findings {
        let trials = self.draw();
        let known = self.known();
        let count = trials.len();
        let findings = Mutex::new(Findings::default());
        let waiting = Mutex::new(VecDeque::new());
        for (number, trial) in trials.into_iter().enumerate() {
            // The seed of a job draws its bits.
            let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(number as u64);
            match known.get(&trial.id(seed)) {
                Some(record) => lock(&findings).records.push(record.clone()),
                None => lock(&waiting).push_back((trial, seed)),
            }
        }
        let work = || {
            while let Some((trial, seed)) = next(&waiting) {
                let ended = trial.job(seed, self.limit).run();
                let record = judge::judge(&trial, seed, &ended, &self.alone(&trial.program).out);
                self.append(&record);
                let mut findings = lock(&findings);
                if let Some(why) = record.failure() {
                    findings.failures.push((why, ended));
                }
                findings.records.push(record);
                tell(findings.records.len(), count);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.parallel.max(1) {
                scope.spawn(work);
            }
        });
        findings.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The undisturbed run of a program.
    fn alone(&self, program: &Program) -> Arc<Alone> {
        Way { program, degree: 2, transport: "shm", options: &[], limit: self.limit }.alone()
    }

    /// Records in the file from earlier runs, by id.
    fn known(&self) -> HashMap<String, Record> {
        let text = self.records.as_deref().map(|path| std::fs::read_to_string(path).unwrap_or_default());
        let text = text.unwrap_or_default();
        let records = text.lines().filter_map(|line| Record::from_json(&serde_json::from_str(line).ok()?));
        records.map(|record| (record.id.clone(), record)).collect()
    }

    fn append(&self, record: &Record) {
        let Some(path) = &self.records else { return };
        append_line(path, &record.to_json().to_string());
    }
}

fn append_line(path: &Path, line: &str) {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn next<T>(waiting: &Mutex<VecDeque<T>>) -> Option<T> {
    lock(waiting).pop_front()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Findings {
    /// For each job with a wrong fate its command and its first lines. Another run may say something else: threads do
    /// not take the same way twice.
    #[must_use]
    pub fn failures_text(&self) -> String {
        let text = |(why, ended): &(String, Ended)| {
            let said: String = ended.err.lines().take(SAID_MAX).map(|line| format!("    {line}\n")).collect();
            format!("{why} (exit code {:?})\n  {}\n{said}", ended.code, ended.command)
        };
        self.failures.iter().map(text).collect()
    }

    /// Fails when the fate of any job is wrong.
    #[track_caller]
    pub fn assert_right(&self) {
        println!("{}", self.table());
        let Some((_, first)) = self.failures.first() else { return };
        panic!("{}\nThe first of them:\n{first}", self.failures_text());
    }
}
