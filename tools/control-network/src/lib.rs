//! The control network: connections between `redrun`, its daemons and a pool of spares, how daemons are started, and
//! streams of messages that survive when a connection of the tree breaks.

#[cfg(test)]
mod cost;
pub mod door;
pub mod follower;
pub mod handing;
pub mod hub;
pub mod identity;
pub mod job_steps;
pub mod launcher;
pub mod launchers;
pub mod link;
pub mod munge;
mod quota;
pub mod session;
