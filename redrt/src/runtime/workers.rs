//! How all threads of the library's own are started.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

process_local! {
    /// Threads of this process that the library started.
    static COUNT: AtomicU32 = AtomicU32::new(0);
}

/// How many were started.
pub fn count() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

/// Starts a thread of the library's own, which gets no signals of the program. It has begun when this returns.
///
/// The trap: the C library keeps what a thread needs in the program's heap, and maps an arena for what the thread
/// itself allocates first. What the program allocates lies elsewhere after that. So threads are started one after the
/// other, in calls that all replicas make at the same place, and allocate nothing from the C library later.
pub fn spawn(name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    COUNT.fetch_add(1, Ordering::Relaxed);
    let masked = block_signals();
    // No channel: it would be one more thing that the C library keeps for this thread.
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

/// The application's signals are for the application's threads, and come when they are let in again.
pub fn block_signals() -> libc::sigset_t {
    // SAFETY: - an all-zero set is a valid value to be overwritten.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: - both sets are valid; the new thread inherits the mask that is set here.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    before
}

/// As they were.
pub fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: - the set is what pthread_sigmask returned.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}
