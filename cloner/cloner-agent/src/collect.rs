//! What the kernel knows of a thread or of the process: asked by the thread itself, or by the agent.

use crate::abi::{Block, NODE_COUNT_MAX, PENDING_COUNT_MAX, SCHEDULING_WORDS, SLOT_PARKED, Slot, Timer};
use crate::settings;
use crate::sys::{self, syscall, syscall6};

const PR_GET_TID_ADDRESS: u64 = 40;
const PR_GET_NAME: u64 = 16;
const ARCH_GET_FS: u64 = 0x1003;
const ARCH_GET_GS: u64 = 0x1004;
/// Of the structures of `capget(2)`: 64 capabilities.
pub const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// The slots in use.
pub fn slots(block: &mut Block) -> &mut [Slot] {
    // SAFETY: - slots has room for slot_capacity, and slot_count never exceeds that.
    unsafe { core::slice::from_raw_parts_mut(block.slots as *mut Slot, block.slot_count as usize) }
}

/// Fills `slot` with what the calling thread is. Leaves `tid`, `state`, `frame` and `syscall` alone.
///
/// # Safety
/// `rseq_offset` is the C library's, or 0.
pub unsafe fn thread(slot: &mut Slot, rseq_offset: i64) {
    let at = |place: &mut u64| core::ptr::from_mut(place) as u64;
    // SAFETY: - each call writes one word, or the 16 bytes of a name, to a field of the slot that has that size.
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
        // SAFETY: - a thread of the C library has its rseq area at this offset, 32 bytes, aligned.
        let cpu = unsafe { core::ptr::read_volatile((area + 4) as *const i32) };
        if cpu >= 0 {
            slot.rseq = area;
        }
    }
}

/// Makes what the kernel shows of scheduling what it is to be told: bounds of utilization only count with flags.
fn complete_scheduling(attributes: &mut [u64; SCHEDULING_WORDS]) {
    const SCHED_FLAG_UTIL_CLAMP: u64 = 0x60;
    /// From nothing to all of a processor.
    const NO_BOUNDS: u64 = 1024 << 32;
    if attributes[6] != 0 && attributes[6] != NO_BOUNDS {
        attributes[1] |= SCHED_FLAG_UTIL_CLAMP;
    }
}

/// Slices are shown also where the kernel has chosen them, by the number of its processors. Only a slice that is not
/// this thread's, which wants none, is one that the program has chosen.
fn forget_usual_slices(block: &mut Block) {
    let mut own = [0_u64; SCHEDULING_WORDS];
    let place = own.as_mut_ptr() as u64;
    // SAFETY: - own has room for as many bytes as are stated.
    unsafe { syscall(libc::SYS_sched_getattr, 0, place, size_of_val(&own) as u64, 0) };
    for slot in slots(block) {
        let policy = (slot.scheduling[0] >> 32) as i32;
        let is_fair = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&policy);
        if is_fair && slot.scheduling[3] == own[3] {
            slot.scheduling[3] = 0;
        }
    }
}

/// Takes the signals in `mask` that are pending out of the queue, notes them, and puts them back.
///
/// With `process` they go back to the process, else to the calling thread.
pub fn pending(mask: u64, process: bool, into: &mut [[u8; 128]; PENDING_COUNT_MAX]) -> u32 {
    let mut count = 0;
    let now = [0_u64; 2];
    while mask != 0 && (count as usize) < PENDING_COUNT_MAX {
        let info = &mut into[count as usize];
        // SAFETY: - mask and timeout are read, info has the size of a siginfo_t.
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

/// Queues the signal that `info` describes for the calling thread, or for its process.
pub fn requeue(info: &[u8; 128], process: bool) {
    let signal = u64::from(u32::from_ne_bytes([info[0], info[1], info[2], info[3]]));
    let pid = u64::from(sys::getpid());
    let at = info.as_ptr() as u64;
    // SAFETY: - info is a whole siginfo_t, which the kernel reads.
    unsafe {
        if process {
            syscall(libc::SYS_rt_sigqueueinfo, pid, signal, at, 0);
        } else {
            syscall(libc::SYS_rt_tgsigqueueinfo, pid, u64::from(sys::gettid()), signal, at);
        }
    }
}

/// Notes what belongs to the process as a whole. All threads are parked.
pub fn process(block: &mut Block) {
    forget_usual_slices(block);
    silence_orphaned_timers(block);
    for signal in 1..=64_u64 {
        let place = block.dispositions[signal as usize - 1].as_mut_ptr() as u64;
        // SAFETY: - reads a disposition into a field of its size.
        unsafe { syscall(libc::SYS_rt_sigaction, signal, 0, place, 8) };
    }
    // SAFETY: - asks only: 0 is never a valid end.
    block.heap_end = unsafe { syscall(libc::SYS_brk, 0, 0, 0, 0) } as u64;
    for (value, setting) in block.settings.iter_mut().zip(&settings::OF_PROCESS) {
        *value = setting.get();
    }
    let mut segment = [0_u8; 8];
    // SAFETY: - reads the first entry, of eight bytes, to a place for it.
    let bytes = unsafe { syscall(libc::SYS_modify_ldt, 0, segment.as_mut_ptr() as u64, segment.len() as u64, 0) };
    block.local_segment_bytes = bytes.max(0) as u64;
    // A timer may expire between the two looks; then both are taken again, a few times, however busy the machine is.
    const ATTEMPT_COUNT_MAX: usize = 16;
    for _ in 0..ATTEMPT_COUNT_MAX {
        let before = pending_mask(b"/proc/self/status\0", b"ShdPnd:");
        // The agent blocks all signals, so those that wait for the process can be taken by it.
        block.pending_count = pending(before, true, &mut block.pending);
        timers(block);
        if pending_mask(b"/proc/self/status\0", b"ShdPnd:") & !before == 0 {
            break;
        }
    }
}

/// A timer that notifies a thread which has ended goes on, and notifies nobody. Such a one can be made again only as
/// one that notifies nobody.
fn silence_orphaned_timers(block: &mut Block) {
    for index in 0..block.timer_count as usize {
        let Timer { notify, tid, .. } = block.timers[index];
        let is_there = |slot: &Slot| slot.tid == tid as u32 && slot.state == SLOT_PARKED;
        if notify & libc::SIGEV_THREAD_ID != 0 && !slots(block).iter().any(is_there) {
            block.timers[index].notify = libc::SIGEV_NONE;
        }
    }
}

/// Notes what is left of each timer.
fn timers(block: &mut Block) {
    for (which, timer) in block.interval_timers.iter_mut().enumerate() {
        // SAFETY: - an itimerval is four words.
        unsafe { syscall(libc::SYS_getitimer, which as u64, timer.as_mut_ptr() as u64, 0, 0) };
        // The trap: an interval timer whose signal waits is only wound up when the signal is taken, and shows no time
        // left until then.
        let [every_s, every_us, left_s, left_us] = *timer;
        if (left_s, left_us) == (0, 0) {
            *timer = [every_s, every_us, every_s, every_us];
        }
    }
    let count = block.timer_count as usize;
    for timer in &mut block.timers[..count] {
        // SAFETY: - an itimerspec is four words.
        unsafe { syscall(libc::SYS_timer_gettime, timer.id as u64, timer.setting.as_mut_ptr() as u64, 0, 0) };
    }
}

/// Reads a mask such as `SigPnd` from a status file; 0 when it cannot be read.
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

/// What `/proc/self/task/TID/syscall` says: number, arguments, stack and instruction pointer; a number of -1 when the
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
    // "-1 SP PC" is a thread that is blocked, but not in a system call.
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

/// Writes `tid` in decimal over `place`, with leading zeros.
///
/// `/proc/self/task` does not take leading zeros, so they become slashes, of which paths may have any number.
pub fn write_tid(place: &mut [u8], mut tid: u32) {
    for byte in place.iter_mut().rev() {
        *byte = if tid == 0 { b'/' } else { b'0' + (tid % 10) as u8 };
        tid /= 10;
    }
}

/// Asks which pages of the program's memory are in memory; see `mincore(2)`.
pub fn resident(address: u64, len: u64, into: u64) -> i64 {
    // SAFETY: - into has a byte for each page, as the caller has made sure.
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
        // SAFETY: - blocks a signal in this thread alone, and takes it away again.
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
