//! The audit log: events of a job, one JSON record a line. A later change of any record can be detected.
//!
//! ```text
//! {"v":1,"n":17,"time":"2026-03-01T12:00:00.000123Z","event":"replica-lost","host":"h2",…,"chain":"8d0f…"}
//!    │     └ number in the file, from 0                       of this record and the chain before it ┘
//!    └ form of the records
//! ```
//! - [`chain`]: the digest that ties each record to all before it
//! - [`heads`]: where ends of logs are noted outside of them, and compared with them later
//! - `lock`: one job writes at a time
//! - [`log`]: writes, and keeps the end of a file that others may have left in the middle of a line
//! - [`read`]: reads and verifies
//! - [`recorder`]: the thread that a job's log is written by
//! - [`time`](mod@time): moments as text
//!
//! A file may hold several jobs, one after another. A cut end shows as a job without its last record, or by comparison
//! with the *head*: number and digest of the last record, which `redrun` prints at its end.

#![forbid(unsafe_code)]

pub mod chain;
#[cfg(test)]
mod fuzz;
pub mod heads;
mod lock;
pub mod log;
pub mod read;
pub mod recorder;
pub mod time;

/// Version of the records' format, their field `v`. It grows when a field changes its meaning; new fields and events do
/// not count.
pub const VERSION: u64 = 1;

/// First record of a job.
pub const JOB_START: &str = "job-start";
/// Last record of a job.
pub const JOB_END: &str = "job-end";
/// Record before the end of a log that has lost records, if no other follows.
pub const RECORDS_LOST: &str = "records-lost";
/// Record after an incomplete line: length and digest of that line.
pub const RESUMED: &str = "log-resumed";
