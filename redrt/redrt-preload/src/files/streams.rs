//! Streams (`FILE *`). The C library writes their buffers by calls within itself, which cannot be interposed.
//!
//! But each stream reaches its descriptor through a table of functions (libio's jump table), one table for byte streams
//! and one for wide ones. The functions for reading, writing, seeking, status and closing are replaced there by ours,
//! which do the same and ask first. The C library exports the functions, so the tables' layout can be checked: if they
//! are not in their places, nothing is changed, and the user is told that streams are not covered.
//!
//! Before a stream opens a file, the library is asked: a stream of an agreed file is made by `fdopen`.

use super::call::{Call, Operation};
use super::{ask, is_known, paths, returned};
use crate::identity;
use crate::real::{Next, next};
use libc::{FILE, c_char, c_int, c_void};
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Places in a jump table (glibc, libio/libioP.h).
const READ: usize = 14;
const WRITE: usize = 15;
const SEEK: usize = 16;
const CLOSE: usize = 17;
const STATUS: usize = 18;
const TABLE_BYTES: usize = 21 * size_of::<usize>();

/// The beginning of a stream (glibc, bits/types/struct_FILE.h). Its size is compiled into programs.
#[repr(C)]
struct Stream {
    flags: c_int,
    pointers: [*mut c_void; 13],
    descriptor: c_int,
    more_flags: c_int,
    old_offset: libc::off_t,
    column: u16,
    table_offset: i8,
    short_buffer: [c_char; 1],
    lock: *mut c_void,
    offset: i64,
}

const _: () = assert!(std::mem::offset_of!(Stream, descriptor) == 112 && std::mem::offset_of!(Stream, offset) == 144);

/// `_IO_ERR_SEEN`.
const ERROR_SEEN: c_int = 0x20;

static READ_REAL: Next = Next::new(b"_IO_file_read\0");
static WRITE_REAL: Next = Next::new(b"_IO_file_write\0");
static SEEK_REAL: Next = Next::new(b"_IO_file_seek\0");
static CLOSE_REAL: Next = Next::new(b"_IO_file_close\0");
static STATUS_REAL: Next = Next::new(b"_IO_file_stat\0");
static TABLES: [Next; 2] = [Next::new(b"_IO_file_jumps\0"), Next::new(b"_IO_wfile_jumps\0")];

/// Replaces the functions. `false` if this C library has another layout.
pub fn watch() -> bool {
    static WATCHES: AtomicBool = AtomicBool::new(false);
    if WATCHES.load(Ordering::Acquire) {
        return true;
    }
    let exchanges: [(usize, &Next, *mut c_void); 5] = [
        (READ, &READ_REAL, read_stream as *mut c_void),
        (WRITE, &WRITE_REAL, write_stream as *mut c_void),
        (SEEK, &SEEK_REAL, seek_stream as *mut c_void),
        (CLOSE, &CLOSE_REAL, close_stream as *mut c_void),
        (STATUS, &STATUS_REAL, status_stream as *mut c_void),
    ];
    let tables = TABLES.each_ref().map(|table| table.address().cast::<*mut c_void>());
    let fits = |table: &*mut *mut c_void| {
        !table.is_null()
            && exchanges.iter().all(|(place, real, _)| {
                // SAFETY: the table is the C library's, with more places than these.
                let now = unsafe { table.add(*place).read() };
                !now.is_null() && now == real.address()
            })
    };
    if !tables.iter().all(fits) || !tables.iter().all(|table| protect(*table, libc::PROT_READ | libc::PROT_WRITE)) {
        return false;
    }
    for table in tables {
        for (place, _, ours) in &exchanges {
            // SAFETY: within the table, which was just made writable; a pointer is written whole.
            unsafe { table.add(*place).write_volatile(*ours) };
        }
    }
    // Only after both are changed: the tables may share a page.
    for table in tables {
        protect(table, libc::PROT_READ);
    }
    WATCHES.store(true, Ordering::Release);
    true
}

fn protect(table: *mut *mut c_void, protection: c_int) -> bool {
    const PAGE_BYTES: usize = 4096;
    let begin = table as usize & !(PAGE_BYTES - 1);
    let length = table as usize + TABLE_BYTES - begin;
    // SAFETY: changes how pages of the C library's tables may be used; readable they stay.
    unsafe { libc::mprotect(begin as *mut c_void, length, protection) == 0 }
}

/// Calls the C library's function of a stream.
macro_rules! real_stream {
    ($next:ident($($argument:expr => $type:ty),*) -> $result:ty) => {{
        // SAFETY: the table had it in the place of this type; watch has looked it up.
        let function = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>($next.address())
        };
        // SAFETY: the arguments are those of the C library.
        unsafe { function($($argument),*) }
    }};
}

unsafe extern "C" fn read_stream(stream: *mut Stream, memory: *mut c_void, length: isize) -> isize {
    // SAFETY: the C library passes a stream of its own.
    let fd = unsafe { (*stream).descriptor };
    let mut call = Call { fd, buffer: memory, length: length as i64, ..Call::new(Operation::Read) };
    ask(&mut call).map_or_else(
        || real_stream!(READ_REAL(stream => *mut Stream, memory => *mut c_void, length => isize) -> isize),
        |count| count as isize,
    )
}

unsafe extern "C" fn write_stream(stream: *mut Stream, memory: *const c_void, length: isize) -> isize {
    // SAFETY: the C library passes a stream of its own.
    let fd = unsafe { (*stream).descriptor };
    let mut done = 0;
    while done < length {
        // SAFETY: within the memory that is to be written.
        let rest = unsafe { memory.byte_offset(done) }.cast_mut();
        let mut call = Call { fd, buffer: rest, length: (length - done) as i64, ..Call::new(Operation::Write) };
        match ask(&mut call) {
            None if done == 0 => {
                let written = real_stream!(
                    WRITE_REAL(stream => *mut Stream, memory => *const c_void, length => isize) -> isize
                );
                returned(written as i64);
                return written;
            }
            Some(count) if count > 0 => done += count as isize,
            _ => {
                // SAFETY: the stream that the C library writes, which holds its lock.
                unsafe { (*stream).flags |= ERROR_SEEN };
                break;
            }
        }
    }
    // SAFETY: the stream that the C library writes, which holds its lock.
    unsafe {
        if (*stream).offset >= 0 {
            (*stream).offset += done as i64;
        }
    }
    done
}

unsafe extern "C" fn seek_stream(stream: *mut Stream, offset: i64, whence: c_int) -> i64 {
    // SAFETY: the C library passes a stream of its own.
    let fd = unsafe { (*stream).descriptor };
    ask(&mut Call { fd, offset, flags: whence, ..Call::new(Operation::Seek) })
        .unwrap_or_else(|| real_stream!(SEEK_REAL(stream => *mut Stream, offset => i64, whence => c_int) -> i64))
}

unsafe extern "C" fn close_stream(stream: *mut Stream) -> c_int {
    // SAFETY: the C library passes a stream of its own.
    let fd = unsafe { (*stream).descriptor };
    ask(&mut Call { fd, ..Call::new(Operation::Close) })
        .map_or_else(|| real_stream!(CLOSE_REAL(stream => *mut Stream) -> c_int), |result| result as c_int)
}

unsafe extern "C" fn status_stream(stream: *mut Stream, buffer: *mut c_void) -> c_int {
    // SAFETY: the C library passes a stream of its own.
    let fd = unsafe { (*stream).descriptor };
    ask(&mut Call { fd, buffer, ..Call::new(Operation::DescriptorStatus) }).map_or_else(
        || real_stream!(STATUS_REAL(stream => *mut Stream, buffer => *mut c_void) -> c_int),
        |result| result as c_int,
    )
}

/// The flags of `open` for a mode of `fopen`; `None` when the mode is invalid.
fn flags_of(mode: &CStr) -> Option<c_int> {
    let mode = mode.to_bytes();
    let mode = mode.split(|byte| *byte == b',').next()?;
    let (first, rest) = mode.split_first()?;
    let (access, more) = match first {
        b'r' => (libc::O_RDONLY, 0),
        b'w' => (libc::O_WRONLY, libc::O_CREAT | libc::O_TRUNC),
        b'a' => (libc::O_WRONLY, libc::O_CREAT | libc::O_APPEND),
        _ => return None,
    };
    let access = if rest.contains(&b'+') { libc::O_RDWR } else { access };
    let exclusive = if rest.contains(&b'x') { libc::O_EXCL } else { 0 };
    let closing = if rest.contains(&b'e') { libc::O_CLOEXEC } else { 0 };
    Some(access | more | exclusive | closing)
}

/// The descriptor of an agreed file for a stream; -1 with an error; `None` leaves it to the C library.
///
/// # Safety
/// `path` and `mode` are null or zero-terminated strings.
unsafe fn open_agreed(path: *const c_char, mode: *const c_char) -> Option<c_int> {
    if path.is_null() || mode.is_null() {
        return None;
    }
    // SAFETY: not null, so a string, by contract.
    let flags = flags_of(unsafe { CStr::from_ptr(mode) })?;
    // SAFETY: - the callee has the same contract.
    unsafe { paths::open_agreed(libc::AT_FDCWD, path, flags, 0o666) }
}

/// The stream of an agreed file. A file opened for appending is written by position: the kernel must not append.
///
/// # Safety
/// `mode` is a zero-terminated string.
unsafe fn stream_of(fd: c_int, mode: *const c_char) -> *mut FILE {
    let stream = next!(fdopen(fd => c_int, mode => *const c_char) -> *mut FILE, std::ptr::null_mut());
    // SAFETY: a zero-terminated string, by contract.
    let appends = unsafe { CStr::from_ptr(mode) }.to_bytes().first() == Some(&b'a');
    if appends && !stream.is_null() {
        let mut call = Call { fd, ..Call::new(Operation::GetFlags) };
        let flags = ask(&mut call).unwrap_or(0) as c_int;
        ask(&mut Call { fd, flags: flags | libc::O_APPEND, ..Call::new(Operation::SetFlags) });
    }
    stream
}

/// Interposes functions that open a stream by its path.
macro_rules! opens {
    ($($name:ident)+) => { $(
        /// Replaces the C library's.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            // SAFETY: - the arguments are valid for the C library's function, by contract.
            let path = unsafe { identity::real_path(path) };
            // SAFETY: - the arguments are valid for the C library's function, by contract.
            match unsafe { open_agreed(path, mode) } {
                // SAFETY: - the arguments are valid for the C library's function, by contract; the mode was read.
                Some(fd) if fd >= 0 => unsafe { stream_of(fd, mode) },
                Some(_) => std::ptr::null_mut(),
                None => {
                    let stream =
                        next!($name(path => *const c_char, mode => *const c_char) -> *mut FILE, std::ptr::null_mut());
                    // SAFETY: null, or a stream that was just opened.
                    returned(if stream.is_null() { -1 } else { unsafe { libc::fileno(stream) }.into() });
                    stream
                }
            }
        }
    )+ };
}

opens!(fopen fopen64);

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if is_known(fd) && !mode.is_null() {
        // SAFETY: - the arguments are valid for `fdopen`, by contract.
        return unsafe { stream_of(fd, mode) };
    }
    next!(fdopen(fd => c_int, mode => *const c_char) -> *mut FILE, std::ptr::null_mut())
}

/// Interposes functions that put another file behind a stream. An agreed file replaces an empty one.
macro_rules! reopens {
    ($($name:ident)+) => { $(
        /// Replaces the C library's.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
            // SAFETY: - the arguments are valid for the C library's function, by contract.
            let path = unsafe { identity::real_path(path) };
            // SAFETY: - the arguments are valid for the C library's function, by contract.
            let agreed = unsafe { open_agreed(path, mode) };
            let path = match agreed {
                Some(fd) if fd >= 0 => c"/dev/null".as_ptr(),
                // The C library then closes the stream, and finds the same error.
                Some(_) => c"".as_ptr(),
                None => path,
            };
            let reopened = next!(
                $name(path => *const c_char, mode => *const c_char, stream => *mut FILE) -> *mut FILE,
                std::ptr::null_mut()
            );
            // SAFETY: null, or a stream that was just opened.
            returned(if reopened.is_null() { -1 } else { unsafe { libc::fileno(reopened) }.into() });
            if let Some(fd) = agreed.filter(|fd| *fd >= 0) {
                if !reopened.is_null() {
                    // SAFETY: a stream that was just opened.
                    let number = unsafe { libc::fileno(reopened) };
                    ask(&mut Call { fd, other: number, ..Call::new(Operation::Duplicate) });
                }
                ask(&mut Call { fd, ..Call::new(Operation::Close) });
            }
            reopened
        }
    )+ };
}

reopens!(freopen freopen64);
