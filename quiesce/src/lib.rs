//! The replication protocol of one process, and MPI matching, as pure state machines: no I/O, no clock, no thread, no
//! randomness.
//!
//! - [`matching`]: which message goes to which receive.
#![forbid(unsafe_code)]

pub mod matching;
