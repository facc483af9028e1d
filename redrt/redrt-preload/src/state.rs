//! Facts about the job, the library's hooks, and state of each thread.

use crate::lock_events::LockOperation;
use crate::{Hooks, real};
use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicPtr, AtomicU8, AtomicU64, Ordering};

/// Set once, by the first caller; all threads would set the same.
static PHASE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const INACTIVE: u8 = 1;
const ACTIVE: u8 = 2;

/// Linux's limit on a host name.
const HOST_NAME_BYTES_MAX: usize = 64;

static SEED: AtomicU64 = AtomicU64::new(0);
static RANK: AtomicU64 = AtomicU64::new(0);
static START_NS: AtomicI64 = AtomicI64::new(0);
static START_MONOTONIC_NS: AtomicI64 = AtomicI64::new(0);
static HOST: AtomicPtr<libc::c_char> = AtomicPtr::new(std::ptr::null_mut());
/// The real id of the process that was set up; its forked children have others.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// The real id of the process whose calls about files are answered.
static ANSWERED: AtomicI32 = AtomicI32::new(0);
static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    static INTERNAL: Cell<bool> = const { Cell::new(false) };
    static IN_HOOK: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" {
    static mut environ: *mut *mut libc::c_char;
}

/// Facts about the job, from the environment.
pub struct JobFacts;

impl JobFacts {
    /// Seed of this rank's random numbers.
    pub fn seed(&self) -> (u64, u64) {
        (SEED.load(Ordering::Relaxed), RANK.load(Ordering::Relaxed))
    }

    /// The virtual rank.
    pub fn rank(&self) -> u64 {
        RANK.load(Ordering::Relaxed)
    }

    /// Beginnings of the sequences of the wall clock and of the monotonic clocks.
    pub fn start_ns(&self) -> (i64, i64) {
        (START_NS.load(Ordering::Relaxed), START_MONOTONIC_NS.load(Ordering::Relaxed))
    }

    /// The host name to show, ending with a zero byte; null when none was given.
    pub fn host(&self) -> *const libc::c_char {
        HOST.load(Ordering::Relaxed)
    }

    /// True in the process that was started, false in its forked children.
    pub fn is_first_process(&self) -> bool {
        PROCESS.load(Ordering::Relaxed) == real::process_id()
    }

    /// The real id of the process that was started.
    pub fn process(&self) -> i32 {
        PROCESS.load(Ordering::Relaxed)
    }
}

/// The job, when this process belongs to one and the caller is the application.
pub fn job() -> Option<JobFacts> {
    if !is_active() || INTERNAL.get() || IN_HOOK.get() {
        return None;
    }
    Some(JobFacts)
}

/// True when the caller is the application, in a process whose calls about files are answered; its clocks may be left
/// alone.
pub fn is_program() -> bool {
    !is_inside() && ANSWERED.load(Ordering::Relaxed) == real::process_id()
}

/// True when the caller is the library, or called by it.
pub fn is_inside() -> bool {
    INTERNAL.get() || IN_HOOK.get()
}

/// From now on, this process's calls about files are answered.
pub fn know_process() {
    ANSWERED.store(real::process_id(), Ordering::Relaxed);
}

/// True when this process belongs to a job. The first call finds out.
pub fn is_active() -> bool {
    match PHASE.load(Ordering::Acquire) {
        UNKNOWN => read_environment(),
        phase => phase == ACTIVE,
    }
}

fn read_environment() -> bool {
    let values = [c"REDRT_SEED", c"REDRT_RANK", c"REDRT_START_NS", c"REDRT_START_MONOTONIC_NS"].map(variable);
    // SAFETY: environ is read only here, before the application can change it.
    if unsafe { environ }.is_null() {
        // Too early to tell, and nothing has happened yet that could differ between replicas.
        return false;
    }
    let [Some(seed), Some(rank), Some(start), monotonic] = values else {
        PHASE.store(INACTIVE, Ordering::Release);
        return false;
    };
    SEED.store(number(seed, 16), Ordering::Relaxed);
    RANK.store(number(rank, 10), Ordering::Relaxed);
    START_NS.store(number(start, 10) as i64, Ordering::Relaxed);
    START_MONOTONIC_NS.store(monotonic.map_or(0, |text| number(text, 10)) as i64, Ordering::Relaxed);
    // No host has a longer name, and no program expects one.
    let host = variable(c"REDRT_HOST").filter(|host| host.count_bytes() <= HOST_NAME_BYTES_MAX);
    let host = host.map_or(std::ptr::null(), CStr::as_ptr);
    HOST.store(host.cast_mut(), Ordering::Relaxed);
    PROCESS.store(real::process_id(), Ordering::Relaxed);
    // Set by the daemon. After the connection's number the variable has that of the memory shared by a host's
    // processes, and later that of their memory for windows.
    for (name, given) in [(c"REDRT_CONTROL_FD", &[0, 1, 4][..]), (c"REDRT_CLONER_FD", &[0])] {
        if let Some(first) = variable(name).map(|text| number(text, 10) as libc::c_int) {
            given.iter().for_each(|behind| crate::spared::spare(first.saturating_add(*behind), true));
        }
    }
    PHASE.store(ACTIVE, Ordering::Release);
    true
}

/// Value of an environment variable. `getenv` is avoided, as the application may interpose it.
pub fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: environ is a null-terminated array or null; it is read before the application can change it.
    let mut entry = unsafe { environ };
    while !entry.is_null() {
        // SAFETY: entry points into the array, at or before its null.
        let text = unsafe { *entry };
        if text.is_null() {
            return None;
        }
        // SAFETY: entries of the environment are zero-terminated and were set up by the kernel for good.
        let text = unsafe { CStr::from_ptr(text) };
        let rest = text.to_bytes_with_nul().strip_prefix(name.to_bytes());
        if let Some(value) = rest.and_then(|rest| rest.strip_prefix(b"=")) {
            return CStr::from_bytes_with_nul(value).ok();
        }
        // SAFETY: the null was not reached, so there is a next element.
        entry = unsafe { entry.add(1) };
    }
    None
}

fn number(text: &CStr, radix: u32) -> u64 {
    let digits = text.to_bytes().iter().map_while(|byte| char::from(*byte).to_digit(radix));
    digits.fold(0u64, |number, digit| number.wrapping_mul(u64::from(radix)).wrapping_add(u64::from(digit)))
}

/// Sets new hooks.
pub fn set_hooks(hooks: *const Hooks) {
    HOOKS.store(hooks.cast_mut(), Ordering::Release);
}

/// Lets the MPI library answer. Its own calls meanwhile are real. `None` when there is no library.
pub fn ask_library<T>(ask: impl FnOnce(&Hooks) -> T) -> Option<T> {
    let hooks = HOOKS.load(Ordering::Acquire);
    // SAFETY: null, or valid until replaced, by the contract of redrt_preload_install.
    let hooks = unsafe { hooks.as_ref() }?;
    Some(in_hook(|| ask(hooks)))
}

/// Runs a function of the MPI library, whose own calls are real. A thread that is cancelled meanwhile goes on until the
/// program's next cancellation point: it may make progress for all threads of the process, and hold the library's
/// locks.
pub fn in_hook<T>(run: impl FnOnce() -> T) -> T {
    IN_HOOK.set(true);
    let before = real::set_cancellation(real::CANCEL_DISABLE);
    let answer = run();
    real::set_cancellation(before);
    IN_HOOK.set(false);
    answer
}

/// True when the MPI library answers.
pub fn library_answers() -> bool {
    !HOOKS.load(Ordering::Acquire).is_null()
}

/// Asks the library about locks of the program (`lock_events`); 0 without an answer.
pub fn ask_of_locks(event: c_int, operation: &LockOperation) -> u64 {
    let answer = ask_library(|hooks| match hooks.lock {
        // SAFETY: the function is valid by the contract of redrt_preload_install.
        Some(lock) => unsafe { lock(event, operation) },
        None => 0,
    });
    answer.unwrap_or(0)
}

/// Marks the calling thread as the library's own, or not; returns the former mark.
pub fn set_internal(internal: bool) -> bool {
    INTERNAL.replace(internal)
}

/// True when the calling thread is the library's own.
pub fn is_internal() -> bool {
    INTERNAL.get()
}

/// A well-mixed function of two numbers.
pub fn mix(left: u64, right: u64) -> u64 {
    let mut mixed = left ^ right.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xff51_afd7_ed55_8ccd);
    for factor in [0xbf58_476d_1ce4_e5b9u64, 0x94d0_49bb_1331_11eb] {
        mixed ^= mixed >> 30;
        mixed = mixed.wrapping_mul(factor);
    }
    mixed ^ (mixed >> 31)
}
