//! Interface between the agent and the process that copies: requests, replies, and the block in the program's memory.
//!
//! The source reads the block through `/proc/PID/mem` while threads are parked. The block is part of the image, so the
//! agent of the copy finds it again. Both sides compare [`VERSION`] before anything else.

use crate::settings::{PROCESS_COUNT, THREAD_COUNT};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of everything in this file. Increased with each change.
pub const VERSION: u32 = 8;
/// First word of a [`Block`].
pub const MAGIC: u64 = 0x6b6c_6263_6465_7231;
/// Real-time signal 33: the C library reserves it and keeps programs from blocking it.
pub const PARK_SIGNAL: u32 = 33;
/// Most POSIX timers that are carried.
pub const TIMER_COUNT_MAX: usize = 32;
/// Most queued signals that are carried, for each thread and for the process.
pub const PENDING_COUNT_MAX: usize = 8;
/// Most ranges that the embedder can leave out of the image.
pub const EXCLUDED_COUNT_MAX: usize = 512;
/// Number of NUMA nodes that a memory policy can name.
pub const NODE_COUNT_MAX: usize = 1024;
/// First descriptor number that the embedder cannot leave out.
pub const EXCLUDED_DESCRIPTOR_END: i32 = 1 << 16;

/// Purpose of a cut: a copy that runs beside its source.
pub const CUT_FOR_COPY: u32 = 0;
/// Purpose of a cut: a checkpoint, from which a process can replace this one after its end.
pub const CUT_FOR_SUCCESSOR: u32 = 1;
/// Purpose of a stop that is no cut: marks of written pages are read and cleared while threads stand. No hook runs,
/// because the embedder's state is not looked at.
pub const PAUSE: u32 = 2;

/// [`Slot::state`]: the signal was sent, and has not arrived.
pub const SLOT_SIGNALLED: u32 = 1;
/// [`Slot::state`]: the thread waits in the handler, and its slot is filled.
pub const SLOT_PARKED: u32 = 2;
/// [`Slot::state`]: the thread ended before the signal arrived, or parking was given up before.
pub const SLOT_GONE: u32 = 3;
/// [`Slot::state`]: the thread is in the handler, and fills its slot.
pub const SLOT_ENTERED: u32 = 4;

/// Device and inode of standard input, output and error; zeros for an unknown one.
pub type Standard = [[u64; 2]; 3];

/// State of one parked thread besides its memory. Registers, signal mask and alternate stack are in the signal frame on
/// the thread's own stack.
#[repr(C)]
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Slot {
    /// Thread id in the namespace of the process.
    pub tid: u32,
    /// One of the `SLOT_` constants. Shared by agent and thread, so accessed atomically.
    pub state: u32,
    /// Address of the `ucontext_t` in the signal frame.
    pub frame: u64,
    /// Base of segment fs: the thread pointer.
    pub fs: u64,
    /// Base of segment gs.
    pub gs: u64,
    /// Address that the kernel clears when the thread ends (`set_tid_address`).
    pub clear_tid: u64,
    /// Head of the list of robust mutexes (`set_robust_list`).
    pub robust_head: u64,
    /// Length of that head, in bytes.
    pub robust_len: u64,
    /// Address of the registered rseq area; 0 if none exists.
    pub rseq: u64,
    /// Name of the thread, ended by NUL.
    pub name: [u8; 16],
    /// Scheduling, as `struct sched_attr`: policy, nice value, priority, times, utilization bounds.
    pub scheduling: [u64; SCHEDULING_WORDS],
    /// Values of [`crate::settings::OF_THREAD`], in that order.
    pub settings: [i64; THREAD_COUNT],
    /// Capabilities: effective, permitted and inheritable, first the lower 32 bits of each, then the upper ones.
    pub capabilities: [u32; 6],
    /// Memory policy (`set_mempolicy(2)`); -1 if the kernel does not report one.
    pub memory_policy: i32,
    /// Number of signals in `pending`.
    pub pending_count: u32,
    /// Nodes of the memory policy, one bit each.
    pub memory_nodes: [u64; NODE_COUNT_MAX / 64],
    /// Processors that the thread may run on, one bit each.
    pub affinity: [u64; 16],
    /// Fields of `/proc/self/task/TID/syscall` before the signal: number, six arguments, stack and instruction pointer.
    /// A number of -1 means that the thread was not in a system call.
    pub syscall: [i64; 9],
    /// Blocked signals that are pending for this thread, each a `siginfo_t`.
    pub pending: [[u8; 128]; PENDING_COUNT_MAX],
}

/// Words of a `struct sched_attr`.
pub const SCHEDULING_WORDS: usize = 7;

/// [`Block::refused_setting`]: a setting of the process, plus its index in [`crate::settings::OF_PROCESS`].
pub const REFUSED_OF_PROCESS: u32 = 100;
/// [`Block::refused_setting`]: a setting of a thread, plus its index in [`crate::settings::OF_THREAD`].
pub const REFUSED_OF_THREAD: u32 = 200;
/// [`Block::refused_setting`]: scheduling of a thread.
pub const REFUSED_SCHEDULING: u32 = 300;
/// [`Block::refused_setting`]: memory policy of a thread.
pub const REFUSED_MEMORY_POLICY: u32 = 301;
/// [`Block::refused_setting`]: a POSIX timer.
pub const REFUSED_TIMER: u32 = 302;

/// Name of something that a copy was denied, worded to follow "its".
#[must_use]
pub fn name_of_refused(number: u32) -> &'static str {
    use crate::settings::{OF_PROCESS, OF_THREAD};
    match number {
        REFUSED_SCHEDULING => "policy or priority of scheduling (sched_setattr)",
        REFUSED_MEMORY_POLICY => "memory policy (set_mempolicy)",
        REFUSED_TIMER => "POSIX timers (timer_create)",
        REFUSED_OF_THREAD.. => OF_THREAD.get((number - REFUSED_OF_THREAD) as usize).map_or("settings", |one| one.name),
        REFUSED_OF_PROCESS.. => {
            OF_PROCESS.get((number - REFUSED_OF_PROCESS) as usize).map_or("settings", |one| one.name)
        }
        _ => "settings",
    }
}

/// A POSIX timer, with everything needed to make it again.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Timer {
    /// The kernel's id of the timer.
    pub id: i32,
    /// Clock, a `CLOCK_` constant.
    pub clock: i32,
    /// Signal that it sends.
    pub signal: i32,
    /// `SIGEV_` constant, with flags.
    pub notify: i32,
    /// Thread that it notifies; only with `SIGEV_THREAD_ID`.
    pub tid: i32,
    /// Padding, to a multiple of 8 bytes; always 0.
    pub unused: i32,
    /// Value that is delivered with the signal.
    pub value: u64,
    /// Interval and remaining time, as `struct itimerspec`.
    pub setting: [i64; 4],
}

/// A signal's disposition in the kernel's form: handler, flags, restorer, mask.
pub type Disposition = [u64; 4];

/// The agent's state, in the program's memory.
#[repr(C)]
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Block {
    /// [`MAGIC`]; the source refuses a block without it.
    pub magic: u64,
    /// [`VERSION`] of the agent that made the block.
    pub version: u32,
    /// Process id in the namespace of the process.
    pub pid: u32,
    /// Thread id of the agent.
    pub agent_tid: u32,
    /// 1 if the agent has a descriptor table of its own, 0 if it shares the program's.
    pub own_files: u32,
    /// Number of the listening socket in the agent's descriptor table.
    pub listener: i32,
    /// Futex, counted up: parked threads go on when it changes.
    pub release: u32,
    /// Futex: number of threads that have parked since `park` began.
    pub parked: u32,
    /// Futex: number of threads that have left the handler, or have arrived in the copy.
    pub left: u32,
    /// Set by the destination to 1: this is the copy. Cleared by its agent.
    pub is_copy: u32,
    /// Set by the destination to 1: all threads give up their capabilities.
    pub drop_capabilities: u32,
    /// Number of copies between this process and the one that was started.
    pub generation: u32,
    /// Number of slots in use: one for each thread that was signalled since `park` began.
    pub slot_count: u32,
    /// Number of slots for which there is memory.
    pub slot_capacity: u32,
    /// Number of timers in `timers`.
    pub timer_count: u32,
    /// Address of the first slot.
    pub slots: u64,
    /// Thread pointer of the agent.
    pub agent_fs: u64,
    /// Stack pointer with which the copy's agent begins.
    pub agent_stack: u64,
    /// Entry of the copy's threads: `extern "C" fn(*mut Slot, *mut Block)`.
    pub thread_entry: u64,
    /// Entry of the copy's agent: `extern "C" fn(*mut Block)`.
    pub agent_entry: u64,
    /// Set by the destination: address of the restorer, which the agent unmaps.
    pub restorer: u64,
    /// Bytes of the restorer; 0 once it is unmapped.
    pub restorer_len: u64,
    /// First thing that the copy was denied, one of the `REFUSED_` constants; 0 if there was none.
    pub refused_setting: u32,
    /// Error number of that denial.
    pub refused_errno: u32,
    /// Values of [`crate::settings::OF_PROCESS`] at the cut.
    pub settings: [i64; PROCESS_COUNT],
    /// `oom_score_adj` when the agent began, before the program could change it.
    pub oom_score_at_start: i64,
    /// Set by the destination: its own `oom_score_adj` before it received memory.
    pub oom_score_there: i64,
    /// Standard streams that the process was started with, or got as a copy. The program may since have moved them to
    /// other numbers.
    pub standard: Standard,
    /// Bytes of the first entry of its local descriptor table; not 0 if it has one.
    pub local_segment_bytes: u64,
    /// Offset of the C library's rseq area from the thread pointer; 0 if it registers none.
    pub rseq_offset: i64,
    /// End of the heap at the cut.
    pub heap_end: u64,
    /// Disposition of [`PARK_SIGNAL`] before the agent installed its own.
    pub chained: Disposition,
    /// Dispositions of signals 1 to 64 at the cut.
    pub dispositions: [Disposition; 64],
    /// The three interval timers at the cut, each a `struct itimerval`.
    pub interval_timers: [[i64; 4]; 3],
    /// POSIX timers, of which `timer_count` are in use.
    pub timers: [Timer; TIMER_COUNT_MAX],
    /// Number of signals in `pending`.
    pub pending_count: u32,
    /// Number of ranges in `excluded`.
    pub excluded_count: u32,
    /// Signals that are pending for the process as a whole, each a `siginfo_t`.
    pub pending: [[u8; 128]; PENDING_COUNT_MAX],
    /// Ranges that are left out of the image: address and length.
    pub excluded: [[u64; 2]; EXCLUDED_COUNT_MAX],
    /// Descriptors that are left out of the image, one bit each, starting at the lowest bit of the first word.
    pub excluded_descriptors: [u64; EXCLUDED_DESCRIPTOR_END as usize / 64],
    /// Padding, to a multiple of 8 bytes; always 0.
    pub unused: u32,
    /// The agent's current connection. It is among the program's descriptors if the agent shares its table.
    pub connection: i32,
}

impl Block {
    /// Returns true if the embedder leaves this descriptor out.
    #[must_use]
    pub fn excludes(&self, fd: i32) -> bool {
        let word = usize::try_from(fd).ok().and_then(|fd| self.excluded_descriptors.get(fd / 64));
        word.is_some_and(|word| word >> (fd % 64) & 1 != 0)
    }
}

/// Operation that a request asks for.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Returns the version and the address of the block. Sends descriptors of `/proc/self`, its `mem` and its
    /// `pagemap`.
    Hello = 1,
    /// Sends a userfaultfd with the features in `a`.
    Userfaultfd = 2,
    /// Sends a duplicate of the program's descriptor `arg`.
    Descriptor = 3,
    /// Finds the pages in memory among the `b` bytes from address `a` on. The reply's `a` is the address of the result,
    /// one byte for each page, which the next request frees.
    Resident = 4,
    /// Records a POSIX timer; `extra` is a [`Timer`].
    Timer = 5,
    /// Stops all threads and records their state. `arg` is one of the `CUT_` constants.
    Park = 6,
    /// Lets the threads go on. `arg` is 1 if the clone has succeeded so far.
    Release = 7,
    /// Ends the process, because its copy has taken its place.
    Exit = 8,
    /// Forgets recorded timers. Begins a new attempt.
    Reset = 9,
    /// Sends a descriptor of `/proc/self/clear_refs`, open for writing.
    ClearRefs = 10,
    /// Records the state of the stopped process again, with the remaining time of timers recorded since.
    Collect = 11,
}

impl Ask {
    /// The operation with this number, if there is one.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        use Ask::*;
        [Hello, Userfaultfd, Descriptor, Resident, Timer, Park, Release, Exit, Reset, ClearRefs, Collect]
            .into_iter()
            .find(|ask| *ask as u32 == number)
    }
}

/// A request on the control socket. Fields that an operation does not use are 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Request {
    /// Number of an [`Ask`].
    pub ask: u32,
    /// First small argument, as the operation defines it.
    pub arg: u32,
    /// First 64-bit argument, as the operation defines it.
    pub a: u64,
    /// Second 64-bit argument, as the operation defines it.
    pub b: u64,
    /// Further arguments, such as a [`Timer`].
    pub extra: [u64; 8],
}

/// The reply. If the status is negative, the operation has not been carried out.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Reply {
    /// 0, or a negative error number.
    pub status: i32,
    /// Thread that caused the failure; 0 if none did.
    pub tid: u32,
    /// First result, as the operation defines it.
    pub a: u64,
    /// Second result, as the operation defines it.
    pub b: u64,
    /// [`VERSION`] of the agent.
    pub version: u32,
    /// Padding, to a multiple of 8 bytes; always 0.
    pub unused: u32,
}

const _: () = {
    assert!(size_of::<Request>() == 88 && size_of::<Reply>() == 32);
    assert!(size_of::<Timer>() == 64 && size_of::<Timer>() <= size_of::<[u64; 8]>());
    assert!(size_of::<libc::siginfo_t>() == 128);
};
