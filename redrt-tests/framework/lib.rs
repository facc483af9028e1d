//! Whole jobs on this machine: the programs of `redrt-tests/programs`, compiled by the `mpicc` that is tested and run
//! by the `redrun` that is tested, with and without faults.
//!
//! [`Job`] describes one job and [`Ended`] its outcome; after each, nothing of it may be left on the machine.
//! [`campaign`] runs many jobs with faults and makes a table of them. [`lab`] makes hosts for jobs that use several,
//! and [`quorum`] follows a job whose root moves between them.

mod alone;
mod breadth;
mod browser;
pub mod campaign;
pub mod changing;
mod control;
mod disk;
pub mod injection;
mod job;
pub mod lab;
mod marked;
mod memory;
mod prefix;
mod programs;
pub mod quorum;
mod random;

pub use breadth::{breadth, slowness};
pub use browser::Browser;
pub use disk::Disk;
pub use job::{Ended, Job, Mismatch, Running, parent, report};
pub use lab::Lab;
pub use marked::{MARK, kill_marked, marked};
pub use memory::MemoryGroup;
pub use prefix::{prefix, root};
pub use programs::{Program, compile, compile_case, compile_source};
pub use random::Random;
