//! The injection campaign: jobs with one fault each in all places where a bit can flip, and what became of the fault.
//!
//! ```text
//!   programs, degrees, kinds, seed ──▶ draw: trials ──▶ a job each ──▶ judge: record ──▶ table
//!                                                        ▲                  │
//!                                                        └── file of records: what is in it is not run again
//! ```
//! What a fault really did is not taken from the verdicts. A job with faults tells sums over all messages that each
//! process sent, and that its program got; when replicas of one rank have different sums, something wrong was sent or
//! taken. And the output of an undisturbed job is known.

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

/// Where a bit flips.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum FlipSite {
    /// In a payload before it is sent.
    Payload,
    /// In the program's heap or static data.
    Heap,
    /// In a register or on the stack of a thread of the program.
    Thread,
    /// In a payload on its way.
    Flight,
    /// In a buffer that was received and verified.
    Received,
    /// In a payload that is kept to be sent again. A flip in flight or a death makes somebody ask for it.
    Log,
    /// In a line of standard output.
    Output,
    /// In an outcome that the program is given: a test, a probe, a clock, what is read of a file.
    Path,
}

impl FlipSite {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Payload, Self::Heap, Self::Thread, Self::Flight, Self::Received, Self::Log, Self::Output, Self::Path];

    /// Its name in records and tables.
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

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|place| place.name() == name)
    }
}

/// Which jobs to run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The programs.
    pub programs: Vec<Program>,
    /// Degrees of replication, 2 or more.
    pub degrees: Vec<u16>,
    /// Places, in turn.
    pub places: Vec<FlipSite>,
    /// Whether at r = 2 copies stand ready to judge.
    pub arbitrates: bool,
    /// Number of faults, spread evenly over programs, degrees and places.
    pub fault_count: usize,
    /// Where everything is drawn from.
    pub seed: u64,
    /// Jobs at once.
    pub parallel: usize,
    /// After this time a job hangs.
    pub limit: Duration,
    /// Records are appended to this file; a fault that has one there is not injected again.
    pub records: Option<PathBuf>,
}

/// Lines that are shown of a job that is not as it should be.
const SAID_MAX: usize = 12;

/// Jobs of the campaign are short: copies are made from their begin on, and often.
const ARBITRATE: &str = "--arbitrate=0.5";

/// One job: a fault and how it is run.
#[derive(Clone, Debug)]
struct Trial {
    program: Program,
    degree: u16,
    place: FlipSite,
    /// The replica in which a bit flips.
    target: (u64, u16),
    /// In the words of `--inject`.
    fault: String,
    options: Vec<&'static str>,
}

impl Trial {
    /// What names it in the file of records.
    fn id(&self, seed: u64) -> String {
        format!("{} r={} {} {} seed={seed}", self.program.name, self.degree, self.fault, self.options.join(" "))
    }

    fn job(&self, seed: u64, limit: Duration) -> Job {
        let job = Job::of(&self.program).degree(self.degree).options(&self.options).inject(&self.fault);
        job.options(&["--seed", &seed.to_string()]).limit(limit)
    }

    /// Whether the one replica that is wrong can be told from its sibling.
    fn can_name(&self) -> bool {
        self.degree > 2 || self.options.contains(&ARBITRATE)
    }

    fn is_deferred(&self) -> bool {
        self.options.contains(&"deferred")
    }
}

/// What a campaign found.
#[derive(Debug, Default)]
pub struct Findings {
    /// One for each fault.
    pub records: Vec<Record>,
    /// The jobs of those that are not as they should be.
    pub failures: Vec<(String, Ended)>,
}

impl Campaign {
    /// Runs it. `tell` is called after every job.
    pub fn run(&self, tell: &(dyn Fn(usize, usize) + Sync)) -> Findings {
        let trials = self.draw();
        let known = self.known();
        let count = trials.len();
        let findings = Mutex::new(Findings::default());
        let waiting = Mutex::new(VecDeque::new());
        for (number, trial) in trials.into_iter().enumerate() {
            // Bits are drawn from the job's seed.
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

    /// What a program prints and sends when it is left alone.
    fn alone(&self, program: &Program) -> Arc<Alone> {
        Way { program, degree: 2, transport: "shm", options: &[], limit: self.limit }.alone()
    }

    /// The records that are there already, by id.
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
    /// Every job that is not as it should be: how to run it, and what it said first. Threads do not take the same way
    /// twice, so it may not say that again.
    #[must_use]
    pub fn failures_text(&self) -> String {
        let text = |(why, ended): &(String, Ended)| {
            let said: String = ended.err.lines().take(SAID_MAX).map(|line| format!("    {line}\n")).collect();
            format!("{why} (exit code {:?})\n  {}\n{said}", ended.code, ended.command)
        };
        self.failures.iter().map(text).collect()
    }

    /// Fails when any is not.
    #[track_caller]
    pub fn assert_right(&self) {
        println!("{}", self.table());
        let Some((_, first)) = self.failures.first() else { return };
        panic!("{}\nThe first of them:\n{first}", self.failures_text());
    }
}
