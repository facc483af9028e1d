//! Undo log for the changes that the processes of a job make in the file system.
//!
//! ```text
//!   process ── Change ──▶ Recorder ──▶ Record ──▶ log, one for all     then the change itself is made
//!                            │                      │
//!                            └─ links, old bytes    └── newest first ──▶ undo ──▶ the files as they were at a cut
//! ```
//! The *pre-image* of a change is recorded before the change: the previous content of the place. One log has the
//! records of all processes, in the order in which they were added. Of several records of one place, the first has the
//! content at the cut, because its author read it before anyone changed it. Undo goes through the log from its end to
//! the cut and puts every pre-image back. So the oldest one is put back last, and it is the right one, however many
//! processes wrote to a file, in whatever order.
//!
//! A *cut* is a length of the log at a moment when no process is between a record and its change. The caller of the
//! recorder guarantees that.
//!
//! Records and saved bytes have digests, which are all checked first: nothing is put back from a damaged log.
//!
//! Putting back a record twice is harmless, and each is removed from the log afterwards: an interrupted undo can be
//! continued.
//!
//! Files are held by hard links in the directory of the log. So a file is found whatever happens to its names, and its
//! inode number is not reused. Where such links are impossible, as on another file system, a file is found by name and
//! number, and the content of removed files is copied.
//!
//! Where hosts have logs of their own, one more log covers the file systems that they share: [`SharedLog`].
//!
//! This crate knows nothing of MPI. The caller decides which process records, and when files are put back.

#![forbid(unsafe_code)]

mod attributes;
mod directory;
mod disk;
mod files;
mod frame;
mod mounts;
mod record;
mod recorded_changes;
mod recorder;
mod shared;
mod undo;

#[cfg(any(test, feature = "simulation"))]
mod model;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;

pub use directory::{Cut, Directory, Undone};
pub use disk::{Disk, Means, device_of};
pub use files::{FileKind, Files, Seen, Subject};
pub use record::{About, FileKey};
pub use recorded_changes::BLOCK_BYTES;
pub use recorder::{Change, Recorder};
pub use shared::{SharedLog, Sharing};
