//! Other names by which programs reach functions that are replaced here.
//!
//! Compilers call functions with a check of the buffer's size where they are asked to harden programs
//! (`_FORTIFY_SOURCE`, which distributions use for all they build), and the C library exports some functions under
//! several names. Each name stands for the function that is replaced: otherwise a replica would read its own files and
//! the name of its own host there. A test goes through the names that the C library exports (`tests/aliases.rs`).

use libc::{c_char, c_int, c_long, c_uint, c_ulong, c_void, off_t, pid_t};

type Pointer = *mut c_void;

/// Defines names that the C library has for the same function.
macro_rules! same {
    ($(fn $alias:ident($($argument:ident : $type:ty),*) -> $result:ty = $name:ident;)+) => { $(
        /// Another name of a function that is replaced.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $alias($($argument: $type),*) -> $result {
            unsafe extern "C" {
                fn $name($(_: $type),*) -> $result;
            }
            // SAFETY: - the symbol is this library's own function of this type, which replaces that of the C library.
            //         - the caller has promised what the C library asks for.
            unsafe { $name($($argument),*) }
        }
    )+ };
}

same! {
    fn __close(fd: c_int) -> c_int = close;
    fn __dup2(fd: c_int, other: c_int) -> c_int = dup2;
    fn __fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int = fcntl;
    fn __getpgid(process: pid_t) -> pid_t = getpgid;
    fn __getpid() -> pid_t = getpid;
    fn __lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t = lseek;
    fn llseek(fd: c_int, offset: off_t, whence: c_int) -> off_t = lseek;
    fn __nanosleep(request: *const libc::timespec, remain: *mut libc::timespec) -> c_int = nanosleep;
    fn __open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int = open;
    fn __open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int = open64;
    fn __pipe(ends: *mut c_int) -> c_int = pipe;
    fn __poll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout_ms: c_int) -> c_int = poll;
    fn __pread64(fd: c_int, memory: Pointer, length: usize, offset: off_t) -> isize = pread64;
    fn __pthread_mutex_lock(mutex: Pointer) -> c_int = pthread_mutex_lock;
    fn __pthread_mutex_trylock(mutex: Pointer) -> c_int = pthread_mutex_trylock;
    fn __pthread_once(control: Pointer, routine: extern "C" fn()) -> c_int = pthread_once;
    fn __pthread_rwlock_rdlock(lock: Pointer) -> c_int = pthread_rwlock_rdlock;
    fn __pthread_rwlock_tryrdlock(lock: Pointer) -> c_int = pthread_rwlock_tryrdlock;
    fn __pthread_rwlock_trywrlock(lock: Pointer) -> c_int = pthread_rwlock_trywrlock;
    fn __pthread_rwlock_wrlock(lock: Pointer) -> c_int = pthread_rwlock_wrlock;
    fn __pwrite64(fd: c_int, memory: *const c_void, length: usize, offset: off_t) -> isize = pwrite64;
    fn __read(fd: c_int, memory: Pointer, length: usize) -> isize = read;
    fn __sched_getparam(process: pid_t, parameters: Pointer) -> c_int = sched_getparam;
    fn __sched_getscheduler(process: pid_t) -> c_int = sched_getscheduler;
    fn __sched_setscheduler(process: pid_t, policy: c_int, parameters: *const c_void) -> c_int = sched_setscheduler;
    fn __select(count: c_int, read: Pointer, write: Pointer, except: Pointer, timeout: Pointer) -> c_int = select;
    fn __send(fd: c_int, memory: *const c_void, length: usize, flags: c_int) -> isize = send;
    fn __setpgid(process: pid_t, group: pid_t) -> c_int = setpgid;
    fn __write(fd: c_int, memory: *const c_void, length: usize) -> isize = write;
    fn _IO_fdopen(fd: c_int, mode: *const c_char) -> Pointer = fdopen;
    fn _IO_fopen(path: *const c_char, mode: *const c_char) -> Pointer = fopen;
}

/// Defines the names with a check: the last argument is the buffer's size, in bytes.
macro_rules! checked {
    ($(fn $alias:ident($($argument:ident : $type:ty),*; $size:ident holds $needed:expr) -> $result:ty = $name:ident;)+) => { $(
        /// A function that is replaced, with a check that its buffer is large enough.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $alias($($argument: $type,)* $size: usize) -> $result {
            unsafe extern "C" {
                fn $name($(_: $type),*) -> $result;
                /// Reports a buffer overflow and ends the process.
                fn __chk_fail() -> !;
            }
            if $needed > $size {
                // SAFETY: - it has no arguments.
                unsafe { __chk_fail() };
            }
            // SAFETY: - the symbol is this library's own function of this type, which replaces that of the C library.
            //         - the caller has promised what the C library asks for.
            unsafe { $name($($argument),*) }
        }
    )+ };
}

/// Size of `poll`'s array with `count` elements, in bytes.
fn poll_bytes(count: c_ulong) -> usize {
    (count as usize).saturating_mul(size_of::<libc::pollfd>())
}

checked! {
    fn __gethostname_chk(name: *mut c_char, length: usize; size holds length) -> c_int = gethostname;
    fn __poll_chk(
        fds: *mut libc::pollfd, count: libc::nfds_t, timeout_ms: c_int; size holds poll_bytes(count)
    ) -> c_int = poll;
    fn __ppoll_chk(
        fds: *mut libc::pollfd, count: libc::nfds_t, timeout: *const libc::timespec, mask: *const libc::sigset_t;
        size holds poll_bytes(count)
    ) -> c_int = ppoll;
    fn __pread_chk(fd: c_int, memory: Pointer, length: usize, offset: off_t; size holds length) -> isize = pread;
    fn __pread64_chk(fd: c_int, memory: Pointer, length: usize, offset: off_t; size holds length) -> isize = pread64;
    fn __read_chk(fd: c_int, memory: Pointer, length: usize; size holds length) -> isize = read;
    fn __readlink_chk(path: *const c_char, link: *mut c_char, length: usize; size holds length) -> isize = readlink;
    fn __readlinkat_chk(
        directory: c_int, path: *const c_char, link: *mut c_char, length: usize; size holds length
    ) -> isize = readlinkat;
}

/// A function that is replaced, with a check that its buffer is large enough.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recv_chk(fd: c_int, memory: Pointer, length: usize, size: usize, flags: c_int) -> isize {
    // SAFETY: - the caller has promised what the C library asks for.
    unsafe { __recvfrom_chk(fd, memory, length, size, flags, std::ptr::null_mut(), std::ptr::null_mut()) }
}

/// A function that is replaced, with a check that its buffer is large enough.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    memory: Pointer,
    length: usize,
    size: usize,
    flags: c_int,
    address: *mut libc::sockaddr,
    address_length: *mut libc::socklen_t,
) -> isize {
    unsafe extern "C" {
        fn __chk_fail() -> !;
    }
    if length > size {
        // SAFETY: - it has no arguments.
        unsafe { __chk_fail() };
    }
    // SAFETY: - the caller has promised what the C library asks for.
    unsafe { libc::recvfrom(fd, memory, length, flags, address, address_length) }
}
