//! What a root leaves to the one that goes on in its place: a ledger, a council that has it on other hosts, and pipes
//! that stay open.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod council;
pub mod keeper;
pub mod ledger;
