//! Opens and closes the program's files without effect on the process.
//!
//! The trap: record locks (`fcntl`, `lockf`) belong to a process's table of descriptors. Closing any descriptor of a
//! file in that table drops all locks that the program has on the file, and another process gets them at once. So the
//! library opens and closes the program's files in a child that shares all memory and has a table of its own. A thread
//! would do, but the C library keeps a thread's data in the program's heap, here of one replica of several.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{io, ptr};

/// Stack of the child, which calls functions of the C library and of this library.
const STACK_BYTES: usize = 256 << 10;
const STACK_ALIGNMENT: usize = 64;

/// Work of the child, and true once it is done.
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

/// Runs `act` with a descriptor table of its own, a copy of the process's, and waits for its end.
///
/// The trap: the calling thread must have blocked the program's signals, whose handlers would run in the child.
///
/// # Errors
/// When there is no such child, or it was killed or panicked: then `act` was done in part, or not at all.
pub fn run(act: &mut dyn FnMut()) -> io::Result<()> {
    let mut stack = vec![0_u8; STACK_BYTES];
    let top = stack.as_mut_ptr_range().end;
    let top = top.wrapping_sub(top as usize % STACK_ALIGNMENT);
    let mut work = Work { act, is_done: false };
    let shared = &raw mut work;
    // Like a child of posix_spawn, but for the descriptors. This thread sleeps until it has ended, so the child may use
    // the thread's data in the C library. Its end sends no signal, and the program's waits do not see it.
    let flags = libc::CLONE_VM | libc::CLONE_VFORK;
    // SAFETY: - the stack is valid for writes, used by nobody else, and lives until the child has ended;
    //         - the same goes for the work.
    let child = unsafe { libc::clone(begin, top.cast(), flags, shared.cast()) };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: - null: no status is written. A program that waits for all kinds of children may have come first.
    while unsafe { libc::waitpid(child, ptr::null_mut(), libc::__WCLONE) } < 0 && errno() == Some(libc::EINTR) {}
    // SAFETY: - the child has ended, so nobody else uses it.
    if unsafe { (&raw const (*shared).is_done).read_volatile() } { Ok(()) } else { Err(killed()) }
}

fn errno() -> Option<i32> {
    io::Error::last_os_error().raw_os_error()
}

fn killed() -> io::Error {
    io::Error::other("what read a file of the program was killed")
}

/// Runs `act` likewise, and returns its result.
///
/// # Errors
/// As for [`run`], and those of `act`.
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

    /// Returns true if this process has a record lock on a file. Seen by a lock of another owner, an open file
    /// description.
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

    /// Returns true if this descriptor is of that file here. Another test may have opened a file under its number.
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
        // Closed in this process, the file loses its locks.
        drop(File::open(&path).unwrap());
        assert!(!is_locked(&path));
        std::fs::remove_file(&path).unwrap();
    }

    /// Errors and panics there are returned.
    #[test]
    fn files_opened_apart_are_not_open_here() {
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
