//! Barriers of unequal weight: [`light`] on the path that is taken often, [`heavy`] on the one that is taken rarely.
//!
//! A light and a heavy barrier together have the effect of two full ones: of two threads that each write, pass their
//! barrier and read the other's place, at least one sees the other's write. For that the heavy one makes the kernel
//! stop the other processors (`membarrier(2)`, since Linux 4.14 and 4.16). It takes 0.3 microseconds where no other
//! thread runs, and 20 where one does, on a virtual machine with two processors.

#[cfg(not(all(target_arch = "x86_64", not(redrt_loom))))]
use crate::primitive::{Ordering, fence};
use std::sync::atomic::AtomicBool;

/// Threads that a heavy barrier reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Reach {
    /// All threads of all processes of this host that have called [`register`].
    Host = 1 << 1,
    /// All threads of this process, which has called [`register`].
    Process = 1 << 3,
}

const REGISTER_HOST: i32 = 1 << 2;
const REGISTER_PROCESS: i32 = 1 << 4;

/// True once this process is registered, so that light barriers may be light.
static REGISTERED: AtomicBool = AtomicBool::new(false);

fn membarrier(command: i32) -> bool {
    // SAFETY: - the call touches no memory of the process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Tells the kernel that others' heavy barriers must reach this process. Returns true if they do from now on. An old
/// kernel, or one with the call forbidden, refuses; then [`light`] and [`heavy`] are ordinary full barriers.
///
/// To be called while the process has one thread, by a constructor of the library: then it costs nothing, and further
/// calls cost as little. With more threads the kernel lets 20 ms pass.
pub fn register() -> bool {
    let both = !cfg!(miri) && membarrier(REGISTER_HOST) && membarrier(REGISTER_PROCESS);
    REGISTERED.store(both, std::sync::atomic::Ordering::Relaxed);
    both
}

/// Returns true if light barriers of this process are light, and heavy ones of others reach it.
#[inline]
pub fn is_registered() -> bool {
    REGISTERED.load(std::sync::atomic::Ordering::Relaxed) || cfg!(redrt_loom)
}

/// An ordinary full barrier.
#[inline]
pub fn full() {
    #[cfg(all(target_arch = "x86_64", not(redrt_loom)))]
    {
        // Any instruction that locks a line is a barrier, and takes half the time of the dedicated one.
        static LINE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        LINE.swap(1, std::sync::atomic::Ordering::SeqCst);
    }
    #[cfg(not(all(target_arch = "x86_64", not(redrt_loom))))]
    fence(Ordering::SeqCst);
}

/// The barrier of the frequent side.
#[inline]
pub fn light() {
    if is_registered() && cfg!(not(redrt_loom)) {
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    } else {
        full();
    }
}

/// The barrier of the rare side.
///
/// # Panics
/// When the kernel refuses a barrier that it has granted before: then earlier writes may be invisible to others.
pub fn heavy(reach: Reach) {
    full();
    if is_registered() && cfg!(not(redrt_loom)) {
        assert!(membarrier(reach as i32), "the kernel refuses a barrier: {}", std::io::Error::last_os_error());
    }
}
