//! OpenMP of GNU (`libgomp`), and of others where a program calls it by these names: critical sections, locks, the
//! assignment of a loop's pieces to threads, and the choice of the thread for a single region. The threads and barriers
//! of a team need no order.
//!
//! These are the functions that the compiler and the program call by name. Calls within the runtime are its own.

use super::places::{Last, OfObject};
use super::runtimes::is_one_of;
use super::{Act, Caller, Ordered, caller};
use libc::{c_int, c_long, c_uint};
use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// Stand for objects without an address: critical sections without a name, atomic updates, pieces of work.
static CRITICAL: AtomicU8 = AtomicU8::new(0);
static ATOMIC: AtomicU8 = AtomicU8::new(0);
static PIECES: AtomicU8 = AtomicU8::new(0);

fn object(of: &'static AtomicU8) -> *const c_void {
    std::ptr::from_ref(of).cast()
}

/// A function of the runtime, looked up once: the next one of this name, or that of a runtime that was loaded for a
/// plug-in alone.
struct OfRuntime {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl OfRuntime {
    const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: looks a symbol up by a C string.
        let mut found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            let mut search = Search { name: self.name, found };
            // SAFETY: the function below has this type, and takes a search.
            unsafe { libc::dl_iterate_phdr(Some(find_in), (&raw mut search).cast()) };
            found = search.found;
        }
        if found.is_null() {
            say_missing(self.name);
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Ends the program, which cannot go on without this function.
fn say_missing(name: &CStr) -> ! {
    for part in [c"redrt: no OpenMP runtime of this process has ", name, c"\n"] {
        // SAFETY: writes a C string, whose length this is.
        unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.count_bytes()) };
    }
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

struct Search {
    name: &'static CStr,
    found: *mut c_void,
}

unsafe extern "C" fn find_in(object: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes an object that stays loaded during the call, and `address` its search.
    let (object, search) = unsafe { (&*object, &mut *search.cast::<Search>()) };
    let path = object.dlpi_name;
    if !is_one_of(path, &[b"libgomp", b"libomp", b"libiomp"]) {
        return 0;
    }
    // SAFETY: the object is loaded, and stays so.
    let handle = unsafe { libc::dlopen(path, libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    if !handle.is_null() {
        // SAFETY: looks a symbol up in it by a C string.
        search.found = unsafe { libc::dlsym(handle, search.name.as_ptr()) };
    }
    c_int::from(!search.found.is_null())
}

/// The runtime's function of this name and type.
macro_rules! runtime {
    ($name:ident ( $($type:ty),* ) -> $result:ty) => {{
        static FUNCTION: OfRuntime = OfRuntime::new(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has no zero byte"),
            });
        // SAFETY: the runtime's function of this name has this type, by its documentation.
        unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(FUNCTION.address())
        }
    }};
}

/// Enters a region that one thread is in at a time.
fn enter(of: *const c_void, real: impl Fn(), leave: impl Fn()) {
    let caller = caller();
    if matches!(caller, Caller::Unordered) {
        return real();
    }
    let real = || {
        real();
        0
    };
    let take_back = || {
        leave();
        true
    };
    let act = Act::new(real, || _ = real(), take_back);
    caller.perform(&OfObject::new(of), &act);
}

macro_rules! entrances {
    ($( $name:ident ( $($argument:ident : $type:ty)? ), $leave:ident, $of:expr; )+) => { $(
        /// Replaces the OpenMP runtime's.
        ///
        /// # Safety
        /// As for the function of the runtime.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type)?) {
            let (real, leave) = (runtime!($name($($type)?) -> ()), runtime!($leave($($type)?) -> ()));
            enter(
                $of,
                // SAFETY: the arguments are valid for the runtime's function, by contract.
                || unsafe { real($($argument)?) },
                // SAFETY: the same; it was entered.
                || unsafe { leave($($argument)?) },
            );
        }
    )+ };
}

type Lock = *mut c_void;

entrances! {
    GOMP_critical_start(), GOMP_critical_end, object(&CRITICAL);
    GOMP_critical_name_start(name: Lock), GOMP_critical_name_end, name;
    GOMP_atomic_start(), GOMP_atomic_end, object(&ATOMIC);
    omp_set_lock(lock: Lock), omp_unset_lock, lock;
    omp_set_lock_(lock: Lock), omp_unset_lock_, lock;
    omp_set_nest_lock(lock: Lock), omp_unset_nest_lock, lock;
    omp_set_nest_lock_(lock: Lock), omp_unset_nest_lock_, lock;
}

/// Tries to take a lock, and returns the call's result.
fn attempt(lock: Lock, real: impl Fn() -> c_int, surely: impl Fn(), leave: impl Fn()) -> c_int {
    let caller = caller();
    if matches!(caller, Caller::Unordered) {
        return real();
    }
    let taken = Cell::new(0);
    let real = || {
        taken.set(real());
        if taken.get() == 0 { libc::EBUSY } else { 0 }
    };
    let surely = || {
        surely();
        taken.set(1);
    };
    let take_back = || {
        leave();
        true
    };
    let act = Act { may_miss: true, ..Act::new(real, surely, take_back) };
    if caller.perform(&OfObject::new(lock), &act) == 0 { taken.get() } else { 0 }
}

macro_rules! attempts {
    ($( $name:ident, $set:ident, $unset:ident; )+) => { $(
        /// Replaces the OpenMP runtime's.
        ///
        /// # Safety
        /// As for the function of the runtime.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(lock: Lock) -> c_int {
            let real = runtime!($name(Lock) -> c_int);
            let (set, unset) = (runtime!($set(Lock) -> ()), runtime!($unset(Lock) -> ()));
            // SAFETY: the lock is valid for the runtime's functions, by contract.
            attempt(lock, || unsafe { real(lock) }, || unsafe { set(lock) }, || unsafe { unset(lock) })
        }
    )+ };
}

attempts! {
    omp_test_lock, omp_set_lock, omp_unset_lock;
    omp_test_lock_, omp_set_lock_, omp_unset_lock_;
}

/// Asks for a piece of work. Pieces go to threads in the order of their requests.
fn piece<T: Copy>(real: impl Fn() -> T) -> T {
    match caller() {
        Caller::Ordered(thread) => in_turn(thread, real),
        Caller::Early(_) | Caller::Unordered => real(),
    }
}

fn in_turn<T: Copy>(thread: Ordered, real: impl Fn() -> T) -> T {
    let last = OfObject::new(object(&PIECES));
    // In the leader, answers come in the order in which they are recorded.
    let held = Cell::new(None);
    let answer = Cell::new(None);
    let ask = || {
        held.set(Some(last.hold()));
        answer.set(Some(real()));
        0
    };
    let surely = || {
        answer.set(Some(real()));
    };
    let take_back = || {
        drop(held.take());
        false
    };
    let act = Act::new(ask, surely, take_back);
    thread.perform(&Within { last: &last, held: &held }, &act);
    drop(held.take());
    answer.get().unwrap_or_else(real)
}

/// An object that the asking thread may hold already.
struct Within<'a> {
    last: &'a OfObject,
    held: &'a Cell<Option<super::places::Held>>,
}

impl Last for Within<'_> {
    fn hold(&self) -> super::places::Held {
        self.held.take().unwrap_or_else(|| self.last.hold())
    }

    fn read(&self) -> Option<(u64, u64)> {
        self.last.read()
    }

    fn write(&self, thread: u64, number: u64) {
        self.last.write(thread, number);
    }
}

macro_rules! pieces {
    ($( $name:ident ( $($argument:ident : $type:ty),* ) -> $result:ty; )+) => { $(
        /// Replaces the OpenMP runtime's.
        ///
        /// # Safety
        /// As for the function of the runtime.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            let real = runtime!($name($($type),*) -> $result);
            // SAFETY: the arguments are valid for the runtime's function, by contract.
            piece(|| unsafe { real($($argument),*) })
        }
    )+ };
}

type Longs = *mut c_long;
type Ulls = *mut u64;

pieces! {
    GOMP_single_start() -> bool;
    GOMP_sections_start(count: c_uint) -> c_uint;
    GOMP_sections_next() -> c_uint;
    GOMP_loop_dynamic_next(begin: Longs, end: Longs) -> bool;
    GOMP_loop_guided_next(begin: Longs, end: Longs) -> bool;
    GOMP_loop_runtime_next(begin: Longs, end: Longs) -> bool;
    GOMP_loop_nonmonotonic_dynamic_next(begin: Longs, end: Longs) -> bool;
    GOMP_loop_nonmonotonic_guided_next(begin: Longs, end: Longs) -> bool;
    GOMP_loop_nonmonotonic_runtime_next(begin: Longs, end: Longs) -> bool;
    GOMP_loop_maybe_nonmonotonic_runtime_next(begin: Longs, end: Longs) -> bool;
    GOMP_loop_ull_dynamic_next(begin: Ulls, end: Ulls) -> bool;
    GOMP_loop_ull_guided_next(begin: Ulls, end: Ulls) -> bool;
    GOMP_loop_ull_runtime_next(begin: Ulls, end: Ulls) -> bool;
    GOMP_loop_ull_nonmonotonic_dynamic_next(begin: Ulls, end: Ulls) -> bool;
    GOMP_loop_ull_nonmonotonic_guided_next(begin: Ulls, end: Ulls) -> bool;
    GOMP_loop_ull_nonmonotonic_runtime_next(begin: Ulls, end: Ulls) -> bool;
    GOMP_loop_ull_maybe_nonmonotonic_runtime_next(begin: Ulls, end: Ulls) -> bool;
    GOMP_loop_dynamic_start(from: c_long, to: c_long, step: c_long, size: c_long, begin: Longs, end: Longs) -> bool;
    GOMP_loop_guided_start(from: c_long, to: c_long, step: c_long, size: c_long, begin: Longs, end: Longs) -> bool;
    GOMP_loop_nonmonotonic_dynamic_start(
        from: c_long, to: c_long, step: c_long, size: c_long, begin: Longs, end: Longs) -> bool;
    GOMP_loop_nonmonotonic_guided_start(
        from: c_long, to: c_long, step: c_long, size: c_long, begin: Longs, end: Longs) -> bool;
    GOMP_loop_runtime_start(from: c_long, to: c_long, step: c_long, begin: Longs, end: Longs) -> bool;
    GOMP_loop_nonmonotonic_runtime_start(
        from: c_long, to: c_long, step: c_long, begin: Longs, end: Longs) -> bool;
    GOMP_loop_maybe_nonmonotonic_runtime_start(
        from: c_long, to: c_long, step: c_long, begin: Longs, end: Longs) -> bool;
    GOMP_loop_ull_dynamic_start(
        up: bool, from: u64, to: u64, step: u64, size: u64, begin: Ulls, end: Ulls) -> bool;
    GOMP_loop_ull_guided_start(
        up: bool, from: u64, to: u64, step: u64, size: u64, begin: Ulls, end: Ulls) -> bool;
    GOMP_loop_ull_nonmonotonic_dynamic_start(
        up: bool, from: u64, to: u64, step: u64, size: u64, begin: Ulls, end: Ulls) -> bool;
    GOMP_loop_ull_nonmonotonic_guided_start(
        up: bool, from: u64, to: u64, step: u64, size: u64, begin: Ulls, end: Ulls) -> bool;
}
