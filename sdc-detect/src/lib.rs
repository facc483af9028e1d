//! Detects silent data corruption in messages: payloads and digests in, verdicts out.
//!
//! - [`digest`](mod@digest): bytes of a message → [`Digest`](redrt_types::Digest)
//! - [`vote`]: votes of a sender's replicas on one message → [`Verdict`]
//! - [`evidence`]: two payloads that should be the same → where and how they differ
//! - [`tally`]: collects the votes until all live replicas have voted
//!
//! Pure: it neither sends nor waits. `quiesce` decides the consequence of a verdict.
#![forbid(unsafe_code)]

pub mod digest;
pub mod evidence;
pub mod tally;
pub mod vote;

pub use digest::{DigestStream, digest};
pub use evidence::{Difference, Element, Sketch, difference};
pub use tally::Tally;
pub use vote::{Verdict, Vote, agreed, judge};
