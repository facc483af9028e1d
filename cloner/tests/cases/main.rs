//! Clones of real processes.

mod failures;
mod programs;
mod refusals;
mod torture;
