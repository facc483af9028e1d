//! Data learned about programs and hosts, on this user's disk, and figures derived from it: the input of advice for
//! `redplan`, and for `redrun`, which chooses by it.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod given;
pub mod site;
pub mod store;

/// A needed value is neither given nor learned. The text, of one line, says which to give.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unknown(pub String);
