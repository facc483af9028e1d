//! The agent: the part of the cloner that is inside the process to be copied.
//!
//! The agent owns a listening socket and sleeps in `accept` until a client wants to clone the process. Then it does
//! what only a thread of the process can do: it stops all other threads (`park`), records their kernel state
//! (`collect`), hands out descriptors, and lets the threads go on. In the copy the same code restores the threads
//! (`copy`). The agent sends no memory: the client reads that through `/proc/PID/mem`.
//!
//! ```text
//!  client ──unix socket── agent ──signal 33──▶ thread: handler, fills its slot, waits ──▶ goes on
//! ```
//! Rules for code in this crate: threads may be parked at any instruction, such as inside `malloc` or the dynamic
//! linker. So while they are, nothing here may allocate, take a lock, use thread-local storage or call the C library.

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

/// Offset of the C library's rseq area from the thread pointer, for [`Setup`]; 0 if it registers none.
///
/// Asks the dynamic linker, so it must not be called while threads are stopped.
#[must_use]
pub fn rseq_offset() -> i64 {
    // SAFETY: - both names end with NUL.
    //         - glibc defines `__rseq_offset` as ptrdiff_t and `__rseq_size` as unsigned int; missing symbols are null.
    unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
        if offset.is_null() || size.is_null() || *size == 0 { 0 } else { *offset as i64 }
    }
}
