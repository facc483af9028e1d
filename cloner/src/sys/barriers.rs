//! Registration of a process for barriers (`membarrier(2)`).

/// `MEMBARRIER_CMD_REGISTER_` commands: global expedited, private expedited, and the latter with core serialization and
/// with restartable sequences.
const REGISTRATIONS: [i32; 4] = [1 << 2, 1 << 4, 1 << 6, 1 << 8];

/// Registers this process for all kinds of barriers.
///
/// The program may have registered, and without it barriers would fail in the copy; registrations it did not make are
/// harmless. Must be called while the process has one thread: later the kernel takes 20 ms. Commands that this kernel
/// lacks were not available to the program either, so errors are ignored.
pub fn register() {
    for command in REGISTRATIONS {
        // SAFETY: - `membarrier` takes numbers only and touches no memory of this process.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    }
}
