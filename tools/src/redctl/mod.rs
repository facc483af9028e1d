//! What `redctl` does that takes more than a question to a job.

pub mod checkpoints;
pub mod pool;
