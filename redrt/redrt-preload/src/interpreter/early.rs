//! Threads of an interpreter before `MPI_Init`, when there is no order yet (`ordered::early`).
//!
//! Such a thread counts its segments with the lock, and the semaphores for which it waits between them. In `MPI_Init`
//! it stands still in a gap: before its next segment, or before it leaves its wait.
//!
//! ```text
//!   thread          segment ─ count      tries the semaphore … gets it, or its time is over ─ count      segment
//!   in MPI_Init            stands here ▲                      ▲ and here                        ▲ and here
//! ```
//! A segment in which the thread had to give way goes on to its end: it gives way at another place in each replica. The
//! thread that calls `MPI_Init` may hold the lock, and gives it up meanwhile.

use super::{EVENTS, THREAD, Thread, await_event, left_until, record_event};
use crate::numbers;
use crate::real::next;
use libc::{c_int, c_void, clockid_t, timespec};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Answer to a thread that is about to begin an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    Begun,
    /// It is at its limit, and stands still.
    Stands,
    /// The order has begun.
    Closed,
}

/// Functions of the module of early threads, for threads of an interpreter.
pub struct EarlyThreads {
    /// True while there are early threads, and no order yet.
    pub is_open: fn() -> bool,
    /// True if the calling thread is early.
    pub has_caller: fn() -> bool,
    pub begin_segment: fn(),
    pub end_segment: fn(),
    /// Called before the thread tries a semaphore in its gap, after this number of events of the interpreter.
    pub begin_attempt: fn(u32) -> Opening,
    /// Called when it could not get the semaphore, and waits for another event; with `true` to be woken by others, for
    /// as long as that takes.
    pub pause: fn(u32, bool),
    /// Called when the wait has ended. Returns false if the order has begun: then the end is yet to be agreed on.
    pub end_attempt: fn() -> bool,
}

/// Null until there is an early thread.
static EARLY: AtomicPtr<EarlyThreads> = AtomicPtr::new(std::ptr::null_mut());

/// Called when there is an early thread.
pub fn know_early(threads: &'static EarlyThreads) {
    EARLY.store(std::ptr::from_ref(threads).cast_mut(), Ordering::Release);
}

fn known() -> Option<&'static EarlyThreads> {
    // SAFETY: - null, or a static.
    unsafe { EARLY.load(Ordering::Acquire).as_ref() }
}

/// True while there are early threads, and no order yet.
pub fn is_open() -> bool {
    known().is_some_and(|early| (early.is_open)())
}

/// Early threads, if the calling thread is one.
pub fn current() -> Option<&'static EarlyThreads> {
    known().filter(|early| (early.has_caller)())
}

/// Called before the calling thread takes the lock to begin a segment.
pub fn begin_segment() {
    if let Some(early) = current() {
        (early.begin_segment)();
    }
}

/// Called when it gives the lock up by itself.
pub fn end_segment() {
    if let Some(early) = current() {
        (early.end_segment)();
    }
}

/// Number of semaphores whose last takers are known, by address.
const TAKER_COUNT: usize = 1024;
/// Address of a semaphore, and the thread that took it last.
static TAKERS: [[AtomicU64; 2]; TAKER_COUNT] = [const { [const { AtomicU64::new(0) }; 2] }; TAKER_COUNT];

fn taker_of(semaphore: *const c_void) -> &'static [AtomicU64; 2] {
    &TAKERS[(semaphore as usize >> 4) % TAKER_COUNT]
}

/// Called when the calling thread has got a semaphore.
pub fn record_taken(semaphore: *const c_void) {
    if is_open() && THREAD.get().is_known {
        let [of, taker] = taker_of(semaphore);
        taker.store(numbers::number(), Ordering::Relaxed);
        of.store(semaphore as u64, Ordering::Relaxed);
    }
}

/// True if another thread has taken this semaphore, and so is to give it back: it is a lock. A thread that waits for a
/// semaphore which it has taken itself waits to be woken, as in `threading.Condition`.
fn is_lock_of_another(semaphore: *const c_void) -> bool {
    let [of, taker] = taker_of(semaphore);
    of.load(Ordering::Relaxed) == semaphore as u64 && taker.load(Ordering::Relaxed) != numbers::number()
}

/// Outcome of a wait.
pub enum Waited {
    /// The call's result: 0, or an error number.
    Ended(c_int),
    /// The order has begun: the wait is made in order.
    Unended,
}

/// Waits for a semaphore without the lock, until this time in real time.
pub fn wait(early: &EarlyThreads, semaphore: *mut c_void, deadline: Option<(clockid_t, &timespec)>) -> Waited {
    loop {
        let seen = EVENTS.load(Ordering::SeqCst);
        match (early.begin_attempt)(seen) {
            Opening::Begun => {}
            Opening::Closed => return Waited::Unended,
            Opening::Stands => {
                await_event(seen, None);
                continue;
            }
        }
        if next!(sem_trywait(semaphore => *mut c_void) -> c_int, -1) == 0 {
            record_taken(semaphore);
            if (early.end_attempt)() {
                return Waited::Ended(0);
            }
            next!(sem_post(semaphore => *mut c_void) -> c_int, -1);
            record_event();
            return Waited::Unended;
        }
        let left = deadline.map(|(clock, deadline)| left_until(clock, deadline));
        let error = if left.is_some_and(|left| left.tv_sec < 0) {
            libc::ETIMEDOUT
        } else {
            (early.pause)(seen, deadline.is_none() && !is_lock_of_another(semaphore));
            match await_event(seen, left.as_ref()) {
                true => libc::EINTR,
                false => continue,
            }
        };
        if !(early.end_attempt)() {
            return Waited::Unended;
        }
        THREAD.set(Thread { has_timed_out: error == libc::ETIMEDOUT, ..THREAD.get() });
        return Waited::Ended(error);
    }
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: - the name ends with a zero byte.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

/// Gives the lock up if the calling thread holds it. Returns the function that takes it again, and its argument.
fn give_up() -> Option<(unsafe extern "C" fn(*mut c_void), *mut c_void)> {
    if !THREAD.get().holds {
        return None;
    }
    let (check, save) = (symbol(c"PyGILState_Check")?, symbol(c"PyEval_SaveThread")?);
    let restore = symbol(c"PyEval_RestoreThread")?;
    // SAFETY: - CPython exports a function of this type under this name.
    let check = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(check) };
    // SAFETY: - CPython exports a function of this type under this name.
    let save = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *mut c_void>(save) };
    // SAFETY: - CPython exports a function of this type under this name.
    let restore = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(restore) };
    // SAFETY: - it may be called at any time.
    if unsafe { check() } == 0 {
        return None;
    }
    // SAFETY: - the calling thread holds the lock.
    Some((restore, unsafe { save() }))
}

/// Runs `wait` without the interpreter's lock. All threads stand still afterwards, so none gets the lock before the
/// calling one has it again.
pub fn without_lock(wait: impl FnOnce()) {
    let given_up = give_up();
    wait();
    if let Some((restore, state)) = given_up {
        // SAFETY: - the state of the calling thread, which has given the lock up.
        unsafe { restore(state) };
    }
}
