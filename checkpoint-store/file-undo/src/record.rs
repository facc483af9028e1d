//! Records of the undo log.

use serde::{Deserialize, Serialize};

/// Seconds and nanoseconds since 1970.
pub type Time = (i64, i64);

/// Identity of a file as long as it exists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct FileKey {
    /// File system, identified equally on all hosts.
    pub device: u64,
    /// Inode number. The number of a deleted file may be reused at once.
    pub inode: u64,
    /// Time of creation; zeros if the file system does not record it.
    pub birth: Time,
}

/// Metadata of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct About {
    /// Size in bytes, as in `stat`.
    pub size: u64,
    /// Type and permission bits, as in `stat`.
    pub mode: u32,
    /// User id of the owner.
    pub owner: u32,
    /// Group id of the file.
    pub group: u32,
    /// Time of the last access.
    pub accessed: Time,
    /// Time of the last modification.
    pub modified: Time,
}

/// Ways to find a file again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    /// Identity of a regular file. `None` for a directory or a symbolic link, of which only the name counts: a removed
    /// one is made anew.
    pub key: Option<FileKey>,
    /// Name of its link beside the log, if it has one.
    pub link: Option<String>,
    /// One of its paths.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
}

/// Location of saved bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Data {
    /// File that has them, relative to the directory of the log.
    pub name: String,
    /// Offset in that file.
    pub offset: u64,
    /// Number of bytes that were saved.
    pub length: u64,
    /// xxh3 of the bytes.
    pub digest: u128,
}

/// An extended attribute, or its absence.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attribute {
    /// Name, including the namespace.
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
    /// Value; `None` if the attribute does not exist.
    #[serde(with = "serde_bytes")]
    pub value: Option<Vec<u8>>,
}

/// Complete copy of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Copy {
    pub data: Data,
    /// Metadata of the original.
    pub about: About,
    /// Attributes that the program may have set.
    pub attributes: Vec<Attribute>,
}

/// Previous meaning of a name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Was {
    /// The name did not exist.
    Absent,
    /// A regular file. Its content was saved if it has no link.
    File(Held, Option<Copy>),
    Directory(About, Vec<Attribute>),
    /// A symbolic link with this target.
    Link(#[serde(with = "serde_bytes")] Vec<u8>),
    /// A device, a socket or a named pipe, which undo does not restore.
    Other,
}

/// Pre-image of one change, which undo puts back in one step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Record {
    /// A file, directory or symbolic link is about to be changed for the first time.
    First(Held, About),
    /// Bytes of a file, from this offset on, are about to be overwritten or truncated.
    Bytes(Held, u64, Data),
    /// An extended attribute is about to be changed for the first time.
    Attribute(Held, Attribute),
    /// A name is about to be created, removed or given to another file.
    Name(#[serde(with = "serde_bytes")] Vec<u8>, Was),
    /// A directory is about to be renamed.
    Moved {
        #[serde(with = "serde_bytes")]
        from: Vec<u8>,
        #[serde(with = "serde_bytes")]
        to: Vec<u8>,
        /// Identity of the directory.
        directory: FileKey,
    },
}
