//! Start of an agent: its memory, its thread, and what it leaves out of images.

use crate::abi::{Block, EXCLUDED_DESCRIPTOR_END, MAGIC, Slot, Standard, VERSION};
use crate::serve::{HookedBlock, Hooks, run};
use crate::settings::{OF_PROCESS, OOM_SCORE};
use crate::sys::{self, syscall};
use crate::{collect, copy};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

const SLOT_CAPACITY: u32 = 16_384;
const STACK_BYTES: usize = 256 << 10;
/// Bytes around the agent's thread pointer. Nothing here uses thread-local storage; if a library called by the
/// embedder's hooks writes `errno`, it lands here.
const TLS_BYTES: usize = 64 << 10;

/// Everything that an agent needs to start.
pub struct Setup {
    /// A listening unix socket, which the agent owns from now on.
    pub listener: i32,
    /// `__rseq_offset` of the C library; 0 if it has none. See [`rseq_offset`](crate::rseq_offset).
    pub rseq_offset: i64,
    /// Standard streams that the process was started with; see [`standard_of`].
    pub standard: Standard,
    /// The embedder's hooks; [`Hooks::none`] for a plain program.
    pub hooks: Hooks,
}

/// Prefix of the name of an agent's socket. The streams and a hyphen follow.
const NAME_BEGIN: &str = "new-";

/// Standard streams that the process was started with, which the name of the agent's socket records.
///
/// The program may have replaced them since, and so may one that executed it. If the name records nothing, the current
/// streams count.
#[must_use]
pub fn standard_of(listener: i32) -> Standard {
    // SAFETY: - `sockaddr_un` consists of integers, for which zeros are valid.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    let mut len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: - `address` is a local with the `len` bytes that the call may write.
    let known = unsafe { libc::getsockname(listener, (&raw mut address).cast(), &raw mut len) } == 0;
    let path = address.sun_path.map(|byte| byte as u8);
    let path = path.split(|byte| *byte == 0).next().filter(|_| known).unwrap_or_default();
    let name = path.rsplit(|byte| *byte == b'/').next().and_then(|name| core::str::from_utf8(name).ok());
    name.and_then(streams_in).unwrap_or_else(standard)
}

/// Beginning of the name of the agent's socket for a process that is started with these streams.
#[must_use]
pub fn name_for(standard: &Standard) -> String {
    let [input, output, error] = standard.map(|[device, inode]| format!("{device:x}.{inode:x}"));
    format!("{NAME_BEGIN}{input},{output},{error}-")
}

fn streams_in(name: &str) -> Option<Standard> {
    let (streams, _) = name.strip_prefix(NAME_BEGIN)?.split_once('-')?;
    let mut numbers = streams.split([',', '.']);
    let mut standard = Standard::default();
    for number in standard.as_flattened_mut() {
        *number = u64::from_str_radix(numbers.next()?, 16).ok()?;
    }
    numbers.next().is_none().then_some(standard)
}

/// Device and inode of this process's current standard streams.
#[must_use]
pub fn standard() -> Standard {
    [0, 1, 2].map(|fd| {
        // SAFETY: - `stat` consists of integers, for which zeros are valid.
        let mut facts: libc::stat = unsafe { core::mem::zeroed() };
        // SAFETY: - `facts` is a local of the size that the call writes.
        match unsafe { libc::fstat(fd, &raw mut facts) } {
            0 => [facts.st_dev, facts.st_ino],
            _ => [0, 0],
        }
    })
}

/// An agent that has its memory, but no thread yet.
pub struct Agent {
    block: *mut Block,
}

impl Agent {
    /// Maps the agent's memory. `None` if the kernel denies it.
    #[must_use]
    pub fn new(setup: &Setup) -> Option<Self> {
        let block = sys::map_guarded(size_of::<HookedBlock>().next_multiple_of(4096))?.cast::<Block>();
        let slots = sys::map_guarded((SLOT_CAPACITY as usize * size_of::<Slot>()).next_multiple_of(4096))?;
        let thread: unsafe extern "C" fn(*mut Slot, *mut Block) -> ! = copy::thread_entry;
        let agent: unsafe extern "C" fn(*mut Block) -> ! = copy::agent_entry;
        // SAFETY: - the memory was just mapped, has the size and alignment of a `HookedBlock`, and nothing else uses
        //           it.
        //         - its zeros are valid: fields are integers, or optional function pointers.
        unsafe {
            let hooked = &mut *block.cast::<HookedBlock>();
            hooked.hooks = setup.hooks;
            let block = &mut hooked.block;
            block.magic = MAGIC;
            block.version = VERSION;
            block.pid = sys::getpid();
            block.slots = slots as u64;
            block.slot_capacity = SLOT_CAPACITY;
            block.listener = setup.listener;
            block.rseq_offset = setup.rseq_offset;
            block.standard = setup.standard;
            block.oom_score_at_start = OF_PROCESS[OOM_SCORE].get();
            block.thread_entry = thread as usize as u64;
            block.agent_entry = agent as usize as u64;
        }
        Some(Self { block })
    }

    /// Handle for what is left out of images. It may change that for the life of the process.
    #[must_use]
    pub fn exclusions(&self) -> Exclusions {
        Exclusions { block: self.block }
    }

    /// Starts a thread with a descriptor table of its own, both unknown to the C library: the program sees neither an
    /// additional thread nor descriptor. Returns its thread id, or a negative error number.
    pub fn start(self) -> i64 {
        let (Some(stack), Some(tls)) = (sys::map_guarded(STACK_BYTES), sys::map_guarded(TLS_BYTES)) else {
            return -i64::from(libc::ENOMEM);
        };
        // SAFETY: - all addresses are within the mappings just made, which are never unmapped.
        //         - no other thread uses the block yet.
        // The thread pointer points to itself, as the TLS ABI demands.
        unsafe {
            let thread_pointer = tls.add(TLS_BYTES / 2);
            thread_pointer.cast::<u64>().write(thread_pointer as u64);
            (*self.block).agent_fs = thread_pointer as u64;
            (*self.block).agent_stack = stack.add(STACK_BYTES) as u64;
            (*self.block).own_files = 1;
            spawn(self.block)
        }
    }

    /// Makes the calling thread the agent; never returns. It shares its descriptors with the program. Hooks may use
    /// whatever this thread may, because it is a thread of the C library.
    pub fn run_here(self) -> ! {
        let marker = 0_u8;
        // SAFETY: - no other thread uses the block yet; zeros are valid for a `Slot`, which consists of integers.
        // The copy's agent begins on this stack, well below the part in use.
        unsafe {
            let mut slot: Slot = core::mem::zeroed();
            collect::thread(&mut slot, 0);
            (*self.block).agent_fs = slot.fs;
            (*self.block).agent_stack = ((&raw const marker) as u64 - 4096) & !4095;
            begin(self.block)
        }
    }
}

/// Memory and descriptors that are left out of every image: the embedder's transports.
///
/// The copy has neither such memory nor such descriptors until its hook makes new ones.
pub struct Exclusions {
    block: *mut Block,
}

// SAFETY: - the block is never unmapped.
//         - the agent reads these lists only while all other threads are stopped.
//         - changing the list of memory needs `&mut`; descriptors are changed by atomics.
unsafe impl Send for Exclusions {}
// SAFETY: - a shared reference can change the list of descriptors only, by atomics.
unsafe impl Sync for Exclusions {}

impl Exclusions {
    fn block(&mut self) -> &mut Block {
        // SAFETY: - the block is never unmapped.
        //         - only the exclusions are used through this reference, and `&mut self` excludes other changes to
        //           them.
        unsafe { &mut *self.block }
    }

    /// Leaves out `len` bytes from `address` on, both multiples of a page. Returns false if the list is full.
    pub fn add_memory(&mut self, address: u64, len: u64) -> bool {
        let block = self.block();
        let count = block.excluded_count as usize;
        let Some(place) = block.excluded.get_mut(count) else { return false };
        *place = [address, len];
        block.excluded_count += 1;
        true
    }

    /// Carries the range that begins at `address` again.
    pub fn remove_memory(&mut self, address: u64) {
        let block = self.block();
        let count = block.excluded_count as usize;
        if let Some(at) = block.excluded[..count].iter().position(|range| range[0] == address) {
            block.excluded[at] = block.excluded[count - 1];
            block.excluded_count -= 1;
        }
    }

    /// Leaves out a descriptor. Returns false if its number is too high. Any thread may call this at any time.
    pub fn add_descriptor(&self, fd: i32) -> bool {
        self.descriptor_word(fd).is_some_and(|(word, bit)| {
            word.fetch_or(bit, Ordering::Relaxed);
            true
        })
    }

    /// Carries a descriptor again. Any thread may call this at any time.
    pub fn remove_descriptor(&self, fd: i32) {
        if let Some((word, bit)) = self.descriptor_word(fd) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    fn descriptor_word(&self, fd: i32) -> Option<(&AtomicU64, u64)> {
        let at = usize::try_from(fd).ok().filter(|_| fd < EXCLUDED_DESCRIPTOR_END)?;
        // SAFETY: - the word is within an array of the block, which is never unmapped, and is aligned.
        //         - all accesses of the process to it are atomic.
        let word = unsafe { AtomicU64::from_ptr((&raw mut (*self.block).excluded_descriptors[at / 64]).cast()) };
        Some((word, 1 << (at % 64)))
    }
}

unsafe fn spawn(block: *mut Block) -> i64 {
    let flags = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_SIGHAND | libc::CLONE_THREAD | libc::CLONE_SYSVSEM;
    let flags = (flags | libc::CLONE_SETTLS) as u64;
    let all = u64::MAX;
    let mut before = 0_u64;
    let entry: unsafe extern "C" fn(*mut Block) -> ! = begin;
    let (stack, thread_pointer);
    // SAFETY: - `all` and `before` are the eight bytes of a signal mask each.
    //         - `block` is live, and no other thread uses it yet.
    unsafe {
        let saved = (&raw mut before) as u64;
        syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK as u64, (&raw const all) as u64, saved, 8);
        (stack, thread_pointer) = ((*block).agent_stack - 64, (*block).agent_fs);
    }
    let result: i64;
    // SAFETY: - the child has a stack of its own and never returns from `entry`; the parent continues after the call.
    //         - the child keeps all signals blocked; the parent's mask is restored below.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone => result,
            in("rdi") flags, in("rsi") stack, in("rdx") 0, in("r10") 0, in("r8") thread_pointer,
            in("r12") block, in("r13") entry,
            lateout("rcx") _, lateout("r11") _,
        );
        syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK as u64, (&raw const before) as u64, 0, 8);
    }
    result
}

unsafe extern "C" fn begin(block: *mut Block) -> ! {
    // SAFETY: - `block` is never unmapped, and only the agent uses it as a whole.
    //         - other threads access single words of it, by atomics, while they are being parked.
    let shared = unsafe { &mut *block };
    shared.agent_tid = sys::gettid();
    if shared.own_files != 0 {
        let listener = shared.listener as u64;
        // SAFETY: - the name ends with NUL.
        //         - the descriptor table is the agent's own copy of the program's, and it uses only `listener`.
        unsafe {
            syscall(libc::SYS_prctl, libc::PR_SET_NAME as u64, c"redclone".as_ptr() as u64, 0, 0);
            if listener > 0 {
                syscall(libc::SYS_close_range, 0, listener - 1, 0, 0);
            }
            syscall(libc::SYS_close_range, listener + 1, u64::from(u32::MAX), 0, 0);
        }
    }
    run(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixListener;

    #[test]
    fn the_name_of_the_socket_says_which_streams_were_given() {
        let streams = [[0xe, 77], [0xfe01, u64::MAX], [0, 0]];
        let directory = std::env::temp_dir().join(format!("agent-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let bound = |name: &str| UnixListener::bind(directory.join(name)).unwrap();
        let (said, unsaid) = (bound(&format!("{}Ab-Cd.sock", name_for(&streams))), bound("new-AbCd.sock"));
        assert_eq!(standard_of(said.as_raw_fd()), streams);
        assert_eq!(standard_of(unsaid.as_raw_fd()), standard());
        assert_eq!(standard_of(-1), standard());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
