//! Models of what protection costs and what it saves: closed forms, a seeded simulation, and a choice among
//! configurations.
//!
//! Nothing here does I/O. Times that one function takes have one unit, which the caller chooses; where a name ends in
//! `_s` it is seconds. Failures are independent and Poisson unless a function says otherwise.
//!
//! | Module | Answers |
//! |---|---|
//! | [`interval`] | how often to checkpoint, and the time that then results |
//! | [`first_point`] | from when on a checkpoint pays at all |
//! | [`spare_choice`], [`room`] | a spare, or go on with fewer nodes |
//! | [`overhead`], [`cloning`], [`sphere`], [`spheres`] | time at redundancy r, with clones or without, in part |
//! | [`clusters`] | who rolls back with whom, and who shares a code |
//! | [`policy`], [`simulation`] | the time of a job under all of it, in closed form and by Monte Carlo |
//! | [`profile`], [`site`], [`advise`] | what is known of a program and site, and which protection suits it |
//! | [`exposure`], [`capacity`], [`detection`], [`checksum`] | windows, node hours, failure detectors, checksums |
//!
//! The models are those of published papers. Where a paper's own formula is wrong, [`Version`] chooses between what it
//! printed and what is right; `tests/` has each paper's tables both ways.

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
pub mod overhead;
pub mod policy;
pub mod profile;
pub mod regions;
pub mod room;
pub mod simulation;
pub mod site;
pub mod spare_choice;
pub mod sphere;
pub mod spheres;

/// Which form of an equation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Version {
    /// What the paper printed, and its tables were made with.
    AsPublished,
    /// What follows from the paper's own assumptions.
    #[default]
    Corrected,
}

/// Seconds in an hour.
pub const HOUR_S: f64 = 3600.0;
