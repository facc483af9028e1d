//! Cost and benefit of protection against failures: closed forms, a seeded simulation, and a ranking of configurations.
//!
//! This crate does no I/O. All times of one function have the same unit, chosen by the caller; names ending in `_s` are
//! in seconds. Failures are independent and Poisson unless a function states otherwise.
//!
//! | Module | Answers |
//! |---|---|
//! | [`interval`] | how often to checkpoint, and the resulting time |
//! | [`first_point`] | from which point on a checkpoint pays at all |
//! | [`spare_choice`], [`memory`] | whether to use a spare, or to continue on fewer nodes |
//! | [`overhead`], [`cloning`], [`sphere`], [`spheres`] | time at redundancy r, with and without clones, or with
//! partial replication |
//! | [`clusters`] | which ranks roll back together, and which share an erasure code |
//! | [`policy`], [`simulation`] | time of a job under a complete policy, in closed form and by Monte Carlo |
//! | [`profile`], [`site`], [`advise`] | measured facts of a program and a site, and the protection that suits them |
//! | [`exposure`], [`capacity`], [`detection`], [`checksum`] | windows, node hours, failure detectors, checksums |
//!
//! The models are those of published papers. Where a published formula is wrong, [`Version`] selects it or its
//! correction; `tests/` has the tables of each paper in both versions.

#![forbid(unsafe_code)]

pub mod advise;
pub mod capacity;
pub mod checksum;
pub mod cloning;
pub mod clusters;
pub mod detection;
pub mod exposure;
pub mod first_point;
pub mod interval;
pub mod memory;
pub mod overhead;
pub mod policy;
pub mod profile;
pub mod regions;
pub mod simulation;
pub mod site;
pub mod spare_choice;
pub mod sphere;
pub mod spheres;

/// Version of an equation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Version {
    /// As printed in the paper, and used for its tables.
    AsPublished,
    /// As it follows from the paper's own assumptions.
    #[default]
    Corrected,
}

/// Seconds in an hour.
pub const HOUR_S: f64 = 3600.0;
