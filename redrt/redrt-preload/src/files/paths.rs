//! Calls that name a path.

use super::call::{Call, Operation};
use super::{ask, interpose, returned};
use crate::real::{self, next};
use crate::{identity, ordered, random};
use libc::{c_char, c_int, c_uint, mode_t, off_t, stat as Status, statx as ExtendedStatus};

interpose! {
    fn unlink(path: *const c_char) -> c_int => Unlink { path };
    fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int => Unlink { directory, path, flags };
    fn rmdir(path: *const c_char) -> c_int => Unlink { path, flags: libc::AT_REMOVEDIR };
    fn rename(path: *const c_char, other_path: *const c_char) -> c_int => Rename {
        path, other: libc::AT_FDCWD, other_path
    };
    fn renameat(directory: c_int, path: *const c_char, other: c_int, other_path: *const c_char) -> c_int => Rename {
        directory, path, other, other_path
    };
    fn renameat2(
        directory: c_int, path: *const c_char, other: c_int, other_path: *const c_char, flags: c_uint
    ) -> c_int => Rename { directory, path, other, other_path, flags: flags as c_int };
    fn link(path: *const c_char, other_path: *const c_char) -> c_int => Link {
        path, other: libc::AT_FDCWD, other_path
    };
    fn linkat(
        directory: c_int, path: *const c_char, other: c_int, other_path: *const c_char, flags: c_int
    ) -> c_int => Link { directory, path, other, other_path, flags };
    fn symlink(other_path: *const c_char, path: *const c_char) -> c_int => SymbolicLink { other_path, path };
    fn symlinkat(other_path: *const c_char, directory: c_int, path: *const c_char) -> c_int => SymbolicLink {
        other_path, directory, path
    };
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int => MakeDirectory { path, mode };
    fn mkdirat(directory: c_int, path: *const c_char, mode: mode_t) -> c_int => MakeDirectory { directory, path, mode };
    fn truncate(path: *const c_char, length: off_t) -> c_int => Truncate { path, length };
    fn truncate64(path: *const c_char, length: off_t) -> c_int => Truncate { path, length };

    fn access(path: *const c_char, mode: c_int) -> c_int => Access { path, mode: mode as u32 };
    fn faccessat(directory: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int => Access {
        directory, path, mode: mode as u32, flags
    };
    fn eaccess(path: *const c_char, mode: c_int) -> c_int => Access {
        path, mode: mode as u32, flags: libc::AT_EACCESS
    };
    fn euidaccess(path: *const c_char, mode: c_int) -> c_int => Access {
        path, mode: mode as u32, flags: libc::AT_EACCESS
    };
    fn readlink(path: *const c_char, buffer: *mut c_char, length: usize) -> isize => ReadLink {
        path, buffer: buffer.cast(), length: length as i64
    };
    fn readlinkat(directory: c_int, path: *const c_char, buffer: *mut c_char, length: usize) -> isize => ReadLink {
        directory, path, buffer: buffer.cast(), length: length as i64
    };

    fn stat(path: *const c_char, status: *mut Status) -> c_int => Status { path, buffer: status.cast() };
    fn stat64(path: *const c_char, status: *mut Status) -> c_int => Status { path, buffer: status.cast() };
    fn lstat(path: *const c_char, status: *mut Status) -> c_int => Status {
        path, buffer: status.cast(), flags: libc::AT_SYMLINK_NOFOLLOW
    };
    fn lstat64(path: *const c_char, status: *mut Status) -> c_int => Status {
        path, buffer: status.cast(), flags: libc::AT_SYMLINK_NOFOLLOW
    };
    fn fstatat(directory: c_int, path: *const c_char, status: *mut Status, flags: c_int) -> c_int => Status {
        directory, path, buffer: status.cast(), flags
    };
    fn fstatat64(directory: c_int, path: *const c_char, status: *mut Status, flags: c_int) -> c_int => Status {
        directory, path, buffer: status.cast(), flags
    };
    fn __xstat(version: c_int, path: *const c_char, status: *mut Status) -> c_int => Status {
        path, buffer: status.cast()
    };
    fn __xstat64(version: c_int, path: *const c_char, status: *mut Status) -> c_int => Status {
        path, buffer: status.cast()
    };
    fn __lxstat(version: c_int, path: *const c_char, status: *mut Status) -> c_int => Status {
        path, buffer: status.cast(), flags: libc::AT_SYMLINK_NOFOLLOW
    };
    fn __lxstat64(version: c_int, path: *const c_char, status: *mut Status) -> c_int => Status {
        path, buffer: status.cast(), flags: libc::AT_SYMLINK_NOFOLLOW
    };
    fn statx(
        directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, status: *mut ExtendedStatus
    ) -> c_int => ExtendedStatus { directory, path, flags, mode: mask, buffer: status.cast() };
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remove(path: *const c_char) -> c_int {
    // As the C library: a file, else a directory.
    // SAFETY: - the callee has the same contract.
    let removed = unsafe { unlink(path) };
    if removed == -1 && matches!(real::errno(), libc::EISDIR | libc::EPERM) {
        // SAFETY: - the callee has the same contract.
        return unsafe { rmdir(path) };
    }
    removed
}

/// Opens a file with the first source that has it: the generator of random bytes, then the MPI library. `None` leaves
/// it to the C library.
///
/// # Safety
/// `path` is null or a zero-terminated string.
pub unsafe fn open_agreed(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> Option<c_int> {
    // SAFETY: - the callee has the same contract.
    if let Some(fd) = unsafe { random::open_device(path, flags) } {
        return Some(fd);
    }
    ask(&mut Call { directory, path, flags, mode, ..Call::new(Operation::Open) }).map(|fd| fd as c_int)
}

/// Interposes functions that open files; some take a directory first.
macro_rules! opens {
    ($( $name:ident ( $($directory:ident : $type:ty)? ) at $at:expr; )+) => { $(
        /// Replaces the C library's. The mode is passed on as a register, given or not.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($directory: $type,)? path: *const c_char, flags: c_int, mode: mode_t
        ) -> c_int {
            // SAFETY: - the arguments are valid for the C library's function, by contract.
            let path = unsafe { identity::real_path(path) };
            // SAFETY: - the arguments are valid for the C library's function, by contract.
            if let Some(fd) = unsafe { open_agreed($at, path, flags, mode) } {
                ordered::forget(fd);
                return fd;
            }
            let fd =
                next!($name($($directory => $type,)? path => *const c_char, flags => c_int, mode => mode_t) -> c_int, -1);
            returned(fd.into());
            // The C library may have closed a pipe of this number by itself, as `fclose` does.
            ordered::forget(fd);
            fd
        }
    )+ };
}

opens! {
    open() at libc::AT_FDCWD;
    open64() at libc::AT_FDCWD;
    openat(directory: c_int) at directory;
    openat64(directory: c_int) at directory;
    __open_2() at libc::AT_FDCWD;
    __open64_2() at libc::AT_FDCWD;
    __openat_2(directory: c_int) at directory;
    __openat64_2(directory: c_int) at directory;
}

const CREATING: c_int = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn creat(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: - the arguments are valid for `creat`, by contract.
    unsafe { open(path, CREATING, mode) }
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn creat64(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: - the arguments are valid for `creat64`, by contract.
    unsafe { open(path, CREATING, mode) }
}
