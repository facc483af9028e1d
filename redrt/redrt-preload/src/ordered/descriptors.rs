//! Descriptors by which threads of a process reach each other: pipes, pairs of stream sockets, and events.
//!
//! What a descriptor is, its creation decides, which is the same in all replicas. One that a child inherits is ordered
//! like the others: then the leader's outcome says how much of the child's output a read finds.

use super::runtimes;
use crate::real::{self, next};
use crate::state;
use libc::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU8, Ordering};

/// Descriptors with larger numbers are not ordered.
const END: usize = 4096;

/// A kind of descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum DescriptorKind {
    /// Either end of a pipe.
    Pipe,
    /// Either end of a pair of stream sockets.
    Socket,
    /// An event descriptor: eventfd(2).
    Event,
}

const NOTHING: u8 = 0;
static KINDS: [AtomicU8; END] = [const { AtomicU8::new(NOTHING) }; END];

fn place(fd: c_int) -> Option<&'static AtomicU8> {
    KINDS.get(usize::try_from(fd).ok()?)
}

/// The kind of a descriptor; `None` for files, other sockets and all else.
#[inline]
pub fn kind(fd: c_int) -> Option<DescriptorKind> {
    match place(fd)?.load(Ordering::Relaxed) {
        1 => Some(DescriptorKind::Pipe),
        2 => Some(DescriptorKind::Socket),
        3 => Some(DescriptorKind::Event),
        _ => None,
    }
}

/// True if the caller is the program, in its own process: not a child that shares this memory.
pub(super) fn is_program() -> bool {
    state::job().is_some_and(|job| job.is_first_process())
}

fn record(fd: c_int, kind: DescriptorKind) {
    if let Some(place) = place(fd).filter(|_| is_program()) {
        let number = match kind {
            DescriptorKind::Pipe => 1,
            DescriptorKind::Socket => 2,
            DescriptorKind::Event => 3,
        };
        place.store(number, Ordering::Relaxed);
    }
}

/// Called before a descriptor is closed, or replaced.
#[inline]
pub fn forget(fd: c_int) {
    if let Some(place) = place(fd)
        && place.load(Ordering::Relaxed) != NOTHING
        && is_program()
    {
        place.store(NOTHING, Ordering::Relaxed);
    }
    super::epolls::forget(fd);
}

/// Called before the descriptors from `first` to `last` are closed.
pub fn forget_range(first: c_uint, last: c_uint) {
    let end = (END as c_uint).min(last.saturating_add(1));
    (first..end).for_each(|fd| forget(fd as c_int));
}

/// Called when `fd` was duplicated as `other`.
pub fn duplicated(fd: c_int, other: c_int) {
    let kind = kind(fd);
    if fd != other {
        forget(other);
    }
    if let Some(kind) = kind {
        record(other, kind);
    }
}

/// True if calls on the descriptor never wait.
pub fn never_waits(fd: c_int) -> bool {
    // SAFETY: - F_GETFL has no third argument, and reads no memory.
    let flags = unsafe { real::system_call(libc::SYS_fcntl, [fd.into(), libc::F_GETFL.into(), 0, 0, 0, 0]) };
    flags >= 0 && flags as c_int & libc::O_NONBLOCK != 0
}

/// Maximum duration of a wait between two looks whether this process still leads, in nanoseconds. Only a copy does not:
/// its threads wait where those of its source did, and nothing wakes them.
pub const LOOK_NS: i64 = 100_000_000;

/// Waits until one of these events, or an error, has come. Returns a negative error number if a signal ended the wait.
pub fn await_events(fd: c_int, events: i16, timeout_ms: c_int) -> i64 {
    let mut one = libc::pollfd { fd, events, revents: 0 };
    let mut time =
        libc::timespec { tv_sec: i64::from(timeout_ms) / 1000, tv_nsec: i64::from(timeout_ms) % 1000 * 1_000_000 };
    let time = if timeout_ms < 0 { std::ptr::null_mut() } else { &raw mut time };
    // SAFETY: - both live until the call returns; no mask is given.
    unsafe { real::ppoll(&raw mut one, 1, time, std::ptr::null()) }
}

/// Makes a pipe; `caller` is an address in the calling code. Pipes of runtimes are not ordered, like their locks: by
/// them collectors wake their threads at moments of their own.
unsafe extern "C" fn make_pipe(ends: *mut c_int, flags: c_int, caller: *const c_void) -> c_int {
    let result = next!(pipe2(ends => *mut c_int, flags => c_int) -> c_int, -1);
    if result == 0 && !runtimes::is_one(caller) {
        // SAFETY: - the C library has filled in two descriptors.
        [0, 1].iter().for_each(|end| record(unsafe { *ends.add(*end) }, DescriptorKind::Pipe));
    }
    result
}

/// Replaces the C library's, and passes on the address of its caller.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pipe2(_: *mut c_int, _: c_int) -> c_int {
    // The return address becomes the third argument.
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("mov rdx, [rsp]", "jmp {make}", make = sym make_pipe);
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("mov x2, x30", "b {make}", make = sym make_pipe);
}

/// Replaces the C library's, and passes on the address of its caller.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pipe(_: *mut c_int) -> c_int {
    // Without flags; the return address becomes the third argument.
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!("xor esi, esi", "mov rdx, [rsp]", "jmp {make}", make = sym make_pipe);
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!("mov w1, wzr", "mov x2, x30", "b {make}", make = sym make_pipe);
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn socketpair(domain: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int {
    let result = next!(socketpair(
        domain => c_int, kind => c_int, protocol => c_int, ends => *mut c_int
    ) -> c_int, -1);
    if result == 0 && kind & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) == libc::SOCK_STREAM {
        // SAFETY: - the C library has filled in two descriptors.
        [0, 1].iter().for_each(|end| record(unsafe { *ends.add(*end) }, DescriptorKind::Socket));
    }
    result
}

/// Replaces the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn eventfd(value: c_uint, flags: c_int) -> c_int {
    let fd = next!(eventfd(value => c_uint, flags => c_int) -> c_int, -1);
    if fd >= 0 {
        record(fd, DescriptorKind::Event);
    }
    fd
}
