//! The journal of a job's coordinator: records are written before their consequences leave the process, so that another
//! process can continue where this one was killed.
//!
//! The journal survives the end of the writing process at any instruction: bytes that `write` has taken are in the page
//! cache, and stay. Nothing is synchronized with the disk. The loss of the host is not covered by this crate.
//!
//! ```text
//!   file    ┌────────┬──────────┬────────┬────────┬─ ─ ─ ─
//!           │ header │ begin    │ record │ record │ torn
//!           └────────┴──────────┴────────┴────────┴─ ─ ─ ─
//!   header  magic 8 bytes · version u32 · 0 u32                               little-endian
//!   record  length u32 · check of the length u32 · digest u64 · bytes
//! ```
//! * The first record tells how the job began; it is there from the first moment.
//! * Both checks include the record's number, so a lost, repeated or moved record is found.
//! * A record that is cut off by the end of the file was being written: it is left out, and nothing can have followed
//!   from it. Any other mismatch is [`Unreadable`]: something may have followed from the missing part.
//! * The meaning of records is up to their writer.
//!
//! [`frame`] maps bytes to records without files. [`mod@file`] has the file.
#![forbid(unsafe_code)]

pub mod file;
pub mod frame;

pub use frame::Unreadable;

#[cfg(test)]
mod fuzz;
