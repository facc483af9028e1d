//! Whole jobs of real processes; see `redrt_tests`.

mod endings;
mod faults;
mod programs;
