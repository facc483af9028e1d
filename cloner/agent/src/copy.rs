//! The other side of the cut: how agent and threads of the copy begin.
//!
//! The restorer has put memory in its place and made the threads, each with its old id and thread pointer. They enter
//! here, below their signal frame, set what belongs to the thread, wait until the agent lets all go, and return into
//! the frame.

use crate::abi::{Block, SLOT_PARKED, Slot, Timer};
use crate::park::{set_disposition, slots, word};
use crate::sys::{self, syscall, syscall6};
use crate::{collect, serve};
use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering};

const RSEQ_SIGNATURE: u64 = 0x5305_3053;
const PR_SET_NAME: u64 = 15;
const PR_TIMER_CREATE_RESTORE_IDS: u64 = 77;
const ARCH_SET_GS: u64 = 0x1001;
const FEATURE_TILES: u64 = 1 << 18;
const LOST: u64 = 70;

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
    if drop.load(Ordering::SeqCst) != 0 {
        drop_capabilities();
    }
    // SAFETY: - see there; the frame is the one that this thread's slot names.
    unsafe {
        restore(slot);
        grow_registers(slot.frame);
    }
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

unsafe fn restore(slot: &Slot) {
    // SAFETY: - addresses are the ones that the same calls had in the source, and their memory is in place.
    unsafe {
        syscall(libc::SYS_set_robust_list, slot.robust_head, slot.robust_len, 0, 0);
        syscall(libc::SYS_prctl, PR_SET_NAME, slot.name.as_ptr() as u64, 0, 0);
        if slot.gs != 0 {
            syscall(libc::SYS_arch_prctl, ARCH_SET_GS, slot.gs, 0, 0);
        }
        if slot.policy == libc::SCHED_OTHER || slot.policy == libc::SCHED_BATCH || slot.policy == libc::SCHED_IDLE {
            syscall(libc::SYS_setpriority, 0, 0, slot.nice as i64 as u64, 0);
        }
        if slot.policy != libc::SCHED_OTHER {
            let parameter = core::ptr::from_ref(&slot.priority) as u64;
            syscall(libc::SYS_sched_setscheduler, 0, slot.policy as u64, parameter, 0);
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

/// Gives up what the user namespace granted, as the program's exec did in the source.
fn drop_capabilities() {
    let header = [0x2008_0522_u32, 0];
    let none = [0_u32; 6];
    // SAFETY: - header and data of version 3 are read.
    unsafe { syscall(libc::SYS_capset, header.as_ptr() as u64, none.as_ptr() as u64, 0, 0) };
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
    restore_timers(shared);
    for info in &shared.pending[..shared.pending_count as usize] {
        collect::requeue(info, true);
    }
    if shared.drop_capabilities != 0 {
        drop_capabilities();
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

fn restore_timers(block: &Block) {
    for (which, timer) in block.interval_timers.iter().enumerate() {
        if timer[2] != 0 || timer[3] != 0 {
            // SAFETY: - an itimerval is four words.
            unsafe { syscall(libc::SYS_setitimer, which as u64, timer.as_ptr() as u64, 0, 0) };
        }
    }
    // SAFETY: - touches no memory. Where the kernel does not know it, numbers are counted up below.
    let exact = unsafe { syscall(libc::SYS_prctl, PR_TIMER_CREATE_RESTORE_IDS, 1, 0, 0) } == 0;
    for timer in &block.timers[..block.timer_count as usize] {
        if !restore_timer(timer, exact) {
            // SAFETY: - ends the copy: without this timer it would not be one.
            unsafe { syscall(libc::SYS_exit_group, LOST, 0, 0, 0) };
        }
    }
    // SAFETY: - touches no memory.
    unsafe { syscall(libc::SYS_prctl, PR_TIMER_CREATE_RESTORE_IDS, 0, 0, 0) };
}

fn restore_timer(timer: &Timer, exact: bool) -> bool {
    // struct sigevent: value, signal, notification, thread.
    let mut event = [0_u64; 8];
    event[0] = timer.value;
    event[1] = u64::from(timer.signal as u32) | u64::from(timer.notify as u32) << 32;
    event[2] = u64::from(timer.tid as u32);
    loop {
        let mut id = if exact { timer.id } else { 0 };
        let place = core::ptr::from_mut(&mut id) as u64;
        // SAFETY: - event has the size of a sigevent, id is written.
        if unsafe { syscall(libc::SYS_timer_create, timer.clock as u64, event.as_ptr() as u64, place, 0) } < 0 {
            return false;
        }
        if id == timer.id {
            break;
        }
        // SAFETY: - the timer just made; numbers count up from 0.
        unsafe { syscall(libc::SYS_timer_delete, id as u64, 0, 0, 0) };
        if id > timer.id {
            return false;
        }
    }
    // SAFETY: - an itimerspec is four words.
    unsafe { syscall(libc::SYS_timer_settime, timer.id as u64, 0, timer.setting.as_ptr() as u64, 0) == 0 }
}
