//! Parts that simulators have in common. A simulator plays machines, their network and faults on one thread, and draws
//! everything from one seed, so that the same seed is the same run on any machine.
//!
//! | Part | Module |
//! |---|---|
//! | chance, with streams of their own | [`random`] |
//! | names of kinds of faults, and of planted mistakes | [`Named`], [`named!`] |
//! | what happens next: events and faults planned for a time, places that lag, standstills | [`schedule`] |
//! | links that keep their order | [`network`] |
//! | lines that a run shows, made only where somebody reads them | [`trace`] |
//! | a simulator, and the tests that go over seeds | [`Simulator`], [`sweep`] |
//! | any simulator by name and words: `redrt sim NAME SEED` | [`replay`], [`Refusal`] |
//!
//! Not here: machines, programs, invariants. These differ in each simulator.

#![forbid(unsafe_code)]

mod failure;
mod named;
pub mod network;
pub mod random;
pub mod replay;
pub mod schedule;
mod simulator;
pub mod sweep;
#[cfg(test)]
mod tests;
pub mod trace;

pub use failure::{Refusal, Violation, parsed};
pub use named::{Named, Nothing};
pub use random::Random;
pub use simulator::{Setup, Simulator};
pub use trace::Trace;

/// The page about simulators, whose example is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../docs/simulation.md")]
struct Page;
