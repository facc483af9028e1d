//! A process of a job, below its messages: what it has once, its clock, how its threads make room for others, and its
//! simulation.

#[macro_use]
mod local;

pub mod clock;
pub mod pause;
pub mod simulation;

#[cfg(any(test, feature = "simulation"))]
pub use local::{Local, Process};
