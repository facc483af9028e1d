//! What is asked of a file system, and done to it.

use crate::record::{About, Attribute, Data, FileKey, Record};
use std::io;
use std::os::fd::RawFd;
use std::path::Path;

/// What something is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link that says this.
    Link(Vec<u8>),
    /// A device, a socket, a pipe.
    Other,
}

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Which it is.
    pub key: FileKey,
    /// What it is.
    pub kind: Kind,
    /// More of it.
    pub about: About,
}

/// A file that somebody has, or has a name for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject<'a> {
    /// Open, with this number.
    Open(RawFd),
    /// By its name. A symbolic link is not followed.
    Named(&'a Path),
}

/// A file system, and the directory that has the log, links and saved bytes.
pub trait Files {
    /// What is there; `None` for nothing, also where a directory of the path is missing.
    ///
    /// # Errors
    /// When that cannot be found out.
    fn look(&self, subject: Subject<'_>) -> io::Result<Option<Seen>>;

    /// A name of it, for somebody who has to find it again.
    fn name_of(&self, subject: Subject<'_>) -> Vec<u8>;

    /// Links a file to a name beside the log, where it may be already. `None` when it cannot be linked there.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when the subject is another file by now; when the directory of the log refuses.
    fn hold(&mut self, subject: Subject<'_>, key: FileKey) -> io::Result<Option<String>>;

    /// Saves what there is of a range.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when the subject is another file by now; when it cannot be read, or saved.
    fn save(&mut self, subject: Subject<'_>, key: FileKey, offset: u64, length: u64) -> io::Result<Data>;

    /// What an extended attribute is.
    ///
    /// # Errors
    /// When it cannot be read.
    fn attribute(&self, subject: Subject<'_>, name: &[u8]) -> io::Result<Attribute>;

    /// All extended attributes that programs may set. None where there are no such things.
    ///
    /// # Errors
    /// When they cannot be read.
    fn attributes(&self, subject: Subject<'_>) -> io::Result<Vec<Attribute>>;

    /// Adds a record to the log.
    ///
    /// # Errors
    /// When the log refuses.
    fn add(&mut self, record: &Record) -> io::Result<()>;

    /// Does one step of putting back.
    ///
    /// # Errors
    /// When it was not done.
    fn put(&mut self, step: Step<'_>) -> io::Result<()>;

    /// Whether anybody has a link of this file beside the log, since the newest cut.
    ///
    /// # Errors
    /// When that cannot be found out.
    fn is_held(&self, key: FileKey) -> io::Result<bool>;

    /// What is held under a name beside the log.
    ///
    /// # Errors
    /// When that cannot be found out.
    fn held(&self, link: &str) -> io::Result<Option<Seen>>;
}

/// Which file is changed when something is put back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target<'a> {
    /// That which is held under this name beside the log.
    Held(&'a str),
    /// That of this name.
    Named(&'a Path),
}

/// One step of putting back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<'a> {
    /// Cuts a file that is longer. One that is shorter gets its size with the bytes that were cut off.
    Cut(Target<'a>, u64),
    /// Writes saved bytes to this offset.
    Write(Target<'a>, u64, &'a Data),
    /// Permissions, owner and times.
    Describe(Target<'a>, &'a About),
    /// Sets an extended attribute, or removes it.
    Attribute(Target<'a>, &'a Attribute),
    /// Removes what is no directory.
    Unlink(&'a Path),
    /// Removes a directory that is empty.
    RemoveDirectory(&'a Path),
    /// Gives a name to what is held under this one.
    Link(&'a str, &'a Path),
    /// Makes a file, with nothing in it.
    Create(&'a Path),
    /// Makes a directory.
    MakeDirectory(&'a Path),
    /// Makes a symbolic link that says this.
    SymbolicLink(&'a [u8], &'a Path),
    /// Renames.
    Rename(&'a Path, &'a Path),
}
