//! Client side of a pool of spare hosts that jobs share, a `redspared`; a job uses [`Client`].

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod access;
mod ask;
pub mod client;
pub mod facts;
#[cfg(test)]
mod fuzz;
pub mod identity;
pub mod refusal;
pub mod wire;

pub use ask::ask;
pub use client::Client;
