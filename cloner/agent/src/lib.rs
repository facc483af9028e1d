//! The agent: the part of the cloner that is inside the process to be copied.
//!
//! It owns a listening socket, sleeps in `accept` until somebody wants to clone the process, and then does what only a
//! thread of the process can do: stop all other threads (`park`), say what the kernel knows of them (`collect`), hand out
//! descriptors, and let the threads go on. In the copy the same code brings the threads back (`copy`). It sends no memory:
//! whoever asked reads that through `/proc/PID/mem`.
//!
//! ```text
//!  one that clones ──unix socket── agent ──signal 33──▶ thread: handler, fills its slot, waits ──▶ goes on
//! ```
//! Duties of code in here: threads are parked at any instruction, perhaps inside `malloc` or the dynamic linker, so while
//! they are, nothing here may allocate, take a lock, use thread-local storage or call the C library.

pub mod abi;
mod collect;
mod copy;
mod park;
mod serve;
pub mod sys;

pub use serve::{Agent, Exclusions, Hooks, Setup};
