//! Detects that this program was started without a standard output (`redrun … >&-`).
//!
//! Rust's runtime opens `/dev/null` in place of a closed standard stream before `main`. Writes then seem to succeed,
//! and a job whose output is lost would end well. So the check runs earlier, when the program is loaded.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static INSPECT: extern "C" fn() = inspect;

extern "C" fn inspect() {
    // SAFETY: - F_GETFD takes any number, and touches no memory.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    IS_CLOSED.store(flags < 0, Ordering::Relaxed);
}

/// True if standard output was closed when the program was started.
pub fn standard_output_was_closed() -> bool {
    IS_CLOSED.load(Ordering::Relaxed)
}
