//! Calls that list directories. A `DIR` is the C library's own, of a directory that is open in this process; only
//! entries read from it are answered, by its descriptor. So all other uses of it, in a forked child too, are the C
//! library's.
//!
//! `scandir` is built on these functions here, because the C library's calls its own; `glob` takes them from its
//! caller.

use super::call::{Call, Operation};
use super::{ask, asks, paths};
use crate::identity;
use crate::real::{self, next};
use libc::{DIR, c_char, c_int, c_long, c_void, dirent64, stat as Status};
use std::ffi::CStr;

/// Flags with which the C library opens a directory.
const OPENING: c_int = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_DIRECTORY | libc::O_CLOEXEC;

/// Sorts entries.
type Compare = unsafe extern "C" fn(*const *const dirent64, *const *const dirent64) -> c_int;
/// Picks entries.
type Filter = unsafe extern "C" fn(*const dirent64) -> c_int;

/// The descriptor of a directory; -1 if there is none.
fn descriptor_of(directory: *mut DIR) -> c_int {
    if directory.is_null() { -1 } else { next!(dirfd(directory => *mut DIR) -> c_int, -1) }
}

fn open_real(fd: c_int) -> *mut DIR {
    let directory = next!(fdopendir(fd => c_int) -> *mut DIR, std::ptr::null_mut());
    if directory.is_null() {
        let error = real::errno();
        ask(&mut Call { fd, ..Call::new(Operation::Close) });
        real::set_errno(error);
    }
    directory
}

/// Opens a directory that replicas agree on; `None` leaves it to the C library.
///
/// # Safety
/// `path` is null or a zero-terminated string.
unsafe fn open_agreed(directory: c_int, path: *const c_char) -> Option<*mut DIR> {
    let fd = ask(&mut Call { directory, path, flags: OPENING, ..Call::new(Operation::Open) })? as c_int;
    Some(if fd < 0 { std::ptr::null_mut() } else { open_real(fd) })
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    // SAFETY: - the arguments are valid for `opendir`, by contract.
    let path = unsafe { identity::real_path(path) };
    // SAFETY: - the arguments are valid for `opendir`, by contract.
    unsafe { open_agreed(libc::AT_FDCWD, path) }
        .unwrap_or_else(|| next!(opendir(path => *const c_char) -> *mut DIR, std::ptr::null_mut()))
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closedir(directory: *mut DIR) -> c_int {
    ask(&mut Call { fd: descriptor_of(directory), ..Call::new(Operation::Forget) });
    next!(closedir(directory => *mut DIR) -> c_int, -1)
}

fn next_entry(directory: *mut DIR) -> Option<*mut dirent64> {
    let entry = ask(&mut Call { fd: descriptor_of(directory), ..Call::new(Operation::NextEntry) })?;
    Some(if entry < 0 { std::ptr::null_mut() } else { entry as *mut dirent64 })
}

/// Interposes functions that read an entry.
macro_rules! reads {
    ($($name:ident $into:ident)+) => { $(
        /// Replaces the C library's.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(directory: *mut DIR) -> *mut dirent64 {
            next_entry(directory)
                .unwrap_or_else(|| next!($name(directory => *mut DIR) -> *mut dirent64, std::ptr::null_mut()))
        }

        /// Replaces the C library's, which returns the number of the error.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $into(
            directory: *mut DIR, entry: *mut dirent64, result: *mut *mut dirent64
        ) -> c_int {
            let before = real::errno();
            real::set_errno(0);
            let Some(found) = next_entry(directory) else {
                real::set_errno(before);
                return next!(
                    $into(directory => *mut DIR, entry => *mut dirent64, result => *mut *mut dirent64) -> c_int,
                    libc::ENOSYS
                );
            };
            let error = real::errno();
            real::set_errno(before);
            let filled = if found.is_null() { found } else { entry };
            if !found.is_null() {
                // SAFETY: an entry is followed by memory for a whole one; the program's is valid, by contract.
                unsafe { entry.write_unaligned(found.read_unaligned()) };
            }
            // SAFETY: the place of the result is valid for writing, by contract.
            unsafe { *result = filled };
            error
        }
    )+ };
}

reads!(readdir readdir_r readdir64 readdir64_r);

/// Moves to a place in the listing; `None` leaves it to the C library.
fn seek(directory: *mut DIR, offset: i64, whence: c_int) -> Option<i64> {
    ask(&mut Call { fd: descriptor_of(directory), offset, flags: whence, ..Call::new(Operation::Seek) })
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn telldir(directory: *mut DIR) -> c_long {
    seek(directory, 0, libc::SEEK_CUR).unwrap_or_else(|| next!(telldir(directory => *mut DIR) -> c_long, -1))
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seekdir(directory: *mut DIR, position: c_long) {
    if seek(directory, position, libc::SEEK_SET).is_none() {
        next!(seekdir(directory => *mut DIR, position => c_long) -> (), ());
    }
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewinddir(directory: *mut DIR) {
    if seek(directory, 0, libc::SEEK_SET).is_none() {
        next!(rewinddir(directory => *mut DIR) -> (), ());
    }
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getdents64(fd: c_int, buffer: *mut c_void, length: usize) -> isize {
    match ask(&mut Call { fd, buffer, length: length as i64, ..Call::new(Operation::NextEntries) }) {
        Some(count) => count as isize,
        None => next!(getdents64(fd => c_int, buffer => *mut c_void, length => usize) -> isize, -1),
    }
}

/// Reads a directory to its end, into a list of copies, all made by `malloc`; -1 if memory runs out.
///
/// # Safety
/// Same duties as `scandir`, with an open directory.
unsafe fn scan(
    directory: *mut DIR,
    list: *mut *mut *mut dirent64,
    filter: Option<Filter>,
    compare: Option<Compare>,
) -> c_int {
    let mut found: *mut *mut dirent64 = std::ptr::null_mut();
    let mut count = 0;
    let before = real::errno();
    let failed = loop {
        real::set_errno(0);
        // SAFETY: an open directory.
        let entry = unsafe { readdir64(directory) };
        if entry.is_null() {
            break real::errno();
        }
        // SAFETY: an entry of the directory, which lives until the next is read.
        if filter.is_some_and(|filter| unsafe { filter(entry) } == 0) {
            continue;
        }
        // SAFETY: an entry of the directory, which lives until the next is read.
        let length = usize::from(unsafe { (&raw const (*entry).d_reclen).read() });
        // SAFETY: null, or made by realloc; `length` bytes are copied.
        let (grown, copy) =
            unsafe { (libc::realloc(found.cast(), (count + 1) * size_of::<*mut dirent64>()), libc::malloc(length)) };
        if !grown.is_null() {
            found = grown.cast();
        }
        if grown.is_null() || copy.is_null() {
            // SAFETY: null, or just made.
            unsafe { libc::free(copy) };
            break libc::ENOMEM;
        }
        // SAFETY: the entry is as long as it says, the copy too; the list has room for one more.
        unsafe {
            std::ptr::copy_nonoverlapping(entry.cast::<u8>(), copy.cast(), length);
            found.add(count).write(copy.cast());
        }
        count += 1;
    };
    if failed != 0 {
        for at in 0..count {
            // SAFETY: this many were written.
            unsafe { libc::free((*found.add(at)).cast()) };
        }
        // SAFETY: null, or made by realloc.
        unsafe { libc::free(found.cast()) };
        real::set_errno(failed);
        return -1;
    }
    real::set_errno(before);
    if let Some(compare) = compare.filter(|_| count > 1) {
        // SAFETY: the function compares elements of a list of pointers, and the C library passes such elements.
        let compare = unsafe {
            std::mem::transmute::<Compare, unsafe extern "C" fn(*const c_void, *const c_void) -> c_int>(compare)
        };
        // SAFETY: this many elements were written.
        unsafe { libc::qsort(found.cast(), count, size_of::<*mut dirent64>(), Some(compare)) };
    }
    // SAFETY: the place of the list is valid for writing, by contract.
    unsafe { *list = found };
    count as c_int
}

/// Interposes functions that read a whole directory; some take the directory of a relative path.
macro_rules! scans {
    ($( $name:ident ( $($directory:ident : $type:ty)? ) at $at:expr; )+) => { $(
        /// Replaces the C library's.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($directory: $type,)? path: *const c_char, list: *mut *mut *mut dirent64,
            filter: Option<Filter>, compare: Option<Compare>,
        ) -> c_int {
            // SAFETY: - the arguments are valid for the C library's function, by contract.
            let Some(opened) = (unsafe { open_agreed($at, path) }) else {
                return next!($name(
                    $($directory => $type,)? path => *const c_char, list => *mut *mut *mut dirent64,
                    filter => Option<Filter>, compare => Option<Compare>
                ) -> c_int, -1);
            };
            if opened.is_null() {
                return -1;
            }
            // SAFETY: - the arguments are valid for the C library's function, by contract, with the directory that was
            //           opened.
            let count = unsafe { scan(opened, list, filter, compare) };
            let error = real::errno();
            // SAFETY: opened above.
            unsafe { closedir(opened) };
            real::set_errno(error);
            count
        }
    )+ };
}

scans! {
    scandir() at libc::AT_FDCWD;
    scandir64() at libc::AT_FDCWD;
    scandirat(directory: c_int) at directory;
    scandirat64(directory: c_int) at directory;
}

/// `glob_t` of the C library, with the functions that a caller may give it.
#[repr(C)]
pub struct Glob {
    counts: [usize; 3],
    flags: c_int,
    close: *mut c_void,
    read: *mut c_void,
    open: *mut c_void,
    link_status: *mut c_void,
    status: *mut c_void,
}

const _: () = assert!(size_of::<Glob>() == size_of::<libc::glob_t>());

/// Called by `glob` when it cannot read a directory.
type OnError = unsafe extern "C" fn(*const c_char, c_int) -> c_int;

/// `GLOB_ALTDIRFUNC`: the caller gives the functions.
const WITH_FUNCTIONS: c_int = 1 << 6;

unsafe extern "C" fn status_of(path: *const c_char, status: *mut Status) -> c_int {
    // SAFETY: - the arguments are valid for `stat`, by contract.
    unsafe { paths::stat(path, status) }
}

unsafe extern "C" fn link_status_of(path: *const c_char, status: *mut Status) -> c_int {
    // SAFETY: - the arguments are valid for `lstat`, by contract.
    unsafe { paths::lstat(path, status) }
}

/// Interposes `glob`: the C library's function gets the functions of this library.
macro_rules! globs {
    ($($name:ident)+) => { $(
        /// Replaces the C library's.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            pattern: *const c_char, flags: c_int, on_error: Option<OnError>, found: *mut Glob
        ) -> c_int {
            let real = |flags: c_int, found: *mut Glob| {
                next!(
                    $name(
                        pattern => *const c_char, flags => c_int, on_error => Option<OnError>, found => *mut Glob
                    ) -> c_int,
                    libc::GLOB_NOMATCH
                )
            };
            if flags & WITH_FUNCTIONS != 0 || found.is_null() || !asks() {
                return real(flags, found);
            }
            // SAFETY: not null, so valid, by contract; read and written as a whole.
            let before = unsafe { found.read() };
            // SAFETY: not null, so valid, by contract; the program does not use it during the call.
            unsafe {
                (*found).close = closedir as *mut c_void;
                (*found).read = readdir64 as *mut c_void;
                (*found).open = opendir as *mut c_void;
                (*found).link_status = link_status_of as *mut c_void;
                (*found).status = status_of as *mut c_void;
            }
            let result = real(flags | WITH_FUNCTIONS, found);
            // SAFETY: not null, and filled in by the C library; the program does not use it during the call.
            unsafe {
                let Glob { close, read, open, link_status, status, .. } = before;
                let Glob { counts, flags, .. } = found.read();
                found.write(Glob { counts, flags: flags & !WITH_FUNCTIONS, close, read, open, link_status, status });
            }
            result
        }
    )+ };
}

globs!(glob glob64);

/// The names in a directory, without `.` and `..`, in the order in which they are read.
///
/// # Safety
/// `path` is a zero-terminated string.
pub unsafe fn names_in(directory: c_int, path: *const c_char) -> Result<Vec<Vec<u8>>, c_int> {
    // SAFETY: a string, by contract.
    let opened = unsafe { open_agreed(directory, path) }.unwrap_or_else(|| {
        let fd = next!(openat(directory => c_int, path => *const c_char, OPENING => c_int) -> c_int, -1);
        if fd < 0 { std::ptr::null_mut() } else { next!(fdopendir(fd => c_int) -> *mut DIR, std::ptr::null_mut()) }
    });
    if opened.is_null() {
        return Err(real::errno());
    }
    let mut names = Vec::new();
    real::set_errno(0);
    let error = loop {
        // SAFETY: an open directory.
        let entry = unsafe { readdir64(opened) };
        if entry.is_null() {
            break real::errno();
        }
        // SAFETY: the entry's name ends with a zero byte.
        let name = unsafe { CStr::from_ptr((&raw const (*entry).d_name).cast()) }.to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(name.to_vec());
        }
    };
    // SAFETY: opened above.
    unsafe { closedir(opened) };
    if error == 0 { Ok(names) } else { Err(error) }
}
