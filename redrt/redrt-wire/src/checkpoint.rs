//! Messages of `redrun` and the daemons on a checkpoint: the images of one process of each rank, its *source*, from
//! which the whole job can be started again.
//!
//! ```text
//! redrun                                  every redrtd                       helpers, one for each source
//!   │ ── Begin ─────────────────────────────▶ │ ── start ───────────────────────▶ │   rounds of memory, while it runs
//!   │ ◀── Ready, of each source ───────────── │                                   │
//!   │ ── Round ─────────────────────────────▶ │ ────────────────────────────────▶ │   memory written meanwhile
//!   │ ◀── Ready, of each source ───────────── │                                   │
//!   │ ── Stop ──────────────────────────────▶ │ ────────────────────────────────▶ │   it sends nothing any more
//!   │ ◀── Agent{Quiet}, of each process ───── │                                   │
//!   │ ── Rest ──────────────────────────────▶ │   LineGoes, to each source        │   its threads are stopped
//!   │ ◀── Stopped, of each process ────────── │                                   │
//!   │ ── Copy ──────────────────────────────▶ │ ────────────────────────────────▶ │   the remaining memory is copied
//!   │ ◀── Copied, of each process ─────────── │                                   │
//!   │ ── GoOn ──────────────────────────────▶ │ ────────────────────────────────▶ │   its threads go on
//!   │ ◀── Saved, of each process ──────────── │                                   │   the copy is written
//! ```
//! No image is copied before every source is stopped, and no source goes on before all are copied. So each image's
//! share of a message, or of the memory that processes of a host share, fits all other images. `Failed` may take the
//! place of any answer, and `Abandon` may follow any message.
//!
//! Connections over networks cannot be in an image. In a job without replicas a process is quiet when all bytes that it
//! has sent over them have reached the other host. When all processes are, each takes in the bytes on its own host, and
//! nothing is under way. Where ranks have replicas, messages have numbers and lost ones are sent again: a source is
//! quiet when no thread is in its engine, and its siblings go on.
//!
//! Processes log their changes of files, so that they can be undone (`file-undo`). In each rank the source is the
//! replica that does so, and no source is between the log entry and its change when all are quiet. So the length of the
//! log at that time separates the changes before the checkpoint from later ones; it is written beside the images.
//! `CheckpointGoes` tells each source its log from then on. `ChangesSince` tells each sibling, before the view in which
//! one of them has to take the source's place.

use crate::clone::{Cost, Position, Progress};
use crate::no_image::NoImage;
use crate::object::{ObjectEntry, Stored};
use redrt_types::{ReplicaId, VirtualRank};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Number of a checkpoint, in its store. Later ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Generation(pub u64);

impl std::fmt::Display for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The replicas that vouch for the memory in a checkpoint's images.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Proof {
    /// Replicas that share no unproven image with those that were saved.
    Independent,
    /// In some rank, only replicas that descend from one image: what was corrupt there is not excluded.
    Kin,
}

/// From `redrun` to every daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CheckpointOrder {
    /// Begin to write images of sources, each to its file in this directory.
    Begin {
        /// Sources on this host.
        sources: Vec<ReplicaId>,
        /// Directory of the images.
        #[serde(with = "redrt_types::path_bytes")]
        directory: PathBuf,
        /// Given if the directory is this host's own, to be created; checkpoints to keep beside it. `None` where it is
        /// that of all hosts, and exists.
        own_beside: Option<Vec<Generation>>,
        /// Relation of the images to others.
        building: Building,
        /// How images are compressed.
        compression: Compression,
        /// The key with which they are encrypted, sealed with the job's secret.
        #[serde(with = "serde_bytes")]
        sealed_key: Option<Vec<u8>>,
    },
    /// All images are nearly complete: also copy the memory that was written while others were not.
    Round,
    /// All images are nearly complete: stop the sources.
    Stop,
    /// All bytes sent to or from any process have reached its host.
    Rest,
    /// All sources are stopped: copy the remaining memory.
    Copy,
    /// All memory is copied: let the sources go on.
    GoOn,
    /// The checkpoint was given up: end the helpers, and let the processes go on.
    Abandon,
}

/// Relation of a checkpoint's images to other images.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Building {
    /// Each image has all pages, and none will be built on it.
    #[default]
    Alone,
    /// Each image has all pages, and others may be built on it.
    First,
    /// Each image leaves out pages that this checkpoint's image has, if that exists; others may be built on it.
    On(Generation),
}

/// Compression of images.
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

/// Position in the text of a stream when the image of its process was taken.
///
/// It is at a boundary, so that text printed again is compared with text shown before in whole lines.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SavedText {
    /// Units of the text before `text`: a line each, or a part of one that is very long.
    pub units: u64,
    /// Lines before that boundary.
    pub lines: u64,
    /// Bytes of the line between its begin and that boundary: none, unless the line is very long.
    pub column: u64,
    /// Text printed after it: the unfinished line, and text that other replicas had not agreed to yet.
    #[serde(with = "serde_bytes")]
    pub text: Vec<u8>,
    /// Number of bytes that the process prints next and that are in `text`, or before it, already.
    pub late_bytes: u64,
}

/// Progress of a process's image.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CheckpointStep {
    /// Memory is being sent.
    Progress(Progress),
    /// Little memory is left: the process can be stopped.
    Ready,
    /// The process is stopped; with the position of its output.
    Stopped(Position),
    /// The remaining memory is copied.
    Copied,
    /// The image is on the disk; with its cost, and the steps it took, in order.
    Saved(Cost, Vec<Step>),
    /// There is no image.
    Failed(NoImage),
}

/// A step of taking an image.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Name of the step.
    pub name: String,
    /// Duration in nanoseconds.
    pub ns: u64,
}

/// From `redrun` to the daemon of one host: about the part of a checkpoint that a host has in its own place, and a copy
/// of it elsewhere.
///
/// ```text
/// redrun                     redrtd of the partner           redrtd of the source
///   │ ── Keep ──────────────────▶ │                                │
///   │ ◀── Listening ───────────── │                                │
///   │ ── Give ────────────────────────────────────────────────▶    │
///   │                             │ ◀═════════════════ files ═════ │
///   │ ◀── Kept ────────────────── │                                │
/// ```
/// `Failed` may take the place of any answer, from either daemon.
///
/// A host sends its part to an object store by itself: `Store` is answered by `Moved`, repeatedly, and `Stored`.
///
/// Pieces of a part go to several hosts at once. Each of them gets `Keep`; when all listen the source gets `Cut`, in
/// place of `Give`, and says `Kept` of its own pieces. After a return each host gets `Serve`, and says `Listening`;
/// when all do, each gets `Fetch`.
///
/// Where hosts have the parts, each of them gets `Settle` when the checkpoint is kept, and after a return.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PartOrder {
    /// Prepare to receive these files.
    Keep {
        /// Destination: this host's own directory.
        #[serde(with = "redrt_types::path_bytes")]
        directory: PathBuf,
        /// Checkpoints to keep beside it.
        own_beside: Vec<Generation>,
        /// Names of the files.
        files: Vec<String>,
    },
    /// Send the files to the other daemon.
    Give {
        /// Directory of the files.
        #[serde(with = "redrt_types::path_bytes")]
        directory: PathBuf,
        /// Names of the files, in the same order.
        files: Vec<String>,
        /// Address at which that daemon listens.
        address: SocketAddr,
    },
    /// Put the files into an object store.
    Store {
        /// Directory of the files.
        #[serde(with = "redrt_types::path_bytes")]
        directory: PathBuf,
        /// Names of the files.
        files: Vec<String>,
        /// Prefix of each name in the store.
        prefix: String,
        /// Access to the store, sealed with the job's secret.
        #[serde(with = "serde_bytes")]
        sealed_access: Vec<u8>,
    },
    /// Cut the files into pieces, and pass these on.
    Cut {
        /// Directory of the files, and of this host's own pieces.
        #[serde(with = "redrt_types::path_bytes")]
        directory: PathBuf,
        /// Names of the files.
        files: Vec<String>,
        /// Numbers of data and of parity pieces.
        code: (u8, u8),
        /// Destinations of the pieces. Pieces without one are not kept.
        outlets: Vec<Outlet>,
    },
    /// The checkpoint is kept: keep its manifest. Whole files that there are pieces of are of no more use on this host.
    Settle {
        /// Directory of the job.
        #[serde(with = "redrt_types::path_bytes")]
        job: PathBuf,
        /// Checkpoints whose manifests stay beside this one's.
        beside: Vec<Generation>,
        /// Checkpoints whose whole files pieces replace.
        replaced: Vec<Generation>,
        /// The manifest.
        #[serde(with = "serde_bytes")]
        manifest: Vec<u8>,
        /// Key with which the manifest is encrypted, sealed with the job's secret.
        #[serde(with = "serde_bytes")]
        sealed_key: Option<Vec<u8>>,
    },
    /// Give pieces of checkpoints to other hosts, until all processes are loaded.
    Serve {
        /// Directory of the job.
        #[serde(with = "redrt_types::path_bytes")]
        job: PathBuf,
    },
    /// Fetch the pieces that the launch asks for, and launch.
    Fetch {
        /// Hosts that give pieces, with their addresses.
        servers: Vec<(u32, SocketAddr)>,
    },
}

/// Destination of pieces of a part.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outlet {
    /// Indices of the pieces, in the order of the files that are kept there.
    pub pieces: Vec<u8>,
    /// Address at which the daemon of the other host listens; `None` for the source's own host.
    pub address: Option<SocketAddr>,
}

/// Progress of a copy of such a part, from a daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PartStep {
    /// Files can be sent to this address.
    Listening(SocketAddr),
    /// All files are on the disk here; with their bytes.
    Kept(u64),
    /// Bytes that have gone to the object store so far.
    Moved(u64),
    /// All files are in the object store.
    Stored(Vec<Stored>),
    /// There is no copy.
    Failed(NoImage),
}

/// Log in which a process records its changes of files, so that they can be undone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UndoPlace {
    /// Directory of the log, which it shares with other processes.
    #[serde(with = "redrt_types::path_bytes")]
    pub directory: PathBuf,
    /// The checkpoint from which the log begins.
    pub since: Generation,
    /// True if other hosts have logs of their own. Then this log covers only changes made on this host.
    pub is_of_host: bool,
    /// The log for changes on file systems of other hosts, if there is one.
    pub shared: Option<SharedPlace>,
}

/// A log that hosts with logs of their own share besides.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SharedPlace {
    /// Directory of the log, on all of these hosts.
    #[serde(with = "redrt_types::path_bytes")]
    pub directory: PathBuf,
    /// Number of the host whose processes get this.
    pub host: u32,
}

impl UndoPlace {
    /// The log since a checkpoint whose images are in this directory: beside that.
    #[must_use]
    pub fn beside(checkpoint: &Path, since: Generation, is_of_host: bool) -> Self {
        Self { directory: checkpoint.with_file_name("undo"), since, is_of_host, shared: None }
    }
}

/// Path of the log that the hosts of a job share if each has one of its own. It is in the directory in which the job's
/// program is started, which hosts are likely to share. Programs are not shown names that begin like this.
#[must_use]
pub fn shared_log(directory: &Path, job: u64) -> PathBuf {
    directory.join(format!(".redrt-undo-{job:016x}"))
}

/// Environment variable with the file that tells children of a process the log of changes.
pub const CHILDREN_VARIABLE: &str = "REDRT_UNDO";

/// Path of that file of a user, on each host of a job. A process that goes on on another host knows only this name.
#[must_use]
pub fn told_to_children(job: u64, user: u32) -> PathBuf {
    format!("/tmp/redrt-undo-{user}-{job:016x}").into()
}

/// Checkpoint from which processes are started, in place of the program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Restore {
    /// Number of the checkpoint.
    pub generation: Generation,
    /// Place of each host's own part of the checkpoint, by host number.
    pub places: Vec<Place>,
    /// True if each host has a log of its processes' changes of files, and undoes them.
    pub has_logs_of_hosts: bool,
    /// Files with the memory that the processes of each host share, by host number; empty where lost messages are sent
    /// again.
    #[serde(with = "redrt_types::path_bytes::list")]
    pub memories: Vec<PathBuf>,
    /// Objects that hosts get from the object store first, if any.
    pub objects: Option<Objects>,
    /// Parts that each host makes of pieces first, by host number; empty where hosts have no pieces.
    pub parts: Vec<Vec<WantedPart>>,
    /// Key of encrypted parts, sealed with the job's secret; `None` without encryption.
    #[serde(with = "serde_bytes")]
    pub sealed_key: Option<Vec<u8>>,
    /// Image of each process, by process number; `None` for places that stay free.
    pub images: Vec<Option<Image>>,
}

impl Restore {
    /// The log for processes of a host, which shares `shared` with other hosts. `None` for a host that came later: it
    /// has no place.
    #[must_use]
    pub fn undo(&self, host: u32, shared: Option<SharedPlace>) -> Option<UndoPlace> {
        let directory = &self.places.get(host as usize)?.directory;
        let shared = shared.filter(|_| self.has_logs_of_hosts);
        Some(UndoPlace { shared, ..UndoPlace::beside(directory, self.generation, self.has_logs_of_hosts) })
    }
}

/// Objects that hosts get from the object store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Objects {
    /// Access to the store, sealed with the job's secret.
    #[serde(with = "serde_bytes")]
    pub sealed_access: Vec<u8>,
    /// Objects that each host needs, by host number.
    pub wanted: Vec<Vec<ObjectEntry>>,
}

/// Files of a part that a host makes of pieces.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WantedPart {
    /// The checkpoint.
    pub generation: Generation,
    /// Host number of the part's owner, at the checkpoint.
    pub source: u32,
    /// Numbers of data and of parity pieces.
    pub code: (u8, u8),
    /// Pieces that can be had.
    pub pieces: Vec<PiecePlace>,
    /// Directory for the files.
    #[serde(with = "redrt_types::path_bytes")]
    pub directory: PathBuf,
    /// Names of the files.
    pub files: Vec<String>,
}

/// Place of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PiecePlace {
    /// Index of the piece.
    pub index: u8,
    /// Number that the host with the piece had at the checkpoint. Its directory has this number.
    pub holder: u32,
    /// Number that this host has now.
    pub host: u32,
}

/// Place of a host's own part of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// The directory.
    #[serde(with = "redrt_types::path_bytes")]
    pub directory: PathBuf,
    /// True if processes of this host were saved: then the length of its log of changes is in the directory.
    pub has_sources: bool,
}

/// The image that a process goes on from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Image {
    /// Path of the image, on the host of that process.
    #[serde(with = "redrt_types::path_bytes")]
    pub path: PathBuf,
    /// Positions of its source's standard streams.
    pub position: Position,
}

/// Path of the image of a rank.
#[must_use]
pub fn image_path(directory: &Path, rank: VirtualRank) -> PathBuf {
    directory.join(format!("{}.image", rank.0))
}

/// Path of the list of an image's pages, beside it, for later images to be built on it.
#[must_use]
pub fn pages_path(image: &Path) -> PathBuf {
    image.with_extension("pages")
}

/// Path of the file with the length that a host's log of changes had at the checkpoint.
#[must_use]
pub fn cut_path(directory: &Path, host: u32) -> PathBuf {
    directory.join(format!("host-{host}.undo"))
}

/// Path of the memory that the processes of a host share.
#[must_use]
pub fn memory_path(directory: &Path, host: u32) -> PathBuf {
    directory.join(format!("host-{host}.memory"))
}
