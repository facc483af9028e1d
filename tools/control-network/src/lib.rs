//! The control network: connections between `redrun`, its daemons and a pool of spares, the start of daemons, and
//! streams of messages that survive broken connections of the tree.

pub mod asking;
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
