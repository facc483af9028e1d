//! What `redctl` does that takes more than a question to a job.

pub mod ask;
pub mod checkpoints;
pub mod debug;
pub mod list;
pub mod pool;
mod program;
pub mod status;
pub mod top;

pub use program::main;
