//! What was learned of programs and hosts, on this user's disk, and what it comes to: the input of advice, for
//! `redplan` and for `redrun`, which chooses by it.

pub(crate) mod given;
pub(crate) mod site;
pub(crate) mod store;

/// Something that is needed is neither told nor learned, in one line that says what to tell.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unknown(pub(crate) String);
