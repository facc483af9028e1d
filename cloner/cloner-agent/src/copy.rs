//! The other side of the cut: how agent and threads of the copy begin.
//!
//! The restorer has put memory in its place and made the threads, each with its old id and thread pointer. They enter
//! here, below their signal frame, set what belongs to the thread, wait until the agent lets all go, and return into
//! the frame.

use crate::abi::{
    Block, NODE_COUNT_MAX, REFUSED_MEMORY_POLICY, REFUSED_OF_PROCESS, REFUSED_OF_THREAD, REFUSED_SCHEDULING,
    REFUSED_TIMER, SLOT_PARKED, Slot, Timer,
};
use crate::collect::slots;
use crate::park::{set_disposition, word};
use crate::settings::{OF_PROCESS, OF_THREAD, OOM_SCORE};
use crate::sys::{self, syscall, syscall6};
use crate::{collect, serve};
use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering};

const RSEQ_SIGNATURE: u64 = 0x5305_3053;
const PR_SET_NAME: u64 = 15;
const PR_TIMER_CREATE_RESTORE_IDS: u64 = 77;
const ARCH_SET_GS: u64 = 0x1001;
const FEATURE_TILES: u64 = 1 << 18;

/// A thread of the copy begins.
///
/// # Safety
/// Only for the restorer: on the thread's own stack below its frame, with slot and block in place.
pub unsafe extern "C" fn thread_entry(slot: *mut Slot, block: *mut Block) -> ! {
    // SAFETY: - the image has both where they were; the slot is this thread's alone.
    let slot = unsafe { &mut *slot };
    // SAFETY: - words of the block, which is never unmapped; while threads run they are only used through atomics.
    let [release, left, drop] = unsafe {
        [&raw mut (*block).release, &raw mut (*block).left, &raw mut (*block).drop_capabilities]
            .map(|at| AtomicU32::from_ptr(at))
    };
    // SAFETY: - see there; the frame is the one that this thread's slot names.
    unsafe {
        restore(slot, block);
        grow_registers(slot.frame);
    }
    // Last: what was restored may need some of them.
    limit_capabilities(if drop.load(Ordering::SeqCst) != 0 { &NO_CAPABILITIES } else { &slot.capabilities });
    for info in &slot.pending[..slot.pending_count as usize] {
        collect::requeue(info, false);
    }
    let seen = release.load(Ordering::SeqCst);
    left.fetch_add(1, Ordering::SeqCst);
    // SAFETY: - words of the block.
    unsafe {
        sys::futex_wake(left.as_ptr());
        while release.load(Ordering::SeqCst) == seen {
            sys::futex_wait(release.as_ptr(), seen, 0);
        }
        // The kernel takes mask, alternate stack and all registers from the frame.
        asm!("mov rsp, {frame}", "mov eax, 15", "syscall", "ud2", frame = in(reg) slot.frame, options(noreturn))
    }
}

unsafe fn restore(slot: &Slot, block: *mut Block) {
    // SAFETY: - addresses are the ones that the same calls had in the source, and their memory is in place.
    unsafe {
        syscall(libc::SYS_set_robust_list, slot.robust_head, slot.robust_len, 0, 0);
        syscall(libc::SYS_prctl, PR_SET_NAME, slot.name.as_ptr() as u64, 0, 0);
        if slot.gs != 0 {
            syscall(libc::SYS_arch_prctl, ARCH_SET_GS, slot.gs, 0, 0);
        }
        let scheduling = slot.scheduling.as_ptr() as u64;
        if slot.scheduling[0] != 0 {
            note(block, REFUSED_SCHEDULING, syscall(libc::SYS_sched_setattr, 0, scheduling, 0, 0));
        }
        let mut policy = 0_i32;
        let mut nodes = [0_u64; NODE_COUNT_MAX / 64];
        let (mode, bits) = (core::ptr::from_mut(&mut policy) as u64, NODE_COUNT_MAX as u64 + 1);
        syscall(libc::SYS_get_mempolicy, mode, nodes.as_mut_ptr() as u64, bits, 0);
        if slot.memory_policy >= 0 && (policy, nodes) != (slot.memory_policy, slot.memory_nodes) {
            let nodes = slot.memory_nodes.as_ptr() as u64;
            let set = syscall(libc::SYS_set_mempolicy, slot.memory_policy as u64, nodes, bits, 0);
            note(block, REFUSED_MEMORY_POLICY, set);
        }
        // Processors that are not there are left out by the kernel; if none is left, the thread may run anywhere.
        let affinity = slot.affinity.as_ptr() as u64;
        syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&slot.affinity) as u64, affinity, 0);
        if slot.rseq != 0 {
            // A critical section cannot be open: the thread was in a signal handler, which ends it.
            core::ptr::write_volatile((slot.rseq + 8) as *mut u64, 0);
            syscall6(libc::SYS_rseq, slot.rseq, 32, 0, RSEQ_SIGNATURE, 0, 0);
        }
    }
    for (number, (setting, value)) in OF_THREAD.iter().zip(slot.settings).enumerate() {
        // SAFETY: - the caller's block.
        unsafe { note(block, REFUSED_OF_THREAD + number as u32, setting.set(value)) };
    }
}

/// Notes that the copy could not be given something, if `result` is an error and it is the first.
///
/// # Safety
/// The block is live; its words are only used through atomics meanwhile.
unsafe fn note(block: *mut Block, number: u32, result: i64) {
    if result >= 0 {
        return;
    }
    // SAFETY: - words of the block, by the contract.
    let [refused, errno] = unsafe {
        [&raw mut (*block).refused_setting, &raw mut (*block).refused_errno].map(|at| AtomicU32::from_ptr(at))
    };
    if refused.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
        errno.store(-result as u32, Ordering::SeqCst);
    }
}

/// Makes room for AMX registers when the frame has them.
///
/// The trap: a new thread's register area has no room for tiles, and returning into a frame that has them then restores
/// x87 and SSE only, silently. Using a tile once makes the kernel grow it. If that is not to be had, the thread dies
/// here.
unsafe fn grow_registers(frame: u64) {
    // SAFETY: - the frame is a whole ucontext_t; its floating-point state is in the frame too, or null.
    let state = unsafe { (*(frame as *const libc::ucontext_t)).uc_mcontext.fpregs };
    if state.is_null() {
        return;
    }
    // SAFETY: - struct _fpx_sw_bytes is at byte 464 of the legacy area: magic, size, features (8 bytes).
    let features = unsafe { core::ptr::read_unaligned(state.cast::<u8>().add(464 + 8).cast::<u64>()) };
    if features & FEATURE_TILES == 0 {
        return;
    }
    // Palette 1, one tile of one row of 64 bytes.
    let mut configuration = [0_u8; 64];
    configuration[0] = 1;
    configuration[16] = 64;
    configuration[48] = 1;
    // SAFETY: - the processor has tiles, or the frame would not; permission was asked for by the destination. The tile
    //           configuration is given back before anything else runs.
    unsafe {
        asm!(
            ".byte 0xc4, 0xe2, 0x78, 0x49, 0x00", // ldtilecfg [rax]
            ".byte 0xc4, 0xe2, 0x7b, 0x49, 0xc0", // tilezero tmm0
            ".byte 0xc4, 0xe2, 0x78, 0x49, 0xc0", // tilerelease
            in("rax") configuration.as_ptr(),
            options(nostack)
        );
    }
}

const NO_CAPABILITIES: [u32; 6] = [0; 6];

/// Gives up all capabilities but these: what the user namespace granted, and what the program had given up itself.
fn limit_capabilities(to: &[u32; 6]) {
    let header = [collect::CAPABILITY_VERSION, 0];
    let mut own = NO_CAPABILITIES;
    // SAFETY: - header and data of this version, as many as it has.
    unsafe { syscall(libc::SYS_capget, header.as_ptr() as u64, own.as_mut_ptr() as u64, 0, 0) };
    // Of each three: effective, permitted, inheritable. None is to be had that this host does not give.
    let mut wanted = [0; 6];
    for (wanted, (own, to)) in wanted.iter_mut().zip(own.iter().zip(to)) {
        *wanted = own & to;
    }
    if wanted != own {
        // SAFETY: - header and data of this version are read.
        unsafe { syscall(libc::SYS_capset, header.as_ptr() as u64, wanted.as_ptr() as u64, 0, 0) };
    }
}

/// The agent of the copy begins, on its old stack.
///
/// # Safety
/// Only for the restorer.
pub unsafe extern "C" fn agent_entry(block: *mut Block) -> ! {
    // SAFETY: - the image has the block where it was; the threads use only its words, through atomics.
    let shared = unsafe { &mut *block };
    if shared.own_files != 0 {
        close_all_but(shared.listener);
    }
    let threads = slots(shared).iter().filter(|slot| slot.state == SLOT_PARKED).count() as u32;
    let left = word(&mut shared.left);
    loop {
        let arrived = left.load(Ordering::SeqCst);
        if arrived == threads {
            break;
        }
        // SAFETY: - a word of the block.
        unsafe { sys::futex_wait(left.as_ptr(), arrived, 0) };
    }
    if shared.restorer_len != 0 {
        // SAFETY: - all threads have left the restorer: each has counted itself, and this one is here.
        unsafe { syscall(libc::SYS_munmap, shared.restorer, shared.restorer_len, 0, 0) };
        shared.restorer_len = 0;
    }
    for signal in 1..=64_u32 {
        let disposition = shared.dispositions[signal as usize - 1];
        if signal != crate::abi::PARK_SIGNAL {
            set_disposition(signal, &disposition);
        }
    }
    let chained = shared.chained;
    set_disposition(crate::abi::PARK_SIGNAL, &chained);
    if let Some(errno) = restore_timers(shared) {
        // SAFETY: - threads of the copy only use words of the block, through atomics.
        unsafe { note(block, REFUSED_TIMER, errno) };
    }
    restore_settings(shared);
    for info in &shared.pending[..shared.pending_count as usize] {
        collect::requeue(info, true);
    }
    if shared.drop_capabilities != 0 {
        limit_capabilities(&NO_CAPABILITIES);
    }
    shared.generation += 1;
    shared.is_copy = 0;
    serve::run_copy(block)
}

fn close_all_but(listener: i32) {
    const ALL: u64 = u32::MAX as u64;
    let listener = listener as u64;
    // SAFETY: - descriptors of the agent's own table.
    unsafe {
        if listener > 0 {
            syscall(libc::SYS_close_range, 0, listener - 1, 0, 0);
        }
        syscall(libc::SYS_close_range, listener + 1, ALL, 0, 0);
    }
}

/// The settings of the process, but for the last one.
fn restore_settings(block: &mut Block) {
    let wanted = block.settings;
    for (number, (setting, value)) in OF_PROCESS.iter().zip(wanted).enumerate().take(OOM_SCORE) {
        let result = setting.set(value);
        // SAFETY: - as for all words of the block.
        unsafe { note(block, REFUSED_OF_PROCESS + number as u32, result) };
    }
}

/// What the system said to the first timer that could not be made.
fn restore_timers(block: &Block) -> Option<i64> {
    for (which, timer) in block.interval_timers.iter().enumerate() {
        if timer[2] != 0 || timer[3] != 0 {
            // SAFETY: - an itimerval is four words.
            unsafe { syscall(libc::SYS_setitimer, which as u64, timer.as_ptr() as u64, 0, 0) };
        }
    }
    // SAFETY: - touches no memory. Where the kernel does not know it, numbers are counted up below.
    let exact = unsafe { syscall(libc::SYS_prctl, PR_TIMER_CREATE_RESTORE_IDS, 1, 0, 0) } == 0;
    let timers = &block.timers[..block.timer_count as usize];
    let failed = timers.iter().map(|timer| restore_timer(timer, exact)).find(|result| *result < 0);
    // SAFETY: - touches no memory.
    unsafe { syscall(libc::SYS_prctl, PR_TIMER_CREATE_RESTORE_IDS, 0, 0, 0) };
    failed
}

/// 0, or a negative error number.
fn restore_timer(timer: &Timer, exact: bool) -> i64 {
    // struct sigevent: value, signal, notification, thread.
    let mut event = [0_u64; 8];
    event[0] = timer.value;
    event[1] = u64::from(timer.signal as u32) | u64::from(timer.notify as u32) << 32;
    event[2] = u64::from(timer.tid as u32);
    loop {
        let mut id = if exact { timer.id } else { 0 };
        let place = core::ptr::from_mut(&mut id) as u64;
        // SAFETY: - event has the size of a sigevent, id is written.
        let made = unsafe { syscall(libc::SYS_timer_create, timer.clock as u64, event.as_ptr() as u64, place, 0) };
        if made < 0 {
            return made;
        }
        if id == timer.id {
            break;
        }
        // SAFETY: - the timer just made; numbers count up from 0.
        unsafe { syscall(libc::SYS_timer_delete, id as u64, 0, 0, 0) };
        if id > timer.id {
            return -i64::from(libc::EEXIST);
        }
    }
    // SAFETY: - an itimerspec is four words.
    unsafe { syscall(libc::SYS_timer_settime, timer.id as u64, 0, timer.setting.as_ptr() as u64, 0) }
}
