//! Descriptors of files on which replicas agree.
//!
//! Several descriptors may refer to one *description* (open(2)), and then share its position. The position is kept here
//! and agreed on. The kernel's position is set only for processes that inherit the descriptor.

use super::agree::{errno, outcome, perform};
use super::identity::Identity;
use super::lend::{self, Token};
use super::listing::Listing;
use super::reopen::{open_as_allowed, open_by_name};
use super::{Done, Outcome, is_agreed, locks, paths};
use file_undo::Change;
use redrt_comm::objects::host;
use redrt_process::lock;
use redrt_runtime::call::Call;
use redrt_runtime::decide;
use redrt_runtime::undo;
use redrt_transport::descriptors;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Flags that matter only while a file is being opened.
pub const OPENING: c_int = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC;

/// An open file description, which all duplicates of a descriptor share.
#[derive(Debug)]
pub struct Description {
    /// Present path of the file.
    pub path: PathBuf,
    /// Flags with which it was opened, and flags set since.
    pub flags: c_int,
    /// Position of the next read or write in bytes.
    pub position: u64,
    /// Identity of the file, found by the leader.
    pub identity: Identity,
    /// True if its descriptors refer to the file itself, not to a stand-in.
    pub is_here: bool,
    /// True if the program has removed the file's name: the file is removed with its last descriptor.
    pub is_kept: bool,
    /// True if the file has counts of the system: each replica has its own descriptor.
    pub is_of_system: bool,
    /// True once it was reported that every replica writes to the mapped file.
    pub was_mapped: bool,
    /// Listing of a directory; `None` for a file.
    pub listing: Option<Listing>,
    /// Token of the leader's descriptor, which siblings on the same host have; `None` if it was not sent.
    pub token: Option<Token>,
}

impl Description {
    /// Description of a file that was just opened, with a stand-in as descriptor.
    pub fn new(path: PathBuf, flags: c_int, identity: Identity) -> Self {
        let (is_here, is_kept, is_of_system, was_mapped) = (false, false, false, false);
        let flags = flags & !OPENING;
        let (position, listing, token) = (0, None, None);
        Self { path, flags, position, identity, is_here, is_kept, is_of_system, was_mapped, listing, token }
    }

    /// Description of a file with counts of the system, which this process has opened itself.
    pub fn of_system(path: PathBuf, flags: c_int) -> Self {
        Self { is_here: true, is_of_system: true, ..Self::new(path, flags, Identity::default()) }
    }

    /// Returns true if bytes are appended (`O_APPEND`).
    pub fn appends(&self) -> bool {
        self.flags & libc::O_APPEND != 0
    }

    /// Returns true if the file is open for writing.
    pub fn writes(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_RDONLY
    }

    /// Records the new path of the file.
    pub fn rename(&mut self, path: PathBuf) {
        locks::renamed(self.identity, &path);
        self.path = path;
    }

    /// Returns `fd` as a descriptor of the file itself. A stand-in is replaced by the descriptor that the leader has
    /// sent, or by the file opened by name. Fails if neither is possible.
    pub fn file(&mut self, shared: &Shared, fd: RawFd) -> Result<RawFd, c_int> {
        if !self.is_here {
            let lent = self.token.and_then(lend::find).map_or(Err(libc::ENOENT), |lent| put_in_place(shared, lent));
            lent.or_else(|_| self.replace(shared, open_by_name(&self.path, self.flags))).inspect_err(|error| {
                match *error {
                    // A directory may have been removed, which is not reported.
                    _ if self.listing.is_some() => {}
                    libc::ESTALE => self.complain("another file has its name"),
                    error => self.complain(&std::io::Error::from_raw_os_error(error).to_string()),
                }
            })?;
            self.is_here = true;
        }
        Ok(fd)
    }

    /// Reopens the descriptors by the file's present name. The kernel keeps the name by which each was opened, and the
    /// cloner does not carry a file whose name is gone. On a failure they stay as they are.
    pub fn refresh(&self, shared: &Shared) {
        if self.is_here {
            let _ = self.replace(shared, open_as_allowed(&self.path, self.flags));
        }
    }

    fn replace(&self, shared: &Shared, file: Result<File, c_int>) -> Result<(), c_int> {
        let file = file?;
        if Identity::of(file.as_raw_fd())? != self.identity {
            return Err(libc::ESTALE);
        }
        put_in_place(shared, file.as_raw_fd())
    }

    /// Ends the description, after its last descriptor was closed.
    fn end(&self) {
        if let Some(token) = self.token {
            lend::forget(token);
        }
        if self.is_kept {
            forget_kept(&self.path);
        }
    }

    fn complain(&self, why: &str) {
        redrt_process::say(format_args!(
            "{}: it cannot open {}, which its leader has opened: {why}; is the path shared between the hosts of all \
             replicas?",
            host::get().identity(),
            self.path.display()
        ));
    }

    /// Sets the kernel's position to the program's.
    pub fn seek_kernel(&self, fd: RawFd) {
        if self.is_here {
            // SAFETY: - touches no memory: lseek takes numbers.
            unsafe { libc::lseek(fd, self.position.cast_signed(), libc::SEEK_SET) };
        }
    }
}

/// Agreed length of an open file in bytes.
pub fn size(shared: &Shared, fd: RawFd) -> Result<i64, c_int> {
    let description = RefCell::new(lock(shared));
    let look = || {
        let fd = description.borrow_mut().file(shared, fd)?;
        // SAFETY: - all zeros are a valid stat: its fields are numbers.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: - status is valid for writes: a local variable.
        outcome(unsafe { libc::fstat(fd, &raw mut status) }.into())?;
        Ok((status.st_size, Vec::new()))
    };
    super::agree::observe(look).0.map(|(size, _)| size)
}

/// Replaces the files of all descriptors of a description by this file.
fn put_in_place(shared: &Shared, file: RawFd) -> Result<(), c_int> {
    for number in numbers_of(shared) {
        // SAFETY: - touches no memory: F_GETFD takes no pointer.
        let closes = unsafe { libc::fcntl(number, libc::F_GETFD) } & libc::FD_CLOEXEC != 0;
        let flags = if closes { libc::O_CLOEXEC } else { 0 };
        // SAFETY: - touches no memory: dup3 takes numbers. It replaces a file that only stands for this one.
        if unsafe { libc::dup3(file, number, flags) } < 0 {
            return Err(errno());
        }
    }
    Ok(())
}

/// An open file, shared by all its descriptors.
pub type Shared = Arc<Mutex<Description>>;

process_local! {
    static TABLE: Mutex<BTreeMap<RawFd, Shared>> = Mutex::new(BTreeMap::new());
    /// A bit for each descriptor in the table: calls on others are left without a look at the table.
    static BITS: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
}
const WORDS: usize = 1 << 10;

fn bit(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let at = usize::try_from(fd).ok()?;
    BITS.get(at / 64).map(|word| (word, 1 << (at % 64)))
}

/// Returns false if a descriptor is certainly not in the table.
pub fn may_know(fd: RawFd) -> bool {
    fd >= 0 && bit(fd).is_none_or(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// Description of a descriptor; `None` if replicas do not agree on its file.
pub fn find(fd: RawFd) -> Option<Shared> {
    if may_know(fd) { lock(&TABLE).get(&fd).cloned() } else { None }
}

/// Enters a descriptor in the table.
pub fn insert(fd: RawFd, description: Shared) {
    if let Some((word, bit)) = bit(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
    lock(&TABLE).insert(fd, description);
}

/// Removes a descriptor, and returns its description.
pub fn remove(fd: RawFd) -> Option<Shared> {
    if let Some((word, bit)) = bit(fd) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
    lock(&TABLE).remove(&fd)
}

/// The descriptors of a description.
fn numbers_of(shared: &Shared) -> Vec<RawFd> {
    lock(&TABLE).iter().filter(|(_, known)| Arc::ptr_eq(known, shared)).map(|(fd, _)| *fd).collect()
}

/// All open files, without duplicates.
pub fn all() -> Vec<Shared> {
    let mut found: Vec<Shared> = Vec::new();
    for shared in lock(&TABLE).values() {
        if !found.iter().any(|known| Arc::ptr_eq(known, shared)) {
            found.push(Arc::clone(shared));
        }
    }
    found
}

/// Makes a stand-in: memory in place of a file, in a replica that does not write the file. Calls that are not
/// intercepted do no harm there.
pub fn stand_in(flags: c_int) -> Result<RawFd, c_int> {
    let closing = if flags & libc::O_CLOEXEC != 0 { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: - zero-terminated: a C string literal.
    let fd = unsafe { libc::memfd_create(c"redrt-file".as_ptr(), closing) };
    if fd < 0 { Err(errno()) } else { Ok(fd) }
}

/// `close`.
pub fn close(fd: RawFd) -> Outcome {
    let Some(shared) = remove(fd) else { return Ok(Done::Left) };
    let is_last = Arc::strong_count(&shared) == 1;
    locks::closed(&shared, is_last);
    let may_be_run = is_last && is_executable(fd);
    // SAFETY: - no other owner in the library: a descriptor of the program, which closes it.
    let closed = unsafe { libc::close(fd) };
    let error = (closed < 0).then(errno);
    let description = lock(&shared);
    if is_last {
        description.end();
    }
    // On a network file system the kernel reports here that bytes could not be written. Only the leader's error counts.
    if is_last && description.writes() {
        let said = || error.map_or(Ok((may_be_run.into(), Vec::new())), Err);
        drop(description);
        if super::agree::observe(said).0?.0 != 0 {
            await_siblings();
        }
    }
    Ok(Done::Answered(0))
}

fn is_executable(fd: RawFd) -> bool {
    // SAFETY: - all zeros are a valid stat: its fields are numbers.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: - status is valid for writes: a local variable.
    unsafe { libc::fstat(fd, &raw mut status) == 0 && status.st_mode & 0o111 != 0 }
}

/// Waits until all siblings have come here. The program may have written the program that it runs now. The kernel does
/// not run a file that is open for writing, and siblings have descriptors of it until they close them.
pub fn await_siblings() {
    if is_agreed() {
        decide::unanimously(|| true);
    }
}

/// `dup`, `dup2`, `dup3`, `fcntl(F_DUPFD)`.
pub fn duplicate(call: &Call) -> Outcome {
    let shared = find(call.fd);
    if shared.is_none() && find(call.other).is_none() {
        return Ok(Done::Left);
    }
    if call.fd == call.other {
        return Ok(Done::Left);
    }
    // SAFETY: - touches no memory: all take numbers.
    let made = unsafe {
        match call.other {
            -1 if call.flags & libc::O_CLOEXEC != 0 => libc::fcntl(call.fd, libc::F_DUPFD_CLOEXEC, call.offset),
            -1 => libc::fcntl(call.fd, libc::F_DUPFD, call.offset),
            other => libc::dup3(call.fd, other, call.flags & libc::O_CLOEXEC),
        }
    };
    if made < 0 {
        return Err(errno());
    }
    // As by close(2): the number's former file is closed.
    if let Some(former) = remove(made) {
        let is_last = Arc::strong_count(&former) == 1;
        locks::closed(&former, is_last);
        if is_last {
            lock(&former).end();
        }
    }
    if let Some(shared) = shared {
        insert(made, shared);
    }
    Ok(Done::Answered(made.into()))
}

/// `fcntl(F_GETFL)`: the flags of the file, not of its stand-in.
pub fn flags(fd: RawFd) -> Outcome {
    let Some(shared) = find(fd) else { return Ok(Done::Left) };
    let flags = lock(&shared).flags & !(OPENING | libc::O_CLOEXEC | libc::O_NOCTTY);
    Ok(Done::Answered(flags.into()))
}

/// `fcntl(F_SETFL)`. The kernel never gets `O_APPEND`: appended bytes are written by position.
pub fn set_flags(fd: RawFd, flags: c_int) -> Outcome {
    const SETTABLE: c_int = libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT | libc::O_NOATIME;
    let Some(shared) = find(fd) else { return Ok(Done::Left) };
    let mut description = lock(&shared);
    description.flags = description.flags & !SETTABLE | flags & SETTABLE;
    if description.is_here {
        // SAFETY: - touches no memory: F_SETFL takes a number.
        outcome(unsafe { libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_APPEND) }.into())?;
    }
    Ok(Done::Answered(0))
}

fn forget_kept(path: &Path) {
    let name = paths::as_c(path);
    // ENOENT is fine: it was already unlinked.
    let _ = perform(
        || Ok((0, Vec::new())),
        || {
            let _passage = undo::before(Change::Name(path));
            // SAFETY: - zero-terminated: name is a CString.
            outcome(unsafe { libc::unlink(name.as_ptr()) }.into())
        },
    );
}

/// Removes files that the program has removed and still has open.
pub fn remove_kept() {
    for shared in all() {
        let mut description = lock(&shared);
        if std::mem::take(&mut description.is_kept) {
            forget_kept(&description.path);
        }
    }
}

/// Enters regular files that were opened for writing before replicas could agree. From now on they agree on these
/// files.
pub fn adopt_open_files() {
    const NUMBERS: RawFd = 1024;
    let mut known: Vec<(Identity, u64, Shared)> = Vec::new();
    for fd in 0..NUMBERS {
        // SAFETY: - touches no memory: F_GETFL takes no pointer.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        if flags < 0 || flags & libc::O_ACCMODE == libc::O_RDONLY || flags & libc::O_PATH != 0 {
            continue;
        }
        let Ok(path) = std::fs::read_link(format!("/proc/self/fd/{fd}")) else { continue };
        let Ok(found) = std::fs::symlink_metadata(&path) else { continue };
        if !found.is_file() || paths::is_of_host(&path) || descriptors::noted().any(|own| own == fd) {
            continue;
        }
        // SAFETY: - touches no memory: lseek takes numbers.
        let position = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) }.max(0).cast_unsigned();
        // SAFETY: - touches no memory: F_SETFL takes a number.
        unsafe { libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_APPEND) };
        let Ok(identity) = Identity::of(fd) else { continue };
        let twin = known.iter().find(|(of, at, shared)| {
            (*of, *at) == (identity, position) && lock(shared).flags == flags && is_same(fd, shared)
        });
        let shared = twin.map_or_else(
            || {
                let is_here = true;
                let description = Description { position, is_here, ..Description::new(path, flags, identity) };
                Arc::new(Mutex::new(description))
            },
            |(.., shared)| Arc::clone(shared),
        );
        known.push((identity, position, Arc::clone(&shared)));
        insert(fd, shared);
    }
}

/// Returns true if a descriptor shares its position with those of a description. Found by moving the position.
fn is_same(fd: RawFd, shared: &Shared) -> bool {
    let other = lock(&TABLE).iter().find(|(_, known)| Arc::ptr_eq(known, shared)).map(|(other, _)| *other);
    let Some(other) = other else { return false };
    // No other thread uses the descriptors during MPI_Init, so the position may be moved.
    // SAFETY: - touches no memory: lseek takes numbers.
    unsafe {
        let before = libc::lseek(fd, 0, libc::SEEK_CUR);
        let moved = libc::lseek(fd, before + 1, libc::SEEK_SET);
        let same = libc::lseek(other, 0, libc::SEEK_CUR) == moved;
        libc::lseek(fd, before, libc::SEEK_SET);
        same
    }
}
