//! CPython's global interpreter lock.
//!
//! Who waits for it computes a deadline every 5 ms, at moments that nobody chose. Those readings of a clock are the
//! interpreter's own, and nothing that the program sees depends on them: they are real. Who gets the lock, the library
//! decides once the interpreter has more than one thread (`redrt/src/turns.rs`).
//!
//! The lock is two mutexes and two condition variables in `_PyRuntime`, a variable that CPython exports from 3.7 on
//! (`ceval_gil.h`):
//!
//! ```text
//!  take_gil   lock(mutex)   while taken: timed wait   lock(switch)  it is taken now  unlock(switch)   unlock(mutex)
//!  drop_gil   lock(mutex)   it is free now            unlock(mutex)
//!             if another has asked for it: lock(switch)   wait until it has taken it   unlock(switch)
//! ```
//! So a thread that locks the second mutex on its way in has taken the lock, and its next lock of the first one gives it
//! up. Interpreters with a lock of their own (PEP 684) keep it elsewhere: they are not known.

use crate::real::next;
use crate::{real, state};
use libc::{c_int, pthread_mutex_t};
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering};

/// What the library is told: a thread wants the lock and waits for its turn; has it; gives it up; asks whether the
/// holder must give way, after so many milliseconds.
const ENTERS: c_int = 0;
const TAKEN: c_int = 1;
const DROPPED: c_int = 2;
const FORCES: c_int = 3;

/// Flags: the thread goes on after it had to give way, or may have to (`DROPPED`; the answer is whether it has); what
/// it waited for outside had not come in time; it is this thread's turn, which the leader has decided.
const RESUMES: c_int = 1;
const TIMED_OUT: c_int = 2;
const DECIDED: c_int = 4;

/// A thread of the interpreter.
#[derive(Clone, Copy)]
struct Thread {
    /// It has had the lock before.
    is_known: bool,
    holds: bool,
    /// It is in `take_gil`.
    is_taking: bool,
    /// It waited for its turn already, in a semaphore.
    has_turn: bool,
    /// It had to give way when it gave the lock up last.
    gave_way: bool,
    /// The semaphore for which it waited last had not come in time.
    has_timed_out: bool,
    /// Since when it waits for the lock, in nanoseconds.
    since_ns: i64,
}

thread_local! {
    static THREAD: Cell<Thread> = const {
        Cell::new(Thread {
            is_known: false,
            holds: false,
            is_taking: false,
            has_turn: false,
            gave_way: false,
            has_timed_out: false,
            since_ns: 0,
        })
    };
}

/// The interpreter has had more than one thread.
static HAS_THREADS: AtomicBool = AtomicBool::new(false);
/// Somebody has asked the holder to give way.
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// Mutexes of the interpreter that are known at most: the two of the lock are made first.
const MUTEX_COUNT: usize = 8;
const LOCK: usize = 0;
const SWITCH: usize = 1;

static MUTEXES: [AtomicPtr<pthread_mutex_t>; MUTEX_COUNT] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MUTEX_COUNT];

/// Where `_PyRuntime` begins and ends; 0 until it was found.
static BEGIN: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// Where glibc keeps the id of the thread that holds a mutex, in bytes (`__owner` of `struct __pthread_mutex_s`).
const OWNER_OFFSET: usize = 8;

unsafe extern "C" {
    /// Declared here because the crate `libc` has it for the BSDs only.
    fn dladdr1(address: *const c_void, info: *mut libc::Dl_info, extra: *mut *const c_void, flags: i32) -> i32;
}

/// The first fields of an entry of a table of symbols, of ELF's 64-bit form.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size_bytes: u64,
}

/// Whether this address is in the interpreter's state.
fn is_in_interpreter(address: usize) -> bool {
    const SYMBOL: i32 = 1;
    if BEGIN.load(Ordering::Acquire) == 0 {
        // SAFETY: the name ends with a zero byte.
        let runtime = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_PyRuntime".as_ptr()) };
        if runtime.is_null() {
            // An interpreter may be loaded later.
            return false;
        }
        // SAFETY: Dl_info is made of pointers, which may be null.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        let mut symbol: *const c_void = std::ptr::null();
        // SAFETY: both are valid for writing.
        let found = unsafe { dladdr1(runtime, &raw mut info, &raw mut symbol, SYMBOL) };
        if found == 0 || symbol.is_null() {
            return false;
        }
        // SAFETY: the dynamic linker has set it to the symbol's entry, which stays mapped while the object is loaded;
        // an interpreter is never unloaded.
        let size_bytes = unsafe { (*symbol.cast::<Symbol>()).size_bytes };
        END.store((runtime as usize).saturating_add(size_bytes as usize), Ordering::Relaxed);
        BEGIN.store(runtime as usize, Ordering::Release);
    }
    (BEGIN.load(Ordering::Acquire)..END.load(Ordering::Relaxed)).contains(&address)
}

/// Whether the calling thread holds a lock of the interpreter itself.
pub fn is_inside() -> bool {
    let known = MUTEXES.iter().map(|mutex| mutex.load(Ordering::Acquire)).take_while(|mutex| !mutex.is_null());
    let mut me = None;
    for mutex in known {
        // SAFETY: a mutex of the interpreter's, which is never taken away. Its owner is an aligned number that threads
        // write while they hold the mutex: one that reads its own id there has written it.
        let owner = unsafe { AtomicI32::from_ptr(mutex.byte_add(OWNER_OFFSET).cast()) }.load(Ordering::Relaxed);
        if owner != 0 && owner == *me.get_or_insert_with(real::thread_id) {
            return true;
        }
    }
    false
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_init(
    mutex: *mut pthread_mutex_t,
    attributes: *const libc::pthread_mutexattr_t,
) -> i32 {
    if state::is_active() && is_in_interpreter(mutex as usize) {
        for place in &MUTEXES {
            let taken = place.compare_exchange(std::ptr::null_mut(), mutex, Ordering::AcqRel, Ordering::Acquire);
            // A forked child, or an interpreter that is begun anew, has the same.
            if taken.is_ok() || taken == Err(mutex) {
                break;
            }
        }
    }
    real::next!(pthread_mutex_init(
        mutex => *mut pthread_mutex_t, attributes => *const libc::pthread_mutexattr_t
    ) -> i32, libc::ENOSYS)
}

fn is(mutex: *mut pthread_mutex_t, which: usize) -> bool {
    MUTEXES[which].load(Ordering::Relaxed) == mutex && !mutex.is_null()
}

/// Tells the library, if the threads of this process are ordered and the caller is the program.
fn tell(event: c_int, argument: c_int) -> c_int {
    if !HAS_THREADS.load(Ordering::Relaxed) || state::job().is_none() {
        return 0;
    }
    let answer = state::ask_library(|hooks| match hooks.turn {
        // SAFETY: the function is valid by the contract of redrt_preload_install.
        Some(turn) => unsafe { turn(event, argument) },
        None => 0,
    });
    answer.unwrap_or(0)
}

fn flag(is_set: bool, flag: c_int) -> c_int {
    if is_set { flag } else { 0 }
}

/// A thread is made that begins with `start`.
pub fn note_thread(start: usize) {
    if HAS_THREADS.load(Ordering::Relaxed) || BEGIN.load(Ordering::Acquire) == 0 {
        return;
    }
    let base_of = |address: usize| {
        // SAFETY: Dl_info is made of pointers, which may be null.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: info is valid for writing.
        let is_found = unsafe { libc::dladdr(address as *const c_void, &raw mut info) } != 0;
        is_found.then_some(info.dli_fbase as usize)
    };
    // Threads of numerical libraries never take the lock.
    if base_of(start).is_some_and(|base| base_of(BEGIN.load(Ordering::Relaxed)) == Some(base)) {
        HAS_THREADS.store(true, Ordering::Relaxed);
    }
}

/// The calling thread is about to take the lock, or to give it up.
#[cold]
fn lock_begins() {
    let mut thread = THREAD.get();
    if thread.holds {
        let is_asked = IS_ASKED.load(Ordering::Relaxed);
        thread.holds = false;
        thread.gave_way = tell(DROPPED, flag(is_asked, RESUMES)) & RESUMES != 0;
    } else {
        if !thread.has_turn {
            tell(ENTERS, flag(thread.gave_way, RESUMES));
        }
        (thread.has_turn, thread.is_taking) = (false, true);
        thread.since_ns = real::clock_ns(libc::CLOCK_MONOTONIC);
    }
    THREAD.set(thread);
}

/// The calling thread has taken the lock, if it was about to.
#[cold]
fn lock_taken() {
    let mut thread = THREAD.get();
    if !thread.is_taking {
        return;
    }
    IS_ASKED.store(false, Ordering::Relaxed);
    tell(TAKEN, flag(thread.gave_way, RESUMES) | flag(thread.has_timed_out, TIMED_OUT));
    thread = Thread { is_known: true, holds: true, is_taking: false, gave_way: false, has_timed_out: false, ..thread };
    THREAD.set(thread);
}

/// A timed wait for the lock has ended; what the interpreter is to be told of it. It asks the holder to give way when
/// the wait has timed out.
pub fn waited(mutex: *mut c_void, result: c_int) -> c_int {
    if result != libc::ETIMEDOUT || !is(mutex.cast(), LOCK) || !HAS_THREADS.load(Ordering::Relaxed) {
        return result;
    }
    if state::job().is_none() || !state::library_answers() {
        return result;
    }
    let waited_ms = (real::clock_ns(libc::CLOCK_MONOTONIC) - THREAD.get().since_ns) / 1_000_000;
    if tell(FORCES, c_int::try_from(waited_ms).unwrap_or(c_int::MAX)) == 0 {
        // Woken for no reason: it looks again, and waits again.
        return 0;
    }
    IS_ASKED.store(true, Ordering::Relaxed);
    result
}

/// A thread of the interpreter waits for a semaphore, without the lock: a lock of the program. Which of several gets it,
/// and whether it comes in time, follows from the order of the threads: a follower waits for its turn first, and knows
/// then. `wait` is the real one, `at_once` for one that is there.
pub fn wait_for_semaphore(wait: impl FnOnce() -> c_int, at_once: impl FnOnce() -> c_int) -> c_int {
    let mut thread = THREAD.get();
    if !thread.is_known || thread.holds || !HAS_THREADS.load(Ordering::Relaxed) {
        return wait();
    }
    let answer = if thread.has_turn { 0 } else { tell(ENTERS, 0) };
    if answer & DECIDED == 0 {
        let result = wait();
        thread.has_timed_out = result == -1 && real::errno() == libc::ETIMEDOUT;
        THREAD.set(thread);
        return result;
    }
    thread.has_turn = true;
    THREAD.set(thread);
    if answer & TIMED_OUT != 0 {
        real::set_errno(libc::ETIMEDOUT);
        return -1;
    }
    at_once()
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    if is(mutex, LOCK) {
        lock_begins();
    }
    let result = next!(pthread_mutex_lock(mutex => *mut pthread_mutex_t) -> c_int, libc::ENOSYS);
    if is(mutex, SWITCH) {
        lock_taken();
    }
    result
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_wait(semaphore: *mut c_void) -> c_int {
    let wait = || next!(sem_wait(semaphore => *mut c_void) -> c_int, -1);
    wait_for_semaphore(wait, wait)
}
