//! Locks of the program, taken in the leader's order (`redrt/src/locks.rs`): mutexes, and what returns from condition
//! variables.
//!
//! Who had a mutex last is noted in the mutex itself, in the two words with which the C library keeps a list of robust
//! ones. So those are left alone, and those of several processes and of priorities.
//!
//! Ordered are the threads that the program makes after `MPI_Init`, by the main thread or by one that is ordered, and
//! the thread that makes the first of them. Interpreters with a lock of their own have an order of their own.

use crate::lock_events::{BEFORE, BEGINS, DECIDED, FOLLOWED, FREE, LEADS, LockOperation, MADE, PARTED, TAKES};
use crate::real::next;
use crate::{interpreter, state};
use libc::{c_int, pthread_cond_t, pthread_mutex_t};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};

thread_local! {
    /// The calling thread's number, if it is ordered.
    static ORDERED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Some thread is ordered.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Condition variables in which threads of a leader wait. A copy follows: there they are to look again.
const CONDITION_COUNT: usize = 1024;
static CONDITIONS: [AtomicPtr<pthread_cond_t>; CONDITION_COUNT] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; CONDITION_COUNT];

/// `__kind` of `struct __pthread_mutex_s`, in bytes, and the bits of kinds that are left alone: robust, with priorities
/// inherited or protected, shared by processes.
const KIND_OFFSET: usize = 16;
const KINDS_LEFT_ALONE: i32 = 16 | 32 | 64 | 128;
/// `__list`, which mutexes that are not robust do not use.
const STAMP_OFFSET: usize = 24;

/// Asks the library; 0 where nobody answers.
fn ask(event: c_int, operation: &LockOperation) -> u64 {
    let answer = state::ask_library(|hooks| match hooks.lock {
        // SAFETY: the function is valid by the contract of redrt_preload_install.
        Some(lock) => unsafe { lock(event, operation) },
        None => 0,
    });
    answer.unwrap_or(0)
}

fn operation(result: c_int, flags: u64) -> LockOperation {
    LockOperation { thread: ORDERED.get().unwrap_or(0), last_thread: 0, last_number: 0, flags, result }
}

/// The calling thread, which has this number, makes another one: whether that is ordered.
pub fn creates_thread(number: u64) -> bool {
    if state::job().is_none() || interpreter::is_there() {
        return false;
    }
    // The first one is made by the main thread, if it is to be ordered.
    if number == 0 && ORDERED.get().is_none() && ask(BEGINS, &operation(0, 0)) == FREE {
        ORDERED.set(Some(number));
        IS_ON.store(true, Ordering::Release);
    }
    ORDERED.get().is_some()
}

/// The calling thread begins, with this number if it is ordered.
pub fn begin_thread(ordered: Option<u64>) {
    ORDERED.set(ordered);
}

/// Whether the calling thread, which is about to take this mutex, is ordered there.
#[inline]
fn applies(mutex: *mut pthread_mutex_t) -> bool {
    IS_ON.load(Ordering::Relaxed) && is_ordered(mutex)
}

fn is_ordered(mutex: *mut pthread_mutex_t) -> bool {
    if ORDERED.get().is_none() || mutex.is_null() || state::job().is_none() {
        return false;
    }
    // SAFETY: a mutex of the program's. Its kind does not change as long as it may be taken.
    let kind = unsafe { AtomicI32::from_ptr(mutex.byte_add(KIND_OFFSET).cast()) }.load(Ordering::Relaxed);
    kind & KINDS_LEFT_ALONE == 0
}

/// The two words of a mutex that say who had it last. Only who has the mutex reads and writes them.
fn stamp(mutex: *mut pthread_mutex_t) -> [&'static AtomicU64; 2] {
    // SAFETY: aligned words within the mutex, of a kind that uses them for nothing else; the references do not outlive
    // the call that the program has made with it.
    [0, 8].map(|offset| unsafe { AtomicU64::from_ptr(mutex.byte_add(STAMP_OFFSET + offset).cast()) })
}

/// What may be done next.
enum Next {
    /// Locks are not ordered.
    Unordered,
    Free,
    Decided {
        takes: bool,
        result: c_int,
    },
}

fn before() -> Next {
    let answer = ask(BEFORE, &operation(0, 0));
    if answer & DECIDED != 0 {
        return Next::Decided { takes: answer & TAKES != 0, result: (answer >> 32) as c_int };
    }
    if answer & FREE != 0 { Next::Free } else { Next::Unordered }
}

/// The calling thread has made an operation as it came; `false` if that is to be taken back.
fn made(mutex: *mut pthread_mutex_t, takes: bool, result: c_int) -> bool {
    let mut operation = operation(result, if takes { TAKES } else { 0 });
    if takes {
        let [thread, number] = stamp(mutex);
        (operation.last_thread, operation.last_number) =
            (thread.load(Ordering::Relaxed), number.load(Ordering::Relaxed));
    }
    note(mutex, takes, ask(MADE, &operation), operation.thread)
}

fn followed(mutex: *mut pthread_mutex_t, takes: bool) {
    let operation = operation(0, 0);
    note(mutex, takes, ask(FOLLOWED, &operation), operation.thread);
}

fn note(mutex: *mut pthread_mutex_t, takes: bool, number: u64, me: u64) -> bool {
    if takes && number != 0 {
        let [thread, last] = stamp(mutex);
        thread.store(me, Ordering::Relaxed);
        last.store(number, Ordering::Relaxed);
    }
    number != 0
}

fn really_lock(mutex: *mut pthread_mutex_t) -> c_int {
    next!(pthread_mutex_lock(mutex => *mut pthread_mutex_t) -> c_int, libc::ENOSYS)
}

fn really_unlock(mutex: *mut pthread_mutex_t) {
    next!(pthread_mutex_unlock(mutex => *mut pthread_mutex_t) -> c_int, libc::ENOSYS);
}

/// Takes a mutex, or tries to, in its turn. `real`: the call. It may always take it, or not: `may_miss`.
pub fn lock(mutex: *mut pthread_mutex_t, may_miss: bool, real: impl Fn() -> c_int) -> c_int {
    if !applies(mutex) {
        return real();
    }
    loop {
        match before() {
            Next::Unordered => return real(),
            Next::Free => {
                let result = real();
                let takes = result == 0;
                if made(mutex, takes, result) {
                    return result;
                }
                if !takes && !may_miss {
                    return result;
                }
                if takes {
                    really_unlock(mutex);
                }
            }
            Next::Decided { takes, result } => {
                if !takes && !may_miss && result == 0 {
                    ask(PARTED, &operation(0, 0));
                    return real();
                }
                if takes {
                    really_lock(mutex);
                }
                followed(mutex, takes);
                return result;
            }
        }
    }
}

/// Waits in a condition variable: gives the mutex back, and takes it in its turn. `real`: the call.
pub fn wait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, real: impl FnOnce() -> c_int) -> c_int {
    if !applies(mutex) {
        return real();
    }
    if ask(LEADS, &operation(0, 0)) == FREE {
        let place = enter(condition);
        let result = real();
        if let Some(place) = place {
            place.store(std::ptr::null_mut(), Ordering::Release);
        }
        // Whatever it returns, it has the mutex, but for wrong arguments.
        let takes = result == 0 || result == libc::ETIMEDOUT;
        if made(mutex, takes, result) {
            return result;
        }
    }
    // Its siblings were woken when their leader was.
    really_unlock(mutex);
    loop {
        match before() {
            Next::Unordered => {
                really_lock(mutex);
                return 0;
            }
            // This process has become the leader. It was woken for no reason, as any thread may be: signals that came
            // before were for nobody.
            Next::Free => {
                really_lock(mutex);
                if made(mutex, true, 0) {
                    return 0;
                }
                really_unlock(mutex);
            }
            Next::Decided { takes, result } => {
                really_lock(mutex);
                followed(mutex, takes);
                return result;
            }
        }
    }
}

fn enter(condition: *mut pthread_cond_t) -> Option<&'static AtomicPtr<pthread_cond_t>> {
    let null = std::ptr::null_mut();
    let is_mine = |place: &&AtomicPtr<pthread_cond_t>| {
        let taken = place.compare_exchange(null, condition, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok()
    };
    CONDITIONS.iter().find(is_mine)
}

/// This process is a copy, and follows: threads that wait for a signal look again.
#[unsafe(no_mangle)]
pub extern "C" fn redrt_preload_stir_waiters() {
    for place in &CONDITIONS {
        let condition = place.load(Ordering::Acquire);
        if !condition.is_null() {
            next!(pthread_cond_broadcast(condition => *mut pthread_cond_t) -> c_int, libc::ENOSYS);
        }
    }
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    let gives_up = interpreter::before_lock(mutex);
    let result = lock(mutex, false, || really_lock(mutex));
    interpreter::after_lock(mutex, gives_up);
    result
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int {
    lock(mutex, true, || next!(pthread_mutex_trylock(mutex => *mut pthread_mutex_t) -> c_int, libc::ENOSYS))
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_wait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int {
    wait(
        condition,
        mutex,
        || next!(pthread_cond_wait(condition => *mut pthread_cond_t, mutex => *mut pthread_mutex_t) -> c_int, libc::ENOSYS),
    )
}
