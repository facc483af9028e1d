//! Events of the preloaded library for the MPI library about locks of the program, and the answers. Both compile this
//! file.

use std::ffi::c_int;

/// Threads of the program are about to take locks: are they ordered? The answer is the address of the process's
/// `thread_order::Notes`, or 0.
pub const BEGINS: c_int = 0;
/// A thread is ordered from now on. The answer is the address of its `thread_order::Counts`, or 0.
pub const ENTERS: c_int = 1;
/// A thread is about to make an operation, and waits for its turn. The answer is [`FREE`], or [`DECIDED`] with the
/// leader's outcome.
pub const BEFORE: c_int = 2;
/// A thread has counted an operation that other processes must learn of.
pub const MATTERS: c_int = 3;
/// A thread has made an operation without a decision. The answer is the operation's number; 0 where this process has
/// become a copy, which follows: then the operation is undone, and asked for again.
pub const MADE: c_int = 4;
/// A thread has made an operation in the leader's order. The answer is the operation's number.
pub const FOLLOWED: c_int = 5;
/// A thread takes a lock here that the leader's thread did not get: the replicas have parted.
pub const PARTED: c_int = 6;
/// A thread of a leader is about to make an operation, and by `thread_order::Notes` followers are many behind: it waits
/// for them.
pub const AHEAD: c_int = 7;
/// A thread ends: it makes no more operations.
pub const LEAVES: c_int = 8;
/// A thread of a leader has made a call on the process's descriptors, with this result, and found something. The answer
/// is as for [`MADE`].
pub const EXCHANGED: c_int = 9;
/// A thread has repeated the leader's call on descriptors.
pub const REPEATED: c_int = 10;

/// An order begins with a thread that was there before: `last_number` is the number of its operations, and `flags` is
/// not 0 if it waits to be woken.
pub const ADOPTS: c_int = 11;
/// All threads were adopted.
pub const BEGUN: c_int = 12;
/// A thread sleeps, for `last_number` nanoseconds. The answer is 0 if it is to sleep by itself. In a follower it sleeps
/// within the question, and no longer than others can go on without it.
pub const SLEEPS: c_int = 13;

/// The program shares a semaphore with a child: threads are not ordered any more.
pub const SHARES: c_int = 14;

/// An answer: the operation needs no decision. 0 means that locks are not ordered.
pub const FREE: u64 = 1;
/// An answer: the operation follows the leader's. The call's result is in the upper half.
pub const DECIDED: u64 = 2;
/// With [`DECIDED`], and in reports: the lock is taken.
pub const TAKES: u64 = 4;

/// An answer: the leader's thread has ended without this operation. Only where the thread [`MAY_CANCEL`].
pub const ENDED: u64 = 8;
/// With [`BEFORE`]: the thread may be cancelled in this call.
pub const MAY_CANCEL: u64 = 16;

/// One operation of a thread.
#[repr(C)]
pub struct LockOperation {
    /// The thread's number.
    pub thread: u64,
    /// The thread that had the lock last, or 0.
    pub last_thread: u64,
    /// That thread's operation, or 0.
    pub last_number: u64,
    /// [`TAKES`], [`MAY_CANCEL`] or 0.
    pub flags: u64,
    /// Result of the call.
    pub result: c_int,
    /// Findings of a call on descriptors; for [`BEFORE`] the place for those of the leader's call. Null for locks.
    pub found: *mut Found,
}

/// Capacity of [`Found`], in bytes.
pub const FOUND_BYTES_MAX: usize = 252;

/// Findings of a call on descriptors, in bytes that only the preloaded library interprets.
#[repr(C)]
pub struct Found {
    /// Number of bytes in use.
    pub length: u32,
    /// The bytes.
    pub bytes: [u8; FOUND_BYTES_MAX],
}

impl Default for Found {
    fn default() -> Self {
        Self { length: 0, bytes: [0; FOUND_BYTES_MAX] }
    }
}

impl Found {
    /// The bytes in use.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..(self.length as usize).min(FOUND_BYTES_MAX)]
    }

    /// Appends bytes. Returns false, and appends none, if there is no room.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let begin = self.length as usize;
        let Some(room) = self.bytes.get_mut(begin..begin + bytes.len()) else { return false };
        room.copy_from_slice(bytes);
        self.length += bytes.len() as u32;
        true
    }
}

impl LockOperation {
    /// An event of this thread, without an operation.
    pub fn of(thread: u64) -> Self {
        Self { thread, last_thread: 0, last_number: 0, flags: 0, result: 0, found: std::ptr::null_mut() }
    }
}
