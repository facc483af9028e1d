//! What is carried besides the contents of memory. Written with postcard.

use super::digests::Below;
use crate::difference::Difference;
use crate::ranges::RangeSet;
use bstr::BString;
use redrt_wire::no_image::Told;
use serde::{Deserialize, Serialize};

/// Grows with each change of the image.
pub const IMAGE_VERSION: u32 = 7;

/// Who is to be copied, and what both hosts must have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prologue {
    /// [`IMAGE_VERSION`].
    pub version: u32,
    /// Process id as the program knows it.
    pub pid: u32,
    /// Name of the program's file, for messages.
    pub program: String,
    /// The host.
    pub host: HostFacts,
    /// Files that are mapped. Areas name them by their place in this list.
    pub files: Vec<MappedFile>,
    /// Digest of the pages of the vdso: code that the kernel lends to programs.
    pub vdso_hash: u64,
    /// Extended processor state that the program has asked for (AMX).
    pub extended_state: u64,
    /// How many streams carry the image.
    pub stream_count: u32,
    /// The image that this one is built on.
    pub below: Option<Below>,
}

/// What must be the same, or more, on the host of the copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// `uname -m`.
    pub machine: String,
    /// `uname -r`, for messages.
    pub release: String,
    /// Bytes of a page.
    pub page_size: u64,
    /// Register sets that the system saves (XCR0).
    pub register_sets: u64,
    /// Where the registers of each set are in the saved state: size and offset.
    pub register_places: Vec<(u32, u32)>,
    /// What the processor can do.
    pub processor_flags: Vec<String>,
}

/// A mapped file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedFile {
    /// Where it is.
    pub path: BString,
    /// Its length.
    pub len: u64,
    /// Digest of its content.
    pub hash: u128,
}

/// What lies behind an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backing {
    /// Nothing but memory.
    Anonymous,
    /// A private mapping of a file: pages that are not carried come from it.
    File {
        /// Place in [`Prologue::files`].
        file: u32,
        /// Offset in the file.
        offset: u64,
    },
    /// Memory that may be mapped several times.
    Shared {
        /// Which object.
        object: u64,
        /// Offset in it.
        offset: u64,
    },
}

impl Backing {
    /// What lies behind the address this many bytes further on.
    #[must_use]
    pub fn advanced(self, by: u64) -> Self {
        match self {
            Self::Anonymous => Self::Anonymous,
            Self::File { file, offset } => Self::File { file, offset: offset + by },
            Self::Shared { object, offset } => Self::Shared { object, offset: offset + by },
        }
    }
}

/// One area of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Area {
    /// First address.
    pub start: u64,
    /// Address behind it.
    pub end: u64,
    /// `PROT_` flags.
    pub protection: u8,
    /// Grows downwards, as the first stack does.
    pub grows_down: bool,
    /// `ADVICE_` flags.
    pub advice: u8,
    /// What lies behind it.
    pub backing: Backing,
}

/// [`Area::advice`]: huge pages are welcome.
pub const ADVICE_HUGE: u8 = 1;
/// [`Area::advice`]: no huge pages.
pub const ADVICE_NO_HUGE: u8 = 2;
/// [`Area::advice`]: children do not get it.
pub const ADVICE_DONT_FORK: u8 = 4;
/// [`Area::advice`]: not in core dumps.
pub const ADVICE_DONT_DUMP: u8 = 8;
/// [`Area::advice`]: children get zeros.
pub const ADVICE_WIPE_ON_FORK: u8 = 16;
/// [`Area::advice`]: may be merged with equal pages.
pub const ADVICE_MERGEABLE: u8 = 32;
/// [`Area::advice`]: locked in memory.
pub const ADVICE_LOCKED: u8 = 64;

/// Memory that may be mapped several times, or open as a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedObject {
    /// Its number, which areas and descriptors name.
    pub id: u64,
    /// Name of the memfd; empty for other memory.
    pub name: BString,
    /// Length in bytes.
    pub len: u64,
    /// `F_SEAL_` flags.
    pub seals: u32,
    /// Who may open it, and how, by its mode.
    pub mode: u32,
}

/// All areas, at the begin of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Areas, by address.
    pub areas: Vec<Area>,
    /// Objects that areas name.
    pub objects: Vec<SharedObject>,
}

impl Layout {
    /// Anonymous memory of these places.
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

    /// Where it has anonymous memory.
    #[must_use]
    pub fn anonymous_ranges(&self) -> RangeSet {
        let anonymous = self.areas.iter().filter(|area| area.backing == Backing::Anonymous);
        anonymous.map(|area| (area.start, area.end)).collect()
    }

    /// Where the destination keeps what it has received for `before`, when this layout follows: where the same lies
    /// behind the same address. All else begins anew there, as its backing says.
    ///
    /// The trap: a program's file that is replaced while the program runs. Its pages come from the file in one round,
    /// and have lost it in the next, at the same addresses and with the same content.
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

/// A thread to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadState {
    /// Its id.
    pub tid: u32,
    /// Address of its slot in the agent's memory.
    pub slot: u64,
    /// Address of its signal frame.
    pub frame: u64,
    /// Its thread pointer.
    pub fs: u64,
    /// Where the kernel clears its id when it ends.
    pub clear_tid: u64,
}

/// The agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentState {
    /// Address of its block.
    pub block: u64,
    /// Its thread id.
    pub tid: u32,
    /// Its thread pointer.
    pub fs: u64,
    /// Its stack.
    pub stack: u64,
    /// Its entry in the copy.
    pub entry: u64,
    /// The entry of the other threads.
    pub thread_entry: u64,
    /// True when it has descriptors of its own.
    pub own_files: bool,
    /// Its listening socket.
    pub listener: i32,
}

/// What lies behind a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Open {
    /// Given by the destination: standard input, output or error (0, 1, 2).
    Standard(u8),
    /// A file, directory or device by its path.
    Path {
        /// Where it is.
        path: BString,
        /// Where reading or writing goes on.
        position: u64,
        /// Bytes of a regular file.
        len: Option<u64>,
    },
    /// One end of a pipe within the process.
    Pipe {
        /// Which pipe.
        id: u64,
        /// True for the writing end.
        writes: bool,
    },
    /// An event counter.
    Event {
        /// Its value.
        count: u64,
        /// Whether it is a semaphore.
        semaphore: bool,
    },
    /// A timer.
    Timer {
        /// Its clock.
        clock: i32,
        /// How often it has expired unread.
        ticks: u64,
        /// Seconds and nanoseconds left.
        value: (i64, i64),
        /// Seconds and nanoseconds between expiries.
        interval: (i64, i64),
        /// A change of the clock cancels it (`TFD_TIMER_CANCEL_ON_SET`).
        is_cancelled: bool,
    },
    /// Signals to be read.
    Signals {
        /// The signals, a bit each.
        mask: u64,
    },
    /// A set of descriptors to be watched.
    Epoll {
        /// What it watches.
        watched: Vec<Watch>,
    },
    /// Shared memory.
    Object {
        /// Which object.
        id: u64,
        /// Where reading or writing goes on.
        position: u64,
    },
    /// The agent's listening socket, for the program that may be executed in the place of this one.
    Agent,
}

/// What an epoll watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// The number under which it was added.
    pub number: i32,
    /// A descriptor that has the file, which may have been closed under that number since.
    pub fd: i32,
    /// Events.
    pub events: u32,
    /// What the program is told.
    pub data: u64,
}

/// Whom a lock of a file belongs to, and what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockKind {
    /// The process, for a range (`F_SETLK`).
    Process,
    /// The open file, for a range (`F_OFD_SETLK`).
    OpenFile,
    /// The open file, for all of it (`flock`).
    WholeFile,
}

/// A lock of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// See there.
    pub kind: LockKind,
    /// Nobody else may have one.
    pub is_exclusive: bool,
    /// First byte.
    pub start: u64,
    /// Number of bytes; 0: to the end, wherever that is.
    pub len: u64,
}

/// A descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// Its number.
    pub fd: i32,
    /// Flags as in `fdinfo`: access, status and close-on-exec.
    pub flags: i32,
    /// Shares its open file with this lower descriptor, made by `dup`.
    pub same_as: Option<i32>,
    /// What lies behind it.
    pub open: Open,
    /// Locks that the process, or the open file, has.
    pub locks: Vec<Lock>,
}

/// A pipe within the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pipe {
    /// Its number, which descriptors name.
    pub id: u64,
    /// Room in it.
    pub capacity: u32,
    /// What is in it.
    pub content: serde_bytes::ByteBuf,
}

/// Addresses that the kernel remembers of a program: code, data, heap, stack, arguments, environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// In the order of `struct prctl_mm_map`: start and end of code and data, start of the heap, its end, start of the
    /// stack, start and end of the arguments and of the environment.
    pub words: [u64; 11],
}

/// A range that the kernel maps by itself, and its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemArea {
    /// `[vdso]`, `[vvar]` or `[vvar_vclock]`.
    pub name: String,
    /// First address.
    pub start: u64,
    /// Address behind it.
    pub end: u64,
}

/// Everything else, taken at the cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessState {
    /// The first thread comes first.
    pub threads: Vec<ThreadState>,
    /// The agent.
    pub agent: AgentState,
    /// See there.
    pub places: Places,
    /// The auxiliary vector.
    pub auxiliary: Vec<u64>,
    /// What the kernel maps.
    pub system_areas: Vec<SystemArea>,
    /// Pages that must not be touched (`MADV_GUARD_INSTALL`): begins and ends, by address.
    pub guards: Vec<(u64, u64)>,
    /// The program's file.
    pub executable: BString,
    /// Working directory.
    pub directory: BString,
    /// Mask of permissions for new files.
    pub umask: u32,
    /// Soft and hard limits, by number.
    pub limits: Vec<(u64, u64)>,
    /// `personality(2)`.
    pub personality: u32,
    /// Descriptors, by number.
    pub descriptors: Vec<Descriptor>,
    /// Pipes within the process.
    pub pipes: Vec<Pipe>,
    /// Digest of all pages, when the source was asked for it.
    pub memory_hash: Option<u64>,
}

/// The last record: the state, and what the destination must have read in each stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Final {
    /// The state.
    pub state: ProcessState,
    /// Digest of all headers of each stream so far, and with them of all payloads.
    pub stream_hashes: Vec<u128>,
}

/// What the destination says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Go on. For each mapped file: whether it is the same here.
    Accepted {
        /// In the order of [`Prologue::files`].
        identical: Vec<bool>,
    },
    /// Not here, for these reasons.
    Refused(Vec<Difference>),
    /// The whole image is here and right.
    Staged,
    /// The copy runs.
    Running {
        /// Its process id on the destination.
        pid: u32,
    },
    /// It went wrong.
    Failed(Told),
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
            memory_hash: None,
        }
    }
}
