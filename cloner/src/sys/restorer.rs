//! The restorer: what is left of the destination while everything else of it is unmapped.
//!
//! A few dozen instructions without a stack or a library, and a list of system calls to be made one after the other.
//! They lie in one piece of memory that is free in both layouts. The list is made by [`crate::destination`] with
//! ordinary code; here are only the kinds of steps and the loop that takes them.

use std::io;

/// Bytes of code that are copied; the list follows.
pub const CODE_BYTES: usize = 4096;

/// What a step expects of its system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Expect {
    /// 0.
    Zero = 0,
    /// The fifth argument: where `mremap` was told to go.
    Fifth = 1,
    /// Nothing.
    Anything = 2,
    /// A new thread, which goes to another place.
    Thread = 3,
    /// It is no call, but the end: go there.
    Leave = 4,
    /// No error.
    NoError = 5,
}

/// One step.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What the result must be.
    pub expect: u64,
    /// Number of the system call.
    pub number: u64,
    /// Its arguments. For `Thread` and `Leave` the last four are entry, stack pointer and two arguments of the entry.
    pub arguments: [u64; 6],
}

impl Step {
    /// A system call.
    #[must_use]
    pub fn call(expect: Expect, number: i64, arguments: &[u64]) -> Self {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        Self { expect: expect as u64, number: number as u64, arguments: all }
    }

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        let words = [self.expect, self.number].into_iter().chain(self.arguments);
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

core::arch::global_asm!(
    ".text",
    ".balign 64",
    ".hidden cloner_restorer_begin",
    ".globl cloner_restorer_begin",
    ".hidden cloner_restorer_end",
    ".globl cloner_restorer_end",
    // r15: the step; r14: descriptor for complaints; r13: patience
    "cloner_restorer_begin:",
    "mov r15, rdi",
    "mov r14, rsi",
    "2:",
    "mov r13, 200000",
    "mov rax, [r15]",
    "cmp rax, 3",
    "je 4f",
    "cmp rax, 4",
    "je 6f",
    "mov rax, [r15 + 8]",
    "mov rdi, [r15 + 16]",
    "mov rsi, [r15 + 24]",
    "mov rdx, [r15 + 32]",
    "mov r10, [r15 + 40]",
    "mov r8, [r15 + 48]",
    "mov r9, [r15 + 56]",
    "syscall",
    "mov rcx, [r15]",
    "cmp rcx, 2",
    "je 3f",
    "cmp rcx, 5",
    "je 7f",
    "mov rdx, 0",
    "cmp rcx, 1",
    "cmove rdx, [r15 + 48]",
    "cmp rax, rdx",
    "jne 8f",
    "3:",
    "add r15, 64",
    "jmp 2b",
    "7:",
    "cmp rax, -4095",
    "jae 8f",
    "jmp 3b",
    // a thread: the id may belong to one that is just ending, for a moment
    "4:",
    "mov rax, [r15 + 8]",
    "mov rdi, [r15 + 16]",
    "mov rsi, [r15 + 24]",
    "syscall",
    "test rax, rax",
    "jz 6f",
    "jns 3b",
    "cmp rax, -17",
    "jne 8f",
    "dec r13",
    "jz 8f",
    "mov rax, 24",
    "syscall",
    "jmp 4b",
    // leave for the entry
    "6:",
    "mov rsp, [r15 + 40]",
    "mov rdi, [r15 + 48]",
    "mov rsi, [r15 + 56]",
    "xor ebp, ebp",
    "jmp [r15 + 32]",
    // the step goes back as a complaint, with the result in its first word
    "8:",
    "mov [r15], rax",
    "mov rax, 1",
    "mov rdi, r14",
    "mov rsi, r15",
    "mov rdx, 64",
    "syscall",
    "mov rax, 231",
    "mov rdi, 71",
    "syscall",
    "ud2",
    "cloner_restorer_end:",
);

unsafe extern "C" {
    static cloner_restorer_begin: u8;
    static cloner_restorer_end: u8;
}

/// Memory for the restorer, at an address that is free in both layouts.
pub struct RestorerMemory {
    address: u64,
    len: usize,
}

impl RestorerMemory {
    /// Maps `len` bytes at `address`.
    pub fn new(address: u64, len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: - NOREPLACE: nothing that is in use is touched.
        let mapped = unsafe { libc::mmap(address as *mut _, len, protection, flags, -1, 0) };
        if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { address, len }) }
    }

    /// Puts code, list and data in. Data begins behind room for `step_count_max` steps.
    pub fn write(self, steps: &[Step], step_count_max: usize, data: &[u64]) -> io::Result<Self> {
        let begin = &raw const cloner_restorer_begin;
        // SAFETY: - both are labels of the one block of code above.
        let code =
            unsafe { std::slice::from_raw_parts(begin, (&raw const cloner_restorer_end).offset_from(begin) as usize) };
        // SAFETY: - mapped by `new`, of this length, and nobody else's.
        let place = unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.len) };
        let data_at = CODE_BYTES + step_count_max * size_of::<Step>();
        if code.len() > CODE_BYTES || steps.len() > step_count_max || place.len() < data_at + 8 * data.len() {
            return Err(io::Error::other("the restorer's memory is too small for its list"));
        }
        place[..code.len()].copy_from_slice(code);
        for (bytes, step) in place[CODE_BYTES..].chunks_exact_mut(64).zip(steps) {
            bytes.copy_from_slice(&step.encode());
        }
        for (bytes, word) in place[data_at..].chunks_exact_mut(8).zip(data) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(self)
    }

    /// Goes. Complaints are written to `complaints` as one [`Step`].
    ///
    /// # Safety
    /// The list fits the situation and ends with `Leave`. Nothing of this process is used again.
    pub unsafe fn go(self, complaints: i32) -> ! {
        let list = self.address + CODE_BYTES as u64;
        let all = u64::MAX;
        // SAFETY: - the mask is eight bytes. Handlers of this process are about to vanish, so no signal may come.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, 0, 8) };
        unregister_rseq();
        // SAFETY: - the caller's promise; code and list are in place.
        unsafe {
            core::arch::asm!(
                "jmp {place}",
                place = in(reg) self.address, in("rdi") list, in("rsi") i64::from(complaints),
                options(noreturn)
            )
        }
    }
}

/// The kernel writes to a thread's rseq area whenever it moves it; this one's is about to be unmapped.
fn unregister_rseq() {
    const UNREGISTER: i32 = 1;
    const SIGNATURE: u32 = 0x5305_3053;
    // SAFETY: - names end with NUL; both symbols, if there, are constants of these types.
    let (offset, size) = unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
        if offset.is_null() || size.is_null() { (0, 0) } else { (*offset, *size) }
    };
    if size == 0 {
        return;
    }
    let thread: u64;
    // SAFETY: - the first word behind fs points to itself, by the ABI of thread-local storage.
    unsafe { core::arch::asm!("mov {}, fs:0", out(reg) thread, options(nostack, readonly)) };
    let area = thread.wrapping_add_signed(offset as i64);
    for len in [32, size.next_multiple_of(32)] {
        // SAFETY: - the area that the C library registered for this thread.
        unsafe { libc::syscall(libc::SYS_rseq, area, len, UNREGISTER, SIGNATURE) };
    }
}

/// A complaint as text.
#[must_use]
pub fn explain(complaint: &[u8; 64]) -> String {
    let word = |index: usize| u64::from_ne_bytes(complaint[index * 8..index * 8 + 8].try_into().expect("eight bytes"));
    let result = word(0) as i64;
    let name = match word(1) as i64 {
        libc::SYS_munmap => "unmapping the receiver".to_owned(),
        libc::SYS_mremap => format!("moving memory to {:#x}", word(6)),
        libc::SYS_mprotect => format!("protecting memory at {:#x}", word(2)),
        libc::SYS_prctl => "telling the kernel where heap and stack are".to_owned(),
        libc::SYS_clone3 => "making a thread with its old id".to_owned(),
        number => format!("system call {number}"),
    };
    let cause = io::Error::from_raw_os_error(result.unsigned_abs().min(4095) as i32);
    if result < 0 { format!("{name}: {cause}") } else { format!("{name}: unexpected result {result:#x}") }
}
