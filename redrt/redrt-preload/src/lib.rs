//! `libredrt_preload.so`: makes the replicas of a rank see the same clocks, random bytes, process id and host name.
//!
//! Loaded by `LD_PRELOAD` into every process of a replicated job, from the first instruction on, because a program may
//! load the MPI library late (Python does) and have drawn its hash seed long before.
//!
//! ```text
//!                         before MPI_Init                       after it
//!  clocks                 a sequence from the job's start       the library's answer (a decision of the leader)
//!  counts of the system   0                                     the library's answer
//!  random bytes           a generator seeded by job and rank    the library's, or the same generator
//!  process id, host name  fixed for the rank                    the same
//!  thread numbers         by order of creation under the parent the same
//!  files                  each replica's own                    the library's answer, if it has one
//! ```
//! The library announces itself by [`redrt_preload_install`] and marks its own threads and calls by
//! [`redrt_preload_internal_thread`]: for those everything is real. Without `REDRT_SEED` in the environment the whole
//! library only passes calls on.
//!
//! Duties of code in here: it may run before most of the process is set up, in signal handlers and in forked children.
//! So it takes no locks, allocates nothing and uses nothing of Rust's standard library that would call an interposed
//! function. `docs/determinism.md` lists the calls that are deliberately left alone.

mod aliases;
mod clock;
mod clock_state;
mod counts;
mod files;
mod forks;
mod identity;
mod interpreter;
mod lock_events;
mod numbers;
mod ordered;
mod processes;
mod random;
mod real;
mod spared;
mod state;
mod syscall;
mod threads;
mod turn;
mod vdso;
mod waits;

use std::ffi::{c_char, c_int};

/// Functions of the MPI library that answer; passed to [`redrt_preload_install`]. Each returns 0 to leave the answer to
/// this library, 1 with an answer, and for clocks 2 to let the sequence go on from the last answer.
#[repr(C)]
pub struct Hooks {
    /// Size of this structure, so that it can grow.
    pub size_bytes: usize,
    /// Answers `clock_gettime`. When it returns 0 the real clock is shown.
    pub clock: Option<unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int>,
    /// Fills a buffer with bytes that all replicas agree on. When it returns 0 the seeded generator does.
    pub random: Option<unsafe extern "C" fn(*mut u8, usize) -> c_int>,
    /// Takes events of a thread and the lock of its interpreter, and waits for the thread's turn: event, and flags
    /// about it (module `turn`). Returns flags.
    pub turn: Option<unsafe extern "C" fn(c_int, c_int) -> c_int>,
    /// Takes events of a thread and locks of the program, and waits for the thread's turn (module `lock_events`).
    pub lock: Option<unsafe extern "C" fn(c_int, *const lock_events::LockOperation) -> u64>,
    /// Replaces this process's counts of the system by those that replicas agree on: question (module `counts`), bytes,
    /// and their number. When it returns 0 the process's own are shown.
    pub count: Option<unsafe extern "C" fn(c_int, *mut u8, usize) -> c_int>,
}

/// Installs the library's hooks, or removes them when `hooks` is null: then clocks go on as a sequence from the last
/// answer. The library finds this function by `dlsym(RTLD_DEFAULT, "redrt_preload_install")`.
///
/// # Safety
/// `hooks` is null or points to a `Hooks` that stays valid, and whose functions stay loaded, until the next call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redrt_preload_install(hooks: *const Hooks) {
    state::set_hooks(hooks);
    if !hooks.is_null() {
        ordered::early::begin();
    }
}

/// While `internal`, the calling thread gets real answers only, and threads it creates are not numbered and are
/// internal too. Returns the former value, to be restored.
#[unsafe(no_mangle)]
pub extern "C" fn redrt_preload_internal_thread(internal: bool) -> bool {
    state::set_internal(internal)
}

/// The calling thread's number: 0 for the main thread; for others made from the parent's number and the order of
/// creation under that parent, hence the same in all replicas.
#[unsafe(no_mangle)]
pub extern "C" fn redrt_thread_number() -> u64 {
    numbers::number()
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = {
    unsafe extern "C" fn construct(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
        if state::is_active() {
            // SAFETY: the C library passes the environment that the kernel has made. Constructors run one after the
            // other, before the program.
            unsafe { vdso::hide(environment) };
        }
        files::begin();
        numbers::adopt_main();
        forks::watch();
    }
    construct
};
