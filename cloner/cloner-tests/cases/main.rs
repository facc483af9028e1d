//! Clones of real processes.

mod failures;
mod hosts;
mod programs;
mod refusals;
mod secure;
mod soft_dirty;
mod torture;
