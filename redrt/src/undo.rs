//! Changes of files, written down before they are made, so that the job can go back to a line (`file-undo`).
//!
//! ```text
//!   a change ── before() ──▶ nothing, or a record ──▶ Passage: the change is made ──▶ dropped
//!                                                        ▲
//!   the agent, at a line ── still() ─────────────────────┘ waits until nobody has one ──▶ begin(): since this line
//! ```
//! A line falls between changes, never between a record and its change: who changes something has a passage, and no
//! image is taken while anybody has. Before the first line there is nothing to go back to, and nothing is written down.
//! Who has a descriptor of the library's in hand has a passage too ([`inside`]): in what goes on from an image it has
//! none, or its number is another's.
//! A program that only appends makes one record of each file between two lines.
//!
//! Where each host has a log of its own, there is one more for file systems that other hosts see too ([`SharedLog`]):
//! what is changed there is still there when this host is lost.
//!
//! What children of the program change is written down as well (`children.rs`).

pub mod children;

use crate::runtime::{job, workers};
use file_undo::{Change, Directory, Disk, Files, Means, Recorder, SharedLog, Sharing, Subject};
use redrt_process::{apart, lock};
use redrt_transport::descriptors;
use redrt_wire::line::UndoPlace;
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

process_local! {
    /// Whether there is a line to go back to.
    static RECORDS: AtomicBool = AtomicBool::new(false);
    /// Shared by those who change something. It is given back without a lock that a thread may have been stopped with.
    static GATE: RwLock<()> = RwLock::new(());
    /// The agent waits for it.
    static IS_CLOSING: AtomicBool = AtomicBool::new(false);
    static STATE: Mutex<Option<State>> = Mutex::new(None);
}

per_thread! {
    /// The calling thread has a passage: what it changes meanwhile is part of the change, or done by a handler of a
    /// signal.
    static IS_INSIDE: Cell<bool> = Cell::new(false);
    /// It writes something down, and gets no signals until it has: what it changes meanwhile is the log.
    static IS_WRITING: Cell<bool> = Cell::new(false);
}

/// A change that takes longer is no reason to hold up all processes of the job: there is no image then.
const STILL_TIME_MAX: Duration = Duration::from_secs(10);
const LOOK_INTERVAL: Duration = Duration::from_micros(200);

struct State {
    place: UndoPlace,
    own: Log,
    /// That of all hosts, and what belongs to it.
    shared: Option<(Log, Sharing)>,
}

/// One of the logs that this process writes.
struct Log {
    directory: Directory,
    disk: Disk,
    recorder: Recorder,
    /// Nobody puts files back while this is open. Who has no descriptor left is not waited for.
    _presence: Option<Presence>,
}

/// A descriptor of the library's. Its number is the same in all replicas, and in no program's way.
struct Presence(OwnedFd);

const PRESENCE_FD_MIN: RawFd = 768;

impl Presence {
    fn new(directory: &Directory) -> io::Result<Self> {
        let file = directory.attend()?;
        // SAFETY: - touches no memory.
        let fd = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, PRESENCE_FD_MIN) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        descriptors::note(fd);
        // SAFETY: - just made, and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        descriptors::forget(self.0.as_raw_fd());
    }
}

/// Until this is dropped no image of the process is taken.
pub struct Passage(Option<RwLockReadGuard<'static, ()>>);

impl Passage {
    fn new() -> Self {
        // Who comes now lets those end who are inside.
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
            // A handler that comes now has a passage of its own.
            IS_INSIDE.set(false);
            self.0 = None;
        }
    }
}

/// Nobody has a passage until this is dropped.
pub type Still = RwLockWriteGuard<'static, ()>;

/// Whether changes are written down, of the calling thread too.
pub fn is_recording() -> bool {
    RECORDS.load(Ordering::Relaxed) && !IS_WRITING.get()
}

/// Whether the calling thread has a passage.
pub fn is_inside() -> bool {
    IS_INSIDE.get()
}

/// No image is taken until this is dropped.
pub fn inside() -> Passage {
    if is_inside() || children::is_child() { Passage(None) } else { Passage::new() }
}

/// Writes down what has to be before a change, which is made before the passage is dropped. One that is made within
/// another needs none of its own.
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

/// Signals of the program wait: their handlers may change files too, and wait for the lock that their thread has.
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

/// A change has made this file, by a name that was written down. Called with a passage.
pub fn note_made(fd: RawFd) {
    write_down(|state| {
        let log = state.log_of(Subject::Open(fd))?;
        match log.disk.look(Subject::Open(fd))? {
            Some(seen) => log.recorder.note_made(&log.disk, seen.key),
            None => Ok(()),
        }
    });
}

/// What is changed, or of two names one: both are on one file system, or the change fails.
fn subject_of<'a>(change: &Change<'a>) -> Subject<'a> {
    match *change {
        Change::Write(subject, ..)
        | Change::Resize(subject, _)
        | Change::Describe(subject)
        | Change::Attribute(subject, _) => subject,
        Change::Name(path) | Change::Rename(path, _) | Change::Exchange(path, _) => Subject::Named(path),
    }
}

/// The job goes on; who goes back to the line is told that files are not as they were.
#[cold]
fn give_up(state: &State, error: &io::Error) {
    // Others may have done so before.
    if RECORDS.swap(false, Ordering::AcqRel) {
        let since = state.place.since;
        state.logs().for_each(|log| log.directory.note_incomplete(since.0));
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
    /// The line since which a simulated process writes down what it changes.
    pub static SIMULATED_SINCE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
}

/// A simulated process changes no files: that it writes down what it would change is noted.
fn is_simulated(place: &UndoPlace) -> bool {
    #[cfg(any(test, feature = "simulation"))]
    if redrt_process::simulation::now_ns().is_some() {
        SIMULATED_SINCE.fetch_max(place.since.0, Ordering::AcqRel);
        return true;
    }
    let _ = place;
    false
}

/// Waits until nobody has a passage; `None` if that takes too long.
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

/// The program keeps its record locks: nothing of its files is opened or closed in its process. Called while its
/// signals are blocked.
const MEANS: Means = Means { lend, apart: apart::run };

/// A descriptor of the program's, if bytes of any length can be read from it.
fn lend(fd: RawFd) -> Option<ManuallyDrop<File>> {
    // SAFETY: - touches no memory.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    let is_readable = flags >= 0 && flags & libc::O_ACCMODE != libc::O_WRONLY;
    // SAFETY: - open as long as the change lasts for which it is lent; it is not closed here.
    (is_readable && flags & (libc::O_DIRECT | libc::O_PATH) == 0)
        .then(|| ManuallyDrop::new(unsafe { File::from_raw_fd(fd) }))
}

/// A name that no other process writes under.
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
    /// In the logs that this place has, with what was written down already, by the own log and that of all hosts.
    fn new(place: UndoPlace, (own, shared): (Recorder, Recorder)) -> Self {
        if let Some(job) = job().filter(|_| !children::is_child()) {
            children::tell(job.welcome.job, &author(), &place);
        }
        let since = place.since.0;
        let own = Log::new(Directory::at(place.directory.clone()), since, own);
        let shared = place.shared.as_ref().map(|place| {
            let log = SharedLog::at(place.directory.clone());
            (Log::new(log.directory(), since, shared), Sharing::new(log, place.host))
        });
        Self { place, own, shared }
    }

    /// Which log has what becomes of this.
    fn log_of(&mut self, subject: Subject<'_>) -> io::Result<&mut Log> {
        let Some((log, sharing)) = &mut self.shared else { return Ok(&mut self.own) };
        let device = file_undo::device_of(subject)?;
        Ok(if device.is_some_and(|device| sharing.has(device)) { log } else { &mut self.own })
    }

    fn logs(&self) -> impl Iterator<Item = &Log> {
        std::iter::once(&self.own).chain(self.shared.iter().map(|(log, _)| log))
    }
}

/// Recorders of a process that has written nothing down yet.
fn new_recorders(is_of_host: bool) -> (Recorder, Recorder) {
    (Recorder::new(if is_of_host { 1 } else { file_undo::BLOCK_BYTES }), Recorder::default())
}

/// Makes room for what is changed. What fails is told when something is to be written down.
fn make_room(place: &UndoPlace) {
    let _ = Directory::at(place.directory.clone()).begin(place.since.0);
    if let Some(shared) = &place.shared {
        let _ = Directory::at(shared.directory.clone()).begin(place.since.0);
    }
}

/// The same in a process that is not held: one that goes on from a line, or whose sibling is the source of its rank,
/// which changes the files of the rank until this process takes its place.
pub fn begin_here(place: &UndoPlace) {
    if is_simulated(place) {
        return;
    }
    // Nobody of this host may have been saved.
    make_room(place);
    begin(place);
}

/// From now on changes are written down there, where a helper has made room for them. Called while nobody has a
/// passage.
pub fn begin(place: &UndoPlace) {
    if is_simulated(place) {
        return;
    }
    let mut state = lock(&STATE);
    if state.as_ref().is_some_and(|state| state.place.since > place.since) {
        // What this process was to hear as a sibling, before it was saved itself.
        return;
    }
    // In a process that goes on from a line nothing else has its number yet.
    drop(state.take());
    *state = Some(State::new(place.clone(), new_recorders(place.is_of_host)));
    RECORDS.store(true, Ordering::Release);
}

/// This process has become another's copy: what that has written down is there, and the copy writes under a name of its
/// own, in the place of its host if that has one.
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
    use redrt_wire::line::Generation;
    use std::fs::OpenOptions;
    use std::path::Path;

    fn record_lock(command: i32, fd: RawFd, kind: i32) -> i32 {
        let (l_type, l_whence) = (kind as i16, libc::SEEK_SET as i16);
        let mut range = libc::flock { l_type, l_whence, l_start: 0, l_len: 0, l_pid: 0 };
        // SAFETY: - the range is valid for writing and outlives the call.
        assert_eq!(unsafe { libc::fcntl(fd, command, &raw mut range) }, 0);
        i32::from(range.l_type)
    }

    /// Whether this process has a record lock on a file: another owner asks, that of a description.
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
        // SAFETY: - no reference to what belongs to the process leaves it.
        unsafe { Process::default().enter(change) };
        let undone = directory.go_back(1, cut).unwrap();
        assert!(undone.failures.is_empty() && !undone.is_incomplete, "{undone:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");
    }
}
