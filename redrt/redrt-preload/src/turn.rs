//! What the preloaded library tells the MPI library about the lock of an interpreter, and what that answers. Both
//! compile this file.

use std::ffi::c_int;

/// A thread wants the lock or a semaphore, and waits for its turn.
pub const ENTERS: c_int = 0;
/// It has taken it.
pub const TAKEN: c_int = 1;
/// It gives the lock up. With [`RESUMES`] another has asked for that; the answer has it where the thread gave way.
pub const DROPPED: c_int = 2;
/// It waits for the lock, and the holder has run with it for as many milliseconds as the argument says: must the holder
/// give way? The answer is [`MAY`] or [`DECIDED`].
pub const FORCES: c_int = 3;
/// It asks whether it may take the lock, or a semaphore, now.
pub const MAY_TAKE: c_int = 4;
/// It has ended.
pub const ENDED: c_int = 5;
/// It waits for what it had in the leader: the replicas have parted.
pub const PARTED: c_int = 6;
/// It waits for the lock, and has seen as many segments of others meanwhile as the argument says.
pub const STARVES: c_int = 7;

/// The thread goes on after it had to give way.
pub const RESUMES: c_int = 1;
/// The semaphore for which it waited outside had not come in time.
pub const TIMED_OUT: c_int = 2;
/// It is about a semaphore, not about the lock.
pub const SEMAPHORE: c_int = 4;
/// An answer: the leader has decided. 0 says that threads are not ordered.
pub const DECIDED: c_int = 8;
/// An answer: the thread may take what it wants. Without it, [`DECIDED`] says that it goes on without.
pub const MAY: c_int = 16;
