//! Daemons and `redrun` ask to be scheduled promptly: hosts are full of processes that compute, and the news of a death must not
//! wait for all of them to have had their turn, nor a beat until others find this host silent.

use std::io;

/// The shortest slice that Linux lets a process ask for. Whoever runs in short slices is served sooner, and gets no more
/// time than others for it.
const SLICE_NS: u64 = 100_000;

/// `struct sched_attr` of sched_setattr(2), the first version.
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const _: () = assert!(size_of::<Attributes>() == 48);

/// Asks for it, for this thread and not for what it starts. Kernels before 6.12 do not know this wish and leave all as it is.
pub fn wish() -> io::Result<()> {
    // SAFETY: - takes numbers and touches no memory.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
        nice,
        priority: 0,
        runtime: SLICE_NS,
        deadline: 0,
        period: 0,
    };
    // SAFETY: - attributes is valid for its size, which it states.
    let failed = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } != 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_wish_is_granted_or_unknown() {
        if let Err(error) = super::wish() {
            panic!("the kernel refuses an ordinary request: {error}");
        }
        // SAFETY: - takes numbers and touches no memory.
        assert_eq!(unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK, libc::SCHED_OTHER);
    }
}
