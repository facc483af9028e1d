//! Files of checkpoints outside of their store: in an object store, and the program's own files, put back as they were.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod remote;
pub mod undo;
