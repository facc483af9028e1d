//! Input and output of `redstore`, the program that moves files to an object store and back: lines of JSON.
//!
//! ```text
//!  redstore put URL     ◀ ObjectEntry …   ▶ Moved …, Stored of each file, once it is there
//!  redstore get URL     ◀ ObjectEntry …   ▶ Moved …; each file fits its facts, also one that was there already
//!  redstore list URL                ▶ Found, of each object below
//!  redstore delete URL  ◀ key …     a missing object is no error
//!  redstore create URL  ◀ key …     empty objects; an existing one is an error
//! ```
//! A failure is one line on its standard error, and an [`Ending`].

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Facts by which a file is recognised.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Facts {
    /// Its length.
    pub bytes: u64,
    /// Its xxh3, 128 bits in hexadecimal digits.
    pub digest: String,
}

/// A file here, and its object.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ObjectEntry {
    /// Name of the object below the URL.
    pub key: String,
    /// The file.
    #[serde(with = "redrt_types::path_bytes")]
    pub path: PathBuf,
    /// Expected facts, if known.
    pub facts: Option<Facts>,
}

/// An object that was put, with the facts of its file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stored {
    /// Name of the object below the URL.
    pub key: String,
    /// Facts of the file.
    pub facts: Facts,
}

/// A line of `redstore`'s output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Said {
    /// Bytes moved so far, in either direction.
    Moved(u64),
    /// An object was stored.
    Stored(Stored),
    /// An object in the store: its name and its length in bytes.
    Found(String, u64),
}

/// Outcome of `redstore`: its exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Ending {
    /// All was done.
    Done = 0,
    /// A failure on this host, or another one.
    Failed = 1,
    /// A wrong call: no such command, no such URL.
    Usage = 2,
    /// There is no such object, or no such bucket.
    Missing = 3,
    /// The store refuses: credentials are missing, or insufficient.
    Denied = 4,
    /// The store cannot be reached, or does not answer.
    Silent = 5,
    /// The bytes received differ from those that were put.
    Damaged = 6,
}
