//! Registers of a thread held by ptrace.

#[cfg(not(target_arch = "x86_64"))]
pub use other::{flip_flags, flip_general, flip_vector, pointers};
#[cfg(target_arch = "x86_64")]
pub use x86_64::{flip_flags, flip_general, flip_vector, pointers};

/// Names of the general registers, by index.
pub const GENERAL: [&str; 17] = [
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip",
];

#[derive(Clone, Copy, Debug)]
pub struct Pointers {
    /// Address of the next instruction.
    pub instruction: u64,
    /// Address of the lowest word of the stack.
    pub stack: u64,
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::Pointers;
    use nix::Result;
    use nix::libc::user_regs_struct;
    use nix::sys::ptrace::{getregs, getregset, regset::NT_PRFPREG, setregs, setregset};
    use nix::unistd::Pid;

    pub fn pointers(thread: Pid) -> Result<Pointers> {
        getregs(thread).map(|all| Pointers { instruction: all.rip, stack: all.rsp })
    }

    /// Flips a bit of the register at this index of [`GENERAL`](super::GENERAL).
    pub fn flip_general(thread: Pid, register: usize, bit: u32) -> Result<()> {
        let mut all = getregs(thread)?;
        *general(&mut all, register) ^= 1 << bit;
        setregs(thread, all)
    }

    pub fn flip_flags(thread: Pid, bit: u32) -> Result<()> {
        let mut all = getregs(thread)?;
        all.eflags ^= 1 << bit;
        setregs(thread, all)
    }

    /// Flips a bit of the lower half of a vector register.
    pub fn flip_vector(thread: Pid, register: usize, bit: u32) -> Result<()> {
        let mut all = getregset::<NT_PRFPREG>(thread)?;
        all.xmm_space[register * 4 + (bit / 32) as usize] ^= 1 << (bit % 32);
        setregset::<NT_PRFPREG>(thread, all)
    }

    /// Must follow the order of [`GENERAL`](super::GENERAL).
    fn general(all: &mut user_regs_struct, register: usize) -> &mut u64 {
        match register {
            0 => &mut all.rax,
            1 => &mut all.rbx,
            2 => &mut all.rcx,
            3 => &mut all.rdx,
            4 => &mut all.rsi,
            5 => &mut all.rdi,
            6 => &mut all.rbp,
            7 => &mut all.rsp,
            8 => &mut all.r8,
            9 => &mut all.r9,
            10 => &mut all.r10,
            11 => &mut all.r11,
            12 => &mut all.r12,
            13 => &mut all.r13,
            14 => &mut all.r14,
            15 => &mut all.r15,
            _ => &mut all.rip,
        }
    }
}

/// Other processors: registers are unknown here, and the fault is reported as not injected.
#[cfg(not(target_arch = "x86_64"))]
mod other {
    use super::Pointers;
    use nix::errno::Errno;
    use nix::unistd::Pid;

    const UNKNOWN: Errno = Errno::EOPNOTSUPP;

    pub fn pointers(_: Pid) -> nix::Result<Pointers> {
        Err(UNKNOWN)
    }

    pub fn flip_general(_: Pid, _: usize, _: u32) -> nix::Result<()> {
        Err(UNKNOWN)
    }

    pub fn flip_flags(_: Pid, _: u32) -> nix::Result<()> {
        Err(UNKNOWN)
    }

    pub fn flip_vector(_: Pid, _: usize, _: u32) -> nix::Result<()> {
        Err(UNKNOWN)
    }
}
