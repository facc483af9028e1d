//! What the processes of a job change in the file system, written down so that it can be taken back.
//!
//! ```text
//!   process ── Change ──▶ Recorder ──▶ Record ──▶ log, one for all     then the change itself is made
//!                            │                      │
//!                            └─ links, old bytes    └── newest first ──▶ undo ──▶ the files as they were at a cut
//! ```
//! Before a change its *pre-image* is written down: what is at the place that is about to change. There is one log for
//! all processes, in the order in which records were added, and each record is there before its change is made. So of
//! several records of one place the first has what was there at the cut: whoever wrote it read it before anybody had
//! changed it. Undo goes through the log from its end to the cut, and puts back what each record says. What comes last
//! is right, however many processes wrote to one file, and in whatever order.
//!
//! A *cut* is a length of the log at a moment at which nobody is between a record and its change. Who calls the
//! recorder sees to that.
//!
//! Records have digests, and so have the bytes that were saved. All are compared before anything is put back: of a log
//! that is damaged nothing is.
//!
//! Each record can be put back twice, and is taken from the log when it was: undo that is interrupted goes on.
//!
//! Files are held by hard links in the directory of the log, so that a file is found whatever becomes of its names, and
//! its inode's number is not given to another. Where there are no such links, as in another file system, it is found by
//! its name and number, and what is removed is copied.
//!
//! Where hosts have logs of their own, they have one more for the file systems that they share: [`SharedLog`].
//!
//! This crate knows nothing of MPI. Who is asked to record, and when files are to be put back, is others' business.

#![forbid(unsafe_code)]

mod attributes;
mod directory;
mod disk;
mod files;
mod frame;
mod known;
mod mounts;
mod record;
mod recorder;
mod shared;
mod undo;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use directory::{Cut, Directory, Undone};
pub use disk::{Disk, Means, device_of};
pub use files::{Files, Kind, Seen, Subject};
pub use known::BLOCK_BYTES;
pub use record::{About, FileKey};
pub use recorder::{Change, Recorder};
pub use shared::{SharedLog, Sharing};
