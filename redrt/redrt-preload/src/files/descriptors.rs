//! Calls that name a descriptor.

use super::call::{Call, Operation};
use super::{ask, interpose, is_known, returned};
use crate::real::{self, next};
use crate::{ordered, spared, state};
use libc::{c_int, c_long, c_uint, c_void, iovec, off_t};

/// True when the caller, the program, may not close this descriptor, as it is not the program's own.
fn is_spared(fd: c_int) -> bool {
    c_uint::try_from(fd).is_ok_and(spared::is_marked) && state::job().is_some_and(|job| job.is_first_process())
}

interpose! {
    fn dup(fd: c_int) -> c_int => Duplicate { fd, offset: 0 };
    fn dup2(fd: c_int, other: c_int) -> c_int => Duplicate { fd, other };
    fn dup3(fd: c_int, other: c_int, flags: c_int) -> c_int => Duplicate { fd, other, flags };

    fn read(fd: c_int, memory: *mut c_void, length: usize) -> isize => Read {
        fd, buffer: memory, length: length as i64
    };
    fn readv(fd: c_int, vector: *const iovec, count: c_int) -> isize => Read { fd, vector, count: count as usize };
    fn pread(fd: c_int, memory: *mut c_void, length: usize, offset: off_t) -> isize => Read {
        fd, buffer: memory, length: length as i64, offset: at(offset)
    };
    fn pread64(fd: c_int, memory: *mut c_void, length: usize, offset: off_t) -> isize => Read {
        fd, buffer: memory, length: length as i64, offset: at(offset)
    };
    fn preadv(fd: c_int, vector: *const iovec, count: c_int, offset: off_t) -> isize => Read {
        fd, vector, count: count as usize, offset: at(offset)
    };
    fn preadv64(fd: c_int, vector: *const iovec, count: c_int, offset: off_t) -> isize => Read {
        fd, vector, count: count as usize, offset: at(offset)
    };
    fn preadv2(fd: c_int, vector: *const iovec, count: c_int, offset: off_t, flags: c_int) -> isize => Read {
        fd, vector, count: count as usize, offset
    };
    fn preadv64v2(fd: c_int, vector: *const iovec, count: c_int, offset: off_t, flags: c_int) -> isize => Read {
        fd, vector, count: count as usize, offset
    };

    fn write(fd: c_int, memory: *const c_void, length: usize) -> isize => Write {
        fd, buffer: memory.cast_mut(), length: length as i64
    };
    fn writev(fd: c_int, vector: *const iovec, count: c_int) -> isize => Write { fd, vector, count: count as usize };
    fn pwrite(fd: c_int, memory: *const c_void, length: usize, offset: off_t) -> isize => Write {
        fd, buffer: memory.cast_mut(), length: length as i64, offset: at(offset)
    };
    fn pwrite64(fd: c_int, memory: *const c_void, length: usize, offset: off_t) -> isize => Write {
        fd, buffer: memory.cast_mut(), length: length as i64, offset: at(offset)
    };
    fn pwritev(fd: c_int, vector: *const iovec, count: c_int, offset: off_t) -> isize => Write {
        fd, vector, count: count as usize, offset: at(offset)
    };
    fn pwritev64(fd: c_int, vector: *const iovec, count: c_int, offset: off_t) -> isize => Write {
        fd, vector, count: count as usize, offset: at(offset)
    };
    fn pwritev2(fd: c_int, vector: *const iovec, count: c_int, offset: off_t, flags: c_int) -> isize => Write {
        fd, vector, count: count as usize, offset
    };
    fn pwritev64v2(fd: c_int, vector: *const iovec, count: c_int, offset: off_t, flags: c_int) -> isize => Write {
        fd, vector, count: count as usize, offset
    };

    fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t => Seek { fd, offset, flags: whence };
    fn lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t => Seek { fd, offset, flags: whence };

    fn fstat(fd: c_int, status: *mut libc::stat) -> c_int => DescriptorStatus { fd, buffer: status.cast() };
    fn fstat64(fd: c_int, status: *mut libc::stat) -> c_int => DescriptorStatus { fd, buffer: status.cast() };
    fn __fxstat(version: c_int, fd: c_int, status: *mut libc::stat) -> c_int => DescriptorStatus {
        fd, buffer: status.cast()
    };
    fn __fxstat64(version: c_int, fd: c_int, status: *mut libc::stat) -> c_int => DescriptorStatus {
        fd, buffer: status.cast()
    };

    fn ftruncate(fd: c_int, length: off_t) -> c_int => TruncateDescriptor { fd, length };
    fn ftruncate64(fd: c_int, length: off_t) -> c_int => TruncateDescriptor { fd, length };
    fn fallocate(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int => Allocate {
        fd, mode: mode as u32, offset, length
    };
    fn fallocate64(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int => Allocate {
        fd, mode: mode as u32, offset, length
    };
    fn flock(fd: c_int, operation: c_int) -> c_int => LockWhole { fd, flags: operation };

    fn fsync(fd: c_int) -> c_int => Synchronize { fd };
    fn fdatasync(fd: c_int) -> c_int => Synchronize { fd };
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if is_spared(fd) {
        real::set_errno(libc::EBADF);
        return -1;
    }
    ordered::forget(fd);
    match ask(&mut Call { fd, ..Call::new(Operation::Close) }) {
        Some(result) => result as c_int,
        None => next!(close(fd => c_int) -> c_int, -1),
    }
}

/// The C library refuses negative offsets in calls with an offset; so -1 must not be taken for the position.
fn at(offset: off_t) -> i64 {
    if offset < 0 { i64::MIN } else { offset }
}

/// Returns the number of the error and leaves `errno` unchanged.
fn allocate(fd: c_int, offset: off_t, length: off_t) -> Option<c_int> {
    let before = real::errno();
    let result = ask(&mut Call { fd, offset, length, ..Call::new(Operation::Allocate) })?;
    let error = if result < 0 { real::errno() } else { 0 };
    real::set_errno(before);
    Some(error)
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fallocate(fd: c_int, offset: off_t, length: off_t) -> c_int {
    allocate(fd, offset, length).unwrap_or_else(|| {
        let error = next!(posix_fallocate(fd => c_int, offset => off_t, length => off_t) -> c_int, libc::ENOSYS);
        returned(error.into());
        error
    })
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fallocate64(fd: c_int, offset: off_t, length: off_t) -> c_int {
    allocate(fd, offset, length).unwrap_or_else(|| {
        let error = next!(posix_fallocate64(fd => c_int, offset => off_t, length => off_t) -> c_int, libc::ENOSYS);
        returned(error.into());
        error
    })
}

/// The operations of `fcntl` that are answered.
fn control(fd: c_int, command: c_int, argument: c_long) -> Option<i64> {
    let blank = |operation| Call { fd, ..Call::new(operation) };
    let mut call = match command {
        libc::F_GETFL => blank(Operation::GetFlags),
        libc::F_SETFL => Call { flags: argument as c_int, ..blank(Operation::SetFlags) },
        libc::F_DUPFD => Call { offset: argument, ..blank(Operation::Duplicate) },
        libc::F_DUPFD_CLOEXEC => Call { offset: argument, flags: libc::O_CLOEXEC, ..blank(Operation::Duplicate) },
        libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW => {
            Call { flags: command, buffer: argument as *mut c_void, ..blank(Operation::Lock) }
        }
        _ => return None,
    };
    ask(&mut call)
}

/// `lockf`, which the C library builds on its own `fcntl`. `None` leaves it to the C library.
fn lock_from_here(fd: c_int, command: c_int, length: off_t) -> Option<c_int> {
    let (kind, how) = match command {
        libc::F_LOCK => (libc::F_WRLCK, libc::F_SETLKW),
        libc::F_TLOCK => (libc::F_WRLCK, libc::F_SETLK),
        libc::F_ULOCK => (libc::F_UNLCK, libc::F_SETLK),
        libc::F_TEST => (libc::F_RDLCK, libc::F_GETLK),
        _ => return None,
    };
    let (l_type, l_whence) = (kind as i16, libc::SEEK_CUR as i16);
    let mut range = libc::flock { l_type, l_whence, l_start: 0, l_len: length, l_pid: 0 };
    let result = control(fd, how, &raw mut range as c_long)? as c_int;
    if command == libc::F_TEST && result == 0 && c_int::from(range.l_type) != libc::F_UNLCK {
        real::set_errno(libc::EACCES);
        return Some(-1);
    }
    Some(result)
}

/// Interposes `lockf`.
macro_rules! locks {
    ($($name:ident)+) => { $(
        /// Replaces the C library's.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, command: c_int, length: off_t) -> c_int {
            lock_from_here(fd, command, length)
                .unwrap_or_else(|| next!($name(fd => c_int, command => c_int, length => off_t) -> c_int, -1))
        }
    )+ };
}

locks!(lockf lockf64);

/// Replaces the C library's, which is variadic: an absent argument is not read.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int {
    let result = match control(fd, command, argument) {
        Some(result) => result as c_int,
        None => next!(fcntl(fd => c_int, command => c_int, argument => c_long) -> c_int, -1),
    };
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) && result >= 0 {
        ordered::duplicated(fd, result);
    }
    result
}

/// Replaces the C library's, which is variadic: an absent argument is not read.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: c_long) -> c_int {
    let result = match control(fd, command, argument) {
        Some(result) => result as c_int,
        None => next!(fcntl64(fd => c_int, command => c_int, argument => c_long) -> c_int, -1),
    };
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) && result >= 0 {
        ordered::duplicated(fd, result);
    }
    result
}

/// Interposes functions that map files.
macro_rules! maps {
    ($($name:ident)+) => { $(
        /// Replaces the C library's.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            address: *mut c_void, length: usize, protection: c_int, flags: c_int, fd: c_int, offset: off_t
        ) -> *mut c_void {
            if fd >= 0 && flags & libc::MAP_ANONYMOUS == 0 {
                ask(&mut Call { fd, flags, mode: protection as u32, ..Call::new(Operation::Map) });
            }
            let arguments = [address as c_long, length as c_long, protection.into(), flags.into(), fd.into(), offset];
            // SAFETY: - the arguments are valid for `mmap`, by contract. Made directly: this runs before symbols can be
            //           looked up.
            real::with_errno(unsafe { real::system_call(libc::SYS_mmap, arguments) }) as *mut c_void
        }
    )+ };
}

maps!(mmap mmap64);

/// Copying within the kernel is optional: the C library's callers fall back to reading and writing.
macro_rules! moves {
    ($(fn $name:ident($($argument:ident : $type:ty),*), $from:ident to $to:ident at $at:expr, $length:expr, $flags:expr;)+) => { $(
        /// Replaces the C library's.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> isize {
            if is_known($from) || is_known($to) {
                real::set_errno(libc::EINVAL);
                return -1;
            }
            // SAFETY: null, or valid for reading a number, by contract.
            let offset = unsafe { ($at as *const off_t).as_ref() }.map_or(-1, |at| *at);
            let mut call = Call { fd: $to, offset, length: $length as i64, flags: $flags, ..Call::new(Operation::Fill) };
            if let Some(result) = ask(&mut call) {
                return result as isize;
            }
            let moved = next!($name($($argument => $type),*) -> isize, -1);
            returned(moved as i64);
            moved
        }
    )+ };
}

moves! {
    fn sendfile(
        into: c_int, from: c_int, offset: *mut off_t, length: usize
    ), from to into at std::ptr::null(), length, 0;
    fn sendfile64(
        into: c_int, from: c_int, offset: *mut off_t, length: usize
    ), from to into at std::ptr::null(), length, 0;
    fn copy_file_range(
        from: c_int, at: *mut off_t, into: c_int, to: *mut off_t, length: usize, flags: c_uint
    ), from to into at to, length, 0;
    fn splice(
        from: c_int, at: *mut off_t, into: c_int, to: *mut off_t, length: usize, flags: c_uint
    ), from to into at to, length, 1;
}
