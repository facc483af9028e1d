//! Which hosts a job uses, which processors each of its processes, and on which hosts it goes on from a line.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod homes;
pub mod places;
pub mod plan;
pub mod topology;
