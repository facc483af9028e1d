//! Whether this program was started without a standard output (`redrun … >&-`).
//!
//! Rust's runtime opens `/dev/null` in the place of a standard stream that is closed, before `main`. What is written
//! there seems to arrive, and a job whose output is lost would end well. So it is looked at before that, when the
//! program is loaded.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: - takes any number and touches no memory.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    IS_CLOSED.store(flags < 0, Ordering::Relaxed);
}

/// Whether standard output was closed when the program was started.
pub fn standard_output_was_closed() -> bool {
    IS_CLOSED.load(Ordering::Relaxed)
}
