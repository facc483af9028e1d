//! Primitives of all modules here; loom's where it tries all schedules.

#[cfg(not(redrt_loom))]
mod chosen {
    pub use std::cell::UnsafeCell;
    #[cfg(not(target_arch = "x86_64"))]
    pub use std::sync::atomic::fence;
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
    pub use std::sync::{Condvar, Mutex, MutexGuard};
    pub use std::thread::yield_now;

    /// Number of the calling thread. Living threads have different numbers, none of them 0.
    #[inline]
    pub fn thread_number() -> usize {
        // SAFETY: - always succeeds, and touches no memory.
        unsafe { libc::pthread_self() as usize }
    }
}

#[cfg(redrt_loom)]
mod chosen {
    pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
    pub use loom::sync::{Condvar, Mutex, MutexGuard};
    pub use loom::thread::yield_now;
    pub use std::cell::UnsafeCell;

    loom::thread_local! {
        static NUMBER: std::cell::Cell<usize> = std::cell::Cell::new(0);
    }

    /// Sets the number of the calling thread, for tests.
    pub fn set_thread_number(number: usize) {
        NUMBER.with(|place| place.set(number));
    }

    pub fn thread_number() -> usize {
        NUMBER.with(std::cell::Cell::get)
    }
}

pub use chosen::*;
