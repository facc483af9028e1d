//! State that is carried besides the content of memory, encoded with postcard.

use super::digests::Below;
use crate::difference::Difference;
use crate::ranges::RangeSet;
use bstr::BString;
use redrt_wire::no_image::ReportedFailure;
use serde::{Deserialize, Serialize};

/// Version of the format. Increased with each change to it.
pub const IMAGE_VERSION: u32 = 8;

/// Identity of the process, and the requirements on the host of the copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prologue {
    /// [`IMAGE_VERSION`] of the source.
    pub version: u32,
    /// Process id in the namespace of the process.
    pub pid: u32,
    /// Name of the program's file, for messages.
    pub program: String,
    /// Facts of the source's host.
    pub host: HostFacts,
    /// Mapped files. Areas refer to them by index.
    pub files: Vec<MappedFile>,
    /// Digest of the vdso, the code that the kernel maps into programs.
    pub vdso_hash: u64,
    /// Bits of the extended processor states (AMX) that the program may use.
    pub extended_state: u64,
    /// Number of streams of the image.
    pub stream_count: u32,
    /// The image that this one is built on; `None` if it stands alone.
    pub below: Option<Below>,
}

/// Facts of a host that the host of the copy must share, or exceed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Architecture, as in `uname -m`.
    pub machine: String,
    /// Kernel release, as in `uname -r`; used in messages only.
    pub release: String,
    /// Bytes of a page; the hosts must agree.
    pub page_size: u64,
    /// Register sets that the kernel saves (XCR0).
    pub register_sets: u64,
    /// Size and offset of each register set in the saved state.
    pub register_places: Vec<(u32, u32)>,
    /// Flags of the processor, from `/proc/cpuinfo`.
    pub processor_flags: Vec<String>,
}

/// A mapped file. The copy uses the destination's file if length and digest agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedFile {
    /// Path on both hosts.
    pub path: BString,
    /// Length of the file in bytes.
    pub len: u64,
    /// xxh3 of its content.
    pub hash: u128,
}

/// Backing of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backing {
    /// Anonymous private memory: zeros until written.
    Anonymous,
    /// A private mapping of a file, which supplies the pages that are not carried.
    File {
        /// Index of the file in [`Prologue::files`].
        file: u32,
        /// Offset in the file, in bytes.
        offset: u64,
    },
    /// A shared object, which may be mapped several times.
    Shared {
        /// Id of the object.
        object: u64,
        /// Offset in the object, in bytes.
        offset: u64,
    },
}

impl Backing {
    /// Backing of the address `by` bytes further on.
    #[must_use]
    pub fn advanced(self, by: u64) -> Self {
        match self {
            Self::Anonymous => Self::Anonymous,
            Self::File { file, offset } => Self::File { file, offset: offset + by },
            Self::Shared { object, offset } => Self::Shared { object, offset: offset + by },
        }
    }
}

/// An area of memory: one mapping, in the source as in the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Area {
    /// First address; a multiple of the page size.
    pub start: u64,
    /// First address after the area.
    pub end: u64,
    /// `PROT_READ`, `PROT_WRITE` and `PROT_EXEC`, or-ed.
    pub protection: u8,
    /// True for an area that grows downwards, as the first stack does.
    pub grows_down: bool,
    /// Advice of the program, `ADVICE_` flags or-ed.
    pub advice: u8,
    /// Origin of pages that are not carried.
    pub backing: Backing,
}

/// [`Area::advice`]: `MADV_HUGEPAGE`; huge pages are wanted.
pub const ADVICE_HUGE: u8 = 1;
/// [`Area::advice`]: `MADV_NOHUGEPAGE`; huge pages are not wanted.
pub const ADVICE_NO_HUGE: u8 = 2;
/// [`Area::advice`]: `MADV_DONTFORK`; children do not inherit the area.
pub const ADVICE_DONT_FORK: u8 = 4;
/// [`Area::advice`]: `MADV_DONTDUMP`; left out of core dumps.
pub const ADVICE_DONT_DUMP: u8 = 8;
/// [`Area::advice`]: `MADV_WIPEONFORK`; children see zeros.
pub const ADVICE_WIPE_ON_FORK: u8 = 16;
/// [`Area::advice`]: `MADV_MERGEABLE`; equal pages may be merged.
pub const ADVICE_MERGEABLE: u8 = 32;
/// [`Area::advice`]: `mlock`; the area stays in memory.
pub const ADVICE_LOCKED: u8 = 64;

/// A shared object: memory that may be mapped several times, or open as a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedObject {
    /// Id to which areas and descriptors refer.
    pub id: u64,
    /// Name of the memfd; empty for shared anonymous memory.
    pub name: BString,
    /// Length of the object in bytes.
    pub len: u64,
    /// `F_SEAL_` flags of the memfd.
    pub seals: u32,
    /// Permission bits of the memfd.
    pub mode: u32,
}

/// All areas, sent at the beginning of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Areas, by ascending address.
    pub areas: Vec<Area>,
    /// Objects to which areas refer, and open memfds.
    pub objects: Vec<SharedObject>,
}

impl Layout {
    /// A layout with anonymous memory in these ranges.
    #[must_use]
    pub fn anonymous(ranges: &RangeSet) -> Self {
        let area = |(start, end)| Area {
            start,
            end,
            protection: 0,
            grows_down: false,
            advice: 0,
            backing: Backing::Anonymous,
        };
        Self { areas: ranges.iter().map(area).collect(), objects: Vec::new() }
    }

    /// Ranges of anonymous memory.
    #[must_use]
    pub fn anonymous_ranges(&self) -> RangeSet {
        let anonymous = self.areas.iter().filter(|area| area.backing == Backing::Anonymous);
        anonymous.map(|area| (area.start, area.end)).collect()
    }

    /// Ranges that the destination keeps from layout `before` when this layout follows: those with the same backing at
    /// the same address. Everything else starts anew from its backing.
    ///
    /// The trap: a program's file that is replaced while the program runs. In one round its pages come from the file,
    /// in the next they do not, at the same addresses and with the same content.
    #[must_use]
    pub fn kept(&self, before: &Self) -> RangeSet {
        let mut kept = RangeSet::new();
        let mut older = before.areas.iter().peekable();
        for area in &self.areas {
            while older.next_if(|old| old.end <= area.start).is_some() {}
            while let Some(old) = older.peek().filter(|old| old.start < area.end) {
                let (start, end) = (area.start.max(old.start), area.end.min(old.end));
                if area.backing.advanced(start - area.start) == old.backing.advanced(start - old.start) {
                    kept.push(start, end);
                }
                if old.end > area.end {
                    break;
                }
                older.next();
            }
        }
        kept
    }
}

/// A thread to be made in the copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadState {
    /// Thread id in the namespace of the process.
    pub tid: u32,
    /// Address of its slot in the agent's memory.
    pub slot: u64,
    /// Address of its signal frame, which holds its registers.
    pub frame: u64,
    /// Thread pointer (`fs` base).
    pub fs: u64,
    /// Address that the kernel clears when the thread ends (`set_tid_address`).
    pub clear_tid: u64,
}

/// The agent's thread and memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentState {
    /// Address of the agent's block.
    pub block: u64,
    /// Thread id of the agent.
    pub tid: u32,
    /// Thread pointer of the agent.
    pub fs: u64,
    /// Initial stack pointer of the agent in the copy.
    pub stack: u64,
    /// Address at which the agent begins in the copy.
    pub entry: u64,
    /// Address at which the other threads begin in the copy.
    pub thread_entry: u64,
    /// True if the agent has a descriptor table of its own.
    pub own_files: bool,
    /// Number of the agent's listening socket.
    pub listener: i32,
}

/// Kernel object behind a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Open {
    /// A standard stream, supplied by the destination: 0, 1 or 2.
    Standard(u8),
    /// A file, directory or device, opened by its path.
    Path {
        /// Path on both hosts.
        path: BString,
        /// File position, in bytes.
        position: u64,
        /// Length in bytes of a regular file; `None` for anything else.
        len: Option<u64>,
    },
    /// One end of a pipe within the process.
    Pipe {
        /// Id of the pipe.
        id: u64,
        /// True for the writing end.
        writes: bool,
    },
    /// One end of a pair of stream sockets within the process.
    Socket {
        /// Id of the end.
        id: u64,
    },
    /// An eventfd, with its counter.
    Event {
        /// Value of the counter.
        count: u64,
        /// True for an eventfd with `EFD_SEMAPHORE`.
        semaphore: bool,
    },
    /// A timerfd, with its settings.
    Timer {
        /// Clock, a `CLOCK_` constant.
        clock: i32,
        /// Expirations that were not read.
        ticks: u64,
        /// Time left: seconds and nanoseconds.
        value: (i64, i64),
        /// Period: seconds and nanoseconds; zeros for a timer that fires once.
        interval: (i64, i64),
        /// True if a change of the clock cancels it (`TFD_TIMER_CANCEL_ON_SET`).
        is_cancelled: bool,
    },
    /// A signalfd, with its mask.
    Signals {
        /// Signals, one bit each.
        mask: u64,
    },
    /// An epoll, with its interest list.
    Epoll {
        /// Files in its interest list.
        watched: Vec<Watch>,
    },
    /// A memfd, opened through its object.
    Object {
        /// Id of the shared object.
        id: u64,
        /// File position, in bytes.
        position: u64,
    },
    /// The agent's listening socket, which a program executed in place of this one needs.
    Agent,
}

/// A file that an epoll watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// Descriptor number under which the file was added.
    pub number: i32,
    /// A descriptor that refers to the file; not `number` if that was closed since.
    pub fd: i32,
    /// Events to wait for, `EPOLL` flags or-ed.
    pub events: u32,
    /// User data that `epoll_wait` returns.
    pub data: u64,
}

/// Owner and extent of a lock on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockKind {
    /// Owned by the process, for a range (`F_SETLK`).
    Process,
    /// Owned by the open file, for a range (`F_OFD_SETLK`).
    OpenFile,
    /// Owned by the open file, for the whole file (`flock`).
    WholeFile,
}

/// A lock on a file, or on a range of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Owner of the lock, and how it was taken.
    pub kind: LockKind,
    /// True for a write lock.
    pub is_exclusive: bool,
    /// First byte of the range.
    pub start: u64,
    /// Bytes of the range; 0 means up to the end, however far that is.
    pub len: u64,
}

/// A descriptor of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// Descriptor number that the program knows.
    pub fd: i32,
    /// Flags as in `fdinfo`: access mode, status flags and close-on-exec.
    pub flags: i32,
    /// Lower descriptor that shares the open file description, made by `dup`.
    pub same_as: Option<i32>,
    /// Kernel object behind the descriptor.
    pub open: Open,
    /// Locks that the process or the open file holds.
    pub locks: Vec<Lock>,
}

/// A pipe within the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pipe {
    /// Id to which descriptors refer.
    pub id: u64,
    /// Capacity of the pipe in bytes.
    pub capacity: u32,
    /// Bytes that were not read.
    pub content: serde_bytes::ByteBuf,
}

/// One end of a pair of stream sockets within the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    /// Id to which descriptors refer.
    pub id: u64,
    /// Id of the other end; 0 if that is closed.
    pub peer: u64,
    /// Directions that are shut down: 1 for receiving, 2 for sending.
    pub shutdown: u8,
    /// Room for bytes on their way to the other end, in bytes, as the kernel counts it.
    pub send_buffer_bytes: usize,
    /// True if receivers get credentials (`SO_PASSCRED`).
    pub passes_credentials: bool,
    /// Maximum wait of a receiving call: seconds and microseconds; zeros for none.
    pub receive_timeout: (i64, i64),
    /// Maximum wait of a sending call, likewise.
    pub send_timeout: (i64, i64),
    /// Bytes that this end has not received.
    pub content: serde_bytes::ByteBuf,
}

/// Addresses that the kernel keeps for a program: code, data, heap, stack, arguments, environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// In the order of `struct prctl_mm_map`: start and end of code and data, start of the heap, its end, start of the
    /// stack, start and end of the arguments and of the environment.
    pub words: [u64; 11],
}

/// An area that the kernel maps by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemArea {
    /// `[vdso]`, `[vvar]` or `[vvar_vclock]`, as in `/proc/PID/maps`.
    pub name: String,
    /// First address of the area.
    pub start: u64,
    /// First address after the area.
    pub end: u64,
}

/// All state besides memory, recorded at the cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessState {
    /// Threads; the program's first thread comes first.
    pub threads: Vec<ThreadState>,
    /// The agent, which is part of the image and goes on in the copy.
    pub agent: AgentState,
    /// Addresses that the kernel keeps for the program.
    pub places: Places,
    /// Auxiliary vector: pairs of type and value.
    pub auxiliary: Vec<u64>,
    /// Areas that the kernel maps by itself.
    pub system_areas: Vec<SystemArea>,
    /// Guard pages (`MADV_GUARD_INSTALL`), which must not be touched: ranges by address.
    pub guards: Vec<(u64, u64)>,
    /// Path of the program's file.
    pub executable: BString,
    /// Path of the working directory.
    pub directory: BString,
    /// File mode creation mask.
    pub umask: u32,
    /// Soft and hard limits, by number of the limit.
    pub limits: Vec<(u64, u64)>,
    /// Execution domain, as in `personality(2)`.
    pub personality: u32,
    /// Descriptors, by ascending number.
    pub descriptors: Vec<Descriptor>,
    /// Pipes within the process, with their content.
    pub pipes: Vec<Pipe>,
    /// Ends of pairs of sockets within the process, with their content.
    pub sockets: Vec<Socket>,
    /// Digest of all pages; `Some` if the source was asked to verify memory.
    pub memory_hash: Option<u64>,
}

/// The last record: the state, and what the destination must have read in each stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Final {
    /// All state besides memory.
    pub state: ProcessState,
    /// Digest of all headers of each stream before this record, which covers all payloads by their hashes.
    pub stream_hashes: Vec<u128>,
}

/// Reply of the destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The copy can be made here. Tells for each mapped file whether this host has the same.
    Accepted {
        /// In the order of [`Prologue::files`].
        identical: Vec<bool>,
    },
    /// The copy cannot be made here, for these reasons.
    Refused(Vec<Difference>),
    /// The whole image has arrived, and its digests agree.
    Staged,
    /// The copy runs. The last reply.
    Running {
        /// Process id of the copy in the destination's namespace.
        pid: u32,
    },
    /// The destination has failed. The last reply.
    Failed(ReportedFailure),
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A process of two threads and an agent.
    pub(crate) fn state() -> ProcessState {
        let thread = |tid| ThreadState { tid, slot: 0x5000, frame: 0x7000_0000, fs: 0x6000, clear_tid: 0x6010 };
        ProcessState {
            threads: vec![thread(11), thread(12)],
            agent: AgentState {
                block: 0x4000,
                tid: 99,
                fs: 0x3000,
                stack: 0x2000_0000,
                entry: 1,
                thread_entry: 2,
                own_files: true,
                listener: 9,
            },
            places: Places::default(),
            auxiliary: vec![0, 0],
            system_areas: Vec::new(),
            guards: Vec::new(),
            executable: "/bin/true".into(),
            directory: "/".into(),
            umask: 0o22,
            limits: Vec::new(),
            personality: 0,
            descriptors: Vec::new(),
            pipes: Vec::new(),
            sockets: Vec::new(),
            memory_hash: None,
        }
    }
}
