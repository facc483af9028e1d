//! Starts the library's own threads.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

process_local! {
    /// Number of threads that the library has tried to start in this process.
    static COUNT: AtomicU32 = AtomicU32::new(0);
}

/// Number of threads that the library has tried to start.
pub fn count() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

/// Starts a thread of the library's own, which gets no signals of the program. It has begun to run when this returns.
///
/// The trap: the C library keeps a thread's data in the program's heap, and maps an arena at the thread's first
/// allocation. Later allocations of the program then have other addresses. So threads are started one after the other,
/// in calls that all replicas make at the same place, and allocate nothing from the C library later.
pub fn spawn(name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    COUNT.fetch_add(1, Ordering::Relaxed);
    let masked = block_signals();
    // Not by a channel, for which the C library would keep one more block for this thread.
    let begun = Arc::new((Mutex::new(false), Condvar::new()));
    let theirs = begun.clone();
    let begin = move || {
        *theirs.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        theirs.1.notify_one();
        drop(theirs);
        run();
    };
    let spawned = std::thread::Builder::new().name(name.into()).stack_size(256 << 10).spawn(begin).map(drop);
    restore_signals(&masked);
    if spawned.is_ok() {
        let has_begun = begun.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(begun.1.wait_while(has_begun, |has_begun| !*has_begun));
    }
    spawned
}

/// Blocks all signals for the calling thread, and returns the previous mask for [`restore_signals`]. Signals of the
/// application go to its own threads, and stay pending meanwhile.
pub fn block_signals() -> libc::sigset_t {
    // SAFETY: - an all-zero set is a valid value to be overwritten.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: - both sets are valid for reads and writes: they are locals of this function.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    before
}

/// Restores the mask that [`block_signals`] has returned.
pub fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: - the set is valid for reads, and was filled by pthread_sigmask.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}
