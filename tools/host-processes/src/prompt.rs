//! Prompt scheduling for daemons and `redrun`. Hosts are full of computing processes; the report of a death must not
//! wait until all of them had their turn, nor may a beat come so late that others count this host as silent.

/// Shortest slice that Linux lets a process ask for. A process with short slices is scheduled sooner, without more time
/// in total.
const SLICE_NS: u64 = 100_000;

/// Lowest real-time priority: above all computing processes, below everything that the system needs.
const PRIORITY: u32 = 1;

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

/// Scheduling that was granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Granted {
    /// Real-time scheduling. It takes CAP_SYS_NICE or RLIMIT_RTPRIO.
    RealTime,
    /// Short slices among the other processes. On a processor that the kernel itself keeps busy, as when gigabytes are
    /// mapped or freed, seconds may pass.
    ShortSlices,
    /// No change: kernels before 6.12 do not support short slices.
    Nothing,
}

/// Asks for prompt scheduling of this thread. Its children do not inherit it.
pub fn request() -> Granted {
    let real_time = Attributes { policy: libc::SCHED_RR as u32, priority: PRIORITY, ..Attributes::new() };
    if set(&real_time) {
        return Granted::RealTime;
    }
    // SAFETY: - getpriority takes numbers, and touches no memory.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    match set(&Attributes { nice, runtime: SLICE_NS, ..Attributes::new() }) {
        true => Granted::ShortSlices,
        false => Granted::Nothing,
    }
}

impl Attributes {
    fn new() -> Self {
        let flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
        let size = size_of::<Self>() as u32;
        Self { size, policy: libc::SCHED_OTHER as u32, flags, nice: 0, priority: 0, runtime: 0, deadline: 0, period: 0 }
    }
}

fn set(attributes: &Attributes) -> bool {
    // SAFETY: - `attributes` is valid for the size that it states.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(attributes), 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_granted_is_in_force_and_not_inherited() {
        let policy = || {
            // SAFETY: - sched_getscheduler takes any number, and touches no memory.
            unsafe { libc::sched_getscheduler(0) & !libc::SCHED_RESET_ON_FORK }
        };
        let granted = std::thread::spawn(move || (request(), policy(), std::thread::spawn(policy).join()));
        let (granted, mine, inherited) = granted.join().expect("it ends");
        assert_eq!(mine, if granted == Granted::RealTime { libc::SCHED_RR } else { libc::SCHED_OTHER });
        assert_eq!(inherited.expect("it ends"), libc::SCHED_OTHER);
    }
}
