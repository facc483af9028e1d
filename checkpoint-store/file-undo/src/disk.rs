//! Recording and undo on a real file system.

use crate::attributes;
use crate::files::{FileKind, Files, Seen, Step, Subject, Target};
use crate::frame;
use crate::mounts::Mounts;
use crate::record::{About, Attribute, Data, FileKey, Record};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, FallocateFlags, FcntlArg};
use nix::sys::stat::UtimensatFlags;
use nix::sys::time::TimeSpec;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Seek, SeekFrom};
use std::mem::ManuallyDrop;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{
    self as unix, DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt,
};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use twox_hash::XxHash3_128;

/// Saved contents of a program's files are readable by their owner only.
const FILE_MODE: u32 = 0o600;
/// Alignment of saved bytes: some file systems copy whole blocks by sharing them.
const ALIGNMENT_BYTES: u64 = 4096;
const BUFFER_BYTES: usize = 1 << 20;

/// Means by which a process reads files before it changes them.
///
/// The trap: closing any descriptor of a file drops all record locks (`fcntl`, `lockf`) that the process holds on it.
/// So within a process of the program, nothing may open and close a file that the program may have open.
#[derive(Clone, Copy, Debug)]
pub struct Means {
    /// The process's own descriptor of this number, to read from; `None` if it cannot be read.
    pub lend: fn(RawFd) -> Option<ManuallyDrop<File>>,
    /// Runs a closure with a separate descriptor table, so that closing there does not affect the process's locks.
    pub apart: fn(&mut dyn FnMut()) -> io::Result<()>,
}

impl Means {
    /// For a process that holds no locks.
    pub const PLAIN: Self = Self {
        lend: |_| None,
        apart: |act| {
            act();
            Ok(())
        },
    };
}

/// Handle for recording by one process, or for undo.
#[derive(Debug)]
pub struct Disk {
    /// Directory of the log.
    directory: PathBuf,
    /// Subdirectory with links and saved bytes.
    period: String,
    /// Name of the process; makes names of its files unique.
    author: String,
    means: Means,
    /// [`FileKey::device`] by device number on this host.
    devices: RefCell<HashMap<u64, u64>>,
}

/// Device number of the file system that has `subject`, or in which it would be created. `None` if the parent directory
/// does not exist either.
///
/// # Errors
/// If a status cannot be read.
pub fn device_of(subject: Subject<'_>) -> io::Result<Option<u64>> {
    let parent = match subject {
        Subject::Open(_) => None,
        Subject::Named(path) => path.parent(),
    };
    let found = match (status_of(subject)?, parent) {
        (None, Some(parent)) => status_of(Subject::Named(parent))?,
        (found, _) => found,
    };
    Ok(found.map(|status| status.dev()))
}

fn descriptor_path(fd: i32) -> PathBuf {
    format!("/proc/self/fd/{fd}").into()
}

/// Status of a file or a symbolic link. `None` if it does not exist.
fn status_of(subject: Subject<'_>) -> io::Result<Option<Metadata>> {
    let found = match subject {
        Subject::Open(fd) => fs::metadata(descriptor_path(fd)),
        Subject::Named(path) => fs::symlink_metadata(path),
    };
    match found {
        Err(error) if is_absent(&error) => Ok(None),
        found => found.map(Some),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn about_of(status: &Metadata) -> About {
    About {
        size: status.len(),
        mode: status.mode(),
        owner: status.uid(),
        group: status.gid(),
        accessed: (status.atime(), status.atime_nsec()),
        modified: (status.mtime(), status.mtime_nsec()),
    }
}

/// xxh3 of a range of a file, which must exist completely.
fn digest_of(file: &File, offset: u64, length: u64) -> io::Result<u128> {
    let mut digest = XxHash3_128::new();
    let mut buffer = vec![0; BUFFER_BYTES.min(usize::try_from(length).unwrap_or(BUFFER_BYTES))];
    let mut done = 0;
    while done < length {
        let count = buffer.len().min(usize::try_from(length - done).unwrap_or(usize::MAX));
        file.read_exact_at(&mut buffer[..count], offset + done)?;
        digest.write(&buffer[..count]);
        done += count as u64;
    }
    Ok(digest.finish_128())
}

pub(crate) fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "another file has its name")
}

impl Disk {
    pub(crate) fn new(directory: PathBuf, period: String, author: String, means: Means) -> Self {
        Self { directory, period, author, means, devices: RefCell::default() }
    }

    fn key_of(&self, status: &Metadata) -> FileKey {
        let birth = status.created().ok().and_then(|birth| birth.duration_since(UNIX_EPOCH).ok());
        let birth = birth.map_or((0, 0), |birth| (birth.as_secs() as i64, birth.subsec_nanos().into()));
        FileKey { device: self.device(status.dev()), inode: status.ino(), birth }
    }

    /// Identifies a file system equally on all hosts that share this log. Device numbers do not: each kernel assigns
    /// its own.
    fn device(&self, device: u64) -> u64 {
        let mut devices = self.devices.borrow_mut();
        *devices.entry(device).or_insert_with(|| match fs::metadata(&self.directory) {
            Ok(own) if own.dev() == device => 0,
            _ => Mounts::own().ok().and_then(|mounts| mounts.identity(device)).unwrap_or(device),
        })
    }

    /// Checks saved bytes against their digest.
    pub(crate) fn check(&self, data: &Data) -> io::Result<()> {
        let digest = digest_of(&File::open(self.path(&data.name))?, data.offset, data.length)?;
        if digest == data.digest { Ok(()) } else { Err(invalid("the bytes that were saved of it are damaged")) }
    }

    pub(crate) fn log_path(directory: &Path) -> PathBuf {
        directory.join("log")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn target(&self, target: Target<'_>) -> PathBuf {
        match target {
            Target::Held(link) => self.path(link),
            Target::Named(path) => path.to_owned(),
        }
    }

    fn link_name(&self, key: FileKey) -> String {
        format!("{}/f-{:x}-{:x}", self.period, key.device, key.inode)
    }

    /// Copies a range between files, sharing blocks if the file system can. Returns the number of bytes before the end
    /// of file.
    fn copy(from: &File, at: u64, into: &File, to: u64, length: u64) -> io::Result<u64> {
        let mut done = 0;
        while done < length {
            let (mut source, mut target) = ((at + done) as i64, (to + done) as i64);
            let count = usize::try_from(length - done).unwrap_or(usize::MAX).min(1 << 30);
            match nix::fcntl::copy_file_range(from, Some(&mut source), into, Some(&mut target), count) {
                Ok(0) => return Ok(done),
                Ok(copied) => done += copied as u64,
                Err(Errno::EINTR) => {}
                Err(Errno::ENOSPC | Errno::EDQUOT | Errno::EIO | Errno::EFBIG) => return Err(Errno::last().into()),
                // Not supported between these two files.
                Err(_) => return Self::copy_by_hand(from, at, into, to, length, done),
            }
        }
        Ok(done)
    }

    fn copy_by_hand(from: &File, at: u64, into: &File, to: u64, length: u64, mut done: u64) -> io::Result<u64> {
        let mut buffer = vec![0; BUFFER_BYTES.min(usize::try_from(length).unwrap_or(BUFFER_BYTES))];
        while done < length {
            let count = buffer.len().min(usize::try_from(length - done).unwrap_or(usize::MAX));
            match from.read_at(&mut buffer[..count], at + done) {
                Ok(0) => break,
                Ok(read) => {
                    into.write_all_at(&buffer[..read], to + done)?;
                    done += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Saves the existing part of a range of a file.
    fn save_from(&self, file: &File, key: FileKey, offset: u64, length: u64) -> io::Result<Data> {
        if self.key_of(&file.metadata()?) != key {
            return Err(changed());
        }
        let name = format!("{}/d-{}", self.period, self.author);
        let mut options = OpenOptions::new();
        options.create(true).read(true).write(true).truncate(false).mode(FILE_MODE);
        let mut into = options.open(self.path(&name))?;
        let to = into.seek(SeekFrom::End(0))?.next_multiple_of(ALIGNMENT_BYTES);
        // The digest is that of the copy: other processes may write to the file meanwhile.
        let copied = Self::copy(file, offset, &into, to, length);
        match copied.and_then(|length| Ok(Data { name, offset: to, length, digest: digest_of(&into, to, length)? })) {
            Ok(data) => Ok(data),
            Err(error) => {
                let _ = into.set_len(to);
                Err(error)
            }
        }
    }

    /// Opens a file for writing, to put something back.
    fn open_to_change(path: &Path) -> io::Result<File> {
        let open = || OpenOptions::new().write(true).custom_flags(nix::libc::O_NOFOLLOW).open(path);
        Self::with_permission(path, open)
    }

    /// Runs a change, after making a read-only file writable if necessary. Its permissions were recorded before its
    /// first change, and are restored after this.
    fn with_permission<T>(path: &Path, change: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match change() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                fs::set_permissions(path, Permissions::from_mode(FILE_MODE))?;
                change()
            }
            changed => changed,
        }
    }

    fn describe(path: &Path, about: &About) -> io::Result<()> {
        let found = fs::symlink_metadata(path)?;
        if (found.uid(), found.gid()) != (about.owner, about.group) {
            unix::lchown(path, Some(about.owner), Some(about.group))?;
        }
        // A symbolic link has no permissions.
        if !found.is_symlink() && found.mode() & 0o7777 != about.mode & 0o7777 {
            fs::set_permissions(path, Permissions::from_mode(about.mode & 0o7777))?;
        }
        let time = |(seconds, nanoseconds): (i64, i64)| TimeSpec::new(seconds, nanoseconds);
        let (accessed, modified) = (time(about.accessed), time(about.modified));
        let place = nix::fcntl::AT_FDCWD;
        nix::sys::stat::utimensat(place, path, &accessed, &modified, UtimensatFlags::NoFollowSymlink)?;
        Ok(())
    }
}

/// Locks a file until it is closed, at once or, if `waits`, when others permit it. Returns false if others hold a lock.
/// Without lock support it returns true.
pub(crate) fn lock(file: &File, kind: i32, waits: bool) -> bool {
    let range =
        nix::libc::flock { l_type: kind as i16, l_whence: nix::libc::SEEK_SET as i16, l_start: 0, l_len: 0, l_pid: 0 };
    loop {
        let how = if waits { FcntlArg::F_OFD_SETLKW(&range) } else { FcntlArg::F_OFD_SETLK(&range) };
        match nix::fcntl::fcntl(file, how) {
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN | Errno::EACCES) => return false,
            _ => return true,
        }
    }
}

/// Frees the space of the log's beginning, if the file system can.
pub(crate) fn forget_begin(log: &File, length: u64) {
    if length > 0 {
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let _ = nix::fcntl::fallocate(log, flags, 0, length as i64);
    }
}

impl Files for Disk {
    fn inspect(&self, subject: Subject<'_>) -> io::Result<Option<Seen>> {
        let Some(status) = status_of(subject)? else { return Ok(None) };
        let kind = status.file_type();
        let kind = match subject {
            // A file without a name cannot be brought back.
            _ if kind.is_file() && status.nlink() == 0 => return Ok(None),
            _ if kind.is_file() => FileKind::File,
            _ if kind.is_dir() => FileKind::Directory,
            Subject::Named(path) if kind.is_symlink() => {
                FileKind::Link(fs::read_link(path)?.as_os_str().as_bytes().to_vec())
            }
            _ => {
                debug_assert!(kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device());
                FileKind::Other
            }
        };
        Ok(Some(Seen { key: self.key_of(&status), kind, about: about_of(&status) }))
    }

    fn name_of(&self, subject: Subject<'_>) -> Vec<u8> {
        match subject {
            Subject::Named(path) => path.as_os_str().as_bytes().to_vec(),
            Subject::Open(fd) => fs::read_link(descriptor_path(fd)).unwrap_or_default().as_os_str().as_bytes().to_vec(),
        }
    }

    fn hold(&mut self, subject: Subject<'_>, key: FileKey) -> io::Result<Option<String>> {
        let name = self.link_name(key);
        if self.held(&name)?.is_some_and(|seen| seen.key == key) {
            return Ok(Some(name));
        }
        // Linked under a private name first, because the name may lead to another file by now.
        let own = self.path(&format!("{}/t-{}", self.period, self.author));
        let here = nix::fcntl::AT_FDCWD;
        let linked = match subject {
            Subject::Open(fd) => {
                nix::unistd::linkat(here, &descriptor_path(fd), here, &own, AtFlags::AT_SYMLINK_FOLLOW)
            }
            Subject::Named(path) => nix::unistd::linkat(here, path, here, &own, AtFlags::empty()),
        };
        match linked {
            Ok(()) => {}
            Err(Errno::ENOENT) => return Err(changed()),
            Err(Errno::EEXIST) => {
                // Left over from an interruption of this process.
                fs::remove_file(&own)?;
                return self.hold(subject, key);
            }
            Err(Errno::EXDEV | Errno::EPERM | Errno::EACCES | Errno::EMLINK | Errno::EOPNOTSUPP) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let is_it = fs::symlink_metadata(&own).is_ok_and(|status| self.key_of(&status) == key);
        if is_it {
            fs::rename(&own, self.path(&name))?;
        }
        // `rename` does nothing if another process has linked the same file there; then the private name remains.
        match fs::remove_file(&own) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ if is_it => Ok(Some(name)),
            _ => Err(changed()),
        }
    }

    fn save(&mut self, subject: Subject<'_>, key: FileKey, offset: u64, length: u64) -> io::Result<Data> {
        let lent = match subject {
            Subject::Open(fd) => (self.means.lend)(fd),
            Subject::Named(_) => None,
        };
        if let Some(file) = lent {
            return self.save_from(&file, key, offset, length);
        }
        let read = || {
            let mut options = OpenOptions::new();
            options.read(true);
            let file = match subject {
                Subject::Open(fd) => options.open(descriptor_path(fd)),
                Subject::Named(path) => options.custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK).open(path),
            }?;
            self.save_from(&file, key, offset, length)
        };
        let mut saved = None;
        (self.means.apart)(&mut || saved = Some(read()))?;
        saved.unwrap_or_else(|| Err(io::Error::other("its reader was killed")))
    }

    fn attribute(&self, subject: Subject<'_>, name: &[u8]) -> io::Result<Attribute> {
        match subject {
            Subject::Open(fd) => attributes::get(&descriptor_path(fd), true, name),
            Subject::Named(path) => attributes::get(path, false, name),
        }
    }

    fn attributes(&self, subject: Subject<'_>) -> io::Result<Vec<Attribute>> {
        match subject {
            Subject::Open(fd) => attributes::all(&descriptor_path(fd), true),
            Subject::Named(path) => attributes::all(path, false),
        }
    }

    fn add(&mut self, record: &Record) -> io::Result<()> {
        let bytes = frame::encode(record).ok_or_else(|| io::Error::other("a path is too long"))?;
        let mut log = OpenOptions::new().write(true).open(Self::log_path(&self.directory))?;
        // Excludes other processes while the record is added.
        lock(&log, nix::libc::F_WRLCK, true);
        let end = log.seek(SeekFrom::End(0))?;
        log.write_all_at(&bytes, end).inspect_err(|_| drop(log.set_len(end)))
    }

    fn put(&mut self, step: Step<'_>) -> io::Result<()> {
        match step {
            Step::Cut(target, size) => {
                let file = Self::open_to_change(&self.target(target))?;
                if file.metadata()?.len() > size { file.set_len(size) } else { Ok(()) }
            }
            Step::Write(target, offset, data) => {
                let saved = File::open(self.path(&data.name))?;
                let file = Self::open_to_change(&self.target(target))?;
                match Self::copy(&saved, data.offset, &file, offset, data.length)? {
                    copied if copied == data.length => Ok(()),
                    _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "what was saved of it is not all there")),
                }
            }
            Step::Describe(target, about) => Self::describe(&self.target(target), about),
            Step::Attribute(target, attribute) => {
                let path = self.target(target);
                Self::with_permission(&path, || attributes::set(&path, attribute))
            }
            Step::Unlink(path) => fs::remove_file(path),
            Step::RemoveDirectory(path) => fs::remove_dir(path),
            Step::Link(link, path) => fs::hard_link(self.path(link), path),
            Step::Create(path) => OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path).map(drop),
            Step::MakeDirectory(path) => DirBuilder::new().mode(0o700).create(path),
            Step::SymbolicLink(says, path) => unix::symlink(std::ffi::OsStr::from_bytes(says), path),
            Step::Rename(from, to) => fs::rename(from, to),
        }
    }

    fn is_held(&self, key: FileKey) -> io::Result<bool> {
        Ok(self.held(&self.link_name(key))?.is_some_and(|seen| seen.key == key))
    }

    fn held(&self, link: &str) -> io::Result<Option<Seen>> {
        self.inspect(Subject::Named(&self.path(link)))
    }
}
