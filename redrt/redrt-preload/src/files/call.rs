//! The question of the preloaded library to the MPI library: one call of the C library about a file.
//!
//! This file belongs to both libraries; they are installed together.

use libc::{c_char, c_int, c_void};

/// The operation in question. Each variant lists the fields of [`Call`] that count.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// `openat`: `directory`, `path`, `flags`, `mode`.
    Open,
    /// `close`: `fd`.
    Close,
    /// `dup2` of `fd` to the number `other`; to the lowest free number from `offset` on when `other` is -1; with
    /// `flags` of `dup3`.
    Duplicate,
    /// `preadv`: `fd`, `vector`, `count`, or `buffer` of `length` bytes when there is no vector; at the position when
    /// `offset` is -1.
    Read,
    /// `pwritev`: the same fields.
    Write,
    /// `lseek`: `fd`, `offset`, `flags` is whence.
    Seek,
    /// `fstat`: `fd`, to `buffer`.
    DescriptorStatus,
    /// `fstatat`: `directory`, `path`, `flags`, to `buffer`.
    Status,
    /// `statx`: `directory`, `path`, `flags`, `mode` is the mask, to `buffer`.
    ExtendedStatus,
    /// `faccessat`: `directory`, `path`, `mode`, `flags`.
    Access,
    /// `readlinkat`: `directory`, `path`, to `buffer` of `length` bytes.
    ReadLink,
    /// `truncate`: `path`, `length`.
    Truncate,
    /// `ftruncate`: `fd`, `length`.
    TruncateDescriptor,
    /// `fallocate`: `fd`, `mode`, `offset`, `length`.
    Allocate,
    /// `fsync`: `fd`.
    Synchronize,
    /// `unlinkat`: `directory`, `path`, `flags`.
    Unlink,
    /// `renameat2`: `directory`, `path`, `other`, `other_path`, `flags`.
    Rename,
    /// `linkat`: the same fields.
    Link,
    /// `symlinkat`: `other_path` is the link's target; `directory`, `path`.
    SymbolicLink,
    /// `mkdirat`: `directory`, `path`, `mode`.
    MakeDirectory,
    /// `fchmodat`: `directory`, `path`, `mode`, `flags`; or `fd`.
    ChangeMode,
    /// `fchownat`: `directory`, `path`, `mode` is the owner, `length` the group, `flags`; or `fd`.
    ChangeOwner,
    /// `utimensat`: `directory`, `path`, `flags`, or `fd`; `buffer` is two times, or null for now.
    SetTimes,
    /// `getxattr`: `path` (`flags` is not 0 for the link itself) or `fd`; `other_path` is the name; to `buffer` of
    /// `length` bytes.
    GetAttribute,
    /// `listxattr`: the same fields.
    ListAttributes,
    /// `setxattr`: the same fields, from `buffer` of `length` bytes; `mode` has the flags for an existing attribute.
    SetAttribute,
    /// `removexattr`: the same fields.
    RemoveAttribute,
    /// `fcntl(F_GETFL)`: `fd`.
    GetFlags,
    /// `fcntl(F_SETFL)`: `fd`, `flags`.
    SetFlags,
    /// `fcntl` with a command about locks of ranges: `fd`, `flags` is the command, `buffer` a `struct flock`.
    Lock,
    /// `flock`: `fd`, `flags`.
    LockWhole,
    /// The file is about to be mapped: `fd`, `flags`, `mode` is the protection. Always left to the caller.
    Map,
    /// `readdir` of the directory that is open as `fd`: the address of the entry, 0 at the end.
    NextEntry,
    /// `getdents64`: `fd`, to `buffer` of `length` bytes.
    NextEntries,
    /// The C library is about to close the descriptor: `fd`. Always left to the caller.
    Forget,
    /// Tells if a descriptor is of a file that replicas agree on: `fd`.
    IsKnown,
    /// The kernel is about to copy `length` bytes to `fd`, at the position when `offset` is -1; from a pipe, when there
    /// are `flags`.
    Fill,
    /// The C library has returned `result` of the previous call, whose answer was 2.
    Returned,
}

/// A call of the C library, and its outcome.
#[repr(C)]
pub struct Call {
    /// The operation in question.
    pub operation: Operation,
    /// Directory of a relative `path`.
    pub directory: c_int,
    /// A path that ends with a zero byte.
    pub path: *const c_char,
    /// Directory of a relative `other_path`, or the number of a descriptor.
    pub other: c_int,
    /// The second path of a call with two.
    pub other_path: *const c_char,
    /// The descriptor that the call is about.
    pub fd: c_int,
    /// Flags of the call.
    pub flags: c_int,
    /// Permissions or the like.
    pub mode: u32,
    /// Offset in bytes; -1 for the position.
    pub offset: i64,
    /// Length in bytes.
    pub length: i64,
    /// Places of the bytes, for several.
    pub vector: *const libc::iovec,
    /// Number of these places.
    pub count: usize,
    /// Place of the bytes, or of an answer.
    pub buffer: *mut c_void,
    /// Result of the call.
    pub result: i64,
    /// `errno`, if the result is negative.
    pub error: c_int,
}

impl Call {
    /// A call with no field set.
    pub const fn new(operation: Operation) -> Self {
        Self {
            operation,
            directory: libc::AT_FDCWD,
            path: std::ptr::null(),
            other: -1,
            other_path: std::ptr::null(),
            fd: -1,
            flags: 0,
            mode: 0,
            offset: -1,
            length: 0,
            vector: std::ptr::null(),
            count: 0,
            buffer: std::ptr::null_mut(),
            result: 0,
            error: 0,
        }
    }
}

/// Answers a call: 1 with an answer, 0 to leave it to the C library, 2 to leave it and be told of the result by
/// [`Operation::Returned`].
pub type Answer = unsafe extern "C" fn(*mut Call) -> c_int;
