//! Whole jobs of real processes; see `redrt_tests`.

mod clocks;
mod corrupt;
mod endings;
mod faults;
mod programs;
mod recovery;
