//! Events of the preloaded library for the MPI library about the lock of an interpreter, and the answers. Both compile
//! this file.

use std::ffi::c_int;

/// A thread wants the lock or a semaphore, and waits for its turn.
pub const ENTERS: c_int = 0;
/// The thread has taken it.
pub const TAKEN: c_int = 1;
/// The thread gives the lock up. With [`RESUMES`] it gives way, as another has asked for that.
pub const DROPPED: c_int = 2;
/// The thread waits for the lock, and the holder has run with it for this many milliseconds: must the holder give way?
/// The answer is [`MAY`] or [`DECIDED`].
pub const FORCES: c_int = 3;
/// The thread asks if it may take the lock, or a semaphore, now.
pub const MAY_TAKE: c_int = 4;
/// The thread has ended.
pub const ENDED: c_int = 5;
/// The thread waits for an object that its leader's thread has got: the replicas have parted.
pub const PARTED: c_int = 6;
/// The thread waits for the lock, and has seen this many segments of others meanwhile.
pub const STARVES: c_int = 7;

/// The thread goes on after it had to give way.
pub const RESUMES: c_int = 1;
/// The thread's wait for a semaphore, without the lock, timed out.
pub const TIMED_OUT: c_int = 2;
/// The event is about a semaphore, and not about the lock.
pub const SEMAPHORE: c_int = 4;
/// An answer: the leader has decided. 0 means that threads are not ordered.
pub const DECIDED: c_int = 8;
/// An answer: the thread may take the object. [`DECIDED`] without it means that it goes on without the object.
pub const MAY: c_int = 16;
