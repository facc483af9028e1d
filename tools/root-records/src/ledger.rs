//! What the journal of a root has: all that this process was told and has told others, so that another one can go on
//! (`tools/redrun/src/comeback.rs`).
//!
//! ```text
//!   daemons ─ accepted ─▶ Heard ─ handled ─▶ Hear ─┐
//!   all else that happens ─────────────────▶ Input ┼─▶ root ─▶ messages, which are not written: they follow
//!   messages that do not come from the root ▶ Order┘
//! ```
//! A daemon is told that a message has been received when it is written here, not before. Messages of the root to
//! daemons are worked out again, and those that the root did not make are in their midst: `Order` says after how many.
//! A job that goes back to a line has other daemons from `Returned` on, to whom messages are counted anew.
//!
//! The directory `JOB.root`, beside the socket for consoles, is for its user alone: the journal has the job's secret,
//! the environment of the program, and all that was read from standard input and printed.

use crate::council::mirror::{Mirror, has_member};
use crate::council::{Members, REPLACED_CODE};
use anyhow::{Context, Result};
use control_network::identity::{Machine, ProcessIdentity};
use control_network::launcher::Starting;
use job_root::Input;
use line_store::{Kept, Manifest};
use placement::plan::{HostPlan, PlannedHost};
use redrt_wire::frame::{decode_body, encode_long};
use redrt_wire::line::Generation;
use redrt_wire::secret::Secret;
use redrt_wire::tree::{Attach, Term};
use root_journal::file::{JOURNAL_BYTES_MAX, JOURNAL_BYTES_USUAL, Journal, OpenError, is_abandoned, remove_abandoned};
use serde::{Deserialize, Serialize};
use spare_pool::Spare;
use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How a job was begun.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Begun {
    /// The command line, its program's name first.
    pub arguments: Vec<OsString>,
    /// The working directory.
    #[serde(with = "redrt_types::path_bytes")]
    pub directory: PathBuf,
    /// The environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Where its first root is.
    pub machine: Machine,
    /// Its hosts, as they were found there.
    pub plan: HostPlan,
    /// The job's number.
    pub job: u64,
    /// The job's secret.
    pub secret: Secret,
    /// What its root was made of.
    pub settings: job_root::Settings,
    /// Seed of what replicas must agree on.
    pub seed: u64,
    /// The line that it goes on from, if it was resumed.
    pub resumed: Option<Box<Kept>>,
    /// Which of standard input, output and error are files.
    pub files: [Option<KeptFile>; 3],
}

/// A standard stream that is a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeptFile {
    /// Its path.
    #[serde(with = "redrt_types::path_bytes")]
    pub path: PathBuf,
    /// Where the job begins in it.
    pub position: u64,
    /// Each write goes to its end.
    pub appends: bool,
    /// By which it is told from another that has its path on another host.
    pub inode: u64,
}

/// What the journal has behind that.
#[derive(Debug, Serialize, Deserialize)]
pub enum Record {
    /// A host is there for the first time.
    Attached(Box<Attach>),
    /// A daemon's message for the root was received.
    Heard {
        /// From which host.
        host: u32,
        /// A `FromDaemon`.
        #[serde(with = "serde_bytes")]
        body: Vec<u8>,
    },
    /// A daemon's message was received, and is not for the root.
    Counted {
        /// From which host.
        host: u32,
    },
    /// The root is told the next message that was heard of a host.
    Hear {
        /// The time of the job.
        now: Duration,
        /// The host.
        host: u32,
    },
    /// The root is told this.
    Input {
        /// The time of the job.
        now: Duration,
        /// What.
        input: Box<Input>,
    },
    /// A message that does not come from the root.
    Order {
        /// How many from the root came before it.
        after: u64,
        /// To which host; to all when absent.
        to: Option<u32>,
        /// A `ToDaemon`.
        #[serde(with = "serde_bytes")]
        body: Vec<u8>,
    },
    /// A host is being added.
    Added {
        /// As it was asked for.
        spare: Spare,
        /// By `redctl spare add`, with the places that it named; else by the root.
        for_user: Option<Option<u32>>,
    },
    /// A process starts the daemon of a host, or of all when that is absent. It lives as long as that does.
    Launcher {
        /// The host.
        host: Option<u32>,
        /// The process.
        process: ProcessIdentity,
    },
    /// What the files of `--output-dir` had when the job began, by target.
    Files(Vec<u64>),
    /// The store has a place for a line. What follows from that is an input.
    LineBegun {
        /// Lines that are kept beside it.
        beside: Vec<Generation>,
        /// The one that it is built on.
        basis: Option<Box<Manifest>>,
    },
    /// The store keeps a line. What follows from that is an input.
    LineKept(Box<Kept>),
    /// All processes are gone, and daemons of their own are started for others. All behind it is of those.
    Returned(Box<Returned>),
    /// Lines without an end were shown: a terminal waits for an answer.
    Prompt,
    /// So much of what the job has printed was shown on standard output and standard error: for a root on another host,
    /// which has nothing else that says so.
    Shown([u64; 2]),
    /// Another root goes on from here.
    CameBack {
        /// Its term.
        term: Term,
        /// Where it is.
        machine: Machine,
    },
    /// All that was before.
    Snapshot {
        /// Who has started the daemons.
        launchers: Launchers,
        /// All else, as who goes on wants it.
        #[serde(with = "serde_bytes")]
        state: Vec<u8>,
    },
}

/// The processes that start the daemons of hosts, or of all hosts.
pub type Launchers = Vec<(Option<u32>, ProcessIdentity)>;

/// How a job goes back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Returned {
    /// The job's secret from now on.
    pub secret: Secret,
    /// Its hosts.
    pub hosts: Vec<PlannedHost>,
    /// The line that it goes back to …
    pub kept: Box<Kept>,
    /// … how often, with this time.
    pub count: u32,
}

#[derive(Debug)]
struct Writing {
    /// Absent when this job keeps none, or it was given up.
    journal: Option<Journal>,
    /// Where other hosts have it too.
    mirror: Option<Mirror>,
    /// All that is in it is of no use without a journal.
    directory: PathBuf,
    /// The job ends with this process, unless that is killed.
    ends_with_this: bool,
    /// Its first record.
    begun: Vec<u8>,
    /// Bytes from which on it is to be shortened.
    long_bytes: u64,
    /// Read of standard input until now.
    input_bytes: u64,
    /// Messages of the root until now, in this life of the job.
    relayed_count: u64,
    /// Why it was given up, until somebody has asked.
    trouble: Option<String>,
}

/// The journal in the hands of all who write to it.
#[derive(Clone, Debug)]
pub struct Ledger(Rc<RefCell<Writing>>);

impl Ledger {
    /// None is kept.
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

    /// Goes on with one, in which so much of standard input is. Until [`Ledger::came_back`] it is left as it is for who
    /// comes next.
    pub fn go_on(journal: Journal, directory: &Path, begun: &Begun, input_bytes: u64, mirror: Option<Mirror>) -> Self {
        let ledger = Self::of(Some(journal), directory, encode_long(begun));
        ledger.0.borrow_mut().mirror = mirror;
        ledger.0.borrow_mut().input_bytes = input_bytes;
        ledger
    }

    /// From this number of bytes on it is to be shortened.
    pub fn set_long(&self, bytes: u64) {
        self.0.borrow_mut().long_bytes = bytes;
    }

    /// Whether it is to be shortened.
    pub fn is_long(&self) -> bool {
        let writing = self.0.borrow();
        writing.journal.as_ref().is_some_and(|journal| journal.byte_count() > writing.long_bytes)
    }

    /// Read of standard input until now.
    pub fn input_bytes(&self) -> u64 {
        self.0.borrow().input_bytes
    }

    /// This is in place of all records until now.
    pub fn shorten(&self, launchers: Launchers, state: Vec<u8>) {
        let mut writing = self.0.borrow_mut();
        let Writing { journal: Some(journal), mirror, directory, begun, long_bytes, relayed_count, .. } = &mut *writing
        else {
            return;
        };
        let snapshot = encode_long(&Record::Snapshot { launchers, state });
        // Where there is no room it grows, until it is too long.
        if journal.replace(&journal_path(directory), &[begun, &snapshot]).is_ok() {
            *relayed_count = 0;
            mirror.iter_mut().for_each(|mirror| mirror.replace(&[begun, &snapshot]));
        }
        // A state that is as large is not written down time and again.
        *long_bytes = (*long_bytes).max(2 * journal.byte_count());
    }

    /// Whether this job's root can come back.
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

    /// Called before anything leaves this process that follows from what was written.
    pub fn flush(&self) {
        let outcome = self.0.borrow_mut().journal.as_mut().map_or(Ok(()), Journal::flush);
        match outcome {
            Err(error) => self.give_up(&error.to_string()),
            // After the file: a member that brings the root back on this host writes that anew.
            Ok(()) => self.0.borrow_mut().flush_mirror(),
        }
    }

    /// Called again and again: the members of the council, which have the journal too. Absent where there is one root.
    pub fn council(&self) -> Option<Members> {
        let mut writing = self.0.borrow_mut();
        let mirror = writing.mirror.as_mut()?;
        mirror.beat();
        Some(mirror.members().clone())
    }

    /// All daemons know that other hosts are to hold the journal too, and decide with this one.
    pub fn permit_voters(&self) {
        self.0.borrow_mut().mirror.iter_mut().for_each(Mirror::permit_voters);
    }

    /// Another root has taken this one's place. With a council that has a journal of its own: nobody is to go on with
    /// this one.
    pub fn is_replaced(&self) {
        let writing = self.0.borrow();
        if writing.mirror.is_some() {
            writing.leave();
        }
    }

    /// The job has ended, and somebody is to be told.
    pub fn ending(&self) {
        self.0.borrow_mut().mirror.iter_mut().for_each(Mirror::ending);
    }

    /// The root cannot come back from now on.
    pub fn give_up(&self, why: &str) {
        let mut writing = self.0.borrow_mut();
        writing.remove();
        writing.trouble = Some(why.to_owned());
    }

    /// Why it was given up, once.
    pub fn poll_trouble(&self) -> Option<String> {
        self.0.borrow_mut().trouble.take()
    }

    /// A host is there for the first time.
    pub fn attached(&self, attach: &Attach) {
        self.write(&Record::Attached(Box::new(attach.clone())));
    }

    /// A daemon's message was received: written before the daemon is told so.
    pub fn heard(&self, host: u32, body: &[u8], is_for_root: bool) {
        if self.is_kept() {
            self.write(&match is_for_root {
                true => Record::Heard { host, body: body.to_vec() },
                false => Record::Counted { host },
            });
        }
    }

    /// The root is told this.
    pub fn input(&self, now: Duration, input: &Input) {
        if self.is_kept() {
            if let Input::StandardInput(bytes) = input {
                self.0.borrow_mut().input_bytes += bytes.len() as u64;
            }
            self.write(&match input {
                Input::Daemon { host, .. } => Record::Hear { now, host: *host },
                input => Record::Input { now, input: Box::new(input.clone()) },
            });
        }
    }

    /// A message of the root is about to be sent.
    pub fn relayed(&self) {
        self.flush();
        self.0.borrow_mut().relayed_count += 1;
    }

    /// A message is about to be sent that the root has not made.
    pub fn order(&self, to: Option<u32>, body: &[u8]) {
        if self.is_kept() {
            let after = self.0.borrow().relayed_count;
            self.write(&Record::Order { after, to, body: body.to_vec() });
            self.flush();
        }
    }

    /// The files of `--output-dir` have so much.
    pub fn files(&self, bytes: &[u64]) {
        if !bytes.is_empty() {
            self.write(&Record::Files(bytes.to_vec()));
        }
    }

    /// The store has a place for a line.
    pub fn line_begun(&self, beside: &[Generation], basis: Option<&Manifest>) {
        if self.is_kept() {
            self.write(&Record::LineBegun { beside: beside.to_vec(), basis: basis.cloned().map(Box::new) });
        }
    }

    /// The store keeps a line.
    pub fn line_kept(&self, kept: &Kept) {
        if self.is_kept() {
            self.write(&Record::LineKept(Box::new(kept.clone())));
        }
    }

    /// The job goes back: nothing of its new daemons was done yet.
    pub fn returned(&self, returned: Returned) {
        self.write(&Record::Returned(Box::new(returned)));
        self.flush();
        self.begin_life();
    }

    /// Messages are for other daemons from now on.
    pub fn begin_life(&self) {
        self.0.borrow_mut().relayed_count = 0;
    }

    /// A host is being added.
    pub fn added(&self, spare: &Spare, for_user: Option<Option<u32>>) {
        self.write(&Record::Added { spare: spare.clone(), for_user });
    }

    /// A process starts the daemon of a host, or of all.
    pub fn launcher(&self, starting: &Starting) {
        if let Some(process) = starting.identity() {
            self.write(&Record::Launcher { host: starting.host, process });
        }
    }

    /// So much was shown. Goes along with what is written next.
    pub fn shown(&self, bytes: [u64; 2]) {
        self.write(&Record::Shown(bytes));
    }

    /// Lines without an end are about to be shown.
    pub fn prompt(&self) {
        self.write(&Record::Prompt);
    }

    /// Another root goes on.
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

    /// What keeps other things for who goes on with the journal ends with it.
    fn leave(&self) {
        let path = journal_path(&self.directory);
        if self.journal.as_ref().is_some_and(|journal| journal.is_at(&path)) {
            let _ = std::fs::remove_file(path);
        }
    }

    fn remove(&mut self) {
        if self.journal.take().is_some() {
            self.mirror.take().iter_mut().for_each(Mirror::end);
            // What is left of it is found by nobody, since there is no journal.
            let _ = std::fs::remove_file(journal_path(&self.directory));
            let _ = running_jobs::remove_root_directory(&self.directory);
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

/// Where it is in the root's directory.
pub fn journal_path(directory: &Path) -> PathBuf {
    directory.join("journal")
}

/// What is wrong with the records of a journal: they are whole, and make no sense.
#[derive(Debug, thiserror::Error)]
pub enum Senseless {
    /// A record cannot be decoded.
    #[error("record {0} of the journal is not one of this version")]
    Record(usize),
    /// A snapshot cannot be decoded.
    #[error("the snapshot of the root in the journal is not one of this version")]
    Snapshot,
    /// A message was told that was not heard.
    #[error("the journal of the root tells it what no daemon has said")]
    Unheard,
}

/// Reads the records of a journal.
///
/// # Errors
/// When they are not those of this version.
pub fn read(records: &[Vec<u8>]) -> Result<(Begun, Vec<Record>), Senseless> {
    let begun = decode_body(&records[0]).map_err(|_| Senseless::Record(0))?;
    let decode = |(number, bytes): (usize, &Vec<u8>)| decode_body(bytes).map_err(|_| Senseless::Record(number));
    Ok((begun, records.iter().enumerate().skip(1).map(decode).collect::<Result<_, _>>()?))
}

/// The processes by which roots have started the daemons of other hosts, one for each, by the records of their journal.
/// They wait for those hosts.
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

/// How the job in this directory was begun, if it has a journal.
///
/// # Errors
/// When its root lives, or its journal cannot be read.
pub fn look(directory: &Path) -> Result<Option<Begun>> {
    match Journal::open(&journal_path(directory)) {
        Ok((_, records)) => Ok(Some(read(&records)?.0)),
        Err(error) if error.is_absence() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether another process has the journal: a root, or for a moment one that only looks.
#[must_use]
pub fn is_in_use(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(OpenError::InUse { .. }))
}

/// Does something with a journal, as soon as those that only look have gone.
///
/// # Errors
/// Those of `open`, above all when a root has it.
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

/// The hosts of a job whose root was killed.
///
/// # Errors
/// When it has left no journal, or its root lives.
pub fn planned(job: u64) -> Result<HostPlan> {
    begun(job).map(|begun| begun.plan)
}

fn begun(job: u64) -> Result<Begun> {
    let begun = running_jobs::find_root(job).map(|directory| when_free(|| look(&directory))).transpose()?.flatten();
    begun.with_context(|| format!("job {job:016x} has left nothing to go on with"))
}

/// The line that a job was resumed from whose root was killed.
///
/// # Errors
/// When it has left no journal, was not resumed, or its root lives.
pub fn resumed(job: u64) -> Result<Kept> {
    let kept = begun(job)?.resumed;
    kept.map(|kept| *kept).with_context(|| format!("job {job:016x} was not resumed from a checkpoint"))
}

/// Made by the first who sees that there is no root. Its age is that of what is left behind.
const ABANDONED: &str = "abandoned";
/// What cannot be read, by another version perhaps, is kept for so long.
const UNREADABLE_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// The jobs of this user on this host that go on without a root, and can have one again. What was left behind by others
/// is removed.
pub fn rootless() -> Vec<String> {
    let can_go_on = |(job, directory): &(String, PathBuf)| {
        is_abandoned(&journal_path(directory))
            && running_jobs::noted_end(job).is_none()
            && !remove_when_over(job, directory)
    };
    running_jobs::find_roots().into_iter().filter(can_go_on).map(|(job, _)| job).collect()
}

/// Removes what a root has left behind that nobody has: no root was seen there for longer than its processes wait for
/// one, and nothing of the job lives on a host that has this directory. Whether that was so.
fn remove_when_over(job: &str, directory: &Path) -> bool {
    let seen = directory.join(ABANDONED);
    let Ok(since) = std::fs::metadata(&seen).and_then(|metadata| metadata.modified()) else {
        // Where it cannot be written nothing can be removed.
        let _ = std::fs::File::create(&seen);
        return false;
    };
    let lease = lease(directory).unwrap_or(UNREADABLE_TIME_MAX);
    let is_late = since.elapsed().is_ok_and(|age| age > lease);
    // Its lock keeps away who would go on with it.
    is_late
        && !has_member(directory)
        && !running_jobs::lives(job)
        && remove_abandoned(&journal_path(directory)).is_ok()
        && running_jobs::remove_root_directory(directory).is_ok()
}

/// How long processes wait for a root that has left this behind. Takes no lock, as [`is_abandoned`] does not.
fn lease(directory: &Path) -> Option<Duration> {
    let bytes = std::fs::read(journal_path(directory)).ok()?;
    let contents = root_journal::frame::decode(&bytes).ok()?;
    let begun: Begun = decode_body(contents.records.first()?).ok()?;
    Some(begun.plan.root_lease)
}

/// Somebody goes on with what was left behind there.
pub fn is_taken(directory: &Path) {
    let _ = std::fs::remove_file(directory.join(ABANDONED));
}

/// What the user of such a job is told.
pub fn no_root(job: &str) -> String {
    format!("its root was killed: redrun --attach {job} brings it back")
}
