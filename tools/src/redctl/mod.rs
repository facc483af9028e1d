//! What `redctl` does that takes more than a question to a job.

pub mod pool;
