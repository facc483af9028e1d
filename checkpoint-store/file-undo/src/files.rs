//! Operations of a file system that recording and undo need. Implemented by the disk, and by a model for tests.

use crate::record::{About, Attribute, Data, FileKey, Record};
use std::io;
use std::os::fd::RawFd;
use std::path::Path;

/// Type of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A regular file, with bytes.
    File,
    /// A directory, whose entries are undone by name.
    Directory,
    /// A symbolic link with this target.
    Link(Vec<u8>),
    /// A device, a socket or a named pipe.
    Other,
}

/// Status of a file that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Identity of the file.
    pub key: FileKey,
    /// Type of the file.
    pub kind: FileKind,
    /// Size, permissions, owner and times.
    pub about: About,
}

/// A file that is open, or has a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject<'a> {
    /// An open file, by its descriptor.
    Open(RawFd),
    /// A file by its path. A symbolic link is not followed.
    Named(&'a Path),
}

/// A file system, with the directory of the log.
pub trait Files {
    /// Status of `subject`. `None` if it does not exist, or a directory of its path does not.
    ///
    /// # Errors
    /// If the status cannot be read.
    fn inspect(&self, subject: Subject<'_>) -> io::Result<Option<Seen>>;

    /// A path of `subject`, by which undo may find it.
    fn name_of(&self, subject: Subject<'_>) -> Vec<u8>;

    /// Links a file under a name beside the log, unless that is done already. Returns the name; `None` if it cannot be
    /// linked.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if `subject` is another file than `key` by now; if the directory of the log refuses.
    fn hold(&mut self, subject: Subject<'_>, key: FileKey) -> io::Result<Option<String>>;

    /// Saves the existing part of a range.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if `subject` is another file than `key` by now; if the range cannot be read or
    /// saved.
    fn save(&mut self, subject: Subject<'_>, key: FileKey, offset: u64, length: u64) -> io::Result<Data>;

    /// Reads an extended attribute.
    ///
    /// # Errors
    /// If it cannot be read.
    fn attribute(&self, subject: Subject<'_>, name: &[u8]) -> io::Result<Attribute>;

    /// Reads all extended attributes that programs may set. Empty if the file system has none.
    ///
    /// # Errors
    /// If they cannot be read.
    fn attributes(&self, subject: Subject<'_>) -> io::Result<Vec<Attribute>>;

    /// Adds a record to the log.
    ///
    /// # Errors
    /// If the log refuses.
    fn add(&mut self, record: &Record) -> io::Result<()>;

    /// Carries out one step of undo.
    ///
    /// # Errors
    /// If the step failed.
    fn put(&mut self, step: Step<'_>) -> io::Result<()>;

    /// Returns true if some process has linked this file beside the log since the newest cut.
    ///
    /// # Errors
    /// If that cannot be found out.
    fn is_held(&self, key: FileKey) -> io::Result<bool>;

    /// Status of the file that is linked under a name beside the log.
    ///
    /// # Errors
    /// If the status cannot be read.
    fn held(&self, link: &str) -> io::Result<Option<Seen>>;
}

/// File to which a step of undo applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target<'a> {
    /// The file linked under this name beside the log.
    Held(&'a str),
    /// The file with this path.
    Named(&'a Path),
}

/// One step of undo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<'a> {
    /// Truncates a longer file to this size. A shorter one grows when the bytes cut from it are written back.
    Cut(Target<'a>, u64),
    /// Writes saved bytes at this offset.
    Write(Target<'a>, u64, &'a Data),
    /// Sets permissions, owner and times.
    Describe(Target<'a>, &'a About),
    /// Sets an extended attribute, or removes it if it has no value.
    Attribute(Target<'a>, &'a Attribute),
    /// Removes a name that is not a directory's.
    Unlink(&'a Path),
    /// Removes an empty directory.
    RemoveDirectory(&'a Path),
    /// Links the file with this name beside the log to a path.
    Link(&'a str, &'a Path),
    /// Creates an empty file.
    Create(&'a Path),
    MakeDirectory(&'a Path),
    /// Makes a symbolic link with this target.
    SymbolicLink(&'a [u8], &'a Path),
    /// Renames the first path to the second.
    Rename(&'a Path, &'a Path),
}
