//! Stops all threads but the agent, and lets them go on.
//!
//! Each thread is sent signal 33 with the address of its slot as value. In the handler it fills the slot and sleeps on
//! a futex; its registers are in the signal frame on its own stack. A thread may create another while threads are being
//! stopped, so `/proc/self/task` is read until it shows no new one.

use crate::abi::{Block, Disposition, PARK_SIGNAL, SLOT_ENTERED, SLOT_GONE, SLOT_PARKED, SLOT_SIGNALLED, Slot};
use crate::collect::{self, slots};
use crate::sys::{self, syscall};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Time for a thread to reach the handler. It is exceeded only by threads that block the signal, or stay in the kernel.
const PARK_LIMIT_MS: u64 = 5_000;
const WAIT_STEP_MS: u64 = 20;
const SA_RESTORER: u64 = 0x0400_0000;

static BLOCK: AtomicPtr<Block> = AtomicPtr::new(core::ptr::null_mut());

core::arch::global_asm!(
    ".text",
    ".balign 16",
    ".hidden redclone_sigreturn",
    ".globl redclone_sigreturn",
    "redclone_sigreturn:",
    "mov $15, %eax",
    "syscall",
    options(att_syntax)
);

unsafe extern "C" {
    fn redclone_sigreturn();
}

/// Atomic view of a word of the block.
pub fn word(place: &mut u32) -> &AtomicU32 {
    // SAFETY: - `place` is an aligned word of a live block or slot.
    //         - while threads share it, it is accessed by atomics only.
    unsafe { AtomicU32::from_ptr(place) }
}

/// Changes a slot's state from `from` to `to`. Returns false if the state was another one.
fn changes(slot: &mut Slot, from: u32, to: u32) -> bool {
    word(&mut slot.state).compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

/// Failure to stop threads.
pub struct Unparked {
    /// Thread that caused the failure; 0 if none did.
    pub tid: u32,
    /// Error number; ETIMEDOUT if the thread did not reach the handler.
    pub errno: i32,
}

/// Stops all threads but the calling one. On `Err`, all threads run again.
pub fn park(block: &mut Block) -> Result<(), Unparked> {
    BLOCK.store(block, Ordering::SeqCst);
    block.slot_count = 0;
    word(&mut block.parked).store(0, Ordering::SeqCst);
    word(&mut block.left).store(0, Ordering::SeqCst);
    install(block);
    let result = park_all(block);
    if result.is_err() {
        release(block);
    }
    result
}

/// Lets all parked threads go on, and waits until each has left the wait loop of the handler.
pub fn release(block: &mut Block) {
    let chained = block.chained;
    // A thread whose signal is still on its way finds its slot given up, and goes on at once. A thread that has entered
    // the handler still comes to the wait loop, and leaves with the others.
    let mut parked = 0;
    for slot in slots(block) {
        if !changes(slot, SLOT_SIGNALLED, SLOT_GONE) && slot.state != SLOT_GONE {
            parked += 1;
        }
    }
    let_go(block);
    let left = word(&mut block.left);
    loop {
        let now = left.load(Ordering::SeqCst);
        if now >= parked {
            break;
        }
        // SAFETY: - `left` is an aligned word of the block, which is never unmapped.
        unsafe { sys::futex_wait(left.as_ptr(), now, WAIT_STEP_MS) };
    }
    if chained[0] != 0 {
        set_disposition(PARK_SIGNAL, &chained);
    }
}

/// Wakes all threads that wait in the handler, or at their entry in a copy.
pub fn let_go(block: &mut Block) {
    let release = word(&mut block.release);
    release.fetch_add(1, Ordering::SeqCst);
    // SAFETY: - `release` is an aligned word of the block, which is never unmapped.
    unsafe { sys::futex_wake(release.as_ptr()) };
}

fn install(block: &mut Block) {
    let handler: extern "C" fn(i32, *const libc::siginfo_t, *mut libc::ucontext_t) = handle;
    let flags = (libc::SA_SIGINFO | libc::SA_RESTART) as u64 | SA_RESTORER;
    let restorer: unsafe extern "C" fn() = redclone_sigreturn;
    let ours: Disposition = [handler as usize as u64, flags, restorer as usize as u64, u64::MAX];
    let mut before: Disposition = [0; 4];
    // SAFETY: - `ours` and `before` have the four words of a disposition.
    //         - the handler's code stays loaded for the life of the process.
    unsafe {
        syscall(libc::SYS_rt_sigaction, u64::from(PARK_SIGNAL), ours.as_ptr() as u64, before.as_mut_ptr() as u64, 8)
    };
    if before[0] != ours[0] {
        block.chained = before;
    }
}

/// Sets the disposition of a signal.
pub fn set_disposition(signal: u32, disposition: &Disposition) {
    // SAFETY: - `disposition` has four words, and was returned by the kernel for this signal, so its handler is valid.
    unsafe { syscall(libc::SYS_rt_sigaction, u64::from(signal), disposition.as_ptr() as u64, 0, 8) };
}

fn park_all(block: &mut Block) -> Result<(), Unparked> {
    loop {
        let before = block.slot_count;
        signal_new_threads(block)?;
        if block.slot_count == before {
            return Ok(());
        }
        wait_for_all(block)?;
    }
}

/// Signals each thread of the process that has no slot yet.
fn signal_new_threads(block: &mut Block) -> Result<(), Unparked> {
    let fd = sys::openat(libc::AT_FDCWD, b"/proc/self/task\0", libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
    if fd < 0 {
        return Err(Unparked { tid: 0, errno: -fd });
    }
    let mut buffer = Entries([0; 8192]);
    let result = loop {
        // SAFETY: - `buffer` is a local, passed with its own length.
        let count =
            unsafe { syscall(libc::SYS_getdents64, fd as u64, buffer.0.as_mut_ptr() as u64, buffer.0.len() as u64, 0) };
        if count <= 0 {
            break if count == 0 { Ok(()) } else { Err(Unparked { tid: 0, errno: -count as i32 }) };
        }
        if let Err(error) = each_thread(&buffer.0[..count as usize], |tid| signal(block, tid)) {
            break Err(error);
        }
    };
    sys::close(fd);
    result
}

#[repr(align(8))]
struct Entries([u8; 8192]);

/// Calls `f` with each numeric name in the entries that `getdents64` wrote.
fn each_thread(mut entries: &[u8], mut f: impl FnMut(u32) -> Result<(), Unparked>) -> Result<(), Unparked> {
    // `struct linux_dirent64`: inode (8), offset (8), length (2), type (1), name.
    while entries.len() > 19 {
        let len = usize::from(u16::from_ne_bytes([entries[16], entries[17]]));
        let name = entries[19..len].iter().take_while(|byte| **byte != 0);
        let tid = name.copied().try_fold(0_u32, |tid, byte| Some(tid * 10 + (byte as char).to_digit(10)?));
        if let Some(tid) = tid {
            f(tid)?;
        }
        entries = &entries[len..];
    }
    Ok(())
}

fn signal(block: &mut Block, tid: u32) -> Result<(), Unparked> {
    if tid == block.agent_tid || slots(block).iter().any(|slot| slot.tid == tid && slot.state != SLOT_GONE) {
        return Ok(());
    }
    if block.slot_count == block.slot_capacity {
        return Err(Unparked { tid, errno: libc::ENOSPC });
    }
    block.slot_count += 1;
    let pid = u64::from(block.pid);
    let slot = slots(block).last_mut().expect("one was just added");
    slot.tid = tid;
    slot.pending_count = 0;
    slot.syscall = collect::blocked_call(tid);
    word(&mut slot.state).store(SLOT_SIGNALLED, Ordering::SeqCst);
    // Words of `siginfo_t`: signal and error, code and padding, pid and uid, value.
    let mut info = [0_u64; 16];
    info[0] = u64::from(PARK_SIGNAL);
    info[1] = u64::from(libc::SI_QUEUE as u32);
    info[2] = pid;
    info[3] = core::ptr::from_mut(slot) as u64;
    // SAFETY: - `info` has the 128 bytes of a `siginfo_t`, which the call reads.
    let sent = unsafe {
        syscall(libc::SYS_rt_tgsigqueueinfo, pid, u64::from(tid), u64::from(PARK_SIGNAL), info.as_ptr() as u64)
    };
    match -sent as i32 {
        0 => Ok(()),
        libc::ESRCH => {
            slot.state = SLOT_GONE;
            Ok(())
        }
        errno => {
            slot.state = SLOT_GONE;
            Err(Unparked { tid, errno })
        }
    }
}

fn wait_for_all(block: &mut Block) -> Result<(), Unparked> {
    let mut waited_ms = 0;
    loop {
        let parked = word(&mut block.parked);
        let seen = parked.load(Ordering::SeqCst);
        let place = parked.as_ptr();
        let pid = block.pid;
        let mut all = slots(block).iter_mut();
        let Some(slot) = all.find_map(|slot| {
            let state = word(&mut slot.state).load(Ordering::SeqCst);
            [SLOT_SIGNALLED, SLOT_ENTERED].contains(&state).then_some(slot)
        }) else {
            return Ok(());
        };
        if waited_ms >= PARK_LIMIT_MS {
            return Err(Unparked { tid: slot.tid, errno: libc::ETIMEDOUT });
        }
        // SAFETY: - signal 0 delivers nothing, and only checks that the thread exists.
        if unsafe { syscall(libc::SYS_tgkill, u64::from(pid), u64::from(slot.tid), 0, 0) } == -i64::from(libc::ESRCH) {
            slot.state = SLOT_GONE;
            continue;
        }
        // SAFETY: - `place` is an aligned word of the block, which is never unmapped.
        unsafe { sys::futex_wait(place, seen, WAIT_STEP_MS) };
        // Only waits without any wake-up count toward the limit.
        // SAFETY: - `place` is an aligned word of the block, accessed by atomics only while threads share it.
        if unsafe { AtomicU32::from_ptr(place) }.load(Ordering::SeqCst) == seen {
            waited_ms += WAIT_STEP_MS;
        }
    }
}

/// The signal handler. Runs with all signals blocked, on a stack of the program, at any of its instructions.
extern "C" fn handle(signal: i32, info: *const libc::siginfo_t, context: *mut libc::ucontext_t) {
    let block = BLOCK.load(Ordering::SeqCst);
    // SAFETY: - the kernel passes a complete `siginfo_t`, whose word 3 is the value if the code is SI_QUEUE.
    let (code, value) = unsafe { ((*info).si_code, *info.cast::<u64>().add(3)) };
    // SAFETY: - `BLOCK` was set before the handler was installed, and the block is never unmapped.
    let (slots, count, chained) = unsafe { ((*block).slots, (*block).slot_count, (*block).chained) };
    let ours = code == libc::SI_QUEUE
        && value >= slots
        && value < slots + u64::from(count) * size_of::<Slot>() as u64
        && (value - slots).is_multiple_of(size_of::<Slot>() as u64);
    if ours {
        // SAFETY: - `value` is the address of a slot in use, checked above.
        //         - `wait_here` uses the slot only if it names this thread.
        //         - `context` is this handler's own.
        unsafe { wait_here(block, value as *mut Slot, context) };
    } else if chained[0] > 1 {
        // SAFETY: - `chained` is the C library's handler for this signal, installed with SA_SIGINFO, hence of this
        //           type.
        unsafe {
            let next: extern "C" fn(i32, *const libc::siginfo_t, *mut libc::ucontext_t) =
                core::mem::transmute(chained[0] as usize);
            next(signal, info, context);
        }
    }
}

unsafe fn wait_here(block: *mut Block, slot: *mut Slot, context: *mut libc::ucontext_t) {
    // SAFETY: - `slot` is a slot in use, checked by the caller; the agent changes only its `state` until the thread has
    //           parked.
    let slot = unsafe { &mut *slot };
    // SAFETY: - the words are in the block, which is never unmapped.
    //         - while threads run, these words are accessed by atomics only.
    let [release, parked, left] = unsafe {
        [&raw mut (*block).release, &raw mut (*block).parked, &raw mut (*block).left].map(|at| AtomicU32::from_ptr(at))
    };
    // Read before entering: a thread that has entered is released by the next change.
    let seen = release.load(Ordering::SeqCst);
    // The signal of a stop that was given up may arrive during the next one, when the slot may be another thread's.
    if slot.tid != sys::gettid() || !changes(slot, SLOT_SIGNALLED, SLOT_ENTERED) {
        return;
    }
    // SAFETY: - `context` is that of this thread's signal frame.
    //         - `rseq_offset` is the C library's, set by `Agent::new`.
    unsafe {
        restart(slot, context);
        slot.frame = context as u64;
        collect::thread(slot, (*block).rseq_offset);
    }
    let pending = collect::pending_mask(b"/proc/thread-self/status\0", b"SigPnd:");
    slot.pending_count = collect::pending(pending, false, &mut slot.pending);
    word(&mut slot.state).store(SLOT_PARKED, Ordering::SeqCst);
    parked.fetch_add(1, Ordering::SeqCst);
    // SAFETY: - `parked`, `release` and `left` are aligned words of the block, which is never unmapped.
    unsafe {
        sys::futex_wake(parked.as_ptr());
        while release.load(Ordering::SeqCst) == seen {
            sys::futex_wait(release.as_ptr(), seen, 0);
        }
        left.fetch_add(1, Ordering::SeqCst);
        sys::futex_wake(left.as_ptr());
    }
}

/// System calls that a signal ends with EINTR even with SA_RESTART, and that can be repeated with the same arguments.
const RESTARTED: [i64; 17] = [
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_pause,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigsuspend,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_io_getevents,
];

/// Repeats a system call that parking ended with EINTR, in the source as in the copy.
///
/// The trap: if there is a handler, the kernel ends `poll`, `nanosleep` and others with EINTR in spite of SA_RESTART,
/// and the frame does not show which call it was. `/proc` tells it if the thread was blocked before the signal. Else
/// the instruction before the system call tells it, which in the C library loads the number.
unsafe fn restart(slot: &Slot, context: *mut libc::ucontext_t) {
    // SAFETY: - `context` is that of this thread's signal frame, which nothing else accesses.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let instruction = registers[libc::REG_RIP as usize];
    if registers[libc::REG_RAX as usize] != -i64::from(libc::EINTR) {
        return;
    }
    // SAFETY: - `instruction` follows an instruction of at least two bytes that was just executed, so the bytes are
    //           mapped.
    //         - code pages are readable on x86-64, unless the program has made them execute-only.
    let code = unsafe { core::ptr::read_unaligned((instruction - 2) as *const [u8; 2]) };
    if code != [0x0f, 0x05] {
        return;
    }
    let known =
        slot.syscall[0] >= 0 && slot.syscall[8] == instruction && slot.syscall[7] == registers[libc::REG_RSP as usize];
    let number = if known {
        slot.syscall[0]
    } else {
        // SAFETY: - the seven bytes before `instruction` are within one function, hence in one readable mapping.
        let before = unsafe { core::ptr::read_unaligned((instruction - 7) as *const [u8; 5]) };
        if before[0] != 0xb8 {
            return;
        }
        i64::from(i32::from_le_bytes([before[1], before[2], before[3], before[4]]))
    };
    // The kernel has written the remaining time to the place that the caller passed; the repeated call uses it.
    if number == libc::SYS_nanosleep {
        let left = registers[libc::REG_RSI as usize];
        if left != 0 {
            registers[libc::REG_RDI as usize] = left;
        }
    } else if number == libc::SYS_clock_nanosleep {
        let left = registers[libc::REG_R10 as usize];
        let absolute = registers[libc::REG_RSI as usize] & i64::from(libc::TIMER_ABSTIME) != 0;
        if left != 0 && !absolute {
            registers[libc::REG_RDX as usize] = left;
        }
    } else if !RESTARTED.contains(&number) {
        return;
    }
    registers[libc::REG_RAX as usize] = number;
    registers[libc::REG_RIP as usize] = instruction - 2;
}
