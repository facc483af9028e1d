//! Calls about owners, permissions, times and extended attributes, by path or by descriptor.

use super::call::{Call, Operation};
use super::{ask, interpose, returned};
use crate::real::next;
use libc::{c_char, c_int, c_void, gid_t, mode_t, size_t, ssize_t, timespec, timeval, uid_t, utimbuf};

interpose! {
    fn chmod(path: *const c_char, mode: mode_t) -> c_int => ChangeMode { path, mode };
    fn fchmod(fd: c_int, mode: mode_t) -> c_int => ChangeMode { fd, mode };
    fn fchmodat(directory: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int => ChangeMode {
        directory, path, mode, flags
    };
    fn chown(path: *const c_char, owner: uid_t, group: gid_t) -> c_int => ChangeOwner {
        path, mode: owner, length: group.into()
    };
    fn lchown(path: *const c_char, owner: uid_t, group: gid_t) -> c_int => ChangeOwner {
        path, mode: owner, length: group.into(), flags: libc::AT_SYMLINK_NOFOLLOW
    };
    fn fchown(fd: c_int, owner: uid_t, group: gid_t) -> c_int => ChangeOwner { fd, mode: owner, length: group.into() };
    fn fchownat(directory: c_int, path: *const c_char, owner: uid_t, group: gid_t, flags: c_int) -> c_int => ChangeOwner {
        directory, path, mode: owner, length: group.into(), flags
    };

    fn utimensat(directory: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int => SetTimes {
        directory, path, fd: if path.is_null() { directory } else { -1 }, buffer: times.cast_mut().cast(), flags
    };
    fn futimens(fd: c_int, times: *const timespec) -> c_int => SetTimes { fd, buffer: times.cast_mut().cast() };

    fn getxattr(path: *const c_char, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t => GetAttribute {
        path, other_path: name, buffer: value, length: size as i64
    };
    fn lgetxattr(path: *const c_char, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t => GetAttribute {
        path, other_path: name, buffer: value, length: size as i64, flags: libc::AT_SYMLINK_NOFOLLOW
    };
    fn fgetxattr(fd: c_int, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t => GetAttribute {
        fd, other_path: name, buffer: value, length: size as i64
    };
    fn listxattr(path: *const c_char, list: *mut c_char, size: size_t) -> ssize_t => ListAttributes {
        path, buffer: list.cast(), length: size as i64
    };
    fn llistxattr(path: *const c_char, list: *mut c_char, size: size_t) -> ssize_t => ListAttributes {
        path, buffer: list.cast(), length: size as i64, flags: libc::AT_SYMLINK_NOFOLLOW
    };
    fn flistxattr(fd: c_int, list: *mut c_char, size: size_t) -> ssize_t => ListAttributes {
        fd, buffer: list.cast(), length: size as i64
    };
    fn setxattr(
        path: *const c_char, name: *const c_char, value: *const c_void, size: size_t, how: c_int
    ) -> c_int => SetAttribute {
        path, other_path: name, buffer: value.cast_mut(), length: size as i64, mode: how as u32
    };
    fn lsetxattr(
        path: *const c_char, name: *const c_char, value: *const c_void, size: size_t, how: c_int
    ) -> c_int => SetAttribute {
        path, other_path: name, buffer: value.cast_mut(), length: size as i64, mode: how as u32,
        flags: libc::AT_SYMLINK_NOFOLLOW
    };
    fn fsetxattr(
        fd: c_int, name: *const c_char, value: *const c_void, size: size_t, how: c_int
    ) -> c_int => SetAttribute {
        fd, other_path: name, buffer: value.cast_mut(), length: size as i64, mode: how as u32
    };
    fn removexattr(path: *const c_char, name: *const c_char) -> c_int => RemoveAttribute { path, other_path: name };
    fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int => RemoveAttribute {
        path, other_path: name, flags: libc::AT_SYMLINK_NOFOLLOW
    };
    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int => RemoveAttribute { fd, other_path: name };
}

/// Times of access and change in microseconds, converted to those of `utimensat`.
///
/// # Safety
/// `times` is null or two of them.
unsafe fn precisely(times: *const timeval) -> Option<[timespec; 2]> {
    if times.is_null() {
        return None;
    }
    // SAFETY: - `times` is not null, so it points to two times, by contract.
    let times = unsafe { times.cast::<[timeval; 2]>().read() };
    // A value that is no fraction of a second stays invalid.
    Some(times.map(|time| timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_usec.saturating_mul(1000) }))
}

/// Asks for an answer; `None` leaves the call to the C library.
fn set_times(call: Call, times: Option<&[timespec; 2]>) -> Option<c_int> {
    let buffer = times.map_or(std::ptr::null_mut(), |times| times.as_ptr().cast_mut().cast());
    ask(&mut Call { buffer, operation: Operation::SetTimes, ..call }).map(|result| result as c_int)
}

macro_rules! set_times {
    ($(fn $name:ident($($argument:ident : $type:ty),*; $times:ident: $times_type:ty) => { $($field:ident $(: $value:expr)?),* } by $convert:expr;)+) => { $(
        /// Replaces the C library's.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type,)* $times: $times_type) -> c_int {
            // SAFETY: - the conversion takes what the C library's function takes.
            let times = unsafe { $convert($times) };
            let call = Call { $($field $(: $value)?,)* ..Call::new(Operation::SetTimes) };
            set_times(call, times.as_ref())
                .unwrap_or_else(|| {
                    let result = next!($name($($argument => $type,)* $times => $times_type) -> c_int, -1);
                    returned(result.into());
                    result
                })
        }
    )+ };
}

set_times! {
    fn utime(path: *const c_char; times: *const utimbuf) => { path } by whole;
    fn utimes(path: *const c_char; times: *const timeval) => { path } by precisely;
    fn lutimes(path: *const c_char; times: *const timeval) => { path, flags: libc::AT_SYMLINK_NOFOLLOW } by precisely;
    fn futimes(fd: c_int; times: *const timeval) => { fd } by precisely;
    fn futimesat(directory: c_int, path: *const c_char; times: *const timeval) => {
        directory, path, fd: if path.is_null() { directory } else { -1 }
    } by precisely;
}

/// Times of access and change in seconds, converted likewise.
///
/// # Safety
/// `times` is null or points to a pair.
unsafe fn whole(times: *const utimbuf) -> Option<[timespec; 2]> {
    // SAFETY: - `times` is null or points to a pair, by contract.
    let times = unsafe { times.as_ref() }?;
    Some([times.actime, times.modtime].map(|seconds| timespec { tv_sec: seconds, tv_nsec: 0 }))
}
