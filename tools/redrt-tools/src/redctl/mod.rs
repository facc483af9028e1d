//! What `redctl` does that takes more than a question to a job.

pub mod checkpoints;
pub mod debug;
pub mod list;
pub mod pool;
mod program;
pub mod top;

pub use program::main;
