//! `ftw` and `nftw`, which walk over a tree of directories. The C library's call functions within it; these here call
//! the interposed ones (`directories.rs`), if the library answers.
//!
//! A directory is read as a whole before its entries are visited, so one descriptor suffices at any depth.

use super::{asks, directories, paths};
use crate::real::{self, next};
use libc::{c_char, c_int, stat as Status};
use std::ffi::{CStr, CString};

const PHYSICAL: c_int = 1;
const MOUNT: c_int = 2;
const CHANGE_DIRECTORY: c_int = 4;
const DEPTH: c_int = 8;
const ACTIONS: c_int = 16;

/// Kinds of entries, for the program's function.
const FILE: c_int = 0;
const DIRECTORY: c_int = 1;
const UNREADABLE_DIRECTORY: c_int = 2;
const NO_STATUS: c_int = 3;
const LINK: c_int = 4;
const DIRECTORY_AFTER: c_int = 5;
const DANGLING_LINK: c_int = 6;

/// Results of the program's function with `ACTIONS`.
const SKIP_SUBTREE: c_int = 2;
const SKIP_SIBLINGS: c_int = 3;

/// `struct FTW`.
#[repr(C)]
pub struct Ftw {
    base: c_int,
    level: c_int,
}

type Simple = unsafe extern "C" fn(*const c_char, *const Status, c_int) -> c_int;
type Full = unsafe extern "C" fn(*const c_char, *const Status, c_int, *mut Ftw) -> c_int;

#[derive(Clone, Copy)]
enum Visitor {
    Simple(Simple),
    Full(Full),
}

struct Walk {
    visitor: Visitor,
    flags: c_int,
    /// Directory of relative paths.
    start: c_int,
    /// Device of the first entry.
    device: Option<libc::dev_t>,
    /// Visited directories, unless links are not followed.
    seen: Vec<(libc::dev_t, libc::ino_t)>,
}

impl Walk {
    fn has(&self, flag: c_int) -> bool {
        self.flags & flag != 0
    }

    /// The begin of the last name in a path.
    fn base_of(path: &[u8]) -> usize {
        path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1)
    }

    fn status_of(&self, path: &CStr, flags: c_int) -> Result<Status, c_int> {
        // SAFETY: all zeros are a status.
        let mut status: Status = unsafe { std::mem::zeroed() };
        // SAFETY: a string, and a place to write to.
        if unsafe { paths::fstatat(self.start, path.as_ptr(), &raw mut status, flags) } == 0 {
            return Ok(status);
        }
        Err(real::errno())
    }

    /// Status and kind of an entry. `Err` ends the walk.
    fn inspect(&self, path: &CStr, level: c_int) -> Result<(Status, c_int), c_int> {
        let follow = if self.has(PHYSICAL) { libc::AT_SYMLINK_NOFOLLOW } else { 0 };
        match self.status_of(path, follow) {
            Ok(status) => Ok((
                status,
                match status.st_mode & libc::S_IFMT {
                    libc::S_IFDIR => DIRECTORY,
                    libc::S_IFLNK => LINK,
                    _ => FILE,
                },
            )),
            Err(error @ (libc::EACCES | libc::ENOENT)) => {
                let link = self.status_of(path, libc::AT_SYMLINK_NOFOLLOW).ok().filter(|_| !self.has(PHYSICAL));
                match link.filter(|status| status.st_mode & libc::S_IFMT == libc::S_IFLNK) {
                    Some(status) => Ok((status, DANGLING_LINK)),
                    None if level == 0 => Err(error),
                    // SAFETY: all zeros are a status.
                    None => Ok((unsafe { std::mem::zeroed() }, NO_STATUS)),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Calls the program's function for an entry.
    fn visit(&self, path: &CStr, status: &Status, kind: c_int, level: c_int) -> c_int {
        let base = Self::base_of(path.to_bytes());
        if self.has(CHANGE_DIRECTORY) && self.enter(&path.to_bytes()[..base]) != 0 {
            return -1;
        }
        let mut place = Ftw { base: base as c_int, level };
        // SAFETY: the function takes these arguments, by contract of `ftw` and `nftw`.
        unsafe {
            match self.visitor {
                Visitor::Full(visit) => visit(path.as_ptr(), status, kind, &raw mut place),
                Visitor::Simple(visit) => {
                    let kind = match kind {
                        LINK => FILE,
                        DANGLING_LINK => NO_STATUS,
                        kind => kind,
                    };
                    visit(path.as_ptr(), status, kind)
                }
            }
        }
    }

    /// Makes a directory the current one.
    fn enter(&self, directory: &[u8]) -> c_int {
        // SAFETY: touches no memory.
        if unsafe { libc::fchdir(self.start) } != 0 {
            return -1;
        }
        match CString::new(directory) {
            // SAFETY: a string.
            Ok(directory) if !directory.is_empty() => unsafe { libc::chdir(directory.as_ptr()) },
            _ => 0,
        }
    }

    /// Visits an entry and all below it. Any result but 0 ends the walk.
    fn go(&mut self, path: &CStr, level: c_int) -> c_int {
        let (status, kind) = match self.inspect(path, level) {
            Ok(found) => found,
            Err(error) => {
                real::set_errno(error);
                return -1;
            }
        };
        let device = *self.device.get_or_insert(status.st_dev);
        if kind != NO_STATUS && self.has(MOUNT) && status.st_dev != device {
            return 0;
        }
        let result = if kind == DIRECTORY {
            let known = (status.st_dev, status.st_ino);
            if !self.has(PHYSICAL) {
                if self.seen.contains(&known) {
                    return 0;
                }
                self.seen.push(known);
            }
            self.go_below(path, &status, level)
        } else {
            self.visit(path, &status, kind, level)
        };
        let skips = result == SKIP_SUBTREE || (result == SKIP_SIBLINGS && level == 0);
        if self.has(ACTIONS) && skips { 0 } else { result }
    }

    fn go_below(&mut self, path: &CStr, status: &Status, level: c_int) -> c_int {
        // SAFETY: a string.
        let names = match unsafe { directories::names_in(self.start, path.as_ptr()) } {
            Ok(names) => names,
            Err(libc::EACCES) => return self.visit(path, status, UNREADABLE_DIRECTORY, level),
            Err(error) => {
                real::set_errno(error);
                return -1;
            }
        };
        if !self.has(DEPTH) {
            let result = self.visit(path, status, DIRECTORY, level);
            if result != 0 {
                return result;
            }
        }
        for name in names {
            let separator: &[u8] = if path.to_bytes().ends_with(b"/") { b"" } else { b"/" };
            // Names have no zero bytes.
            let below = CString::new([path.to_bytes(), separator, &name].concat()).unwrap_or_default();
            match self.go(&below, level + 1) {
                0 => {}
                SKIP_SIBLINGS if self.has(ACTIONS) => break,
                result => return result,
            }
        }
        if self.has(DEPTH) { self.visit(path, status, DIRECTORY_AFTER, level) } else { 0 }
    }
}

/// # Safety
/// Same duties as `nftw`.
unsafe fn walk(path: *const c_char, visitor: Visitor, flags: c_int) -> c_int {
    if path.is_null() {
        real::set_errno(libc::ENOENT);
        return -1;
    }
    // SAFETY: not null, so a string, by contract.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let length = path.iter().rposition(|byte| *byte != b'/').map_or(path.len().min(1), |at| at + 1);
    let path = CString::new(&path[..length]).unwrap_or_default();
    let mut walk = Walk { visitor, flags, start: libc::AT_FDCWD, device: None, seen: Vec::new() };
    if !walk.has(CHANGE_DIRECTORY) {
        return walk.go(&path, 0);
    }
    // SAFETY: a string.
    walk.start = unsafe { paths::open(c".".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0) };
    if walk.start < 0 {
        return -1;
    }
    let result = walk.go(&path, 0);
    let error = real::errno();
    walk.enter(b"");
    // SAFETY: opened above.
    unsafe { super::descriptors::close(walk.start) };
    real::set_errno(error);
    result
}

/// Interposes functions that walk.
macro_rules! walks {
    ($($name:ident, $full:ident;)+) => { $(
        /// Replaces the C library's.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, visit: Simple, descriptors: c_int) -> c_int {
            if asks() {
                // SAFETY: - the arguments are valid for the C library's function, by contract.
                return unsafe { walk(path, Visitor::Simple(visit), 0) };
            }
            next!($name(path => *const c_char, visit => Simple, descriptors => c_int) -> c_int, -1)
        }

        /// Replaces the C library's.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $full(path: *const c_char, visit: Full, descriptors: c_int, flags: c_int) -> c_int {
            if asks() {
                // SAFETY: - the arguments are valid for the C library's function, by contract.
                return unsafe { walk(path, Visitor::Full(visit), flags) };
            }
            next!($full(path => *const c_char, visit => Full, descriptors => c_int, flags => c_int) -> c_int, -1)
        }
    )+ };
}

walks! {
    ftw, nftw;
    ftw64, nftw64;
}
