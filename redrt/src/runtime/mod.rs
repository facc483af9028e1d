//! What a process knows of its job, and what is below its MPI calls: threads, the control connection, its end.

#[path = "../../redrt-preload/src/files/call.rs"]
pub mod call;
pub mod calls;
pub mod control;
pub mod leave;
#[path = "../../redrt-preload/src/lock_events.rs"]
pub mod lock_events;
pub mod preload;
pub mod progress;
pub mod signals;
pub mod threads;
#[path = "../../redrt-preload/src/turn.rs"]
pub mod turn;
pub mod workers;

pub use leave::{abort, unable};

use control::Control;
use redrt_wire::control::{Verification, Welcome};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What this process was told about the job.
pub struct Job {
    /// The daemon's welcome, or an equivalent for a program started by itself.
    pub welcome: Welcome,
    /// The connection to the daemon; `None` for a program started by itself.
    pub control: Option<&'static Control>,
}

impl Job {
    /// Whether processes may open each other's memory: not where replicas of a rank are on different hosts, nor where
    /// each process is in a process-id namespace of its own, to be saved.
    pub fn may_share_memory(&self) -> bool {
        !self.welcome.world.is_replicated() && !self.welcome.options.is_saved
    }

    /// Whether ranks can have windows that they share.
    pub fn has_shared_windows(&self) -> bool {
        self.may_share_memory() || self.welcome.windows.is_some() && !self.refuses_windows()
    }

    /// Deferred verification lets ranks go on with what one replica has sent, while the leader of its rank may be
    /// behind: no window spans several ranks.
    pub fn refuses_windows(&self) -> bool {
        self.welcome.world.is_replicated() && self.welcome.options.verification == Verification::Deferred
    }

    /// What it is after this welcome.
    pub fn new(welcome: Welcome, control: Option<&'static Control>) -> Self {
        Self { welcome, control }
    }
}

process_local! {
    /// Changes once in a copy of the process, before its threads go on.
    static JOB: AtomicPtr<Job> = AtomicPtr::new(std::ptr::null_mut());
}

/// The job of this process, `None` before `MPI_Init`.
pub fn job() -> Option<&'static Job> {
    // SAFETY: - null, or what `set_job` has leaked.
    unsafe { JOB.load(Ordering::Acquire).as_ref() }
}

/// Whether what the standard does not define is refused, also where MPICH and Open MPI both accept it.
pub fn is_pedantic() -> bool {
    job().is_some_and(|job| job.welcome.options.pedantic)
}

/// The process belongs to this job from now on.
pub fn set_job(job: Job) -> &'static Job {
    let job = Box::leak(Box::new(job));
    JOB.store(job, Ordering::Release);
    job
}

/// Whether this is the number of a descriptor that is not open.
pub fn is_closed(fd: RawFd) -> bool {
    // SAFETY: - asks for a flag; any number may be asked about.
    fd >= 0 && unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0
}
