//! The functions behind the interposed ones, and system calls made directly.

use libc::{c_char, c_int, c_long, c_void, timespec};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// A function of the C library, looked up once. Lookups may race; all have the same result.
pub struct Next {
    name: &'static [u8],
    address: AtomicPtr<c_void>,
}

impl Next {
    /// The next definition of `name`, which ends with a zero byte.
    pub const fn new(name: &'static [u8]) -> Self {
        assert!(matches!(name.last(), Some(0)));
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Address of the function; null when the C library lacks it.
    pub fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: name ends with a zero byte, by the assertion in new.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr().cast::<c_char>()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Calls the C library's function of this name; `$missing` is the result when it lacks one.
macro_rules! next {
    ($name:ident ( $($argument:expr => $type:ty),* ) -> $result:ty, $missing:expr) => {{
        static NEXT: $crate::real::Next = $crate::real::Next::new(concat!(stringify!($name), "\0").as_bytes());
        let address = NEXT.address();
        if address.is_null() {
            $missing
        } else {
            // SAFETY: the C library's function of this name has this type, which <$name> documents.
            let function = unsafe {
                std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn($($type),*) -> $result>(address)
            };
            // SAFETY: the arguments are valid, by contract of the interposed function.
            unsafe { function($($argument),*) }
        }
    }};
}
pub(crate) use next;

/// `PTHREAD_CANCEL_DISABLE` of the C library.
pub const CANCEL_DISABLE: libc::c_int = 1;

/// Sets whether the calling thread may be cancelled ([`CANCEL_DISABLE`]). Returns the former state.
pub fn set_cancellation(state: libc::c_int) -> libc::c_int {
    unsafe extern "C" {
        /// Declared here because the crate `libc` lacks it.
        fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
    }
    let mut before = 0;
    // SAFETY: - before is valid for writing. The state is one that the C library has, or has returned.
    unsafe { pthread_setcancelstate(state, &raw mut before) };
    before
}

/// The calling thread's `errno`.
pub fn errno() -> i32 {
    // SAFETY: __errno_location returns the address of the calling thread's errno, always valid.
    unsafe { *libc::__errno_location() }
}

/// Sets `errno`.
pub fn set_errno(error: i32) {
    // SAFETY: __errno_location returns the address of the calling thread's errno, always valid.
    unsafe { *libc::__errno_location() = error };
}

/// A system call made directly: neither interposed nor setting `errno`. Negative results are error numbers.
///
/// # Safety
/// As for the system call itself.
#[cfg(target_arch = "x86_64")]
pub unsafe fn system_call(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: the registers follow Linux's system call convention; the arguments are valid, by contract.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// A system call made directly: neither interposed nor setting `errno`. Negative results are error numbers.
///
/// # Safety
/// As for the system call itself.
#[cfg(target_arch = "aarch64")]
pub unsafe fn system_call(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: the registers follow Linux's system call convention; the arguments are valid, by contract.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack)
        );
    }
    result
}

/// Waits for descriptors: `ppoll`, without setting `errno`. A negative result is an error number.
///
/// The number is loaded by the instruction before the system call, as in the C library. That is how the cloner's agent
/// knows which call it has interrupted, and repeats it: otherwise the program would see a signal that was not its own.
///
/// # Safety
/// As for `ppoll`.
#[cfg(target_arch = "x86_64")]
pub unsafe fn ppoll(
    fds: *mut libc::pollfd,
    count: usize,
    time: *mut libc::timespec,
    mask: *const libc::sigset_t,
) -> c_long {
    let result;
    // SAFETY: - the registers are those of the Linux system call convention.
    //         - the caller vouches for the rest.
    unsafe {
        std::arch::asm!(
            "mov eax, {number}",
            "syscall",
            number = const libc::SYS_ppoll,
            lateout("rax") result,
            in("rdi") fds, in("rsi") count, in("rdx") time, in("r10") mask, in("r8") MASK_BYTES,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// Waits for descriptors: `ppoll`, without setting `errno`. A negative result is an error number.
///
/// # Safety
/// As for `ppoll`.
#[cfg(target_arch = "aarch64")]
pub unsafe fn ppoll(
    fds: *mut libc::pollfd,
    count: usize,
    time: *mut libc::timespec,
    mask: *const libc::sigset_t,
) -> c_long {
    let arguments = [fds as c_long, count as c_long, time as c_long, mask as c_long, MASK_BYTES, 0];
    // SAFETY: - the caller vouches for the arguments.
    unsafe { system_call(libc::SYS_ppoll, arguments) }
}

/// Size of the kernel's mask of signals, in bytes.
const MASK_BYTES: c_long = 8;

/// The result of a system call in the C library's form: -1 and `errno`.
pub fn with_errno(result: c_long) -> c_long {
    if (-4095..0).contains(&result) {
        set_errno(-result as i32);
        return -1;
    }
    result
}

/// The real process id.
pub fn process_id() -> i32 {
    // SAFETY: getpid has no arguments.
    unsafe { system_call(libc::SYS_getpid, [0; 6]) as i32 }
}

/// The real id of the calling thread.
pub fn thread_id() -> i32 {
    // SAFETY: gettid has no arguments.
    unsafe { system_call(libc::SYS_gettid, [0; 6]) as i32 }
}

/// The real clock, in nanoseconds; 0 when there is no such clock.
pub fn clock_ns(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let pointer = &raw mut time;
    let result = next!(clock_gettime(clock => libc::clockid_t, pointer => *mut libc::timespec) -> i32, -1);
    if result != 0 { 0 } else { time.tv_sec * 1_000_000_000 + time.tv_nsec }
}

/// True when the kernel shows this clock to this process.
pub fn clock_exists(clock: libc::clockid_t) -> bool {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let arguments = [clock.into(), &raw mut time as c_long, 0, 0, 0, 0];
    // SAFETY: time is valid for writing.
    unsafe { system_call(libc::SYS_clock_gettime, arguments) == 0 }
}

/// Wakes all threads that wait at this futex.
pub fn wake_all(futex: &'static AtomicU32) {
    let operation = c_long::from(libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG);
    // SAFETY: - the address is that of a static of this library.
    unsafe { system_call(libc::SYS_futex, [futex.as_ptr() as c_long, operation, c_int::MAX.into(), 0, 0, 0]) };
}

/// Waits at this futex while it has the value `seen`, at most for `left`. Returns an error number, or 0.
pub fn wait_while(futex: &'static AtomicU32, seen: u32, left: Option<&timespec>) -> c_int {
    let operation = c_long::from(libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG);
    let left = left.map_or(0, |left| std::ptr::from_ref(left) as c_long);
    // SAFETY: - the address is that of a static of this library, and the time lives as long as the call.
    let result =
        unsafe { system_call(libc::SYS_futex, [futex.as_ptr() as c_long, operation, seen.into(), left, 0, 0]) };
    -result as c_int
}
