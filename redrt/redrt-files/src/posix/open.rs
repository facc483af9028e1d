//! Opening files.
//!
//! ```text
//!   look at the name ──▶ a device, a pipe: each replica opens it for itself; a directory: directories.rs
//!     │ a file, or nothing
//!     ▼
//!   open, without O_EXCL ──▶ a descriptor; in followers, a stand-in
//!   with O_EXCL: make a file of a name of our own ─▶ link it to the name ─▶ remove the other name
//! ```
//! The trap: making a file with O_EXCL fails the second time. So does a link if the name is taken, also by another
//! rank. But a replica that finds the name taken can compare the file with the one that its predecessor linked.

use super::agree::{Author, Found, errno, observe, outcome, perform, perform_once_possible};
use super::identity::Identity;
use super::lend::{self, Loan, Token};
use super::table::{self, Description, OPENING};
use super::{Done, Outcome, alone, counted, directories, is_agreed, path_of, paths};
use file_undo::Change;
use redrt_comm::objects::host;
use redrt_process::lock;
use redrt_runtime::call::Call;
use redrt_runtime::undo;
use redrt_runtime::{self as runtime, threads};
use std::cell::Cell;
use std::ffi::{CStr, OsStr, c_int};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Kind of the file that a name leads to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Seen {
    /// There is no such file.
    Absent,
    /// A regular file.
    File(Identity),
    /// A directory.
    Directory(Identity),
    /// A pipe that has a name.
    Pipe(Identity),
    /// A file of another type, such as a device or a socket.
    Other(Identity),
}

impl Seen {
    /// Looks at a name in this process. With `follows`, a symbolic link is followed.
    pub fn at(path: &CStr, follows: bool) -> Result<Self, c_int> {
        let flags = if follows { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
        match Identity::at(libc::AT_FDCWD, path, flags) {
            Ok((identity, mode)) => Ok(match mode & libc::S_IFMT {
                libc::S_IFREG => Self::File(identity),
                libc::S_IFDIR => Self::Directory(identity),
                libc::S_IFIFO => Self::Pipe(identity),
                _ => Self::Other(identity),
            }),
            Err(libc::ENOENT) => Ok(Self::Absent),
            Err(error) => Err(error),
        }
    }

    /// Looks at a name, and encodes the finding for a decision.
    pub fn found(path: &CStr, follows: bool) -> Found {
        let (kind, identity) = match Self::at(path, follows)? {
            Self::Absent => (0, Identity::default()),
            Self::File(identity) => (1, identity),
            Self::Other(identity) => (2, identity),
            Self::Directory(identity) => (3, identity),
            Self::Pipe(identity) => (4, identity),
        };
        Ok((kind, identity.encode()))
    }

    /// Decodes a finding from a decision. Fails with `EIO` if it is not one.
    pub fn decided((kind, bytes): (i64, Vec<u8>)) -> Result<Self, c_int> {
        let identity = Identity::decode(&bytes).ok_or(libc::EIO)?;
        Ok(match kind {
            0 => Self::Absent,
            1 => Self::File(identity),
            3 => Self::Directory(identity),
            4 => Self::Pipe(identity),
            _ => Self::Other(identity),
        })
    }

    /// Identity of the file; `None` if none exists.
    pub fn identity(self) -> Option<Identity> {
        match self {
            Self::Absent => None,
            Self::File(identity) | Self::Directory(identity) | Self::Pipe(identity) | Self::Other(identity) => {
                Some(identity)
            }
        }
    }
}

/// Inspects a name. Returns the agreed finding, and the process that made it: a predecessor may have acted after it.
pub fn inspect(path: &CStr, follows: bool) -> Result<(Seen, Author), c_int> {
    let (found, author) = observe(|| Seen::found(path, follows));
    Ok((Seen::decided(found?)?, author))
}

/// A unique name in the directory of `path`, the same in all replicas.
pub fn own_name(path: &Path) -> PathBuf {
    per_thread! {
        static COUNT: Cell<u64> = Cell::new(0);
    }
    let count = COUNT.replace(COUNT.get() + 1);
    let rank = runtime::job().map_or(0, |job| job.welcome.me.rank.0);
    paths::parent(path).join(format!("{}{rank}-{:x}-{count}", own_prefix(), threads::number()))
}

/// Prefix of the names of this job's own files.
pub fn own_prefix() -> String {
    format!(".redrt-{:x}-", runtime::job().map_or(0, |job| job.welcome.job))
}

/// `openat`.
pub fn open(call: &Call) -> Outcome {
    let flags = call.flags;
    if flags & libc::O_PATH != 0 {
        return Ok(Done::Left);
    }
    // A directory may be on another file system than its parent.
    let is_shared = if flags & libc::O_DIRECTORY == 0 { paths::is_shared } else { paths::is_shared_directory };
    let Some(path) = path_of(call.directory, call.path) else { return Ok(Done::Left) };
    if paths::is_of_host(&path) {
        return counted::open(&path, flags);
    }
    if !is_shared(&path) {
        return Ok(Done::Left);
    }
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return open_unnamed(call, &path);
    }
    let name = paths::as_c(&path);
    let creates = flags & libc::O_CREAT != 0;
    let exclusive = creates && flags & libc::O_EXCL != 0;
    let changes = creates || flags & (libc::O_TRUNC | libc::O_ACCMODE) != 0;
    if super::is_silent() {
        // Another replica writes. Files that are only read exist.
        return if changes { hand_out(None, path, flags, (Identity::default(), None)) } else { Ok(Done::Left) };
    }
    let (seen, author) = inspect(&name, !exclusive && flags & libc::O_NOFOLLOW == 0)?;
    match seen {
        Seen::File(_) | Seen::Directory(_) | Seen::Pipe(_) | Seen::Other(_) if exclusive => return Err(libc::EEXIST),
        Seen::Directory(_) if is_agreed() => return directories::open(&name, path, flags),
        Seen::Pipe(_) if is_agreed() => return refuse(&path, author),
        Seen::Directory(_) | Seen::Pipe(_) | Seen::Other(_) => return Ok(Done::Left),
        Seen::Absent if !creates => return Err(libc::ENOENT),
        Seen::Absent | Seen::File(_) => {}
    }
    let made = Made::default();
    let opened = if exclusive {
        open_exclusively(&name, call, author, &path, &made)
    } else if changes {
        perform_once_possible(0, || made.lend(|| open_here(&name, flags & !libc::O_APPEND, call.mode)))
    } else {
        observe(|| made.keep(open_here(&name, flags, call.mode))).0
    };
    let made = made.fd;
    let handed_out = hand_out(made.get(), path, flags, lent_by(&opened?.1)?);
    if exclusive && let Some(shared) = made.get().and_then(table::find) {
        // The name by which the file was opened is gone.
        lock(&shared).refresh(&shared);
    }
    handed_out
}

/// Refuses a pipe: bytes that one replica reads from it are missing in the others, and each replica would write its
/// bytes again.
fn refuse(path: &Path, author: Author) -> Outcome {
    if !author.is_another() {
        redrt_process::say(format_args!(
            "{}: {} is not opened: it is a pipe, and each replica would get a part of what comes through it (see \
             docs/files.md)",
            host::get().identity(),
            path.display()
        ));
    }
    Err(libc::EOPNOTSUPP)
}

/// Name for a file without a name, in its directory.
pub const UNNAMED: &str = ".redrt-unnamed";

/// `O_TMPFILE`: opens a file without a name. Siblings can get it by the leader's descriptor only.
fn open_unnamed(call: &Call, directory: &Path) -> Outcome {
    let flags = call.flags & !libc::O_TMPFILE;
    let path = directory.join(UNNAMED);
    if super::is_silent() {
        return hand_out(None, path, flags, (Identity::default(), None));
    }
    let (name, made) = (paths::as_c(directory), Made::default());
    let opened = perform_once_possible(0, || made.lend(|| open_here(&name, call.flags & !libc::O_APPEND, call.mode)));
    hand_out(made.fd.get(), path, flags, lent_by(&opened?.1)?)
}

/// Decodes the outcome of an open: the file's identity, and the token by which siblings claim its descriptor.
fn lent_by(opened: &[u8]) -> Result<(Identity, Option<Token>), c_int> {
    let identity = Identity::decode(opened).ok_or(libc::EIO)?;
    Ok((identity, opened.get(Identity::BYTES..).and_then(|token| token.try_into().ok())))
}

/// The descriptor that this replica has opened as the leader; `None` in other replicas.
#[derive(Default)]
struct Made {
    fd: Cell<Option<RawFd>>,
}

impl Made {
    fn keep(&self, fd: Result<RawFd, c_int>) -> Found {
        let fd = fd?;
        self.fd.set(Some(fd));
        Identity::of(fd).map(|identity| (0, identity.encode()))
    }

    /// Keeps a descriptor of a file that is written, and sends it to siblings, which may not be able to open the file
    /// later. `None` if a sibling's queue is full: then the leader tries again.
    fn lend(&self, open: impl FnOnce() -> Result<RawFd, c_int>) -> Option<Found> {
        let (fd, identity) = match self.keep(self.fd.get().map_or_else(open, Ok)).map(|(_, identity)| identity) {
            Ok(identity) => (self.fd.get()?, identity),
            Err(error) => return Some(Err(error)),
        };
        let lent = match Loan::of(fd).map(lend::lend) {
            Some(Err(refusal)) if refusal.is_full => return None,
            Some(Ok(token)) => Some(token),
            Some(Err(_)) | None => None,
        };
        Some(Ok((0, identity.into_iter().chain(lent.into_iter().flatten()).collect())))
    }
}

/// Enters the program's descriptor in the table: the opened one, or a stand-in.
fn hand_out(made: Option<RawFd>, path: PathBuf, flags: c_int, file: (Identity, Option<Token>)) -> Outcome {
    let fd = made.map_or_else(|| table::stand_in(flags), Ok)?;
    let description = Description { is_here: made.is_some(), token: file.1, ..Description::new(path, flags, file.0) };
    // Takes the sent descriptor out of the queue, which has little room.
    file.1.map(lend::find);
    table::insert(fd, Arc::new(Mutex::new(description)));
    Ok(Done::Answered(fd.into()))
}

/// Opens a file in this process, and records the change if it makes or truncates the file.
pub fn open_here(path: &CStr, flags: c_int, mode: u32) -> Result<RawFd, c_int> {
    let passage = alone::opening(Path::new(OsStr::from_bytes(path.to_bytes())), flags);
    // SAFETY: - zero-terminated: path is a CStr.
    let fd = unsafe { libc::open(path.as_ptr(), flags, mode) };
    if fd < 0 {
        return Err(errno());
    }
    if passage.is_some_and(|(_, makes)| makes) {
        undo::record_made(fd);
    }
    Ok(fd)
}

/// Closes a descriptor that `open_here` has opened.
pub fn close_here(fd: RawFd) {
    // SAFETY: - no other owner: open_here made it, and the program has not got it.
    unsafe { libc::close(fd) };
}

fn open_exclusively(name: &CStr, call: &Call, author: Author, path: &Path, made: &Made) -> Found {
    let own_path = own_name(path);
    let own = paths::as_c(&own_path);
    let flags = call.flags & !libc::O_APPEND;
    let opened = perform_once_possible(0, || made.lend(|| link_new(&own, name, flags, call.mode, author)));
    // ENOENT is fine: it was already unlinked.
    let _ = perform(
        || Ok((0, Vec::new())),
        || {
            let _passage = undo::before(Change::Name(&own_path));
            // SAFETY: - zero-terminated: own is a CString.
            outcome(unsafe { libc::unlink(own.as_ptr()) }.into())
        },
    );
    opened
}

/// Makes a file under the name `own` and links it to `name`. Fails if `name` is taken, except by a predecessor's link
/// of this file.
fn link_new(own: &CStr, name: &CStr, flags: c_int, mode: u32, author: Author) -> Result<RawFd, c_int> {
    let fd = open_here(own, flags & !OPENING | libc::O_CREAT, mode)?;
    let linked = {
        let _passage = undo::before(Change::Name(Path::new(OsStr::from_bytes(name.to_bytes()))));
        // SAFETY: - zero-terminated: both names are CStr.
        outcome(unsafe { libc::link(own.as_ptr(), name.as_ptr()) }.into())
    };
    let identity = Identity::of(fd)?;
    match linked {
        Ok(_) => return Ok(fd),
        Err(libc::EEXIST) if Seen::at(name, false)?.identity() == Some(identity) => return Ok(fd),
        Err(_) => close_here(fd),
    }
    match linked {
        // Without links, a predecessor's file cannot be distinguished from another rank's.
        Err(libc::EPERM | libc::EOPNOTSUPP | libc::ENOSYS) => match open_here(name, flags, mode) {
            Err(libc::EEXIST) if author.is_another() => open_here(name, flags & !libc::O_EXCL, mode),
            opened => opened,
        },
        Err(error) => Err(error),
        Ok(_) => unreachable!("it was returned"),
    }
}
