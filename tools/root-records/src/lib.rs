//! State that a root leaves to its successor: a journal, a council with copies on other hosts, and pipes that stay
//! open.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod council;
pub mod keeper;
pub mod ledger;
