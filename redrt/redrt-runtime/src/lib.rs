//! The process in its job: the base of a program's MPI calls.
//!
//! ```text
//!   a call ──▶ threads           its number and order, signals that are due
//!          ──▶ decide            an outcome that all replicas of the rank have, by way of the engine
//!                └─ clock, turns, locks: times, threads of an interpreter, locks and posts
//!   daemon ──▶ control ──▶ job   the welcome; the end by `leave`
//!   peers  ──▶ links             connections that are opened and accepted
//! ```
//! Beside them: `undo` for changes of files, `scrub` for comparisons of memory, `faults` to inject, and `callbacks`
//! into the program. Nothing here depends on communicators, windows or files of MPI.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[macro_use]
extern crate redrt_process;

#[path = "../../redrt-preload/src/files/call.rs"]
pub mod call;
pub mod callbacks;
pub mod calls;
pub mod clock;
pub mod control;
pub mod decide;
pub mod events;
pub mod faults;
pub mod leave;
pub mod links;
#[path = "../../redrt-preload/src/lock_events.rs"]
mod lock_events;
pub mod locks;
pub mod mutation;
pub mod preload;
pub mod progress;
pub mod scrub;
pub mod threads;
#[path = "../../redrt-preload/src/turn.rs"]
mod turn;
pub mod turns;
pub mod undo;
pub mod workers;

pub use leave::{abort, unable};

use control::Control;
use redrt_wire::control::{Verification, Welcome};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The job, as the daemon has described it to this process.
pub struct Job {
    /// The daemon's welcome, or an equivalent for a program started by itself.
    pub welcome: Welcome,
    /// The connection to the daemon; `None` for a program started by itself.
    pub control: Option<&'static Control>,
}

impl Job {
    /// Returns true if processes may open each other's memory. Not if replicas of a rank are on different hosts, nor if
    /// each process is in a process-id namespace of its own, for checkpoints.
    pub fn may_share_memory(&self) -> bool {
        !self.welcome.world.is_replicated() && !self.welcome.options.is_saved
    }

    /// Returns true if ranks can have windows that they share.
    pub fn has_shared_windows(&self) -> bool {
        self.may_share_memory() || self.welcome.windows.is_some() && !self.refuses_windows()
    }

    /// Returns true if no window may span several ranks. With deferred verification, ranks go on with a message of one
    /// replica while the leader of its rank may be behind.
    pub fn refuses_windows(&self) -> bool {
        self.welcome.world.is_replicated() && self.welcome.options.verification == Verification::Deferred
    }

    /// The job of this welcome. `control` is `None` for a program started by itself.
    pub fn new(welcome: Welcome, control: Option<&'static Control>) -> Self {
        Self { welcome, control }
    }
}

process_local! {
    /// Null before `MPI_Init`. Changes once in a copy of the process, before its threads go on.
    static JOB: AtomicPtr<Job> = AtomicPtr::new(std::ptr::null_mut());
}

/// The job of this process, `None` before `MPI_Init`.
pub fn job() -> Option<&'static Job> {
    // SAFETY: - null, or valid for ever and never written to again: `set_job` has leaked it.
    unsafe { JOB.load(Ordering::Acquire).as_ref() }
}

/// Returns true if undefined uses of MPI are refused, also where MPICH and Open MPI both accept them.
pub fn is_pedantic() -> bool {
    job().is_some_and(|job| job.welcome.options.pedantic)
}

/// Makes this the job of the process. The job before it, if any, stays in memory: references to it may be in use.
pub fn set_job(job: Job) -> &'static Job {
    let job = Box::leak(Box::new(job));
    JOB.store(job, Ordering::Release);
    job
}

/// Returns true if the number could be a descriptor's, and no file is open under it.
pub fn is_closed(fd: RawFd) -> bool {
    // SAFETY: - touches no memory: F_GETFD takes no pointer, and an invalid number is an error.
    fd >= 0 && unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0
}
