//! What was learned of programs and hosts, on this user's disk, and what it comes to: the input of advice, for
//! `redplan` and for `redrun`, which chooses by it.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod given;
pub mod site;
pub mod store;

/// Something that is needed is neither told nor learned, in one line that says what to tell.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unknown(pub String);
