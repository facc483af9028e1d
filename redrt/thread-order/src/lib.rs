//! The order in which the threads of a process take locks, the same in all replicas of a rank: pure, for one process.
//!
//! A program without data races does the same in each replica if its threads take locks in the same order. That order
//! is decided by one replica, the leader, and followed by the others.
//!
//! *Operations.* A thread counts its operations on locks: each lock, attempt, timed wait, and return from a condition
//! variable is one. The count is the same in all replicas, so an operation is named by its thread and number. Locks
//! have no names: an address, or the order of creation, need not be the same everywhere.
//!
//! *Events.* Most operations take a lock that the same thread had last, and need no event. Where another thread had it,
//! the leader's event names the operation of that thread that came before. Where a call did not take the lock at once
//! (it was busy, a wait has timed out), the event has the call's result.
//!
//! ```text
//!   leader                                        follower
//!     A1 takes l                                    A1: told of 1 by the batch, takes l
//!     B1 takes l after A1                           B1: waits until A has made 1, takes l
//!     A2 finds l busy                               A2: told that it is busy, does not try
//!       └─ cut: A until 2 {2: busy}, B until 1 {1: after A1} ─▶ batch
//! ```
//! *Batches.* A follower makes an operation only once a batch contains it, since another thread may have come first in
//! the leader. A batch is a cut through all threads at one moment: its operations depend on no others but those of
//! earlier batches. So a successor makes all operations of its batches before its threads go on by themselves. The
//! trap: a thread that went on at once might take a lock that another one had taken first.
//!
//! *Shortcuts.* Each thread has its counts at hand. A thread of the leader that takes a lock which no other thread had
//! last only counts that; so does a thread of a follower up to the next event. That takes no lock, and no look-up.
//!
//! *The beginning.* The order begins in `MPI_Init`. Threads that are there then have counted their operations. Each has
//! made as many as in the other replicas and is about to make the next one, or waits to be woken, as there. They are
//! adopted with their counts, which the leader's first batch has too. Two threads that wait are at the same point
//! whatever each has made: the idle threads of a pool may have shared its work in different ways.
//!
//! A message that leaves a process waits until its siblings hold the batch it depends on; another crate does that.
#![forbid(unsafe_code)]

mod counts;
mod order;
#[cfg(any(test, feature = "simulation"))]
pub mod sim;

pub use counts::{Counts, Notes, Shortcut};
pub use order::{Batch, Event, Operation, Order, Point, Progress, Step};
