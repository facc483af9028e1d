//! The agent: the part of the cloner that is inside the process to be copied.
//!
//! It owns a listening socket, sleeps in `accept` until somebody wants to clone the process, and then does what only a
//! thread of the process can do: stop all other threads (`park`), say what the kernel knows of them (`collect`), hand
//! out descriptors, and let the threads go on. In the copy the same code brings the threads back (`copy`). It sends no
//! memory: the process that asked reads that through `/proc/PID/mem`.
//!
//! ```text
//!  one that clones ──unix socket── agent ──signal 33──▶ thread: handler, fills its slot, waits ──▶ goes on
//! ```
//! Duties of code in here: threads are parked at any instruction, perhaps inside `malloc` or the dynamic linker, so
//! while they are, nothing here may allocate, take a lock, use thread-local storage or call the C library.

pub mod abi;
mod collect;
mod copy;
mod park;
mod serve;
pub mod settings;
mod start;
pub mod sys;

pub use serve::Hooks;
pub use start::{Agent, Exclusions, Setup, name_for, standard, standard_of};

/// Where the C library keeps a thread's rseq area, from its thread pointer; 0 when it registers none. For [`Setup`]: it
/// asks the dynamic linker, so not when threads are stopped.
#[must_use]
pub fn rseq_offset() -> i64 {
    // SAFETY: - names end with NUL; both symbols, if there, are constants of these types.
    unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
        if offset.is_null() || size.is_null() || *size == 0 { 0 } else { *offset as i64 }
    }
}
