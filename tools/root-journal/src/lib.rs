//! The journal of a job's root: records that are written before what follows from them leaves the process, so that
//! another process can go on where this one was when it was killed.
//!
//! What it withstands is the end of the process that writes, at any instruction: what `write` has taken is in the page
//! cache, and stays. Nothing is synchronized with the disk. The loss of the host is no matter of this crate.
//!
//! ```text
//!   file    ┌────────┬──────────┬────────┬────────┬─ ─ ─ ─
//!           │ header │ begin    │ record │ record │ torn
//!           └────────┴──────────┴────────┴────────┴─ ─ ─ ─
//!   header  magic 8 bytes · version u32 · 0 u32                               little-endian
//!   record  length u32 · check of the length u32 · digest u64 · bytes
//! ```
//! * The first record says how it begins; it is there from the first moment.
//! * Both checks include the number of the record, so one that was lost, repeated or moved is found.
//! * A record that is shorter at the end of the file than it says was being written: it is left out, and nothing can
//!   have followed from it. Everything else that does not fit is [`Unreadable`]: something may have followed from what
//!   is missing.
//! * What records mean is their writer's.
//!
//! [`frame`] is bytes in, records out, and knows no files. [`mod@file`] has the file.
#![forbid(unsafe_code)]

pub mod file;
pub mod frame;

pub use frame::Unreadable;

#[cfg(test)]
mod fuzz;
