//! What the agent and the process that copies share: requests, replies, and the block of state in the program's memory.
//!
//! The block is read through `/proc/PID/mem` while the threads are parked, and, since it is part of the image, found
//! again by the agent of the copy. Both sides are of one version: [`VERSION`] is compared first.

use crate::settings::{PROCESS_COUNT, THREAD_COUNT};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Grows with each change of anything in this file.
pub const VERSION: u32 = 8;
/// The first word of a [`Block`].
pub const MAGIC: u64 = 0x6b6c_6263_6465_7231;
/// Real-time signal 33: the C library keeps it for itself and does not let programs block it.
pub const PARK_SIGNAL: u32 = 33;
/// Maximum number of POSIX timers carried.
pub const TIMER_COUNT_MAX: usize = 32;
/// Maximum number of queued signals carried, of each thread and of the process.
pub const PENDING_COUNT_MAX: usize = 8;
/// Maximum number of ranges that the embedder can leave out of the image.
pub const EXCLUDED_COUNT_MAX: usize = 512;
/// Nodes of memory that a policy can name.
pub const NODE_COUNT_MAX: usize = 1024;
/// Descriptors below this can be left out by the embedder.
pub const EXCLUDED_DESCRIPTOR_END: i32 = 1 << 16;

/// What a cut is for: a copy that runs beside its source.
pub const CUT_FOR_COPY: u32 = 0;
/// What a cut is for: a process that goes on where this one is, when this one has ended.
pub const CUT_FOR_SUCCESSOR: u32 = 1;

/// [`Slot::state`]: the signal is on its way.
pub const SLOT_SIGNALLED: u32 = 1;
/// [`Slot::state`]: the thread waits in the handler.
pub const SLOT_PARKED: u32 = 2;
/// [`Slot::state`]: the thread ended before the signal reached it.
pub const SLOT_GONE: u32 = 3;
/// It has the signal, and is on its way to where it waits.
pub const SLOT_ENTERED: u32 = 4;

/// Which files standard input, output and error are, by device and inode; zeros for one that is not known.
pub type Standard = [[u64; 2]; 3];

/// What one parked thread is, besides its memory. Its registers, signal mask and alternate stack are in the signal
/// frame on its stack.
#[repr(C)]
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Slot {
    /// Thread id, as the program knows it.
    pub tid: u32,
    /// One of the `SLOT_` constants.
    pub state: u32,
    /// Address of the `ucontext_t` in the signal frame.
    pub frame: u64,
    /// Base of the segment fs, the thread pointer.
    pub fs: u64,
    /// Base of the segment gs.
    pub gs: u64,
    /// Where the kernel clears the thread id when the thread ends.
    pub clear_tid: u64,
    /// Head of the list of robust mutexes.
    pub robust_head: u64,
    /// Length of that head.
    pub robust_len: u64,
    /// The registered area for restartable sequences, 0 when there is none.
    pub rseq: u64,
    /// Name of the thread.
    pub name: [u8; 16],
    /// How it is scheduled, a `struct sched_attr`: policy, nice value, priority, times, bounds of utilization.
    pub scheduling: [u64; SCHEDULING_WORDS],
    /// Its [`crate::settings::OF_THREAD`].
    pub settings: [i64; THREAD_COUNT],
    /// Its effective, permitted and inheritable capabilities, twice: the lower and the upper ones.
    pub capabilities: [u32; 6],
    /// Where its memory comes from, see `set_mempolicy(2)`; -1 when the kernel does not say.
    pub memory_policy: i32,
    /// Signals in `pending`.
    pub pending_count: u32,
    /// Nodes that the policy names.
    pub memory_nodes: [u64; NODE_COUNT_MAX / 64],
    /// Processors it may run on.
    pub affinity: [u64; 16],
    /// What `/proc/self/task/TID/syscall` said before the signal: number, six arguments, stack and instruction pointer.
    /// A number of -1: not in a system call.
    pub syscall: [i64; 9],
    /// Blocked signals that wait for this thread, each a `siginfo_t`.
    pub pending: [[u8; 128]; PENDING_COUNT_MAX],
}

/// Words of a `struct sched_attr`.
pub const SCHEDULING_WORDS: usize = 7;

/// [`Block::refused_setting`]: a setting of the process; its place in [`crate::settings::OF_PROCESS`] is added.
pub const REFUSED_OF_PROCESS: u32 = 100;
/// [`Block::refused_setting`]: a setting of a thread; its place in [`crate::settings::OF_THREAD`] is added.
pub const REFUSED_OF_THREAD: u32 = 200;
/// [`Block::refused_setting`]: how a thread is scheduled.
pub const REFUSED_SCHEDULING: u32 = 300;
/// [`Block::refused_setting`]: where a thread's memory comes from.
pub const REFUSED_MEMORY_POLICY: u32 = 301;
/// [`Block::refused_setting`]: a POSIX timer.
pub const REFUSED_TIMER: u32 = 302;

/// What a copy cannot have, in words that follow on "its".
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

/// A POSIX timer: what is needed to make it anew.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Timer {
    /// The kernel's number of the timer.
    pub id: i32,
    /// Clock.
    pub clock: i32,
    /// Signal it sends.
    pub signal: i32,
    /// `SIGEV_` constant.
    pub notify: i32,
    /// Thread it notifies, with `SIGEV_THREAD_ID`.
    pub tid: i32,
    /// Padding.
    pub unused: i32,
    /// Value delivered with the signal.
    pub value: u64,
    /// Interval and remaining time, a `struct itimerspec`.
    pub setting: [i64; 4],
}

/// Kernel's form of a signal's disposition: handler, flags, restorer, mask.
pub type Disposition = [u64; 4];

/// The agent's state, in the program's memory.
#[repr(C)]
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Block {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Process id as the program knows it.
    pub pid: u32,
    /// Thread id of the agent.
    pub agent_tid: u32,
    /// 1 when the agent has descriptors of its own, apart from the program's.
    pub own_files: u32,
    /// Number of the listening socket among the agent's descriptors.
    pub listener: i32,
    /// Futex: parked threads leave when it differs from what they saw.
    pub release: u32,
    /// Futex: how many threads have parked since `park` began.
    pub parked: u32,
    /// Futex: how many threads have left the handler, or arrived in the copy.
    pub left: u32,
    /// Set by the destination: this is the copy.
    pub is_copy: u32,
    /// Set by the destination: threads give up their capabilities.
    pub drop_capabilities: u32,
    /// How many copies lie between this process and the one that was started.
    pub generation: u32,
    /// Slots in use.
    pub slot_count: u32,
    /// Room for slots.
    pub slot_capacity: u32,
    /// Timers in use.
    pub timer_count: u32,
    /// Address of the slots.
    pub slots: u64,
    /// The agent's thread pointer.
    pub agent_fs: u64,
    /// The agent's stack: where the copy's agent starts.
    pub agent_stack: u64,
    /// Entry of the copy's threads: `extern "C" fn(*mut Slot, *mut Block)`.
    pub thread_entry: u64,
    /// Entry of the copy's agent: `extern "C" fn(*mut Block)`.
    pub agent_entry: u64,
    /// Set by the destination: the restorer, to be unmapped.
    pub restorer: u64,
    /// Its length.
    pub restorer_len: u64,
    /// What the copy could not be given, first: one of the `REFUSED_` constants; 0 when it has all.
    pub refused_setting: u32,
    /// What the system said to that, an error number.
    pub refused_errno: u32,
    /// The settings of the process, at the cut: [`crate::settings::OF_PROCESS`].
    pub settings: [i64; PROCESS_COUNT],
    /// How ready it was to be killed when memory is out, before its program could change that.
    pub oom_score_at_start: i64,
    /// Set by the destination: how ready it was itself, before memory of the source came.
    pub oom_score_there: i64,
    /// The standard streams that the process was given by what started it, or made it as a copy. A program may have put
    /// something else in their places, and have them elsewhere.
    pub standard: Standard,
    /// Bytes of its table of local segments.
    pub local_segment_bytes: u64,
    /// Offset of the C library's rseq area from the thread pointer; 0 when it registers none.
    pub rseq_offset: i64,
    /// The end of the heap, at the cut.
    pub heap_end: u64,
    /// Handler of [`PARK_SIGNAL`] that was there before parking.
    pub chained: Disposition,
    /// Dispositions of signals 1 to 64, at the cut.
    pub dispositions: [Disposition; 64],
    /// The three interval timers (`struct itimerval`) at the cut.
    pub interval_timers: [[i64; 4]; 3],
    /// POSIX timers.
    pub timers: [Timer; TIMER_COUNT_MAX],
    /// Signals that wait for the process as a whole.
    pub pending_count: u32,
    /// How many ranges are in `excluded`.
    pub excluded_count: u32,
    /// Each a `siginfo_t`.
    pub pending: [[u8; 128]; PENDING_COUNT_MAX],
    /// Memory that is not to be in the image: address and length.
    pub excluded: [[u64; 2]; EXCLUDED_COUNT_MAX],
    /// Descriptors that the copy is not to have: a bit for each, from the lowest of the first word on.
    pub excluded_descriptors: [u64; EXCLUDED_DESCRIPTOR_END as usize / 64],
    /// Padding.
    pub unused: u32,
    /// The agent's present connection, which is among the program's descriptors unless it has its own.
    pub connection: i32,
}

impl Block {
    /// Whether the embedder leaves this descriptor out.
    #[must_use]
    pub fn excludes(&self, fd: i32) -> bool {
        let word = usize::try_from(fd).ok().and_then(|fd| self.excluded_descriptors.get(fd / 64));
        word.is_some_and(|word| word >> (fd % 64) & 1 != 0)
    }
}

/// What a request asks for.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Versions, the address of the block; brings descriptors of `/proc/self`, of `mem` and `pagemap` there.
    Hello = 1,
    /// A userfaultfd with the given features; `a` is the feature mask.
    Userfaultfd = 2,
    /// Duplicates of the program's descriptor `arg`.
    Descriptor = 3,
    /// Which pages from `a`, `b` bytes, are in memory; written to the address in the reply's `a`, a byte each, and
    /// freed by the next request.
    Resident = 4,
    /// Notes a POSIX timer; `extra` is a [`Timer`].
    Timer = 5,
    /// Stops all threads and collects what is known of them.
    Park = 6,
    /// Lets them go on. `arg` is 1 when the clone went well so far.
    Release = 7,
    /// Ends the process: it has moved.
    Exit = 8,
    /// Forgets timers noted earlier; a new attempt begins.
    Reset = 9,
    /// Opens `/proc/self/clear_refs` for writing.
    ClearRefs = 10,
    /// Collects what is known of the stopped process once more, with what is left of timers that were noted since.
    Collect = 11,
}

impl Ask {
    /// The request of this number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        use Ask::*;
        [Hello, Userfaultfd, Descriptor, Resident, Timer, Park, Release, Exit, Reset, ClearRefs, Collect]
            .into_iter()
            .find(|ask| *ask as u32 == number)
    }
}

/// A request on the control socket.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Request {
    /// An [`Ask`].
    pub ask: u32,
    /// Its small argument.
    pub arg: u32,
    /// First argument.
    pub a: u64,
    /// Second argument.
    pub b: u64,
    /// More, as the request needs.
    pub extra: [u64; 8],
}

/// The answer. A negative status is an error number; what was asked for has not happened then.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Reply {
    /// 0 or a negative error number.
    pub status: i32,
    /// The thread that made trouble.
    pub tid: u32,
    /// First result.
    pub a: u64,
    /// Second result.
    pub b: u64,
    /// [`VERSION`] of the agent.
    pub version: u32,
    /// Padding.
    pub unused: u32,
}

const _: () = {
    assert!(size_of::<Request>() == 88 && size_of::<Reply>() == 32);
    assert!(size_of::<Timer>() == 64 && size_of::<Timer>() <= size_of::<[u64; 8]>());
    assert!(size_of::<libc::siginfo_t>() == 128);
};
