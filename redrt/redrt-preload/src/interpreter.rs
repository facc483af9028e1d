//! CPython's global interpreter lock.
//!
//! A thread that waits for it computes a deadline every 5 ms, at arbitrary moments. Those readings of a clock are the
//! interpreter's own, and nothing that the program sees depends on them: they are real. The library decides which
//! thread gets the lock, once the interpreter has more than one thread (`redrt/redrt-runtime/src/turns.rs`).
//!
//! The lock is two mutexes and two condition variables in `_PyRuntime`, a variable that CPython exports from 3.7 on
//! (`ceval_gil.h`):
//!
//! ```text
//!  take_gil   lock(mutex)   while taken: timed wait   lock(switch)  it is taken now  unlock(switch)   unlock(mutex)
//!  drop_gil   lock(mutex)   it is free now            unlock(mutex)
//!             if another has asked for it: lock(switch)   wait until it has taken it   unlock(switch)
//! ```
//! So a thread that locks the second mutex on its way in has taken the lock, and its next lock of the first mutex gives
//! it up. Interpreters with a lock of their own (PEP 684) keep it elsewhere, and are not covered. From CPython 3.13 on
//! threads also wait in semaphores for mutexes of the interpreter's own, when they happen to meet there: those are not
//! ordered.

mod early;
mod giving_up;

pub use early::{EarlyThreads, Opening, know_early, record_taken, without_lock};

use crate::real::next;
use crate::turn::{
    DECIDED, DROPPED, ENDED, ENTERS, FORCES, MAY, MAY_TAKE, PARTED, RESUMES, SEMAPHORE, STARVES, TAKEN, TIMED_OUT,
};
use crate::{processes, real, state};
use libc::{c_int, clockid_t, pthread_mutex_t, timespec};
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// A thread of the interpreter.
#[derive(Clone, Copy)]
struct Thread {
    /// True after the thread's first time with the lock.
    is_known: bool,
    holds: bool,
    /// True within `take_gil`.
    is_taking: bool,
    /// True when threads are ordered and the thread was let into `take_gil`.
    has_turn: bool,
    /// True when the thread had to give way as it gave the lock up last.
    gave_way: bool,
    /// True when its last wait for a semaphore timed out.
    has_timed_out: bool,
    watch: Watch,
}

/// Observations by a thread that waits for the lock, about the threads that have it.
#[derive(Clone, Copy)]
struct Watch {
    /// Number of segments it has seen, and the last of them.
    segments: c_int,
    segment: u32,
    /// Processor time of the last segment's thread at the last look, and since the first look, in nanoseconds. Wall
    /// time would not do: on a busy machine a holder may wait for a processor.
    thread_ran_ns: i64,
    ran_ns: i64,
}

impl Watch {
    const NOTHING: Self = Self { segments: 0, segment: 0, thread_ran_ns: 0, ran_ns: 0 };

    /// Records the processor time of this segment's thread.
    fn see(&mut self, segment: u32, thread_ran_ns: i64) {
        if self.segments == 0 || self.segment != segment {
            (self.segments, self.segment, self.ran_ns) = (self.segments.saturating_add(1), segment, 0);
        } else {
            self.ran_ns += (thread_ran_ns - self.thread_ran_ns).max(0);
        }
        self.thread_ran_ns = thread_ran_ns;
    }
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
            watch: Watch::NOTHING,
        })
    };
}

/// True once the interpreter has had more than one thread.
static HAS_THREADS: AtomicBool = AtomicBool::new(false);
/// True when a waiting thread has asked the holder to give way.
static IS_ASKED: AtomicBool = AtomicBool::new(false);
/// True while a thread has the lock; written under the first mutex.
static IS_HELD: AtomicBool = AtomicBool::new(false);
/// The thread that took the lock last.
static HOLDER: AtomicI32 = AtomicI32::new(0);
/// Number of times that the lock was taken; each begins a segment.
static SEGMENT: AtomicU32 = AtomicU32::new(0);
/// Number of events that end waits for semaphores: the lock is free, or a semaphore was given back.
static EVENTS: AtomicU32 = AtomicU32::new(0);
/// Number of threads that wait for such an event.
static WAITERS: AtomicU32 = AtomicU32::new(0);

/// Limit on the interpreter's known mutexes: the two of the lock are made first.
const MUTEX_COUNT: usize = 8;
const LOCK: usize = 0;
const SWITCH: usize = 1;

static MUTEXES: [AtomicPtr<pthread_mutex_t>; MUTEX_COUNT] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MUTEX_COUNT];

/// Begin of `_PyRuntime`; 0 until it was found. Its end follows.
static BEGIN: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// Offset in bytes of the id of the thread that holds a mutex (`__owner` in glibc's `struct __pthread_mutex_s`).
const OWNER_OFFSET: usize = 8;

unsafe extern "C" {
    /// Declared here because the crate `libc` has it for the BSDs only.
    fn dladdr1(address: *const c_void, info: *mut libc::Dl_info, extra: *mut *const c_void, flags: i32) -> i32;
}

/// True when this address is in the interpreter's state.
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
        let size_bytes = unsafe { (*symbol.cast::<libc::Elf64_Sym>()).st_size };
        END.store((runtime as usize).saturating_add(size_bytes as usize), Ordering::Relaxed);
        BEGIN.store(runtime as usize, Ordering::Release);
    }
    (BEGIN.load(Ordering::Acquire)..END.load(Ordering::Relaxed)).contains(&address)
}

/// True when this process has an interpreter that has made its lock.
pub fn is_there() -> bool {
    BEGIN.load(Ordering::Acquire) != 0
}

/// True when the interpreter has had more than one thread.
pub fn has_threads() -> bool {
    HAS_THREADS.load(Ordering::Relaxed)
}

/// True when the calling thread holds a lock of the interpreter itself.
pub fn is_inside() -> bool {
    let known = MUTEXES.iter().map(|mutex| mutex.load(Ordering::Acquire)).take_while(|mutex| !mutex.is_null());
    let mut me = None;
    for mutex in known {
        // SAFETY: - a mutex of the interpreter, which is never freed. Its owner is an aligned number that
        //           threads write while they hold the mutex: a thread that reads its own id there has written it.
        let owner = unsafe { AtomicI32::from_ptr(mutex.byte_add(OWNER_OFFSET).cast()) }.load(Ordering::Relaxed);
        if owner != 0 && owner == *me.get_or_insert_with(real::thread_id) {
            return true;
        }
    }
    false
}

/// Records a new mutex, if it is one of the interpreter's.
pub fn record_mutex(mutex: *mut pthread_mutex_t) {
    if state::is_active() && is_in_interpreter(mutex as usize) {
        for place in &MUTEXES {
            let taken = place.compare_exchange(std::ptr::null_mut(), mutex, Ordering::AcqRel, Ordering::Acquire);
            // A forked child, or an interpreter that is begun again, has the same mutexes.
            if taken.is_ok() || taken == Err(mutex) {
                break;
            }
        }
    }
}

fn is(mutex: *mut pthread_mutex_t, which: usize) -> bool {
    MUTEXES[which].load(Ordering::Relaxed) == mutex && !mutex.is_null()
}

/// Sends an event to the library, if the threads of this process are ordered and the caller is the program.
fn send(event: c_int, argument: c_int) -> c_int {
    if !HAS_THREADS.load(Ordering::Relaxed) || state::job().is_none() || early::is_open() || processes::share() {
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

/// True when the interpreter's threads wait in semaphores only for locks of the program.
fn is_known_version() -> bool {
    /// `PY_VERSION_HEX` of 3.13.
    const UNKNOWN_FROM: libc::c_ulong = 0x030d_0000;
    // SAFETY: the name ends with a zero byte.
    let version = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"Py_Version".as_ptr()) };
    // CPython before 3.11 does not export it.
    // SAFETY: CPython exports it as a constant of this type, and is never unloaded.
    version.is_null() || unsafe { *version.cast::<libc::c_ulong>() } < UNKNOWN_FROM
}

/// Records the creation of a thread that begins with `start`.
pub fn record_thread(start: usize) {
    if !HAS_THREADS.load(Ordering::Relaxed) && BEGIN.load(Ordering::Acquire) != 0 && has_made(start) {
        HAS_THREADS.store(true, Ordering::Relaxed);
        processes::orders_threads();
    }
}

/// True if a thread that begins with `start` is the interpreter's, and can be ordered. Threads of numerical libraries
/// never take the lock.
pub fn has_made(start: usize) -> bool {
    let base_of = |address: usize| {
        // SAFETY: Dl_info is made of pointers, which may be null.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: info is valid for writing.
        let is_found = unsafe { libc::dladdr(address as *const c_void, &raw mut info) } != 0;
        is_found.then_some(info.dli_fbase as usize)
    };
    is_known_version() && base_of(start).is_some_and(|base| base_of(BEGIN.load(Ordering::Relaxed)) == Some(base))
}

/// True if the calling thread has the lock.
pub fn holds_lock() -> bool {
    THREAD.get().holds
}

/// Number of events that end waits for semaphores.
pub fn event_count() -> u32 {
    EVENTS.load(Ordering::SeqCst)
}

/// Makes threads that wait for semaphores look again.
pub fn stir() {
    record_event();
}

/// True if the calling thread has run in the interpreter, whose threads are ordered.
pub fn orders_thread() -> bool {
    HAS_THREADS.load(Ordering::Relaxed) && THREAD.get().is_known
}

/// Records the end of the calling thread.
pub fn end_thread() {
    if THREAD.get().is_known {
        send(ENDED, 0);
    }
}

/// Called before the calling thread takes the lock or gives it up. Returns true when it gives the lock up.
#[cold]
fn lock_begins() -> bool {
    let mut thread = THREAD.get();
    let gives_up = thread.holds;
    if gives_up {
        thread.holds = false;
        thread.gave_way = IS_ASKED.load(Ordering::Relaxed) && !giving_up::is_voluntary();
        if !thread.gave_way {
            early::end_segment();
        }
        send(DROPPED, flag(thread.gave_way, RESUMES));
    } else {
        if !thread.gave_way {
            early::begin_segment();
        }
        thread.has_turn = send(ENTERS, flag(thread.gave_way, RESUMES)) != 0;
        thread.is_taking = true;
        thread.watch = Watch::NOTHING;
    }
    THREAD.set(thread);
    gives_up
}

/// Called when the calling thread has locked the second mutex: it has taken the lock, if it was about to.
#[cold]
fn lock_taken() {
    let thread = THREAD.get();
    if !thread.is_taking {
        return;
    }
    IS_ASKED.store(false, Ordering::Relaxed);
    IS_HELD.store(true, Ordering::Relaxed);
    HOLDER.store(real::thread_id(), Ordering::Relaxed);
    SEGMENT.fetch_add(1, Ordering::Relaxed);
    send(TAKEN, flag(thread.gave_way, RESUMES) | flag(thread.has_timed_out, TIMED_OUT));
    THREAD.set(Thread {
        is_known: true,
        holds: true,
        is_taking: false,
        has_turn: false,
        gave_way: false,
        has_timed_out: false,
        ..thread
    });
}

/// Counts an event that ends waits for semaphores, and wakes the waiters.
fn record_event() {
    EVENTS.fetch_add(1, Ordering::SeqCst);
    if WAITERS.load(Ordering::SeqCst) > 0 {
        real::wake_all(&EVENTS);
    }
}

/// Waits until there are more than `seen` events, but at most `left`. Returns true when a signal ended the wait.
fn await_event(seen: u32, left: Option<&timespec>) -> bool {
    WAITERS.fetch_add(1, Ordering::SeqCst);
    let error = real::wait_while(&EVENTS, seen, left);
    WAITERS.fetch_sub(1, Ordering::SeqCst);
    error == libc::EINTR
}

/// Looks at the holder while the calling thread waits for the lock and holds the lock's mutex.
fn watch_holder() -> Watch {
    /// The clock of the processor time of a thread (`MAKE_THREAD_CPUCLOCK` of the kernel).
    fn clock_of(thread: i32) -> clockid_t {
        (!thread << 3) | 6
    }
    let mut thread = THREAD.get();
    thread.watch.see(SEGMENT.load(Ordering::Relaxed), real::clock_ns(clock_of(HOLDER.load(Ordering::Relaxed))));
    THREAD.set(thread);
    thread.watch
}

/// Called after a timed wait for the lock; returns the result for the interpreter. After a timeout, the interpreter
/// asks the holder to give way.
pub fn waited(mutex: *mut c_void, result: c_int) -> c_int {
    if result != libc::ETIMEDOUT || !is(mutex.cast(), LOCK) || !HAS_THREADS.load(Ordering::Relaxed) {
        return result;
    }
    if early::is_open() {
        IS_ASKED.store(true, Ordering::Relaxed);
        return result;
    }
    if state::job().is_none() || !state::library_answers() {
        return result;
    }
    let Watch { segments, ran_ns, .. } = watch_holder();
    send(STARVES, segments);
    match send(FORCES, c_int::try_from(ran_ns / 1_000_000).unwrap_or(c_int::MAX)) {
        // A wake-up without a reason: the interpreter checks the lock, and waits again.
        DECIDED => return 0,
        MAY => IS_ASKED.store(true, Ordering::Relaxed),
        // Threads are not ordered.
        _ => {}
    }
    result
}

/// Outcome of an attempt to take a semaphore between two segments.
enum Attempt {
    Taken,
    /// The leader has decided on a timeout, or on a signal that came first.
    Missed(c_int),
    /// The semaphore cannot be taken now.
    No,
}

/// Takes a semaphore if it is available, it is this thread's turn, and no thread has the lock.
fn try_between(semaphore: *mut c_void) -> Attempt {
    let mutex = MUTEXES[LOCK].load(Ordering::Relaxed);
    next!(pthread_mutex_lock(mutex => *mut pthread_mutex_t) -> c_int, libc::ENOSYS);
    let answer = if IS_HELD.load(Ordering::Relaxed) { 0 } else { send(MAY_TAKE, SEMAPHORE) };
    let attempt = if answer & TIMED_OUT != 0 {
        Attempt::Missed(libc::ETIMEDOUT)
    } else if answer & (DECIDED | MAY) == DECIDED {
        Attempt::Missed(libc::EINTR)
    } else if answer & MAY != 0 && next!(sem_trywait(semaphore => *mut c_void) -> c_int, -1) == 0 {
        send(TAKEN, SEMAPHORE);
        Attempt::Taken
    } else {
        Attempt::No
    };
    next!(pthread_mutex_unlock(mutex => *mut pthread_mutex_t) -> c_int, libc::ENOSYS);
    attempt
}

/// Time that a follower waits for a semaphore that its leader has got, while no thread has the lock and so none that
/// waits for its turn could give it back: then threads that race without a lock have parted. From then on threads are
/// not ordered.
const PARTED_AFTER_S: u32 = 10;

/// Called when a thread of the interpreter waits for a semaphore without the lock: for a lock of the program. Other
/// threads try that lock while they have the interpreter's, so their outcome depends on the moment: it is taken between
/// two segments, and a follower waits for its turn. `deadline`: in real time, of this clock.
pub fn wait_for_semaphore(
    semaphore: *mut c_void,
    deadline: Option<(clockid_t, &timespec)>,
    wait: impl FnOnce() -> c_int,
) -> c_int {
    let thread = THREAD.get();
    let is_ordered = thread.is_known && !thread.holds && HAS_THREADS.load(Ordering::Relaxed);
    if let Some(threads) = early::current().filter(|_| is_ordered)
        && let early::Waited::Ended(error) = early::wait(threads, semaphore, deadline)
    {
        return ended(error);
    }
    if !is_ordered || state::job().is_none() || !state::library_answers() {
        return wait();
    }
    let mut waited_s = 0;
    loop {
        let seen = EVENTS.load(Ordering::SeqCst);
        let answer = send(ENTERS, SEMAPHORE);
        if answer == 0 {
            // Threads are not ordered any more.
            return wait();
        }
        let is_decided = answer & DECIDED != 0;
        let error = match try_between(semaphore) {
            Attempt::Taken => return 0,
            Attempt::Missed(error) => error,
            Attempt::No => {
                // A follower whose turn it is waits for the semaphore that its siblings have got.
                let left = match deadline {
                    _ if is_decided => Some(timespec { tv_sec: 1, tv_nsec: 0 }),
                    deadline => deadline.map(|(clock, deadline)| left_until(clock, deadline)),
                };
                let is_free = is_decided && !IS_HELD.load(Ordering::Relaxed);
                if is_free && EVENTS.load(Ordering::SeqCst) == seen {
                    waited_s += 1;
                } else {
                    waited_s = 0;
                }
                if waited_s > PARTED_AFTER_S {
                    send(PARTED, 0);
                }
                if left.is_some_and(|left| left.tv_sec < 0) {
                    THREAD.set(Thread { has_timed_out: true, ..THREAD.get() });
                    libc::ETIMEDOUT
                } else if await_event(seen, left.as_ref()) {
                    libc::EINTR
                } else {
                    continue;
                }
            }
        };
        return ended(error);
    }
}

/// The result of a wait for a semaphore, with `errno`.
fn ended(error: c_int) -> c_int {
    if error == 0 {
        return 0;
    }
    real::set_errno(error);
    -1
}

/// Time until `deadline`; negative when it is over.
fn left_until(clock: clockid_t, deadline: &timespec) -> timespec {
    let left = deadline.tv_sec.saturating_mul(1_000_000_000).saturating_add(deadline.tv_nsec) - real::clock_ns(clock);
    if left <= 0 {
        return timespec { tv_sec: -1, tv_nsec: 0 };
    }
    timespec { tv_sec: left / 1_000_000_000, tv_nsec: left % 1_000_000_000 }
}

/// Called before the calling thread, which has the lock's first mutex, takes the lock: waits for its turn. A turn is
/// withdrawn where this process has become a copy, which follows.
#[cold]
fn await_turn() {
    let resumes = flag(THREAD.get().gave_way, RESUMES);
    let mutex = MUTEXES[LOCK].load(Ordering::Relaxed);
    loop {
        let is_held = IS_HELD.load(Ordering::Relaxed);
        if !is_held && send(MAY_TAKE, resumes) & MAY != 0 {
            return;
        }
        let seen = EVENTS.load(Ordering::SeqCst);
        next!(pthread_mutex_unlock(mutex => *mut pthread_mutex_t) -> c_int, libc::ENOSYS);
        let is_ordered = send(ENTERS, resumes) != 0;
        if is_held {
            await_event(seen, None);
        }
        next!(pthread_mutex_lock(mutex => *mut pthread_mutex_t) -> c_int, libc::ENOSYS);
        if !is_ordered && !IS_HELD.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Called before the calling thread locks a mutex. Returns true when that gives up the interpreter's lock.
pub fn before_lock(mutex: *mut pthread_mutex_t) -> bool {
    if is(mutex, SWITCH) && THREAD.get().has_turn {
        await_turn();
    }
    is(mutex, LOCK) && lock_begins()
}

/// Called after the calling thread has locked the mutex.
pub fn after_lock(mutex: *mut pthread_mutex_t, gives_up: bool) {
    if gives_up {
        IS_HELD.store(false, Ordering::Relaxed);
        record_event();
    } else if is(mutex, SWITCH) {
        lock_taken();
    }
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_post(semaphore: *mut c_void) -> c_int {
    let result = next!(sem_post(semaphore => *mut c_void) -> c_int, -1);
    if HAS_THREADS.load(Ordering::Relaxed) {
        record_event();
    }
    result
}
