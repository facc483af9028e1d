//! Records kernel state of a thread or of the process. A thread does it for itself, the agent for the process.

use crate::abi::{Block, NODE_COUNT_MAX, PENDING_COUNT_MAX, SCHEDULING_WORDS, SLOT_PARKED, Slot, Timer};
use crate::settings;
use crate::sys::{self, syscall, syscall6};

const PR_GET_TID_ADDRESS: u64 = 40;
const PR_GET_NAME: u64 = 16;
const ARCH_GET_FS: u64 = 0x1003;
const ARCH_GET_GS: u64 = 0x1004;
/// Version 2 of the structures of `capget(2)`: 64 capabilities.
pub const CAPABILITY_VERSION: u32 = 0x2008_0522;

pub fn slots(block: &mut Block) -> &mut [Slot] {
    // SAFETY: - `block.slots` points to memory for `slot_capacity` slots, mapped by `Agent::new` for the life of the
    //           process.
    //         - `slot_count` never exceeds `slot_capacity`.
    unsafe { core::slice::from_raw_parts_mut(block.slots as *mut Slot, block.slot_count as usize) }
}

/// Fills `slot` with the state of the calling thread, except for `tid`, `state`, `frame` and `syscall`.
///
/// # Safety
/// `rseq_offset` is the C library's `__rseq_offset`, or 0.
pub unsafe fn thread(slot: &mut Slot, rseq_offset: i64) {
    let at = |place: &mut u64| core::ptr::from_mut(place) as u64;
    // SAFETY: - each call writes to a field of `slot` that has the size that the call writes or is given: a word, 16
    //           bytes for the name, or the array's own size.
    unsafe {
        syscall(libc::SYS_arch_prctl, ARCH_GET_FS, at(&mut slot.fs), 0, 0);
        syscall(libc::SYS_arch_prctl, ARCH_GET_GS, at(&mut slot.gs), 0, 0);
        syscall(libc::SYS_prctl, PR_GET_TID_ADDRESS, at(&mut slot.clear_tid), 0, 0);
        syscall(libc::SYS_prctl, PR_GET_NAME, slot.name.as_mut_ptr() as u64, 0, 0);
        syscall(libc::SYS_get_robust_list, 0, at(&mut slot.robust_head), at(&mut slot.robust_len), 0);
        let scheduling = slot.scheduling.as_mut_ptr() as u64;
        slot.scheduling = [0; SCHEDULING_WORDS];
        syscall(libc::SYS_sched_getattr, 0, scheduling, size_of_val(&slot.scheduling) as u64, 0);
        complete_scheduling(&mut slot.scheduling);
        // The header is read, the data written.
        let header = [CAPABILITY_VERSION, 0];
        syscall(libc::SYS_capget, header.as_ptr() as u64, slot.capabilities.as_mut_ptr() as u64, 0, 0);
        slot.memory_nodes = [0; NODE_COUNT_MAX / 64];
        let (mode, nodes) =
            (core::ptr::from_mut(&mut slot.memory_policy) as u64, slot.memory_nodes.as_mut_ptr() as u64);
        if syscall(libc::SYS_get_mempolicy, mode, nodes, NODE_COUNT_MAX as u64 + 1, 0) < 0 {
            slot.memory_policy = -1;
        }
        let affinity = slot.affinity.as_mut_ptr() as u64;
        slot.affinity = [0; 16];
        syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&slot.affinity) as u64, affinity, 0);
    }
    for (value, setting) in slot.settings.iter_mut().zip(&settings::OF_THREAD) {
        *value = setting.get();
    }
    slot.rseq = 0;
    if rseq_offset != 0 && slot.fs != 0 {
        let area = slot.fs.wrapping_add_signed(rseq_offset);
        // SAFETY: - every thread of the C library has its rseq area at this offset from its thread pointer: 32 bytes,
        //           aligned.
        let cpu = unsafe { core::ptr::read_volatile((area + 4) as *const i32) };
        if cpu >= 0 {
            slot.rseq = area;
        }
    }
}

/// Sets the flags that `sched_setattr` needs: it ignores utilization bounds without them.
fn complete_scheduling(attributes: &mut [u64; SCHEDULING_WORDS]) {
    const SCHED_FLAG_UTIL_CLAMP: u64 = 0x60;
    /// Bounds that allow everything from none to all of a processor.
    const NO_BOUNDS: u64 = 1024 << 32;
    if attributes[6] != 0 && attributes[6] != NO_BOUNDS {
        attributes[1] |= SCHED_FLAG_UTIL_CLAMP;
    }
}

/// Clears slices that the kernel has chosen. It reports one for each thread, depending on the number of processors. A
/// slice is the program's choice only if it differs from that of this thread, which never asks for one.
fn forget_usual_slices(block: &mut Block) {
    let mut own = [0_u64; SCHEDULING_WORDS];
    let place = own.as_mut_ptr() as u64;
    // SAFETY: - `own` is a local with as many bytes as the call is given.
    unsafe { syscall(libc::SYS_sched_getattr, 0, place, size_of_val(&own) as u64, 0) };
    for slot in slots(block) {
        let policy = (slot.scheduling[0] >> 32) as i32;
        let is_fair = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&policy);
        if is_fair && slot.scheduling[3] == own[3] {
            slot.scheduling[3] = 0;
        }
    }
}

/// Dequeues the pending signals of `mask`, records them, and queues them again: for the process if `process`, else for
/// the calling thread. Returns their number.
pub fn pending(mask: u64, process: bool, into: &mut [[u8; 128]; PENDING_COUNT_MAX]) -> u32 {
    let mut count = 0;
    let now = [0_u64; 2];
    while mask != 0 && (count as usize) < PENDING_COUNT_MAX {
        let info = &mut into[count as usize];
        // SAFETY: - `mask` and `now` are locals that the call reads.
        //         - `info` has the 128 bytes of a `siginfo_t`.
        let signal = unsafe {
            syscall(
                libc::SYS_rt_sigtimedwait,
                core::ptr::from_ref(&mask) as u64,
                info.as_mut_ptr() as u64,
                now.as_ptr() as u64,
                8,
            )
        };
        if signal <= 0 {
            break;
        }
        count += 1;
    }
    for info in &into[..count as usize] {
        requeue(info, process);
    }
    count
}

/// Queues the signal that `info` describes, for the process or for the calling thread.
pub fn requeue(info: &[u8; 128], process: bool) {
    let signal = u64::from(u32::from_ne_bytes([info[0], info[1], info[2], info[3]]));
    let pid = u64::from(sys::getpid());
    let at = info.as_ptr() as u64;
    // SAFETY: - `info` has the 128 bytes of a `siginfo_t`, which the calls only read.
    unsafe {
        if process {
            syscall(libc::SYS_rt_sigqueueinfo, pid, signal, at, 0);
        } else {
            syscall(libc::SYS_rt_tgsigqueueinfo, pid, u64::from(sys::gettid()), signal, at);
        }
    }
}

/// Records the state of the process as a whole. All threads must be parked.
pub fn process(block: &mut Block) {
    forget_usual_slices(block);
    silence_orphaned_timers(block);
    for signal in 1..=64_u64 {
        let place = block.dispositions[signal as usize - 1].as_mut_ptr() as u64;
        // SAFETY: - `place` is a field with the four words of a disposition, to which the call writes the old one.
        unsafe { syscall(libc::SYS_rt_sigaction, signal, 0, place, 8) };
    }
    // SAFETY: - `brk(0)` changes nothing, because 0 is never a valid end, and returns the current one.
    block.heap_end = unsafe { syscall(libc::SYS_brk, 0, 0, 0, 0) } as u64;
    for (value, setting) in block.settings.iter_mut().zip(&settings::OF_PROCESS) {
        *value = setting.get();
    }
    let mut segment = [0_u8; 8];
    // SAFETY: - `segment` is a local with the eight bytes that the call may write.
    let bytes = unsafe { syscall(libc::SYS_modify_ldt, 0, segment.as_mut_ptr() as u64, segment.len() as u64, 0) };
    block.local_segment_bytes = bytes.max(0) as u64;
    // A timer may expire while this looks. Then everything is recorded again, a limited number of times, however busy
    // the host is.
    const ATTEMPT_COUNT_MAX: usize = 16;
    for _ in 0..ATTEMPT_COUNT_MAX {
        let before = pending_mask(b"/proc/self/status\0", b"ShdPnd:");
        // The agent blocks all signals, so it can dequeue those of the process.
        block.pending_count = pending(before, true, &mut block.pending);
        timers(block);
        if pending_mask(b"/proc/self/status\0", b"ShdPnd:") & !before == 0 {
            break;
        }
    }
}

/// Makes timers silent whose thread has ended: they run on without notifying anybody. The kernel refuses to make one
/// for a thread that does not exist.
fn silence_orphaned_timers(block: &mut Block) {
    for index in 0..block.timer_count as usize {
        let Timer { notify, tid, .. } = block.timers[index];
        let is_there = |slot: &Slot| slot.tid == tid as u32 && slot.state == SLOT_PARKED;
        if notify & libc::SIGEV_THREAD_ID != 0 && !slots(block).iter().any(is_there) {
            block.timers[index].notify = libc::SIGEV_NONE;
        }
    }
}

/// Records the remaining time of each timer.
fn timers(block: &mut Block) {
    for (which, timer) in block.interval_timers.iter_mut().enumerate() {
        // SAFETY: - `timer` has the four words of `struct itimerval`.
        unsafe { syscall(libc::SYS_getitimer, which as u64, timer.as_mut_ptr() as u64, 0, 0) };
        // The trap: an interval timer whose signal is pending is restarted only when the signal is delivered, and shows
        // no remaining time until then.
        let [every_s, every_us, left_s, left_us] = *timer;
        if (left_s, left_us) == (0, 0) {
            *timer = [every_s, every_us, every_s, every_us];
        }
    }
    let count = block.timer_count as usize;
    for timer in &mut block.timers[..count] {
        // SAFETY: - `timer.setting` has the four words of `struct itimerspec`.
        unsafe { syscall(libc::SYS_timer_gettime, timer.id as u64, timer.setting.as_mut_ptr() as u64, 0, 0) };
    }
}

/// Reads a signal mask such as `SigPnd` from a status file; 0 if the file cannot be read.
pub fn pending_mask(path: &[u8], name: &[u8]) -> u64 {
    let mut buffer = [0_u8; 2048];
    let fd = sys::openat(libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC);
    if fd < 0 {
        return 0;
    }
    let count = sys::read(fd, &mut buffer).max(0) as usize;
    sys::close(fd);
    let text = &buffer[..count];
    let Some(start) = text.windows(name.len()).position(|window| window == name) else { return 0 };
    let digits = text[start + name.len()..].iter().skip_while(|byte| byte.is_ascii_whitespace());
    digits.map_while(|byte| (*byte as char).to_digit(16)).fold(0, |mask, digit| mask << 4 | u64::from(digit))
}

/// Reads `/proc/self/task/TID/syscall`: number, arguments, stack and instruction pointer. The number is -1 if the
/// thread is running, or the file cannot be read.
pub fn blocked_call(tid: u32) -> [i64; 9] {
    let mut path = *b"/proc/self/task/0000000000/syscall\0";
    write_tid(&mut path[16..26], tid);
    let mut call = [-1_i64; 9];
    let mut buffer = [0_u8; 256];
    let fd = sys::openat(libc::AT_FDCWD, &path, libc::O_RDONLY | libc::O_CLOEXEC);
    if fd < 0 {
        return call;
    }
    let count = sys::read(fd, &mut buffer).max(0) as usize;
    sys::close(fd);
    let mut found = 0;
    for word in buffer[..count].split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty()) {
        if found == call.len() {
            break;
        }
        let Some(value) = number(word) else { return [-1; 9] };
        call[found] = value;
        found += 1;
    }
    // Fewer words mean that the thread is blocked outside of a system call: "-1 SP PC".
    if found == call.len() { call } else { [-1; 9] }
}

fn number(word: &[u8]) -> Option<i64> {
    let (digits, radix) = match word {
        [b'0', b'x', rest @ ..] => (rest, 16),
        _ => (word, 10),
    };
    digits.iter().try_fold(0_i64, |value, byte| {
        let digit = (*byte as char).to_digit(radix)?;
        Some(value.wrapping_mul(i64::from(radix)).wrapping_add(i64::from(digit)))
    })
}

/// Writes `tid` in decimal over `place`.
///
/// `/proc/self/task` does not accept leading zeros, so they become slashes, any number of which a path may have.
pub fn write_tid(place: &mut [u8], mut tid: u32) {
    for byte in place.iter_mut().rev() {
        *byte = if tid == 0 { b'/' } else { b'0' + (tid % 10) as u8 };
        tid /= 10;
    }
}

/// Finds out which pages are in memory, as `mincore(2)` does. Returns 0 or a negative error number.
pub fn resident(address: u64, len: u64, into: u64) -> i64 {
    // SAFETY: - the caller has mapped a byte at `into` for each page of the range.
    unsafe { syscall6(libc::SYS_mincore, address, len, into, 0, 0, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_ids_become_paths() {
        let mut path = *b"/proc/self/task/0000000000/syscall\0";
        write_tid(&mut path[16..26], 4711);
        assert_eq!(&path[..], b"/proc/self/task///////4711/syscall\0");
    }

    #[test]
    fn a_thread_that_sleeps_shows_its_call() {
        let (tell, told) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            tell.send(sys::gettid()).unwrap();
            let _ = released.recv();
        });
        let tid = told.recv().unwrap();
        let call = loop {
            let call = blocked_call(tid);
            if call[0] == libc::SYS_futex {
                break call;
            }
            std::thread::yield_now();
        };
        assert!(call[8] != 0 && call[7] != 0);
        release.send(()).unwrap();
        sleeper.join().unwrap();
    }

    #[test]
    fn a_pending_signal_is_noted_and_stays_pending() {
        // SAFETY: - `set` is a local signal set; the mask is changed for this thread alone, and restored below.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGUSR2);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2);
        }
        let mask = 1 << (libc::SIGUSR2 - 1);
        let mut infos = [[0; 128]; PENDING_COUNT_MAX];
        assert_eq!(pending(mask, false, &mut infos), 1);
        assert_eq!(infos[0][0], libc::SIGUSR2 as u8);
        assert_eq!(pending_mask(b"/proc/thread-self/status\0", b"SigPnd:") & mask, mask);
        infos = [[0; 128]; PENDING_COUNT_MAX];
        assert_eq!(pending(mask, false, &mut infos), 1);
    }
}
