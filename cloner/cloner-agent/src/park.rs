//! Stopping all threads but the agent, and letting them go on.
//!
//! Each thread is sent signal 33 with its slot as value. In the handler it fills the slot and sleeps on a futex; its
//! registers are in the signal frame on its own stack. A thread that creates another while threads are being stopped is
//! why `/proc/self/task` is read until it shows nobody new.

use crate::abi::{Block, Disposition, PARK_SIGNAL, SLOT_ENTERED, SLOT_GONE, SLOT_PARKED, SLOT_SIGNALLED, Slot};
use crate::collect::{self, slots};
use crate::sys::{self, syscall};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// A thread has this long to reach the handler. Only one that blocks the signal, or is in the kernel for so long, does
/// not.
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
    /// Returns from a signal handler.
    fn redclone_sigreturn();
}

/// A word of the block that threads share.
pub fn word(place: &mut u32) -> &AtomicU32 {
    // SAFETY: - a u32 in a live block, aligned; while shared it is only used through atomics.
    unsafe { AtomicU32::from_ptr(place) }
}

/// Takes a slot from one state to another, unless it is in a third.
fn changes(slot: &mut Slot, from: u32, to: u32) -> bool {
    word(&mut slot.state).compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

/// Why threads could not be stopped.
pub struct Unparked {
    /// The one that made trouble.
    pub tid: u32,
    /// An error number.
    pub errno: i32,
}

/// Stops all threads but the calling one. On `Err` they have been let go again.
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

/// Lets all parked threads go on, and waits until each has left the handler's waiting place.
pub fn release(block: &mut Block) {
    let chained = block.chained;
    // A straggler whose signal is still on the way finds its slot given up, and goes on at once. One that has entered
    // comes to where the others wait, and leaves with them.
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
        // SAFETY: - a word of the block.
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
    // SAFETY: - a word of the block.
    unsafe { sys::futex_wake(release.as_ptr()) };
}

fn install(block: &mut Block) {
    let handler: extern "C" fn(i32, *const libc::siginfo_t, *mut libc::ucontext_t) = handle;
    let flags = (libc::SA_SIGINFO | libc::SA_RESTART) as u64 | SA_RESTORER;
    let restorer: unsafe extern "C" fn() = redclone_sigreturn;
    let ours: Disposition = [handler as usize as u64, flags, restorer as usize as u64, u64::MAX];
    let mut before: Disposition = [0; 4];
    // SAFETY: - both are whole dispositions. The handler stays loaded for as long as the process lives.
    unsafe {
        syscall(libc::SYS_rt_sigaction, u64::from(PARK_SIGNAL), ours.as_ptr() as u64, before.as_mut_ptr() as u64, 8)
    };
    if before[0] != ours[0] {
        block.chained = before;
    }
}

/// Sets a signal's disposition.
pub fn set_disposition(signal: u32, disposition: &Disposition) {
    // SAFETY: - a whole disposition, one that the kernel gave before.
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

/// Signals every thread of the process that has no slot yet.
fn signal_new_threads(block: &mut Block) -> Result<(), Unparked> {
    let fd = sys::openat(libc::AT_FDCWD, b"/proc/self/task\0", libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
    if fd < 0 {
        return Err(Unparked { tid: 0, errno: -fd });
    }
    let mut buffer = Entries([0; 8192]);
    let result = loop {
        // SAFETY: - the buffer is valid for its length.
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

/// Calls `f` with each number that is a name in what `getdents64` wrote.
fn each_thread(mut entries: &[u8], mut f: impl FnMut(u32) -> Result<(), Unparked>) -> Result<(), Unparked> {
    // linux_dirent64: inode (8), offset (8), length (2), type (1), name.
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
    // siginfo_t: signal, error, code, padding, pid, uid, value.
    let mut info = [0_u64; 16];
    info[0] = u64::from(PARK_SIGNAL);
    info[1] = u64::from(libc::SI_QUEUE as u32);
    info[2] = pid;
    info[3] = core::ptr::from_mut(slot) as u64;
    // SAFETY: - info has the size of a siginfo_t.
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
        // SAFETY: - signal 0 only asks whether the thread is there.
        if unsafe { syscall(libc::SYS_tgkill, u64::from(pid), u64::from(slot.tid), 0, 0) } == -i64::from(libc::ESRCH) {
            slot.state = SLOT_GONE;
            continue;
        }
        // SAFETY: - a word of the block.
        unsafe { sys::futex_wait(place, seen, WAIT_STEP_MS) };
        // A wake-up in time costs nothing of the limit.
        // SAFETY: - a word of the block.
        if unsafe { AtomicU32::from_ptr(place) }.load(Ordering::SeqCst) == seen {
            waited_ms += WAIT_STEP_MS;
        }
    }
}

/// The signal handler. Runs with all signals blocked, on a stack of the program, at any instruction of it.
extern "C" fn handle(signal: i32, info: *const libc::siginfo_t, context: *mut libc::ucontext_t) {
    let block = BLOCK.load(Ordering::SeqCst);
    // SAFETY: - the kernel passes a whole siginfo_t; with SI_QUEUE the value is at word 3.
    let (code, value) = unsafe { ((*info).si_code, *info.cast::<u64>().add(3)) };
    // SAFETY: - block was set before the handler was installed, and is never unmapped.
    let (slots, count, chained) = unsafe { ((*block).slots, (*block).slot_count, (*block).chained) };
    let ours = code == libc::SI_QUEUE
        && value >= slots
        && value < slots + u64::from(count) * size_of::<Slot>() as u64
        && (value - slots).is_multiple_of(size_of::<Slot>() as u64);
    if ours {
        // SAFETY: - value is the address of a slot, checked above; this thread is the only one to use it if it is its
        //           own.
        unsafe { wait_here(block, value as *mut Slot, context) };
    } else if chained[0] > 1 {
        // SAFETY: - the C library's handler for this signal, which it installed with SA_SIGINFO.
        unsafe {
            let next: extern "C" fn(i32, *const libc::siginfo_t, *mut libc::ucontext_t) =
                core::mem::transmute(chained[0] as usize);
            next(signal, info, context);
        }
    }
}

unsafe fn wait_here(block: *mut Block, slot: *mut Slot, context: *mut libc::ucontext_t) {
    // SAFETY: - the slot belongs to the thread that it names; the agent leaves it alone until the thread has parked.
    let slot = unsafe { &mut *slot };
    // SAFETY: - words of the block, which is never unmapped; while threads run they are only used through atomics.
    let [release, parked, left] = unsafe {
        [&raw mut (*block).release, &raw mut (*block).parked, &raw mut (*block).left].map(|at| AtomicU32::from_ptr(at))
    };
    // Read first: who has entered is let go by the next change.
    let seen = release.load(Ordering::SeqCst);
    // The signal of a stop that was given up may come during the next one, and to a slot that is another's by then.
    if slot.tid != sys::gettid() || !changes(slot, SLOT_SIGNALLED, SLOT_ENTERED) {
        return;
    }
    // SAFETY: - the context is that of this thread's signal frame.
    unsafe {
        restart(slot, context);
        slot.frame = context as u64;
        collect::thread(slot, (*block).rseq_offset);
    }
    let pending = collect::pending_mask(b"/proc/thread-self/status\0", b"SigPnd:");
    slot.pending_count = collect::pending(pending, false, &mut slot.pending);
    word(&mut slot.state).store(SLOT_PARKED, Ordering::SeqCst);
    parked.fetch_add(1, Ordering::SeqCst);
    // SAFETY: - words of the block.
    unsafe {
        sys::futex_wake(parked.as_ptr());
        while release.load(Ordering::SeqCst) == seen {
            sys::futex_wait(release.as_ptr(), seen, 0);
        }
        left.fetch_add(1, Ordering::SeqCst);
        sys::futex_wake(left.as_ptr());
    }
}

/// System calls that a signal ends with EINTR even with SA_RESTART, and that can be made again with the same arguments.
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

/// Makes a call that parking ended with EINTR happen again, in the source as in the copy.
///
/// The trap: with a handler, the kernel ends `poll`, `nanosleep` and others with EINTR in spite of SA_RESTART, and the
/// frame does not say which call it was. That is known from `/proc` if the thread was blocked before the signal, else
/// from the instruction before the system call, which in the C library loads its number.
unsafe fn restart(slot: &Slot, context: *mut libc::ucontext_t) {
    // SAFETY: - the context is that of a signal frame, which this thread may change.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let instruction = registers[libc::REG_RIP as usize];
    if registers[libc::REG_RAX as usize] != -i64::from(libc::EINTR) {
        return;
    }
    // SAFETY: - the instruction pointer is behind an instruction that was just executed, of two bytes or more; code
    //           pages are readable on x86-64 unless the program has hidden them, and EINTR with such a page is not ours
    //           to mend.
    let code = unsafe { core::ptr::read_unaligned((instruction - 2) as *const [u8; 2]) };
    if code != [0x0f, 0x05] {
        return;
    }
    let known =
        slot.syscall[0] >= 0 && slot.syscall[8] == instruction && slot.syscall[7] == registers[libc::REG_RSP as usize];
    let number = if known {
        slot.syscall[0]
    } else {
        // SAFETY: - seven bytes up to the instruction pointer lie in one function, in one mapping.
        let before = unsafe { core::ptr::read_unaligned((instruction - 7) as *const [u8; 5]) };
        if before[0] != 0xb8 {
            return;
        }
        i64::from(i32::from_le_bytes([before[1], before[2], before[3], before[4]]))
    };
    // The kernel has written what is left of the time where the caller wanted it; the call goes on with that.
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
