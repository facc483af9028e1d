//! The journal of a coordinator: all that this process was told, and all it has told others apart from consequences, so
//! that another coordinator can continue (`tools/redrun/src/failover.rs`).
//!
//! ```text
//!   daemons ─ accepted ─▶ Heard ─ handled ─▶ Hear ─┐
//!   all else that happens ─────────────────▶ Input ┼─▶ coordinator ─▶ messages, which are not written: they follow
//!   messages that do not come from the coordinator ▶ Order┘
//! ```
//! A daemon's message is acknowledged once it is written here, not before. Messages of the coordinator to daemons are
//! computed again. Messages from outside the coordinator lie between them: `Order` gives the number of coordinator
//! messages before it. From `Returned` on, a job that went back has other daemons, and messages are counted anew.
//!
//! The directory `JOB.coordinator`, beside the socket for consoles, is readable by its user alone: the journal has the
//! job's secret, the program's environment, and all standard input and output.

use crate::quorum::mirror::{Mirror, has_peer};
use crate::quorum::{Peers, REPLACED_CODE};
use anyhow::{Context, Result};
use checkpoint_store::StoredCheckpoint;
use control_network::identity::{Machine, ProcessIdentity};
use control_network::launcher::Starting;
use coordinator_journal::file::{
    JOURNAL_BYTES_MAX, JOURNAL_BYTES_USUAL, Journal, OpenError, is_abandoned, remove_abandoned,
};
use job_coordinator::Input;
use placement::plan::HostPlan;
use redrt_wire::frame::{decode_body, encode_long};
use redrt_wire::secret::Secret;
use redrt_wire::tree::{Attach, Term};
use serde::{Deserialize, Serialize};
use spare_pool::Spare;
use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// First record of a journal: how the job began.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Begun {
    /// Command line, with the program's name first.
    pub arguments: Vec<OsString>,
    /// Working directory.
    #[serde(with = "redrt_types::path_bytes")]
    pub directory: PathBuf,
    /// The environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Machine of the first coordinator.
    pub machine: Machine,
    /// The job's hosts, as found by the first coordinator.
    pub plan: HostPlan,
    /// The job's number.
    pub job: u64,
    /// The job's secret.
    pub secret: Secret,
    /// Settings of the coordinator's machine.
    pub settings: job_coordinator::Settings,
    /// Seed of the values that replicas must agree on.
    pub seed: u64,
    /// Standard input, output and error, where they are files.
    pub files: [Option<KeptFile>; 3],
}

/// A standard stream that is a regular file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeptFile {
    /// Path of the file.
    #[serde(with = "redrt_types::path_bytes")]
    pub path: PathBuf,
    /// Offset at which the job began.
    pub position: u64,
    /// True if the file was opened for appending.
    pub appends: bool,
    /// Inode number: tells the file from another one at the same path of another host.
    pub inode: u64,
}

/// Further record of a journal.
#[derive(Debug, Serialize, Deserialize)]
pub enum Record {
    /// A host has attached for the first time.
    Attached(Box<Attach>),
    /// A daemon's message for the coordinator was received.
    Received {
        /// Number of the daemon's host.
        host: u32,
        /// The encoded `FromDaemon`.
        #[serde(with = "serde_bytes")]
        body: Vec<u8>,
    },
    /// A daemon's message was received that is not for the coordinator.
    Counted {
        /// Number of the daemon's host.
        host: u32,
    },
    /// The coordinator handles the oldest heard message of a host.
    Receive {
        /// Time of the job.
        now: Duration,
        /// Number of the daemon's host.
        host: u32,
    },
    /// The coordinator handles another input.
    Input {
        /// Time of the job.
        now: Duration,
        /// The input, which is none of a daemon.
        input: Box<Input>,
    },
    /// A message to daemons from outside the coordinator.
    Order {
        /// Number of coordinator messages before it.
        after: u64,
        /// Receiver. `None`: all.
        to: Option<u32>,
        /// The encoded `ToDaemon`.
        #[serde(with = "serde_bytes")]
        body: Vec<u8>,
    },
    /// A host is being added.
    Added {
        /// The host, as requested.
        spare: Spare,
        /// The request: `redctl spare add`, perhaps with a number of places (inner), or `None` for the coordinator.
        for_user: Option<Option<u32>>,
    },
    /// A process starts the daemon of a host, or of all (`None`), and lives as long as the daemon.
    Launcher {
        /// Number of the host. `None`: all.
        host: Option<u32>,
        /// The launcher, which is ended if its host is lost.
        process: ProcessIdentity,
    },
    /// Lengths of the files of `--output-dir` at the job's beginning, by target.
    Files(Vec<u64>),
    /// The job goes back as the coordinator has chosen: new daemons are started, with this secret. Later records are
    /// about these.
    Returned(Secret),
    /// Unfinished lines were shown: a terminal waits for an answer.
    Prompt,
    /// Bytes of the job shown on standard output and standard error. Needed by a coordinator on another host, which has
    /// no pipes to measure them.
    Shown([u64; 2]),
    /// Another coordinator has taken over.
    CameBack {
        /// Term of the new coordinator.
        term: Term,
        /// Machine that it runs on.
        machine: Machine,
    },
    /// A snapshot in place of all earlier records.
    Snapshot {
        /// Processes that started daemons.
        launchers: Launchers,
        /// All other state, encoded by `tools/redrun`.
        #[serde(with = "serde_bytes")]
        state: Vec<u8>,
    },
}

/// Processes that start the daemon of a host, or of all (`None`).
pub type Launchers = Vec<(Option<u32>, ProcessIdentity)>;

#[derive(Debug)]
struct Writing {
    /// `None` if the job keeps no journal, or it was given up.
    journal: Option<Journal>,
    /// Connection to the quorum, if other hosts have the records too.
    mirror: Option<Mirror>,
    /// Directory of the journal; without the journal its contents are of no use.
    directory: PathBuf,
    /// True if the job ends with this process, unless that is killed.
    ends_with_this: bool,
    /// The first record, encoded.
    begun: Vec<u8>,
    /// Length above which a snapshot is due.
    long_bytes: u64,
    /// Bytes of standard input so far.
    input_bytes: u64,
    /// Number of coordinator messages in this life of the job.
    relayed_count: u64,
    /// Reason why the journal was given up, until it is polled.
    trouble: Option<String>,
}

/// The journal, shared by all its writers.
#[derive(Clone, Debug)]
pub struct Ledger(Rc<RefCell<Writing>>);

impl Ledger {
    /// A ledger without a journal: all records are dropped.
    pub fn absent() -> Self {
        Self::of(None, Path::new(""), Vec::new())
    }

    fn of(journal: Option<Journal>, directory: &Path, begun: Vec<u8>) -> Self {
        Self(Rc::new(RefCell::new(Writing {
            journal,
            mirror: None,
            directory: directory.to_owned(),
            ends_with_this: false,
            begun,
            long_bytes: JOURNAL_BYTES_USUAL,
            input_bytes: 0,
            relayed_count: 0,
            trouble: None,
        })))
    }

    /// Begins the journal of a job.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn begin(begun: &Begun, directory: &Path, mirror: Option<Mirror>) -> Result<Self> {
        let path = journal_path(directory);
        let failed = || format!("Failed to begin the journal {}", path.display());
        let begun = encode_long(begun);
        let journal = Journal::create(&path, &begun).with_context(failed)?;
        let ledger = Self::of(Some(journal), directory, begun);
        {
            let mut writing = ledger.0.borrow_mut();
            let Writing { mirror: place, begun, ends_with_this, .. } = &mut *writing;
            *ends_with_this = true;
            *place = mirror;
            place.iter_mut().for_each(|mirror| mirror.add(begun));
        }
        ledger.flush();
        Ok(ledger)
    }

    /// Continues a journal that has `input_bytes` of standard input. Until [`Ledger::came_back`] it stays as it is,
    /// should this process fail.
    pub fn go_on(journal: Journal, directory: &Path, begun: &Begun, input_bytes: u64, mirror: Option<Mirror>) -> Self {
        let ledger = Self::of(Some(journal), directory, encode_long(begun));
        ledger.0.borrow_mut().mirror = mirror;
        ledger.0.borrow_mut().input_bytes = input_bytes;
        ledger
    }

    /// Sets the length in bytes above which a snapshot is due.
    pub fn set_long(&self, bytes: u64) {
        self.0.borrow_mut().long_bytes = bytes;
    }

    /// True if a snapshot is due.
    pub fn is_long(&self) -> bool {
        let writing = self.0.borrow();
        writing.journal.as_ref().is_some_and(|journal| journal.byte_count() > writing.long_bytes)
    }

    /// Bytes of standard input so far.
    pub fn input_bytes(&self) -> u64 {
        self.0.borrow().input_bytes
    }

    /// Replaces all records by a snapshot.
    pub fn shorten(&self, launchers: Launchers, state: Vec<u8>) {
        let mut writing = self.0.borrow_mut();
        let Writing { journal: Some(journal), mirror, directory, begun, long_bytes, relayed_count, .. } = &mut *writing
        else {
            return;
        };
        let snapshot = encode_long(&Record::Snapshot { launchers, state });
        // Without room the journal grows, up to its limit.
        if journal.replace(&journal_path(directory), &[begun, &snapshot]).is_ok() {
            *relayed_count = 0;
            mirror.iter_mut().for_each(|mirror| mirror.replace(&[begun, &snapshot]));
        }
        // A snapshot of nearly the old length must not be written again and again.
        *long_bytes = (*long_bytes).max(2 * journal.byte_count());
    }

    /// True while there is a journal, so that the coordinator can come back.
    pub fn is_kept(&self) -> bool {
        self.0.borrow().journal.is_some()
    }

    fn write(&self, record: &Record) {
        let mut writing = self.0.borrow_mut();
        let Some(journal) = &mut writing.journal else { return };
        let bytes = encode_long(record);
        let outcome = journal.append(&bytes);
        let is_long = journal.byte_count() > JOURNAL_BYTES_MAX;
        writing.mirror.iter_mut().for_each(|mirror| mirror.add(&bytes));
        drop(writing);
        match outcome {
            Err(error) => self.give_up(&error.to_string()),
            Ok(()) if is_long => self.give_up(&format!("its journal is longer than {} MiB", JOURNAL_BYTES_MAX >> 20)),
            Ok(()) => {}
        }
    }

    /// Writes buffered records. Must be called before any consequence of a record leaves this process.
    pub fn flush(&self) {
        let outcome = self.0.borrow_mut().journal.as_mut().map_or(Ok(()), Journal::flush);
        match outcome {
            Err(error) => self.give_up(&error.to_string()),
            // The file first: a peer that brings the coordinator back on this host writes it anew.
            Ok(()) => self.0.borrow_mut().flush_mirror(),
        }
    }

    /// Sends a beat if due, and returns the peers. Must be called often. `None` without a quorum.
    pub fn quorum(&self) -> Option<Peers> {
        let mut writing = self.0.borrow_mut();
        let mirror = writing.mirror.as_mut()?;
        mirror.beat();
        Some(mirror.peers().clone())
    }

    /// Permits other voters: all daemons know that other hosts are to hold the records and decide with this one.
    pub fn permit_voters(&self) {
        self.0.borrow_mut().mirror.iter_mut().for_each(Mirror::permit_voters);
    }

    /// Called when another coordinator has taken over. With a quorum that coordinator has its own journal, and this one
    /// must not be continued.
    pub fn is_replaced(&self) {
        let writing = self.0.borrow();
        if writing.mirror.is_some() {
            writing.leave();
        }
    }

    /// Announces the job's end to the peer: the coordinator may wait for a console from now on.
    pub fn ending(&self) {
        self.0.borrow_mut().mirror.iter_mut().for_each(Mirror::ending);
    }

    /// Gives the journal up: the coordinator cannot come back any more.
    pub fn give_up(&self, why: &str) {
        let mut writing = self.0.borrow_mut();
        writing.remove();
        writing.trouble = Some(why.to_owned());
    }

    /// Reason why the journal was given up, once.
    pub fn poll_trouble(&self) -> Option<String> {
        self.0.borrow_mut().trouble.take()
    }

    /// Records that a host has attached for the first time.
    pub fn attached(&self, attach: &Attach) {
        self.write(&Record::Attached(Box::new(attach.clone())));
    }

    /// Records a received message. Must be called before the message is acknowledged.
    pub fn heard(&self, host: u32, body: &[u8], is_for_coordinator: bool) {
        if self.is_kept() {
            self.write(&match is_for_coordinator {
                true => Record::Received { host, body: body.to_vec() },
                false => Record::Counted { host },
            });
        }
    }

    /// Records an input of the coordinator.
    pub fn input(&self, now: Duration, input: &Input) {
        if self.is_kept() {
            if let Input::StandardInput(bytes) = input {
                self.0.borrow_mut().input_bytes += bytes.len() as u64;
            }
            self.write(&match input {
                Input::Daemon { host, .. } => Record::Receive { now, host: *host },
                input => Record::Input { now, input: Box::new(input.clone()) },
            });
        }
    }

    /// Counts a message of the coordinator, which is about to be sent, after a flush.
    pub fn relayed(&self) {
        self.flush();
        self.0.borrow_mut().relayed_count += 1;
    }

    /// Records a message from outside the coordinator, which is about to be sent.
    pub fn order(&self, to: Option<u32>, body: &[u8]) {
        if self.is_kept() {
            let after = self.0.borrow().relayed_count;
            self.write(&Record::Order { after, to, body: body.to_vec() });
            self.flush();
        }
    }

    /// Records the lengths of the files of `--output-dir`.
    pub fn files(&self, bytes: &[u64]) {
        if !bytes.is_empty() {
            self.write(&Record::Files(bytes.to_vec()));
        }
    }

    /// Records a return. Must be called before its daemons are started.
    pub fn returned(&self, secret: &Secret) {
        self.write(&Record::Returned(secret.clone()));
        self.flush();
        self.begin_life();
    }

    /// Counts coordinator messages from 0 again: they are for new daemons.
    pub fn begin_life(&self) {
        self.0.borrow_mut().relayed_count = 0;
    }

    /// Records that a host is being added.
    pub fn added(&self, spare: &Spare, for_user: Option<Option<u32>>) {
        self.write(&Record::Added { spare: spare.clone(), for_user });
    }

    /// Records the process that starts the daemon of a host, or of all.
    pub fn launcher(&self, starting: &Starting) {
        if let Some(process) = starting.identity() {
            self.write(&Record::Launcher { host: starting.host, process });
        }
    }

    /// Records the bytes shown. Not flushed: the record goes with the next one.
    pub fn shown(&self, bytes: [u64; 2]) {
        self.write(&Record::Shown(bytes));
    }

    /// Records that unfinished lines are about to be shown.
    pub fn prompt(&self) {
        self.write(&Record::Prompt);
    }

    /// Records that this coordinator has taken over.
    pub fn came_back(&self, term: Term) {
        self.write(&Record::CameBack { term, machine: Machine::here() });
        self.flush();
        self.0.borrow_mut().ends_with_this = true;
    }
}

impl Writing {
    fn flush_mirror(&mut self) {
        self.mirror.iter_mut().for_each(Mirror::flush);
        if self.mirror.as_ref().is_some_and(Mirror::is_lost) {
            self.leave();
            std::process::exit(REPLACED_CODE);
        }
    }

    /// Removes the journal, so that no coordinator continues it, and its pipe holder ends.
    fn leave(&self) {
        let path = journal_path(&self.directory);
        if self.journal.as_ref().is_some_and(|journal| journal.is_at(&path)) {
            let _ = std::fs::remove_file(path);
        }
    }

    fn remove(&mut self) {
        if self.journal.take().is_some() {
            self.mirror.take().iter_mut().for_each(Mirror::end);
            // Without a journal nobody looks for the rest.
            let _ = std::fs::remove_file(journal_path(&self.directory));
            let _ = running_jobs::remove_coordinator_directory(&self.directory);
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if self.ends_with_this {
            self.remove();
        }
    }
}

/// Path of the journal in the coordinator's directory.
pub fn journal_path(directory: &Path) -> PathBuf {
    directory.join("journal")
}

/// Intact records of a journal that do not fit each other or this version.
#[derive(Debug, thiserror::Error)]
pub enum Senseless {
    /// The record with this index cannot be decoded.
    #[error("record {0} of the journal is not one of this version")]
    Record(usize),
    /// The snapshot cannot be decoded.
    #[error("the snapshot of the coordinator in the journal is not one of this version")]
    Snapshot,
    /// The coordinator was to handle a message that the journal does not have.
    #[error("the journal of the coordinator tells it what no daemon has said")]
    Unheard,
    /// A life began that the coordinator has not chosen.
    #[error("the journal of the coordinator has a return to a checkpoint that it has not chosen")]
    NoReturn,
}

/// Decodes the records of a journal.
///
/// # Errors
/// When records are of another version.
pub fn read(records: &[Vec<u8>]) -> Result<(Begun, Vec<Record>), Senseless> {
    let begun = decode_body(&records[0]).map_err(|_| Senseless::Record(0))?;
    let decode = |(number, bytes): (usize, &Vec<u8>)| decode_body(bytes).map_err(|_| Senseless::Record(number));
    Ok((begun, records.iter().enumerate().skip(1).map(decode).collect::<Result<_, _>>()?))
}

/// Processes by which coordinators have started daemons of other hosts, one for each, from the records of a journal.
/// They live as long as those daemons, and may wait for lost hosts.
#[must_use]
pub fn launchers(records: &[Vec<u8>]) -> Vec<ProcessIdentity> {
    let mut all = Launchers::new();
    for record in read(records).map(|(_, records)| records).unwrap_or_default() {
        match record {
            Record::Launcher { host, process } => all.push((host, process)),
            Record::Snapshot { launchers, .. } => all = launchers,
            _ => {}
        }
    }
    all.into_iter().filter(|(host, _)| host.is_some()).map(|(_, process)| process).collect()
}

/// First record of the journal in this directory. `None` if there is no journal.
///
/// # Errors
/// When the coordinator lives, or the journal cannot be read.
pub fn read_begun(directory: &Path) -> Result<Option<Begun>> {
    match Journal::open(&journal_path(directory)) {
        Ok((_, records)) => Ok(Some(read(&records)?.0)),
        Err(error) if error.is_absence() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// True if another process has the journal locked: a root, or briefly a process that only looks.
#[must_use]
pub fn is_in_use(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(OpenError::InUse { .. }))
}

/// Retries `open` until processes that only look have released the journal.
///
/// # Errors
/// Errors of `open`, above all when a coordinator has the journal.
pub fn when_free<T>(open: impl Fn() -> Result<T>) -> Result<T> {
    const LOOKED_AT_MAX: Duration = Duration::from_secs(1);
    const INTERVAL: Duration = Duration::from_millis(5);
    let since = Instant::now();
    loop {
        match open() {
            Err(error) if is_in_use(&error) && since.elapsed() < LOOKED_AT_MAX => std::thread::sleep(INTERVAL),
            outcome => return outcome,
        }
    }
}

/// The hosts of a job whose coordinator was killed.
///
/// # Errors
/// When the job has left no journal, or its coordinator lives.
pub fn planned(job: u64) -> Result<HostPlan> {
    begun(job).map(|begun| begun.plan)
}

fn begun(job: u64) -> Result<Begun> {
    let begun = running_jobs::find_coordinator(job)
        .map(|directory| when_free(|| read_begun(&directory)))
        .transpose()?
        .flatten();
    begun.with_context(|| format!("job {job:016x} has left nothing to go on with"))
}

/// The checkpoint that a job was resumed from whose coordinator was killed.
///
/// # Errors
/// When the job has left no journal, was not resumed, or its coordinator lives.
pub fn resumed(job: u64) -> Result<StoredCheckpoint> {
    let kept = begun(job)?.settings.life.from;
    kept.map(|kept| *kept).with_context(|| format!("job {job:016x} was not resumed from a checkpoint"))
}

/// File made by the first process that finds the coordinator missing. Its age is the time without a coordinator.
const ABANDONED: &str = "abandoned";
/// Time for which an unreadable journal is kept: it may be of another version.
const UNREADABLE_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// Jobs of this user on this host that run without a coordinator and can get one. Remains of jobs that are over are
/// removed.
pub fn rootless() -> Vec<String> {
    let can_go_on = |(job, directory): &(String, PathBuf)| {
        is_abandoned(&journal_path(directory))
            && running_jobs::noted_end(job).is_none()
            && !remove_when_over(job, directory)
    };
    running_jobs::find_coordinators().into_iter().filter(can_go_on).map(|(job, _)| job).collect()
}

/// Removes the remains of a job that is over: no coordinator was there for longer than its processes wait for one, and
/// nothing of it lives on a host that shares this directory. True if they were removed.
fn remove_when_over(job: &str, directory: &Path) -> bool {
    let seen = directory.join(ABANDONED);
    let Ok(since) = std::fs::metadata(&seen).and_then(|metadata| metadata.modified()) else {
        // If the file cannot be written, the remains could not be removed either.
        let _ = std::fs::File::create(&seen);
        return false;
    };
    let lease = lease(directory).unwrap_or(UNREADABLE_TIME_MAX);
    let is_late = since.elapsed().is_ok_and(|age| age > lease);
    // The lock on the journal keeps coordinators away meanwhile.
    is_late
        && !has_peer(directory)
        && !running_jobs::lives(job)
        && remove_abandoned(&journal_path(directory)).is_ok()
        && running_jobs::remove_coordinator_directory(directory).is_ok()
}

/// Time for which processes wait for another coordinator. Reads without a lock, as [`is_abandoned`] does.
fn lease(directory: &Path) -> Option<Duration> {
    let bytes = std::fs::read(journal_path(directory)).ok()?;
    let contents = coordinator_journal::frame::decode(&bytes).ok()?;
    let begun: Begun = decode_body(contents.records.first()?).ok()?;
    Some(begun.plan.coordinator_lease)
}

/// Notes that a coordinator has taken over in this directory.
pub fn is_taken(directory: &Path) {
    let _ = std::fs::remove_file(directory.join(ABANDONED));
}

/// Advice for the user of a job without a coordinator.
pub fn no_coordinator(job: &str) -> String {
    format!("its coordinator was killed: redrun --attach {job} brings it back")
}
