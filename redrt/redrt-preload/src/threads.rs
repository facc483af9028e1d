//! Creation of threads: each gets a number, the same in all replicas (module `numbers`).

use crate::ordered::early;
use crate::real::next;
use crate::{numbers, state};
use libc::{c_int, c_void, pthread_attr_t, pthread_t};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

type Start = extern "C" fn(*mut c_void) -> *mut c_void;

thread_local! {
    static CREATED: Cell<u64> = const { Cell::new(0) };
}

/// State for a new thread, in memory of this library: the C library's heap is the application's.
struct Passport {
    taken: AtomicBool,
    start: Cell<Option<Start>>,
    argument: Cell<*mut c_void>,
    number: Cell<u64>,
    internal: Cell<bool>,
    is_ordered: Cell<bool>,
    early: Cell<Option<&'static early::Slot>>,
}

// SAFETY: - the cells are accessed only by the thread that has set `taken`, until it clears it.
unsafe impl Sync for Passport {}

/// Limit on threads that were created and have not begun. A thread that finds no place waits until another begins.
const PASSPORT_COUNT: usize = 256;

static PASSPORTS: [Passport; PASSPORT_COUNT] = [const {
    Passport {
        taken: AtomicBool::new(false),
        start: Cell::new(None),
        argument: Cell::new(std::ptr::null_mut()),
        number: Cell::new(0),
        internal: Cell::new(false),
        is_ordered: Cell::new(false),
        early: Cell::new(None),
    }
}; PASSPORT_COUNT];

fn take_passport() -> &'static Passport {
    loop {
        let free = PASSPORTS.iter().find(|passport| !passport.taken.swap(true, Ordering::Acquire));
        if let Some(passport) = free {
            return passport;
        }
        // SAFETY: sched_yield has no arguments.
        unsafe { libc::sched_yield() };
    }
}

extern "C" fn begin(passport: *mut c_void) -> *mut c_void {
    // SAFETY: - pthread_create below passes one of PASSPORTS.
    let passport = unsafe { &*passport.cast::<Passport>() };
    let (start, argument) = (passport.start.get(), passport.argument.get());
    numbers::adopt(passport.number.get());
    state::set_internal(passport.internal.get());
    match passport.early.take() {
        Some(slot) => early::begin_thread(slot),
        None => crate::ordered::begin_thread(passport.is_ordered.get().then_some(passport.number.get())),
    }
    passport.taken.store(false, Ordering::Release);
    let result = match start {
        Some(start) => start(argument),
        None => std::ptr::null_mut(),
    };
    crate::interpreter::end_thread();
    result
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Option<Start>,
    argument: *mut c_void,
) -> c_int {
    let create = |start: Option<Start>, argument: *mut c_void| {
        next!(pthread_create(
            thread => *mut pthread_t, attributes => *const pthread_attr_t, start => Option<Start>,
            argument => *mut c_void
        ) -> c_int, libc::ENOSYS)
    };
    let internal = state::is_internal();
    if let Some(start) = start.filter(|_| !internal) {
        crate::interpreter::record_thread(start as usize);
    }
    let is_ordered = !internal && crate::ordered::creates_thread(numbers::number());
    let order = CREATED.get();
    let number = if internal { u64::MAX } else { state::mix(numbers::number(), order + 1) };
    let early = start.filter(|_| !internal && !is_ordered).and_then(|start| early::created(number, start as usize));
    let passport = take_passport();
    passport.early.set(early);
    passport.start.set(start);
    passport.argument.set(argument);
    passport.internal.set(internal);
    passport.is_ordered.set(is_ordered);
    passport.number.set(number);
    let result = create(Some(begin), std::ptr::from_ref(passport).cast_mut().cast());
    if result != 0 {
        passport.early.set(None);
        passport.taken.store(false, Ordering::Release);
        if let Some(slot) = early {
            early::forget(slot);
        }
    } else if !internal {
        CREATED.set(order + 1);
    }
    result
}

/// Replaces the C library's, which would call `pthread_create` within itself: the thread is numbered like all others.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(
    thread: *mut pthread_t,
    start: Option<extern "C" fn(*mut c_void) -> c_int>,
    argument: *mut c_void,
) -> c_int {
    /// `thrd_error` and `thrd_nomem` of the C library.
    const ERROR: c_int = 2;
    const NO_MEMORY: c_int = 3;
    // SAFETY: - `thrd_join` takes the lower half of a thread's result, which is where a number is returned.
    let start = unsafe { std::mem::transmute::<Option<extern "C" fn(*mut c_void) -> c_int>, Option<Start>>(start) };
    // SAFETY: - the callee has the same contract.
    match unsafe { pthread_create(thread, std::ptr::null(), start, argument) } {
        0 => 0,
        libc::ENOMEM => NO_MEMORY,
        _ => ERROR,
    }
}
