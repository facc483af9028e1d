//! Numbers of threads that agree between replicas: the preloaded library numbers each by its creation under its parent.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

type NumberFunction = extern "C" fn() -> u64;

fn preloaded() -> Option<NumberFunction> {
    static FUNCTION: OnceLock<Option<NumberFunction>> = OnceLock::new();
    *FUNCTION.get_or_init(|| {
        // SAFETY: - looks a symbol up by a C string.
        let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"redrt_thread_number".as_ptr()) };
        // SAFETY: - the preloaded library exports a function of this type under this name.
        (!symbol.is_null()).then(|| unsafe { std::mem::transmute::<*mut libc::c_void, NumberFunction>(symbol) })
    })
}

/// The number of the calling thread: 0 for the main thread.
pub fn number() -> u64 {
    if let Some(number) = preloaded() {
        return number();
    }
    // Without the preloaded library, threads are numbered as they first ask.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}
