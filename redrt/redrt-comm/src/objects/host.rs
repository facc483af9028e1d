//! Facts about the process for its objects: rank, error handlers and attributes of its communicators, its end.
//!
//! `MPI_Init` installs a [`Host`]. Until then, and in tests, the host is a world of one process, since a part of MPI
//! may be called before `MPI_Init` (MPI-5.0 section 11.4).

use crate::objects::attached::Attached;
use crate::objects::errhandler::Errhandler;
use redrt_abi::error::Scope;
use redrt_abi::{MPI_APPNUM, MPI_TAG_UB, MPI_UNIVERSE_SIZE, MPI_WTIME_IS_GLOBAL};
use redrt_process::say;
use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

/// Facts about the process, for its objects. All methods may be called from any thread.
pub trait Host: Send + Sync {
    /// Error handler and attributes of a communicator, window, file or session; `None` when the handle is invalid.
    /// Callers ask for `MPI_COMM_SELF` in place of `Scope::Default`.
    fn attached(&self, scope: Scope) -> Option<Arc<Attached>>;

    /// This process's rank in `MPI_COMM_WORLD`.
    fn rank(&self) -> u32;

    /// Number of processes in `MPI_COMM_WORLD`.
    fn world_size(&self) -> u32;

    /// Name of this process, for the head of a message: `redrt: rank 3 (replica 3.1) on node7`.
    fn identity(&self) -> String;

    /// Ends the processes of `scope` with exit code `code`: those of a communicator, or all for anything else.
    fn abort(&self, scope: Scope, code: c_int) -> !;

    /// Reports a call that cannot be served here, if the program's error handler does not.
    fn unsupported(&self, function: &str, why: &str);

    /// Shows one line to the user.
    fn report(&self, line: &str) {
        say(line);
    }

    /// `MPI_Get_processor_name`; the same in all replicas of a rank.
    fn processor_name(&self) -> String;

    /// `MPI_Wtime`, in seconds; the same in all replicas of a rank.
    fn wtime(&self) -> f64;

    /// `MPI_Wtick`, in seconds.
    fn wtick(&self) -> f64 {
        1e-9
    }

    /// The value of a predefined attribute of a communicator (`MPI_TAG_UB`…), `None` when it is not set.
    fn predefined_attribute(&self, keyval: c_int) -> Option<c_int>;
}

/// Largest tag that a program may use: `MPI_TAG_UB`.
pub const TAG_MAX: c_int = c_int::MAX;

process_local! {
    static HOST: OnceLock<Box<dyn Host>> = OnceLock::new();
}

/// Makes `host` the host of this process. Only the first call has an effect; returns true for it.
pub fn install(host: Box<dyn Host>) -> bool {
    let first = HOST.set(host).is_ok();
    // A simulation catches panics of its processes.
    if first && cfg!(not(any(test, feature = "simulation"))) {
        std::panic::set_hook(Box::new(report_panic));
    }
    first
}

/// Reports a panic, with the process and the place. A panic is a bug of the library. It ends the process, because it
/// cannot unwind into the program.
fn report_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("no message");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let host = get();
    host.report(&format!("{}: internal error at {place}: {message}", host.identity()));
}

/// The host of this process.
#[must_use]
pub fn get() -> &'static dyn Host {
    match HOST.get() {
        Some(host) => &**host,
        None => &Alone,
    }
}

/// A process without a job, before `MPI_Init`.
struct Alone;

/// Calls before `MPI_Init`, or after `MPI_Finalize`, use the initial error handler of communicators.
fn initial() -> Arc<Attached> {
    Arc::new(Attached::with_errhandler(Arc::new(Errhandler::initial())))
}

impl Host for Alone {
    fn attached(&self, scope: Scope) -> Option<Arc<Attached>> {
        process_local! {
            static INITIAL: OnceLock<Arc<Attached>> = OnceLock::new();
        }
        match scope {
            Scope::Default | Scope::Comm(_) => Some(Arc::clone(INITIAL.get_or_init(initial))),
            Scope::Win(_) | Scope::File(_) | Scope::Session(_) => None,
        }
    }

    fn rank(&self) -> u32 {
        0
    }

    fn world_size(&self) -> u32 {
        1
    }

    fn identity(&self) -> String {
        format!("redrt: process {} on {}", std::process::id(), self.processor_name())
    }

    fn unsupported(&self, function: &str, why: &str) {
        self.report(&format!("{}: {function}: {why}", self.identity()));
    }

    fn abort(&self, _scope: Scope, code: c_int) -> ! {
        std::process::exit(if code == 0 { 1 } else { code })
    }

    fn processor_name(&self) -> String {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
        name.map_or_else(|_| "localhost".to_owned(), |name| name.trim_end().to_owned())
    }

    fn wtime(&self) -> f64 {
        redrt_runtime::clock::wtime()
    }

    fn predefined_attribute(&self, keyval: c_int) -> Option<c_int> {
        match keyval {
            MPI_TAG_UB => Some(TAG_MAX),
            MPI_WTIME_IS_GLOBAL => Some(0),
            MPI_UNIVERSE_SIZE => Some(1),
            MPI_APPNUM => Some(0),
            _ => None,
        }
    }
}
