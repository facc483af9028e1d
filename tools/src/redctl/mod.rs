//! What `redctl` does that takes more than a question to a job.

pub mod ask;
pub mod checkpoints;
pub mod pool;
pub mod top;
