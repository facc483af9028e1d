//! The restorer: the code that remains while everything else of the destination is unmapped.
//!
//! It is a few dozen instructions, without stack or library, and a list of system calls to make one after the other.
//! Both are in one piece of memory that is free in both layouts. Ordinary code in [`crate::destination`] makes the
//! list; this file has only the kinds of steps and the loop that executes them.

use std::io;

/// Bytes reserved for the code; the list of steps follows.
pub const CODE_BYTES: usize = 4096;

/// Required result of a step's system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Expect {
    /// The result must be 0.
    Zero = 0,
    /// The result must equal the fifth argument: the target of `mremap`.
    Fifth = 1,
    /// Any result is accepted.
    Anything = 2,
    /// Makes a thread, which jumps to the entry in the step. Retried while the thread id is taken.
    Thread = 3,
    /// No system call: jumps to the entry in the step, and ends the list.
    Leave = 4,
    /// Any result but an error is accepted.
    NoError = 5,
}

/// One step, in the layout that the assembly code reads.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Required result, an [`Expect`].
    pub expect: u64,
    /// Number of the system call.
    pub number: u64,
    /// Arguments of the call. For `Thread` and `Leave` the last four are entry, stack pointer and two arguments of the
    /// entry.
    pub arguments: [u64; 6],
}

impl Step {
    /// Makes a step that calls `number`. Missing arguments are 0.
    #[must_use]
    pub fn call(expect: Expect, number: i64, arguments: &[u64]) -> Self {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        Self { expect: expect as u64, number: number as u64, arguments: all }
    }

    /// Encodes the step for the restorer's memory.
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
    // Registers: r15 current step; r14 descriptor for complaints; r13 attempts left
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
    // A thread that is just ending may hold the id for a moment
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
    "6:",
    "mov rsp, [r15 + 40]",
    "mov rdi, [r15 + 48]",
    "mov rsi, [r15 + 56]",
    "xor ebp, ebp",
    "jmp [r15 + 32]",
    // Writes the failed step to the descriptor, with the result in its first word, and exits with code 71
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

/// Memory of the restorer, at an address that is free in both layouts.
pub struct RestorerMemory {
    address: u64,
    len: usize,
}

impl RestorerMemory {
    /// Maps `len` bytes at `address`. Errors if anything is mapped there.
    pub fn new(address: u64, len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: - `MAP_FIXED_NOREPLACE` fails rather than replace an existing mapping.
        let mapped = unsafe { libc::mmap(address as *mut _, len, protection, flags, -1, 0) };
        if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { address, len }) }
    }

    /// Writes code, list and data. Data starts after room for `step_count_max` steps.
    pub fn write(self, steps: &[Step], step_count_max: usize, data: &[u64]) -> io::Result<Self> {
        let begin = &raw const cloner_restorer_begin;
        // SAFETY: - both symbols bound the one block of code above, which is never modified.
        let code =
            unsafe { std::slice::from_raw_parts(begin, (&raw const cloner_restorer_end).offset_from(begin) as usize) };
        // SAFETY: - `new` has mapped `len` bytes at `address`, readable and writable.
        //         - `self` owns the mapping, and no other reference to it exists.
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

    /// Runs the list. A failing step is written to descriptor `complaints` as one [`Step`].
    ///
    /// # Safety
    /// - The steps leave each step's memory in place until it is executed, and end with `Leave`.
    /// - The caller has given up all memory, threads and descriptors of this process.
    pub unsafe fn go(self, complaints: i32) -> ! {
        let list = self.address + CODE_BYTES as u64;
        let all = u64::MAX;
        // SAFETY: - `all` is the eight bytes that the call reads.
        // Signals are blocked because their handlers are about to be unmapped.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, 0, 8) };
        unregister_rseq();
        // SAFETY: - code and list were written by [`Self::write`].
        //         - the list fits the process and ends with `Leave`, as this function's contract demands.
        unsafe {
            core::arch::asm!(
                "jmp {place}",
                place = in(reg) self.address, in("rdi") list, in("rsi") i64::from(complaints),
                options(noreturn)
            )
        }
    }
}

/// Unregisters this thread's rseq area: the kernel writes to it when it moves the thread, and it is about to be
/// unmapped.
fn unregister_rseq() {
    const UNREGISTER: i32 = 1;
    const SIGNATURE: u32 = 0x5305_3053;
    // SAFETY: - both names end with NUL.
    //         - glibc defines `__rseq_offset` as ptrdiff_t and `__rseq_size` as unsigned int; missing symbols are null.
    let (offset, size) = unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
        if offset.is_null() || size.is_null() { (0, 0) } else { (*offset, *size) }
    };
    if size == 0 {
        return;
    }
    let thread: u64;
    // SAFETY: - by the x86-64 TLS ABI the first word at `fs` is the thread pointer; only that is read.
    unsafe { core::arch::asm!("mov {}, fs:0", out(reg) thread, options(nostack, readonly)) };
    let area = thread.wrapping_add_signed(offset as i64);
    for len in [32, size.next_multiple_of(32)] {
        // SAFETY: - `area` is the one that the C library registered for this thread; a wrong length is an error without
        //           effect.
        unsafe { libc::syscall(libc::SYS_rseq, area, len, UNREGISTER, SIGNATURE) };
    }
}

/// Describes a failed step as text.
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
