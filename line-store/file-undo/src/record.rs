//! What is written down.

use serde::{Deserialize, Serialize};

/// A time, in seconds since 1970 and nanoseconds.
pub type Time = (i64, i64);

/// Which file it is, as long as it is there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct FileKey {
    /// Number of the file system.
    pub device: u64,
    /// Number in it. Numbers of files that are gone are given again, at once.
    pub inode: u64,
    /// When it was made, where the file system says so.
    pub birth: Time,
}

/// What is said of a file besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct About {
    /// In bytes.
    pub size: u64,
    /// Permissions.
    pub mode: u32,
    /// User.
    pub owner: u32,
    /// Group.
    pub group: u32,
    /// When it was read last.
    pub accessed: Time,
    /// When it was written last.
    pub modified: Time,
}

/// How a file is found again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    /// Which it is. Of a directory, and of a symbolic link, only the name counts: one that was removed is made anew.
    pub key: Option<FileKey>,
    /// Its link beside the log, if there is one.
    pub link: Option<String>,
    /// A name that it had.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
}

/// Bytes that were saved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Data {
    /// The file beside the log that has them.
    pub name: String,
    /// Where in it.
    pub offset: u64,
    /// How many.
    pub length: u64,
    /// XXH3 of them.
    pub digest: u128,
}

/// An extended attribute: its name and its value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attribute {
    /// With its namespace.
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
    /// None where there is no such attribute.
    #[serde(with = "serde_bytes")]
    pub value: Option<Vec<u8>>,
}

/// All of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Copy {
    /// Its bytes.
    pub data: Data,
    /// What is said of it.
    pub about: About,
    /// Those attributes that the program may have set.
    pub attributes: Vec<Attribute>,
}

/// What a name stood for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Was {
    /// Nothing.
    Absent,
    /// A regular file. What it held was saved if it has no link.
    File(Held, Option<Copy>),
    /// A directory.
    Directory(About, Vec<Attribute>),
    /// A symbolic link that says this.
    Link(#[serde(with = "serde_bytes")] Vec<u8>),
    /// A device, a socket, a pipe: it is not put back.
    Other,
}

/// What is put back, in one step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Record {
    /// A file, a directory or a symbolic link is about to be changed for the first time.
    First(Held, About),
    /// Bytes of a file from an offset on are about to be overwritten or cut off.
    Bytes(Held, u64, Data),
    /// An extended attribute of a file or a directory is about to be changed for the first time.
    Attribute(Held, Attribute),
    /// A name is about to be made, removed or given to something else.
    Name(#[serde(with = "serde_bytes")] Vec<u8>, Was),
    /// A directory is about to be renamed.
    Moved {
        /// Its name.
        #[serde(with = "serde_bytes")]
        from: Vec<u8>,
        /// Its next name.
        #[serde(with = "serde_bytes")]
        to: Vec<u8>,
        /// Which it is.
        directory: FileKey,
    },
}
