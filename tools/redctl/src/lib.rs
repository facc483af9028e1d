//! `redctl`: looks at a running job and changes it, from any of its hosts.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod checkpoints;
mod debug;
mod list;
mod pool;
mod program;
mod top;

pub use program::main;
