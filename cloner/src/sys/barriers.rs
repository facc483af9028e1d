//! What a process has told the kernel about barriers (`membarrier(2)`).

/// `MEMBARRIER_CMD_REGISTER_` of global expedited, private expedited, the same with serialized cores and with restarted
/// sequences.
const REGISTRATIONS: [i32; 4] = [1 << 2, 1 << 4, 1 << 6, 1 << 8];

/// Registers this process for all kinds of barriers, as the program may have done: in the copy its barriers would fail
/// otherwise. What the program has not asked for does not hurt it.
///
/// To be called while the process has one thread: later the kernel takes 20 ms for it. What a kernel does not know the
/// program cannot have used.
pub fn register() {
    for command in REGISTRATIONS {
        // SAFETY: - touches no memory.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    }
}
