//! What the preloaded library tells the MPI library about locks of the program, and what that answers. Both compile
//! this file.

use std::ffi::c_int;

/// Threads of the program are about to take locks: are they ordered? The answer is the address of the process's
/// `thread_order::Notes`, or 0.
pub const BEGINS: c_int = 0;
/// A thread is ordered from now on. The answer is the address of its `thread_order::Counts`, or 0.
pub const ENTERS: c_int = 1;
/// A thread is about to make an operation, and waits until it may. The answer is [`FREE`], or [`DECIDED`] with what
/// came of it in the leader.
pub const BEFORE: c_int = 2;
/// A thread has counted an operation that concerns others.
pub const MATTERS: c_int = 3;
/// A thread has made an operation as it came. The answer is the operation's number; 0 where this process has become a
/// copy, which follows: then the operation is taken back, and asked for again.
pub const MADE: c_int = 4;
/// A thread has made an operation as the leader did. The answer is the operation's number.
pub const FOLLOWED: c_int = 5;
/// A thread had no lock in the leader where it takes one here: the replicas have parted.
pub const PARTED: c_int = 6;
/// A thread of a leader is about to make an operation, and `thread_order::Notes` says that followers have yet to come
/// to many: it waits for them.
pub const AHEAD: c_int = 7;
/// A thread ends: it makes no more operations.
pub const LEAVES: c_int = 8;

/// An answer: the operation is made as it comes. 0 says that locks are not ordered.
pub const FREE: u64 = 1;
/// An answer: it is made as the leader did. What the call returned is in the upper half.
pub const DECIDED: u64 = 2;
/// With [`DECIDED`], and in what was made: the lock is taken.
pub const TAKES: u64 = 4;

/// One operation of a thread.
#[repr(C)]
pub struct LockOperation {
    /// The thread's number.
    pub thread: u64,
    /// The thread that had the lock last, and its operation; 0 and 0 if none is known.
    pub last_thread: u64,
    /// Its number.
    pub last_number: u64,
    /// [`TAKES`] or 0.
    pub flags: u64,
    /// What the call returns.
    pub result: c_int,
}

impl LockOperation {
    /// Says which thread asks.
    pub fn of(thread: u64) -> Self {
        Self { thread, last_thread: 0, last_number: 0, flags: 0, result: 0 }
    }
}
