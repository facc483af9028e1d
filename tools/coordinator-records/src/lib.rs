//! State that a coordinator leaves to its successor: a journal, a quorum with copies on other hosts, and pipes that
//! stay open.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod ledger;
pub mod pipe_holder;
pub mod quorum;
