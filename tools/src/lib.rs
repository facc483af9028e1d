//! The programs around the library: `redrun` starts a job and coordinates it, `redrtd` holds its processes on one host.

pub mod cli;
pub mod coordinator;
pub mod hosts;
pub mod interface;
pub mod jobs;
pub mod link;
pub mod plan;
pub mod pool;
mod prompt;
pub mod redclone;
pub mod redrtd;
pub mod redrun;
pub mod redspared;
pub mod stdio;
pub mod tree;
