//! Detects silent data corruption in messages: payloads and digests in, verdicts out.
//!
//! - [`digest`](mod@digest): bytes of a message → [`Digest`](redrt_types::Digest)
//! - [`vote`]: what the replicas of a sender say of one message → [`Verdict`]
//! - [`evidence`]: two payloads that should be the same → where and how they differ
//! - [`tally`]: collects what they say until all who live have spoken
//!
//! Pure: it neither sends nor waits. What is done about a verdict is decided in `quiesce`.
#![forbid(unsafe_code)]

pub mod digest;
pub mod evidence;
pub mod tally;
pub mod vote;

pub use digest::{DigestStream, digest};
pub use evidence::{Difference, Element, Sketch, difference};
pub use tally::Tally;
pub use vote::{Verdict, Vote, agreed, judge};
