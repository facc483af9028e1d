//! Settings that the kernel keeps for a thread or a process outside of its memory: how they are read, and how a copy
//! gets them.
//!
//! A setting is a number. If the kernel lacks it, or does not report it, it is [`UNKNOWN`] and is left alone in the
//! copy. A setting that the copy is denied is recorded in its block, and the copy does not begin: see
//! [`Block::refused_setting`](crate::abi::Block).

use crate::sys::{self, syscall};

/// Value of a setting that this kernel lacks or does not report.
pub const UNKNOWN: i64 = i64::MIN;
/// Number of settings of each thread.
pub const THREAD_COUNT: usize = 12;
/// Number of settings of the process.
pub const PROCESS_COUNT: usize = 7;

/// One setting of a thread or of the process.
pub struct Setting {
    /// Name for messages, worded to follow "its".
    pub name: &'static str,
    access: Access,
}

/// System call that reads or changes a setting.
#[derive(Clone, Copy)]
enum Access {
    /// `prctl` returns the value.
    Returned { get: i64, set: i64 },
    /// `prctl` writes the value to an integer.
    Stored { get: i64, set: i64 },
    /// Control of one kind of speculation (`PR_SET_SPECULATION_CTRL`).
    Speculation { which: u64 },
    /// When the thread is notified of broken memory (`PR_MCE_KILL`).
    BrokenMemory,
    /// `PR_SET_THP_DISABLE`: the lowest bit disables huge pages, the others are flags.
    HugePages,
    /// Permission to execute CPUID.
    ProcessorId,
    /// `ioprio_get` and `ioprio_set` for one thread.
    IoPriority,
    /// A file of `/proc/self` that holds a number.
    File { path: &'static [u8], is_hexadecimal: bool },
}

const fn returned(name: &'static str, get: i64, set: i64) -> Setting {
    Setting { name, access: Access::Returned { get, set } }
}

const fn stored(name: &'static str, get: i64, set: i64) -> Setting {
    Setting { name, access: Access::Stored { get, set } }
}

const fn speculation(name: &'static str, which: u64) -> Setting {
    Setting { name, access: Access::Speculation { which } }
}

/// Settings of each thread, in the order of [`Slot::settings`](crate::abi::Slot::settings).
pub const OF_THREAD: [Setting; THREAD_COUNT] = [
    returned("timer slack (PR_SET_TIMERSLACK)", 30, 29),
    returned("no_new_privs (PR_SET_NO_NEW_PRIVS)", 39, 38),
    returned("securebits (PR_SET_SECUREBITS)", 27, 28),
    stored("signal at its parent's end (PR_SET_PDEATHSIG)", 2, 1),
    stored("access to the time stamp counter (PR_SET_TSC)", 25, 26),
    Setting { name: "policy for broken memory (PR_MCE_KILL)", access: Access::BrokenMemory },
    returned("part in writing back memory (PR_SET_IO_FLUSHER)", 58, 57),
    speculation("speculative store bypass (PR_SET_SPECULATION_CTRL)", 0),
    speculation("indirect branch speculation (PR_SET_SPECULATION_CTRL)", 1),
    speculation("flush of the first cache (PR_SET_SPECULATION_CTRL)", 2),
    Setting { name: "access to the processor's description (ARCH_SET_CPUID)", access: Access::ProcessorId },
    Setting { name: "I/O priority (ioprio_set)", access: Access::IoPriority },
];

/// Index of the OOM score in [`OF_PROCESS`]. It may come from the environment that started the process, and an
/// unprivileged user cannot lower it below that.
pub const OOM_SCORE: usize = PROCESS_COUNT - 1;

/// Settings of the process, in the order of [`Block::settings`](crate::abi::Block::settings).
pub const OF_PROCESS: [Setting; PROCESS_COUNT] = [
    returned("right to be traced and dumped (PR_SET_DUMPABLE)", 3, 4),
    stored("duty to reap descendants (PR_SET_CHILD_SUBREAPER)", 37, 36),
    Setting { name: "refusal of huge pages (PR_SET_THP_DISABLE)", access: Access::HugePages },
    returned("refusal of memory that is written and executed (PR_SET_MDWE)", 66, 65),
    returned("merging of equal pages (PR_SET_MEMORY_MERGE)", 68, 67),
    Setting {
        name: "choice of memory in core dumps (coredump_filter)",
        access: Access::File { path: b"/proc/self/coredump_filter\0", is_hexadecimal: true },
    },
    Setting {
        name: "readiness to be killed when memory is out (oom_score_adj)",
        access: Access::File { path: b"/proc/self/oom_score_adj\0", is_hexadecimal: false },
    },
];

const PR_GET_SPECULATION_CTRL: i64 = 52;
const PR_SET_SPECULATION_CTRL: i64 = 53;
/// Set if threads may choose; else the other bits hold for all threads.
const PR_SPEC_PRCTL: i64 = 1;
const PR_MCE_KILL: i64 = 33;
const PR_MCE_KILL_GET: i64 = 34;
const PR_MCE_KILL_SET: i64 = 1;
const PR_GET_THP_DISABLE: i64 = 42;
const PR_SET_THP_DISABLE: i64 = 41;
const ARCH_GET_CPUID: u64 = 0x1011;
const ARCH_SET_CPUID: u64 = 0x1012;
const IOPRIO_WHO_PROCESS: u64 = 1;

fn prctl(option: i64, a: i64, b: i64) -> i64 {
    // SAFETY: - callers pass numbers, or the address of an integer that outlives the call.
    unsafe { sys::syscall6(libc::SYS_prctl, option as u64, a as u64, b as u64, 0, 0, 0) }
}

impl Setting {
    /// Value for the calling thread or its process; [`UNKNOWN`] if the kernel does not report it.
    #[must_use]
    pub fn get(&self) -> i64 {
        let value = match self.access {
            Access::Returned { get, .. } => prctl(get, 0, 0),
            Access::Stored { get, .. } => {
                let mut value = 0_i32;
                let result = prctl(get, core::ptr::from_mut(&mut value) as i64, 0);
                if result < 0 { result } else { i64::from(value) }
            }
            Access::Speculation { which } => match prctl(PR_GET_SPECULATION_CTRL, which as i64, 0) {
                value if value & PR_SPEC_PRCTL != 0 && value > 0 => value & !PR_SPEC_PRCTL,
                _ => UNKNOWN,
            },
            Access::BrokenMemory => prctl(PR_MCE_KILL_GET, 0, 0),
            Access::HugePages => prctl(PR_GET_THP_DISABLE, 0, 0),
            // SAFETY: - `ARCH_GET_CPUID` returns the value and touches no memory.
            Access::ProcessorId => unsafe { syscall(libc::SYS_arch_prctl, ARCH_GET_CPUID, 0, 0, 0) },
            // SAFETY: - `ioprio_get` takes numbers and touches no memory.
            Access::IoPriority => unsafe { syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0, 0, 0) },
            Access::File { path, is_hexadecimal } => return read_number(path, is_hexadecimal),
        };
        if value < 0 { UNKNOWN } else { value }
    }

    /// Sets the value for the calling thread or its process, unless it is set already. Returns 0, or a negative error
    /// number.
    pub fn set(&self, value: i64) -> i64 {
        if value == UNKNOWN || value == self.get() {
            return 0;
        }
        match self.access {
            Access::Returned { set, .. } | Access::Stored { set, .. } => prctl(set, value, 0),
            Access::Speculation { which } => prctl(PR_SET_SPECULATION_CTRL, which as i64, value),
            Access::BrokenMemory => prctl(PR_MCE_KILL, PR_MCE_KILL_SET, value),
            Access::HugePages => prctl(PR_SET_THP_DISABLE, value & 1, value & !1),
            // SAFETY: - `ARCH_SET_CPUID` takes a number and touches no memory.
            Access::ProcessorId => unsafe { syscall(libc::SYS_arch_prctl, ARCH_SET_CPUID, value as u64, 0, 0) },
            // SAFETY: - `ioprio_set` takes numbers and touches no memory.
            Access::IoPriority => unsafe { syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, value as u64, 0) },
            Access::File { path, .. } => write_number(path, value),
        }
    }
}

/// Reads the number in a file: decimal with a sign, or hexadecimal without.
fn read_number(path: &[u8], is_hexadecimal: bool) -> i64 {
    let fd = sys::openat(libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC);
    if fd < 0 {
        return UNKNOWN;
    }
    let mut text = [0_u8; 32];
    let count = sys::read(fd, &mut text).max(0) as usize;
    sys::close(fd);
    let (is_negative, digits) = match &text[..count] {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let radix = if is_hexadecimal { 16 } else { 10 };
    let digits = digits.iter().map_while(|byte| (*byte as char).to_digit(radix));
    let value = digits.fold(0_i64, |value, digit| value.wrapping_mul(i64::from(radix)).wrapping_add(i64::from(digit)));
    if is_negative { -value } else { value }
}

/// Writes a number in decimal, which the kernel accepts even for files that it shows in hexadecimal.
fn write_number(path: &[u8], value: i64) -> i64 {
    let fd = sys::openat(libc::AT_FDCWD, path, libc::O_WRONLY | libc::O_CLOEXEC);
    if fd < 0 {
        return i64::from(fd);
    }
    let mut text = [0_u8; 24];
    let mut from = text.len();
    let mut rest = value.unsigned_abs();
    while rest > 0 || from == text.len() {
        from -= 1;
        text[from] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    if value < 0 {
        from -= 1;
        text[from] = b'-';
    }
    let digits = &text[from..];
    // SAFETY: - `digits` is a slice, passed with its own length, and only read.
    let written = unsafe { syscall(libc::SYS_write, fd as u64, digits.as_ptr() as u64, digits.len() as u64, 0) };
    sys::close(fd);
    written.min(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found_and_unchanged_ones_not_set() {
        let of = |all: &'static [Setting], name: &str| all.iter().find(|one| one.name.contains(name)).unwrap();
        // A thread of its own, because its settings vanish with it.
        std::thread::spawn(move || {
            for (name, value) in [("TIMERSLACK", 777), ("PDEATHSIG", 10), ("ioprio_set", 2 << 13 | 6), ("PR_MCE", 1)] {
                let setting = of(&OF_THREAD, name);
                assert_eq!(setting.set(value), 0, "{name}");
                assert_eq!(setting.get(), value, "{name}");
                assert_eq!(setting.set(UNKNOWN), 0, "{name}");
                assert_eq!(setting.get(), value, "{name}");
            }
        })
        .join()
        .unwrap();
        for setting in OF_PROCESS.iter().chain(&OF_THREAD) {
            assert_eq!(setting.set(setting.get()), 0, "{}", setting.name);
        }
        let oom = &OF_PROCESS[OOM_SCORE];
        assert!(oom.name.contains("oom_score_adj") && (-1000..=1000).contains(&oom.get()));
    }
}
