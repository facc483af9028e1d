//! What `redrun` and the daemons say to each other about a line: the images of one process of each rank, its *source*,
//! from which the whole job can be started again.
//!
//! ```text
//! redrun                                  every redrtd                       helpers, one for each source
//!   │ ── Begin ─────────────────────────────▶ │ ── start ───────────────────────▶ │   rounds of memory, while it runs
//!   │ ◀── Ready, of each source ───────────── │                                   │
//!   │ ── Round ─────────────────────────────▶ │ ────────────────────────────────▶ │   what was written meanwhile
//!   │ ◀── Ready, of each source ───────────── │                                   │
//!   │ ── Stop ──────────────────────────────▶ │ ────────────────────────────────▶ │   it sends nothing any more
//!   │ ◀── Agent{Quiet}, of each process ───── │                                   │
//!   │ ── Rest ──────────────────────────────▶ │   LineGoes, to each source        │   its threads are stopped
//!   │ ◀── Stopped, of each process ────────── │                                   │
//!   │ ── Copy ──────────────────────────────▶ │ ────────────────────────────────▶ │   what is left is copied
//!   │ ◀── Copied, of each process ─────────── │                                   │
//!   │ ── GoOn ──────────────────────────────▶ │ ────────────────────────────────▶ │   its threads go on
//!   │ ◀── Saved, of each process ──────────── │                                   │   the copy is written
//! ```
//! No image is copied before every source is stopped, and none goes on before all are copied: so what one image has of
//! a message, or of the memory that processes of a host share, fits what all others have.
//! `Failed` may take the place of any answer, `Abandon` follows whatever went before.
//!
//! Connections over networks cannot be in an image. In a job without replicas a process is quiet when all that it has
//! sent over them has reached the other host; when all are, each takes in what has reached its own, and nothing is on
//! its way. Where ranks have replicas messages have numbers, and what was on its way is sent again: a source is quiet
//! when nobody is in its engine, and its siblings go on.
//!
//! What processes change in files is written down in a log, so that it can be taken back (`file-undo`). Of each rank
//! the source is the one that does so, and no source is between writing down and changing when all are quiet. So the
//! length of the log then is what belongs to the time before the line; it is written beside the images. With `LineGoes`
//! each source hears where it writes from then on, and with `ChangesSince` each of its siblings: before the view in
//! which one has to go on in the place of the source.

use crate::clone::{Cost, Position, Progress};
use crate::no_image::NoImage;
use crate::object::{Entry, Stored};
use redrt_types::{ReplicaId, VirtualRank};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Number of a line, in its store. Later ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Generation(pub u64);

impl std::fmt::Display for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// From `redrun` to every daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LineOrder {
    /// Begin to write images of sources, each to its file in this directory.
    Begin {
        /// Those that are on this host.
        sources: Vec<ReplicaId>,
        /// The directory.
        #[serde(with = "redrt_types::path_bytes")]
        directory: PathBuf,
        /// It is this host's own place, to be made, and beside it these lines are kept. None where it is that of all
        /// hosts, and is there.
        own_beside: Option<Vec<Generation>>,
        /// Whether images are built on others.
        building: Building,
        /// How images are compressed.
        compression: Compression,
        /// The key with which they are encrypted, sealed with the job's secret.
        #[serde(with = "serde_bytes")]
        sealed_key: Option<Vec<u8>>,
    },
    /// All images are all but complete: what was written while others were not yet is to be copied, too.
    Round,
    /// All images are all but complete: stop the sources.
    Stop,
    /// Nothing is on its way to or from any process that has not reached its host.
    Rest,
    /// All sources are stopped: copy what is left.
    Copy,
    /// All is copied: let them go on.
    GoOn,
    /// Nothing comes of it: end the helpers, and let the processes go on.
    Abandon,
}

/// Which other images those of a line have to do with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Building {
    /// None: each has all pages, and none will be built on it.
    #[default]
    Alone,
    /// Each has all pages, and others may be built on it.
    First,
    /// Each leaves out what that of this line has, if it is there; and others may be built on it.
    On(Generation),
}

/// How images are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4: less than half of the disk's time, where memory has patterns.
    Lz4,
    /// Zstandard: smaller, and slower.
    Zstd,
}

/// Where the text of a stream stood when the image of its process was taken.
///
/// It begins at a boundary, so that what is printed again is compared with what was shown in whole lines.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SavedText {
    /// Units of the text before `text`: a line each, or a part of one that is very long.
    pub units: u64,
    /// Lines before that boundary.
    pub lines: u64,
    /// Bytes of the line between its begin and that boundary: none, unless the line is very long.
    pub column: u64,
    /// What had been printed behind it: the unfinished line, and what other replicas had yet to agree to.
    #[serde(with = "serde_bytes")]
    pub text: Vec<u8>,
    /// Bytes that the process prints next which are in `text`, or before it, already.
    pub late_bytes: u64,
}

/// How far the image of a process has come.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LineStep {
    /// Memory is going over.
    Progress(Progress),
    /// What is left is small: the process can be stopped.
    Ready,
    /// The process is stopped. What it has printed is known here.
    Stopped(Position),
    /// What was left is copied.
    Copied,
    /// The image is on the disk. What it cost, and where the time went, in its order.
    Saved(Cost, Vec<Step>),
    /// There is no image.
    Failed(NoImage),
}

/// Something that was done for an image.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// What.
    pub name: String,
    /// How long it took, in nanoseconds.
    pub ns: u64,
}

/// From `redrun` to the daemon of one host, about the part of a line that a host has in its own place, and a copy of it
/// elsewhere.
///
/// ```text
/// redrun                     redrtd of the partner           redrtd of the source
///   │ ── Keep ──────────────────▶ │                                │
///   │ ◀── Listening ───────────── │                                │
///   │ ── Give ────────────────────────────────────────────────▶    │
///   │                             │ ◀═════════════════ files ═════ │
///   │ ◀── Kept ────────────────── │                                │
/// ```
/// `Failed` may take the place of any answer, and come from either.
///
/// To an object store a host sends its part by itself: `Store` is answered by `Moved`, again and again, and `Stored`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PartOrder {
    /// Make ready to receive these files.
    Keep {
        /// Where they go: this host's own place.
        #[serde(with = "redrt_types::path_bytes")]
        directory: PathBuf,
        /// Lines that are kept beside it.
        own_beside: Vec<Generation>,
        /// Their names.
        files: Vec<String>,
    },
    /// Send them to where the other daemon listens.
    Give {
        /// Where they are.
        #[serde(with = "redrt_types::path_bytes")]
        directory: PathBuf,
        /// Their names, in the same order.
        files: Vec<String>,
        /// Where to.
        address: SocketAddr,
    },
    /// Put them into an object store.
    Store {
        /// Where they are.
        #[serde(with = "redrt_types::path_bytes")]
        directory: PathBuf,
        /// Their names.
        files: Vec<String>,
        /// What goes before each name, there.
        prefix: String,
        /// How the store is accessed, sealed with the job's secret.
        #[serde(with = "serde_bytes")]
        sealed_access: Vec<u8>,
    },
}

/// How far a copy of such a part has come, from a daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PartStep {
    /// It can be sent here.
    Listening(SocketAddr),
    /// It is on the disk here, as it was sent: this number of bytes.
    Kept(u64),
    /// How many bytes have gone to the object store by now.
    Moved(u64),
    /// All of it is in the object store.
    Stored(Vec<Stored>),
    /// There is no copy.
    Failed(NoImage),
}

/// Where a process writes down what it changes in files, so that they can be put back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UndoPlace {
    /// The directory of the log that it shares with others.
    #[serde(with = "redrt_types::path_bytes")]
    pub directory: PathBuf,
    /// The line since which it is.
    pub since: Generation,
    /// Other hosts have logs of their own. Then nothing is saved but what this one changes.
    pub is_of_host: bool,
    /// For what is changed on file systems of other hosts.
    pub shared: Option<SharedPlace>,
}

/// A log that hosts share which have logs of their own besides.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SharedPlace {
    /// Where it is, on all of them.
    #[serde(with = "redrt_types::path_bytes")]
    pub directory: PathBuf,
    /// The number of the host whose processes are told.
    pub host: u32,
}

impl UndoPlace {
    /// That of the time since a line whose images are in this directory: beside it.
    #[must_use]
    pub fn beside(line: &Path, since: Generation, is_of_host: bool) -> Self {
        Self { directory: line.with_file_name("undo"), since, is_of_host, shared: None }
    }
}

/// Where the log is that the hosts of a job share if each has one of its own: in the directory in which its program is
/// started, which they are likely to share. Programs are not shown names that begin so.
#[must_use]
pub fn shared_log(directory: &Path, job: u64) -> PathBuf {
    directory.join(format!(".redrt-undo-{job:016x}"))
}

/// The variable by which children of a process know the file in which it says where changes are written down.
pub const CHILDREN_VARIABLE: &str = "REDRT_UNDO";

/// That file of a user, on each host of a job. Its name is all that a process has of it which goes on on another host.
#[must_use]
pub fn told_to_children(job: u64, user: u32) -> PathBuf {
    format!("/tmp/redrt-undo-{user}-{job:016x}").into()
}

/// From which line processes are started, in place of the program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Restore {
    /// Its number.
    pub generation: Generation,
    /// Where each host has what is its own of the line, by its number.
    pub places: Vec<Place>,
    /// Each host has a log of what its processes have changed in files, and puts them back.
    pub has_logs_of_hosts: bool,
    /// The files with the memory that the processes of each host share, by its number; none where messages that were in
    /// it are sent again.
    #[serde(with = "redrt_types::path_bytes::list")]
    pub memories: Vec<PathBuf>,
    /// What hosts get from the object store before.
    pub objects: Option<Objects>,
    /// The key with which all of it may be encrypted, sealed with the job's secret.
    #[serde(with = "serde_bytes")]
    pub sealed_key: Option<Vec<u8>>,
    /// What each process goes on from, in order of process number; none for places that stay free.
    pub images: Vec<Option<Image>>,
}

impl Restore {
    /// Where processes of a host, which shares this log with others, write down what they change in files. A host that
    /// came later has no place.
    #[must_use]
    pub fn undo(&self, host: u32, shared: Option<SharedPlace>) -> Option<UndoPlace> {
        let directory = &self.places.get(host as usize)?.directory;
        let shared = shared.filter(|_| self.has_logs_of_hosts);
        Some(UndoPlace { shared, ..UndoPlace::beside(directory, self.generation, self.has_logs_of_hosts) })
    }
}

/// What hosts get from the object store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Objects {
    /// How the store is accessed, sealed with the job's secret.
    #[serde(with = "serde_bytes")]
    pub sealed_access: Vec<u8>,
    /// What each host has to have, by its number.
    pub wanted: Vec<Vec<Entry>>,
}

/// Where a host has what is its own of a line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// The directory.
    #[serde(with = "redrt_types::path_bytes")]
    pub directory: PathBuf,
    /// Processes of this host were saved: how long its log of changed files was is written there.
    pub has_sources: bool,
}

/// What a process goes on from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Image {
    /// The file, on the host of that process.
    #[serde(with = "redrt_types::path_bytes")]
    pub path: PathBuf,
    /// Where the standard streams of its source were.
    pub position: Position,
}

/// The file that has the image of a rank.
#[must_use]
pub fn image_path(directory: &Path, rank: VirtualRank) -> PathBuf {
    directory.join(format!("{}.image", rank.0))
}

/// The file beside an image that says what the image has, for others to be built on it.
#[must_use]
pub fn pages_path(image: &Path) -> PathBuf {
    image.with_extension("pages")
}

/// The file that says how much of the log of changed files is older than the line.
#[must_use]
pub fn cut_path(directory: &Path, host: u32) -> PathBuf {
    directory.join(format!("host-{host}.undo"))
}

/// The file that has the memory which the processes of a host share.
#[must_use]
pub fn memory_path(directory: &Path, host: u32) -> PathBuf {
    directory.join(format!("host-{host}.memory"))
}
