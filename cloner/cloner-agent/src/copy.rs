//! The other side of the cut: how the agent and the threads of the copy begin.
//!
//! The restorer has put memory in place and made the threads, with their old ids and thread pointers. They enter here,
//! on the stack below their signal frame. Each restores its own kernel state, waits until the agent lets all go, and
//! returns into the frame.

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

/// First code of a thread of the copy.
///
/// # Safety
/// - Called by the restorer only, on the thread's own stack below its signal frame.
/// - `slot` and `block` are in place, at their addresses in the source.
pub unsafe extern "C" fn thread_entry(slot: *mut Slot, block: *mut Block) -> ! {
    // SAFETY: - `slot` is in place, as this function's contract demands, and only this thread uses it now.
    let slot = unsafe { &mut *slot };
    // SAFETY: - the words are in the block, which is never unmapped.
    //         - while threads run, these words are accessed by atomics only.
    let [release, left, drop] = unsafe {
        [&raw mut (*block).release, &raw mut (*block).left, &raw mut (*block).drop_capabilities]
            .map(|at| AtomicU32::from_ptr(at))
    };
    // SAFETY: - `block` is live, and its words are accessed by atomics only.
    //         - `slot.frame` is this thread's own signal frame.
    unsafe {
        restore(slot, block);
        grow_registers(slot.frame);
    }
    // Capabilities come last, because restoring other state may need some of them.
    limit_capabilities(if drop.load(Ordering::SeqCst) != 0 { &NO_CAPABILITIES } else { &slot.capabilities });
    for info in &slot.pending[..slot.pending_count as usize] {
        collect::requeue(info, false);
    }
    let seen = release.load(Ordering::SeqCst);
    left.fetch_add(1, Ordering::SeqCst);
    // SAFETY: - `release` and `left` are aligned words of the block, which is never unmapped.
    //         - `slot.frame` is this thread's own signal frame, which the jump to `rt_sigreturn` consumes.
    unsafe {
        sys::futex_wake(left.as_ptr());
        while release.load(Ordering::SeqCst) == seen {
            sys::futex_wait(release.as_ptr(), seen, 0);
        }
        // The kernel restores mask, alternate stack and all registers from the frame.
        asm!("mov rsp, {frame}", "mov eax, 15", "syscall", "ud2", frame = in(reg) slot.frame, options(noreturn))
    }
}

unsafe fn restore(slot: &Slot, block: *mut Block) {
    // SAFETY: - the addresses were valid for the same calls in the source, and their memory is in place.
    //         - arrays are passed with their own sizes.
    unsafe {
        syscall(libc::SYS_set_robust_list, slot.robust_head, slot.robust_len, 0, 0);
        syscall(libc::SYS_prctl, PR_SET_NAME, slot.name.as_ptr() as u64, 0, 0);
        if slot.gs != 0 {
            syscall(libc::SYS_arch_prctl, ARCH_SET_GS, slot.gs, 0, 0);
        }
        let scheduling = slot.scheduling.as_ptr() as u64;
        if slot.scheduling[0] != 0 {
            record(block, REFUSED_SCHEDULING, syscall(libc::SYS_sched_setattr, 0, scheduling, 0, 0));
        }
        let mut policy = 0_i32;
        let mut nodes = [0_u64; NODE_COUNT_MAX / 64];
        let (mode, bits) = (core::ptr::from_mut(&mut policy) as u64, NODE_COUNT_MAX as u64 + 1);
        syscall(libc::SYS_get_mempolicy, mode, nodes.as_mut_ptr() as u64, bits, 0);
        if slot.memory_policy >= 0 && (policy, nodes) != (slot.memory_policy, slot.memory_nodes) {
            let nodes = slot.memory_nodes.as_ptr() as u64;
            let set = syscall(libc::SYS_set_mempolicy, slot.memory_policy as u64, nodes, bits, 0);
            record(block, REFUSED_MEMORY_POLICY, set);
        }
        // The kernel drops processors that this host lacks. If none is left, the thread may run anywhere.
        let affinity = slot.affinity.as_ptr() as u64;
        syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&slot.affinity) as u64, affinity, 0);
        if slot.rseq != 0 {
            // No critical section is open: the thread was in a signal handler, which aborts it.
            core::ptr::write_volatile((slot.rseq + 8) as *mut u64, 0);
            syscall6(libc::SYS_rseq, slot.rseq, 32, 0, RSEQ_SIGNATURE, 0, 0);
        }
    }
    for (number, (setting, value)) in OF_THREAD.iter().zip(slot.settings).enumerate() {
        // SAFETY: - `block` is live, and its words are accessed by atomics only, as this function's callers guarantee.
        unsafe { record(block, REFUSED_OF_THREAD + number as u32, setting.set(value)) };
    }
}

/// Records that the copy was denied something, if `result` is an error and the first one.
///
/// # Safety
/// `block` is live, and meanwhile its words are accessed by atomics only.
unsafe fn record(block: *mut Block, number: u32, result: i64) {
    if result >= 0 {
        return;
    }
    // SAFETY: - both are words of a live block and accessed by atomics only, as this function's contract demands.
    let [refused, errno] = unsafe {
        [&raw mut (*block).refused_setting, &raw mut (*block).refused_errno].map(|at| AtomicU32::from_ptr(at))
    };
    if refused.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
        errno.store(-result as u32, Ordering::SeqCst);
    }
}

/// Makes room for AMX registers if the frame has them.
///
/// The trap: the register area of a new thread has no room for tiles. Returning into a frame with tiles then restores
/// x87 and SSE only, silently. Using a tile once makes the kernel enlarge the area. If it cannot, the thread dies here.
unsafe fn grow_registers(frame: u64) {
    // SAFETY: - `frame` is the thread's own `ucontext_t`; `fpregs` is null or points into the same signal frame.
    let state = unsafe { (*(frame as *const libc::ucontext_t)).uc_mcontext.fpregs };
    if state.is_null() {
        return;
    }
    // SAFETY: - `struct _fpx_sw_bytes` is at byte 464 of the FXSAVE area that `state` points to: magic, size, features
    //           (8 bytes).
    let features = unsafe { core::ptr::read_unaligned(state.cast::<u8>().add(464 + 8).cast::<u64>()) };
    if features & FEATURE_TILES == 0 {
        return;
    }
    // Palette 1, and one tile with one row of 64 bytes.
    let mut configuration = [0_u8; 64];
    configuration[0] = 1;
    configuration[16] = 64;
    configuration[48] = 1;
    // SAFETY: - a frame with tiles shows that the processor has them, and the destination has requested permission.
    //         - the instruction reads the 64 bytes of `configuration`.
    //         - the tile state is released before other code runs.
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

/// Gives up all capabilities outside `to`: those that the user namespace granted, and those that the program had
/// dropped.
fn limit_capabilities(to: &[u32; 6]) {
    let header = [collect::CAPABILITY_VERSION, 0];
    let mut own = NO_CAPABILITIES;
    // SAFETY: - `header` states the version whose data has the six words of `own`.
    unsafe { syscall(libc::SYS_capget, header.as_ptr() as u64, own.as_mut_ptr() as u64, 0, 0) };
    // Order of each half: effective, permitted, inheritable. Capabilities that this host does not grant stay missing.
    let mut wanted = [0; 6];
    for (wanted, (own, to)) in wanted.iter_mut().zip(own.iter().zip(to)) {
        *wanted = own & to;
    }
    if wanted != own {
        // SAFETY: - `header` and `wanted` have the sizes of this version, and are only read.
        unsafe { syscall(libc::SYS_capset, header.as_ptr() as u64, wanted.as_ptr() as u64, 0, 0) };
    }
}

/// First code of the copy's agent, on its old stack.
///
/// # Safety
/// Called by the restorer only, with `block` in place at its address in the source.
pub unsafe extern "C" fn agent_entry(block: *mut Block) -> ! {
    // SAFETY: - `block` is in place, as this function's contract demands.
    //         - threads access only single words of it, by atomics.
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
        // SAFETY: - `left` is an aligned word of the block, which is never unmapped.
        unsafe { sys::futex_wait(left.as_ptr(), arrived, 0) };
    }
    if shared.restorer_len != 0 {
        // SAFETY: - no thread executes the restorer any more: each has counted itself in `left`, and this one is here.
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
        // SAFETY: - `block` is live, and threads of the copy access its words by atomics only.
        unsafe { record(block, REFUSED_TIMER, errno) };
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
    // SAFETY: - the agent has a descriptor table of its own, of which it uses only `listener`.
    unsafe {
        if listener > 0 {
            syscall(libc::SYS_close_range, 0, listener - 1, 0, 0);
        }
        syscall(libc::SYS_close_range, listener + 1, ALL, 0, 0);
    }
}

/// Restores the settings of the process, except for the OOM score, which is set when the copy begins.
fn restore_settings(block: &mut Block) {
    let wanted = block.settings;
    for (number, (setting, value)) in OF_PROCESS.iter().zip(wanted).enumerate().take(OOM_SCORE) {
        let result = setting.set(value);
        // SAFETY: - `block` is live, and threads of the copy access its words by atomics only.
        unsafe { record(block, REFUSED_OF_PROCESS + number as u32, result) };
    }
}

/// Makes all timers again. Returns the error number of the first POSIX timer that could not be made.
fn restore_timers(block: &Block) -> Option<i64> {
    for (which, timer) in block.interval_timers.iter().enumerate() {
        if timer[2] != 0 || timer[3] != 0 {
            // SAFETY: - `timer` has the four words of `struct itimerval`, which the call reads.
            unsafe { syscall(libc::SYS_setitimer, which as u64, timer.as_ptr() as u64, 0, 0) };
        }
    }
    // SAFETY: - `prctl` takes numbers here and touches no memory.
    // A kernel without exact ids counts them up, below.
    let exact = unsafe { syscall(libc::SYS_prctl, PR_TIMER_CREATE_RESTORE_IDS, 1, 0, 0) } == 0;
    let timers = &block.timers[..block.timer_count as usize];
    let failed = timers.iter().map(|timer| restore_timer(timer, exact)).find(|result| *result < 0);
    // SAFETY: - `prctl` takes numbers here and touches no memory.
    unsafe { syscall(libc::SYS_prctl, PR_TIMER_CREATE_RESTORE_IDS, 0, 0, 0) };
    failed
}

/// Makes a timer with its old id. Returns 0, or a negative error number.
fn restore_timer(timer: &Timer, exact: bool) -> i64 {
    // `struct sigevent`: value, signal, notification, thread.
    let mut event = [0_u64; 8];
    event[0] = timer.value;
    event[1] = u64::from(timer.signal as u32) | u64::from(timer.notify as u32) << 32;
    event[2] = u64::from(timer.tid as u32);
    loop {
        let mut id = if exact { timer.id } else { 0 };
        let place = core::ptr::from_mut(&mut id) as u64;
        // SAFETY: - `event` has the size of `struct sigevent`, and `id` that of a timer id; both outlive the call.
        let made = unsafe { syscall(libc::SYS_timer_create, timer.clock as u64, event.as_ptr() as u64, place, 0) };
        if made < 0 {
            return made;
        }
        if id == timer.id {
            break;
        }
        // SAFETY: - `id` was just made here, and nothing else uses it. The kernel counts ids up from 0.
        unsafe { syscall(libc::SYS_timer_delete, id as u64, 0, 0, 0) };
        if id > timer.id {
            return -i64::from(libc::EEXIST);
        }
    }
    // SAFETY: - `timer.setting` has the four words of `struct itimerspec`, which the call reads.
    unsafe { syscall(libc::SYS_timer_settime, timer.id as u64, 0, timer.setting.as_ptr() as u64, 0) }
}
