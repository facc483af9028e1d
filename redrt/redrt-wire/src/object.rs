//! What is said to `redstore`, the program that moves files to an object store and back, and what it says: lines of
//! JSON on its standard input and output.
//!
//! ```text
//!  redstore put URL     ◀ Entry …   ▶ Moved …, Stored of each file, once it is there
//!  redstore get URL     ◀ Entry …   ▶ Moved …; each file is as its facts say, also one that was there already
//!  redstore list URL                ▶ Found, of each object below
//!  redstore delete URL  ◀ key …     what is not there is no error
//!  redstore create URL  ◀ key …     empty objects; one that is there already is an error, whoever was sooner
//! ```
//! What went wrong is one line on its standard error, and its [`Ending`].

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// By which a file is known again.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Facts {
    /// Its length.
    pub bytes: u64,
    /// xxh3 of it, 128 bits in hexadecimal digits.
    pub digest: String,
}

/// A file here, and the object that it becomes or comes from.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The name of the object below the URL.
    pub key: String,
    /// The file.
    #[serde(with = "redrt_types::path_bytes")]
    pub path: PathBuf,
    /// What it is to be like, where that is known.
    pub facts: Option<Facts>,
}

/// An object that was put, with what its file was like.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stored {
    /// Its name below the URL.
    pub key: String,
    /// What the file was like.
    pub facts: Facts,
}

/// A line of what `redstore` says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Said {
    /// How many bytes have gone, or come, in all.
    Moved(u64),
    /// An object is there.
    Stored(Stored),
    /// There is an object of this name and length.
    Found(String, u64),
}

/// How `redstore` ends: its exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Ending {
    /// All is done.
    Done = 0,
    /// A file here, or something else.
    Failed = 1,
    /// It was called in a wrong way: no such command, no such URL.
    Usage = 2,
    /// There is no such object, or no such bucket.
    Missing = 3,
    /// The store refuses: credentials are missing, or do not suffice.
    Denied = 4,
    /// The store cannot be reached, or does not answer.
    Silent = 5,
    /// What has come is not what was put.
    Damaged = 6,
}
