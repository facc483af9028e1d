//! Changes of files, recorded before they are made, so that the job can go back to a checkpoint (`file-undo`).
//!
//! ```text
//!   a change ── before() ──▶ nothing, or a record ──▶ Passage: the change is made ──▶ dropped
//!                                                        ▲
//!   the agent, at a checkpoint ── still() ───────────────┘ waits until no thread has one ──▶ begin(): from now on
//! ```
//! A checkpoint falls between changes, never between a record and its change: a thread that changes something has a
//! passage, and no image is taken while a thread has one. Before the first checkpoint there is nothing to go back to,
//! and no record is made. A thread that uses a descriptor of the library has a passage too ([`inside`]): in a process
//! that goes on from an image the descriptor is gone, or its number belongs to another file. A program that only
//! appends makes one record of each file between two checkpoints.
//!
//! Where each host has a log of its own, there is one more for file systems that are shared with other hosts
//! ([`SharedLog`]): changes there outlive this host.
//!
//! Changes by children of the program are recorded as well (`children.rs`).

pub mod children;

use crate::{job, workers};
use file_undo::{Change, Directory, Disk, Files, Means, Recorder, SharedLog, Sharing, Subject};
use redrt_process::{apart, lock};
use redrt_transport::descriptors;
use redrt_wire::checkpoint::UndoPlace;
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

process_local! {
    /// True while changes are recorded: there is a checkpoint to go back to, and recording has not failed.
    static RECORDS: AtomicBool = AtomicBool::new(false);
    /// Held for reading by passages, for writing while an image is taken. Releasing it takes no other lock, which a
    /// stopped thread might hold.
    static GATE: RwLock<()> = RwLock::new(());
    /// True while the agent waits for the gate: new passages wait, so that the agent gets its turn.
    static IS_CLOSING: AtomicBool = AtomicBool::new(false);
    static STATE: Mutex<Option<State>> = Mutex::new(None);
}

per_thread! {
    /// True while the calling thread has a passage. Further changes of the thread meanwhile are part of its change, or
    /// are made by a signal handler.
    static IS_INSIDE: Cell<bool> = Cell::new(false);
    /// True while the calling thread makes a record, with signals blocked: its changes meanwhile are changes of the
    /// log.
    static IS_WRITING: Cell<bool> = Cell::new(false);
}

/// Longest wait for passages to end. A change that takes longer does not delay the whole job: no image is taken then.
const STILL_TIME_MAX: Duration = Duration::from_secs(10);
const LOOK_INTERVAL: Duration = Duration::from_micros(200);

struct State {
    place: UndoPlace,
    own: Log,
    /// The log for file systems that are shared with other hosts, and the test for them; `None` if all changes go to
    /// `own`.
    shared: Option<(Log, Sharing)>,
}

struct Log {
    directory: Directory,
    disk: Disk,
    recorder: Recorder,
    /// No process puts files back while this is open. `None` if no descriptor was available: then putting back does not
    /// wait for this process.
    _presence: Option<Presence>,
}

/// Descriptor by which this process attends a log. Its number is high, above the program's, and the same in all
/// replicas.
struct Presence(OwnedFd);

const PRESENCE_FD_MIN: RawFd = 768;

impl Presence {
    fn new(directory: &Directory) -> io::Result<Self> {
        let file = directory.attend()?;
        // SAFETY: - touches no memory: F_DUPFD_CLOEXEC takes a number.
        let fd = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, PRESENCE_FD_MIN) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        descriptors::record(fd);
        // SAFETY: - open, and owned by this value alone: fcntl has just made it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        descriptors::forget(self.0.as_raw_fd());
    }
}

/// Guard: no image of the process is taken while it exists. `None` inside if another passage covers this one, or none
/// is needed.
pub struct Passage(Option<RwLockReadGuard<'static, ()>>);

impl Passage {
    fn new() -> Self {
        // New passages wait while the agent waits for the old ones to end.
        while IS_CLOSING.load(Ordering::Acquire) {
            std::thread::sleep(LOOK_INTERVAL);
        }
        let guard = GATE.read().unwrap_or_else(PoisonError::into_inner);
        IS_INSIDE.set(true);
        Self(Some(guard))
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        if self.0.is_some() {
            // A signal handler that runs from here on has a passage of its own.
            IS_INSIDE.set(false);
            self.0 = None;
        }
    }
}

/// Guard: no thread has a passage until it is dropped.
pub type Still = RwLockWriteGuard<'static, ()>;

/// Returns true if changes of the calling thread are recorded.
pub fn is_recording() -> bool {
    RECORDS.load(Ordering::Relaxed) && !IS_WRITING.get()
}

/// Returns true if the calling thread has a passage.
pub fn is_inside() -> bool {
    IS_INSIDE.get()
}

/// Takes a passage without a record. A thread that has one already, and a child of the program, get an empty one.
pub fn inside() -> Passage {
    if is_inside() || children::is_child() { Passage(None) } else { Passage::new() }
}

/// Records a change before it is made. The caller makes it before it drops the passage. A change within another change
/// needs no passage of its own.
pub fn before(change: Change<'_>) -> Passage {
    if !is_recording() {
        return Passage(None);
    }
    let passage = inside();
    write_down(|state| {
        let log = state.log_of(subject_of(&change))?;
        log.recorder.before(&mut log.disk, change)
    });
    passage
}

/// Makes a record. Signals of the program are blocked meanwhile: their handlers may change files too, and would wait
/// for the lock that their own thread holds.
fn write_down(write: impl FnOnce(&mut State) -> io::Result<()>) {
    let blocked = workers::block_signals();
    IS_WRITING.set(true);
    if let Some(state) = &mut *lock(&STATE)
        && let Err(error) = write(state)
    {
        give_up(state, &error);
    }
    IS_WRITING.set(false);
    workers::restore_signals(&blocked);
}

/// Records that a change has made this file, by a name that was recorded. Called with a passage.
pub fn record_made(fd: RawFd) {
    write_down(|state| {
        let log = state.log_of(Subject::Open(fd))?;
        match log.disk.inspect(Subject::Open(fd))? {
            Some(seen) => log.recorder.record_made(&log.disk, seen.key),
            None => Ok(()),
        }
    });
}

/// The changed file. For a change of two names it is one of them: both are on one file system, or the change fails.
fn subject_of<'a>(change: &Change<'a>) -> Subject<'a> {
    match *change {
        Change::Write(subject, ..)
        | Change::Resize(subject, _)
        | Change::Describe(subject)
        | Change::Attribute(subject, _) => subject,
        Change::Name(path) | Change::Rename(path, _) | Change::Exchange(path, _) => Subject::Named(path),
    }
}

/// Ends recording after an error. The job goes on; the log is marked incomplete, so going back to the checkpoint
/// reports that files are not as they were.
#[cold]
fn give_up(state: &State, error: &io::Error) {
    // Another thread may have ended it before.
    if RECORDS.swap(false, Ordering::AcqRel) {
        let since = state.place.since;
        state.logs().for_each(|log| log.directory.record_incomplete(since.0));
        let me = job().map(|job| job.welcome.me.to_string()).unwrap_or_default();
        let who = if children::is_child() { "a child of the program" } else { &me };
        redrt_process::say(format_args!(
            "redrt: {who}: what it changes in files cannot be written down in {}: {error}; a job that goes back to \
             checkpoint {} finds them changed",
            state.own.directory.path().display(),
            since
        ));
    }
}

#[cfg(any(test, feature = "simulation"))]
process_local! {
    /// The checkpoint since which a simulated process records its changes.
    pub static SIMULATED_SINCE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
}

/// Returns true in a simulated process. It changes no files; only the checkpoint since which it would record is kept.
fn is_simulated(place: &UndoPlace) -> bool {
    #[cfg(any(test, feature = "simulation"))]
    if redrt_process::simulation::now_ns().is_some() {
        SIMULATED_SINCE.fetch_max(place.since.0, Ordering::AcqRel);
        return true;
    }
    let _ = place;
    false
}

/// Waits until no thread has a passage; `None` after `STILL_TIME_MAX`.
pub fn still() -> Option<Still> {
    let begun = Instant::now();
    IS_CLOSING.store(true, Ordering::Release);
    let still = loop {
        match GATE.try_write() {
            Ok(still) => break Some(still),
            Err(TryLockError::Poisoned(poisoned)) => break Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if begun.elapsed() > STILL_TIME_MAX => break None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK_INTERVAL),
        }
    };
    IS_CLOSING.store(false, Ordering::Release);
    still
}

/// Functions by which files of the program are read. No file of the program is opened or closed in its process, so it
/// keeps its record locks. Called while signals are blocked.
const MEANS: Means = Means { lend, apart: apart::run };

/// Borrows a descriptor of the program; `None` unless any number of bytes can be read from it.
fn lend(fd: RawFd) -> Option<ManuallyDrop<File>> {
    // SAFETY: - touches no memory: F_GETFL takes no pointer, and a closed descriptor is an error.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    let is_readable = flags >= 0 && flags & libc::O_ACCMODE != libc::O_WRONLY;
    // SAFETY: - stays open while it is lent: the program's change, which uses it, is under way.
    //         - not owned: ManuallyDrop does not close it.
    (is_readable && flags & (libc::O_DIRECT | libc::O_PATH) == 0)
        .then(|| ManuallyDrop::new(unsafe { File::from_raw_fd(fd) }))
}

/// Name of this process's records, which no other process uses.
fn author() -> String {
    if children::is_child() {
        // Children of several ranks have the same numbers in their namespaces.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        return format!("child-{}-{}", std::process::id(), now.as_nanos());
    }
    let me = job().map(|job| format!("{}-{}", job.welcome.me, job.welcome.incarnation.0)).unwrap_or_default();
    format!("{me}-{}", descriptors::epoch())
}

impl Log {
    fn new(directory: Directory, since: u64, recorder: Recorder) -> Self {
        let disk = directory.disk(since, &author(), MEANS);
        let _presence = Presence::new(&directory).ok();
        Self { directory, disk, recorder, _presence }
    }
}

impl State {
    /// Opens the logs of this place. `own` and `shared` are the recorders of the two logs, with the records made so
    /// far.
    fn new(place: UndoPlace, (own, shared): (Recorder, Recorder)) -> Self {
        if let Some(job) = job().filter(|_| !children::is_child()) {
            children::publish(job.welcome.job, &author(), &place);
        }
        let since = place.since.0;
        let own = Log::new(Directory::at(place.directory.clone()), since, own);
        let shared = place.shared.as_ref().map(|place| {
            let log = SharedLog::at(place.directory.clone());
            (Log::new(log.directory(), since, shared), Sharing::new(log, place.host))
        });
        Self { place, own, shared }
    }

    /// The log that records changes of this file.
    fn log_of(&mut self, subject: Subject<'_>) -> io::Result<&mut Log> {
        let Some((log, sharing)) = &mut self.shared else { return Ok(&mut self.own) };
        let device = file_undo::device_of(subject)?;
        Ok(if device.is_some_and(|device| sharing.has(device)) { log } else { &mut self.own })
    }

    fn logs(&self) -> impl Iterator<Item = &Log> {
        std::iter::once(&self.own).chain(self.shared.iter().map(|(log, _)| log))
    }
}

/// Recorders of a process without records.
fn new_recorders(is_of_host: bool) -> (Recorder, Recorder) {
    (Recorder::new(if is_of_host { 1 } else { file_undo::BLOCK_BYTES }), Recorder::default())
}

/// Makes the directories of the records. The first record reports an error here.
fn make_room(place: &UndoPlace) {
    let _ = Directory::at(place.directory.clone()).begin(place.since.0);
    if let Some(shared) = &place.shared {
        let _ = Directory::at(shared.directory.clone()).begin(place.since.0);
    }
}

/// Does the same as [`begin`] in a process that is not held. It goes on from a checkpoint, or is a sibling of a source;
/// the source changes the rank's files until the sibling takes its place.
pub fn begin_here(place: &UndoPlace) {
    if is_simulated(place) {
        return;
    }
    // If no process of this host was saved, no helper has made the directories.
    make_room(place);
    begin(place);
}

/// Records changes in the logs of this place from now on. A helper has made their directories. Called while no thread
/// has a passage.
pub fn begin(place: &UndoPlace) {
    if is_simulated(place) {
        return;
    }
    let mut state = lock(&STATE);
    if state.as_ref().is_some_and(|state| state.place.since > place.since) {
        // The message was for a sibling of a source, and is older than the checkpoint in which this process was saved.
        return;
    }
    // Dropped first: in a process that goes on from a checkpoint, no other file has the number of its descriptor yet.
    drop(state.take());
    *state = Some(State::new(place.clone(), new_recorders(place.is_of_host)));
    RECORDS.store(true, Ordering::Release);
}

/// In a copy: keeps the source's recorders, whose records exist, and records under a name of its own: in the place of
/// its host, or in the source's if `place` is `None`.
pub fn become_copy(place: Option<&UndoPlace>) {
    let mut state = lock(&STATE);
    let Some(before) = state.take() else { return };
    let State { place: of_source, own, shared } = before;
    let (own, shared) = (own.recorder, shared.map_or_else(Recorder::default, |(log, _)| log.recorder));
    let place = place.cloned().unwrap_or(of_source);
    make_room(&place);
    *state = Some(State::new(place, (own, shared)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrt_process::Process;
    use redrt_wire::checkpoint::Generation;
    use std::fs::OpenOptions;
    use std::path::Path;

    fn record_lock(command: i32, fd: RawFd, kind: i32) -> i32 {
        let (l_type, l_whence) = (kind as i16, libc::SEEK_SET as i16);
        let mut range = libc::flock { l_type, l_whence, l_start: 0, l_len: 0, l_pid: 0 };
        // SAFETY: - range is valid for reads and writes: it is a local variable.
        assert_eq!(unsafe { libc::fcntl(fd, command, &raw mut range) }, 0);
        i32::from(range.l_type)
    }

    /// Returns true if this process has a record lock on a file. The question comes from an open file description,
    /// which is another owner.
    fn is_locked(path: &Path) -> bool {
        let ask = || {
            let other = OpenOptions::new().read(true).write(true).open(path)?;
            Ok(record_lock(libc::F_OFD_GETLK, other.as_raw_fd(), libc::F_WRLCK))
        };
        apart::result(ask).unwrap() != libc::F_UNLCK
    }

    #[test]
    fn record_locks_of_the_program_outlast_what_is_written_down() {
        let (files, log) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let directory = Directory::of_job(log.path());
        directory.begin(1).unwrap();
        let (path, cut) = (files.path().join("file"), directory.cut().unwrap());
        std::fs::write(&path, "before").unwrap();
        let place =
            UndoPlace { directory: directory.path().to_owned(), since: Generation(1), is_of_host: false, shared: None };
        let change = || {
            begin(&place);
            for readable in [false, true] {
                let file = OpenOptions::new().read(readable).write(true).open(&path).unwrap();
                record_lock(libc::F_SETLK, file.as_raw_fd(), libc::F_WRLCK);
                let subject = if readable { Subject::Named(&path) } else { Subject::Open(file.as_raw_fd()) };
                let passage = before(if readable { Change::Resize(subject, 0) } else { Change::Write(subject, 0, 3) });
                assert!(is_locked(&path), "readable: {readable}");
                drop(passage);
            }
            std::fs::write(&path, "after").unwrap();
            *lock(&STATE) = None;
        };
        // SAFETY: - no reference to process-local state leaves the closure: it returns nothing.
        unsafe { Process::default().enter(change) };
        let undone = directory.go_back(1, cut).unwrap();
        assert!(undone.failures.is_empty() && !undone.is_incomplete, "{undone:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");
    }
}
