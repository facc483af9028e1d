//! Opening and closing the program's files without the process's noticing.
//!
//! The trap: record locks (`fcntl`, `lockf`) belong to a process's table of descriptors. To close any descriptor of a
//! file in that table drops all locks that the program has on the file, and another process has them at once. So the
//! library opens and closes the program's files in a child that shares all memory and has a table of its own. A thread
//! would do, but the C library keeps what a thread needs in the program's heap, of one replica of several.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{io, ptr};

/// What the child needs, which calls the C library's functions and this library's own.
const STACK_BYTES: usize = 256 << 10;
const STACK_ALIGNMENT: usize = 64;

/// What the child does, and whether it has.
struct Work<'a> {
    act: &'a mut dyn FnMut(),
    is_done: bool,
}

extern "C" fn begin(work: *mut c_void) -> c_int {
    // SAFETY: - the caller of clone passes a work that lives until this has returned: it waits.
    let work = unsafe { &mut *work.cast::<Work<'_>>() };
    work.is_done = catch_unwind(AssertUnwindSafe(|| (work.act)())).is_ok();
    0
}

/// Runs `act` with a table of descriptors of its own, which has all that the process's has, and waits for it.
///
/// The calling thread has blocked the program's signals: their handlers would run in the child.
///
/// # Errors
/// When there is no such child, or it was killed: then `act` was done in part, or not at all.
pub fn run(act: &mut dyn FnMut()) -> io::Result<()> {
    let mut stack = vec![0_u8; STACK_BYTES];
    let top = stack.as_mut_ptr_range().end;
    let top = top.wrapping_sub(top as usize % STACK_ALIGNMENT);
    let mut work = Work { act, is_done: false };
    let shared = &raw mut work;
    // As a child of posix_spawn, but for the descriptors: this thread sleeps until it has ended, so the child has what
    // belongs to the thread in the C library. Its end is no signal, and no wait of the program's sees it.
    let flags = libc::CLONE_VM | libc::CLONE_VFORK;
    // SAFETY: - the stack is valid for writing and nobody else's, and lives until the child has ended;
    //         - the same goes for the work.
    let child = unsafe { libc::clone(begin, top.cast(), flags, shared.cast()) };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: - null is no place to write to. A program that waits for all kinds of children may have been first.
    while unsafe { libc::waitpid(child, ptr::null_mut(), libc::__WCLONE) } < 0 && errno() == Some(libc::EINTR) {}
    // SAFETY: - the child has ended, so nobody else has it.
    if unsafe { (&raw const (*shared).is_done).read_volatile() } { Ok(()) } else { Err(killed()) }
}

fn errno() -> Option<i32> {
    io::Error::last_os_error().raw_os_error()
}

fn killed() -> io::Error {
    io::Error::other("what read a file of the program was killed")
}

/// Runs `act` likewise and returns what it comes to.
///
/// # Errors
/// As for [`run`], and what `act` says.
pub fn result<T>(act: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let mut found = None;
    run(&mut || found = Some(act()))?;
    found.unwrap_or_else(|| Err(killed()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::os::fd::{AsRawFd, RawFd};
    use std::path::Path;

    fn whole(kind: i32) -> libc::flock {
        let (l_type, l_whence) = (kind as i16, libc::SEEK_SET as i16);
        libc::flock { l_type, l_whence, l_start: 0, l_len: 0, l_pid: 0 }
    }

    /// Whether this process has a record lock on a file: seen by a lock of another owner, that of a description.
    fn is_locked(path: &Path) -> bool {
        let kind = result(|| {
            let other = OpenOptions::new().read(true).write(true).open(path)?;
            let mut range = whole(libc::F_WRLCK);
            // SAFETY: - the range is valid for writing and outlives the call.
            match unsafe { libc::fcntl(other.as_raw_fd(), libc::F_OFD_GETLK, &raw mut range) } {
                0 => Ok(i32::from(range.l_type)),
                _ => Err(io::Error::last_os_error()),
            }
        });
        kind.unwrap() != libc::F_UNLCK
    }

    /// Whether this descriptor is of that file here. Another test may have opened something else under its number.
    fn is_open(fd: RawFd, path: &str) -> bool {
        std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok_and(|open| open == Path::new(path))
    }

    #[test]
    fn record_locks_outlast_what_is_opened_and_closed_apart() {
        let path = std::env::temp_dir().join(format!("redrt-apart-{}", std::process::id()));
        std::fs::write(&path, "bytes").unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        // SAFETY: - the range outlives the call.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &whole(libc::F_WRLCK)) }, 0);
        assert!(is_locked(&path));
        let bytes = result(|| std::fs::read(&path)).unwrap();
        assert_eq!((bytes.as_slice(), is_locked(&path)), (&b"bytes"[..], true));
        // Here it would be lost.
        drop(File::open(&path).unwrap());
        assert!(!is_locked(&path));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_opened_apart_is_not_open_here_and_errors_and_panics_are_told() {
        let fd = result(|| Ok(std::mem::ManuallyDrop::new(File::open("/dev/null")?).as_raw_fd())).unwrap();
        assert!(!is_open(fd, "/dev/null"));
        let here = File::open("/dev/null").unwrap();
        assert!(is_open(here.as_raw_fd(), "/dev/null"));
        let refused = result(|| File::open("/no such file").map(drop)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        assert!(run(&mut || panic!("of the child's own")).is_err());
        std::panic::set_hook(hook);
    }
}
