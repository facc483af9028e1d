//! The ways to a pool of spare hosts that jobs share, a `redspared`: a job's ([`Client`]) and `redctl pool`'s ([`control`]).

pub mod access;
pub mod client;
pub mod control;
pub mod facts;
pub mod identity;
pub mod wire;

pub use client::Client;
