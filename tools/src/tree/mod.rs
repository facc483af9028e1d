//! The tree of daemons below `redrun`: the connections it is made of, and streams of messages that survive when
//! one of them breaks. Both `redrun` and `redrtd` are built on it.

#[cfg(test)]
mod cost;
pub mod door;
pub mod handing;
pub mod hub;
pub mod launcher;
mod quota;
pub mod session;
