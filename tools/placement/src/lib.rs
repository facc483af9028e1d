//! Hosts of a job, processors of its processes, and hosts on which it continues from a checkpoint.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod homes;
pub mod places;
pub mod plan;
pub mod topology;
