//! Why a process is not copied.

use crate::difference::Difference;

/// A reason, in words that follow on the name of the process.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// A copy would not be its parent.
    #[error("it has a child process, {pid} {name}")]
    Child {
        /// The child.
        pid: i32,
        /// The name of its program.
        name: String,
    },
    /// The filter would be missing in a copy.
    #[error("it runs under a seccomp filter")]
    Seccomp,
    /// `/proc` shows nothing of such a process.
    #[error("its first thread has ended")]
    NoFirstThread,
    /// Two cannot stop its threads at once.
    #[error("process {by} traces it")]
    Traced {
        /// Who does.
        by: String,
    },
    /// There is nobody in it to ask.
    #[error("process {pid} has no agent: {why}")]
    NoAgent {
        /// The process.
        pid: u32,
        /// How that is known.
        why: NoAgent,
    },
    /// Of another version of this program.
    #[error("the agent in the process has version {theirs}, this program {own}")]
    AgentVersion {
        /// The agent's.
        theirs: u32,
        /// This program's.
        own: u32,
    },
    /// It hands out no descriptors of `/proc/self`.
    #[error("the agent cannot open its own /proc/self/mem: the program's first thread has ended, or /proc is hidden")]
    AgentBlind,
    /// Memory that a copy cannot have.
    #[error("memory at {start:#x} is {what}")]
    Memory {
        /// Where it begins.
        start: u64,
        /// What it is.
        what: OfMemory,
    },
    /// A descriptor that a copy cannot have.
    #[error("descriptor {fd} is {what}")]
    Descriptor {
        /// Its number.
        fd: i32,
        /// What it is.
        what: OfDescriptor,
    },
    /// Something that a copy cannot be.
    #[error("it {0}")]
    Process(Of),
    /// Its host, or the process that receives it, is unfit.
    #[error("{0}")]
    ByDestination(Difference),
}

/// What a process has made of itself and a copy cannot.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Of {
    /// Only privileges change that, and a copy has none.
    #[error("runs as another user or in other groups than what copies it")]
    Identity,
    /// They take privileges to be had.
    #[error("has ambient capabilities")]
    AmbientCapabilities,
    /// Files of the same name are others there.
    #[error("has another root directory (chroot)")]
    Root,
    /// The kernel does not let one be filled.
    #[error("has shadow stacks")]
    ShadowStack,
    /// Addresses of its memory mean something else without.
    #[error("has its addresses tagged (ARCH_ENABLE_TAGGED_ADDR)")]
    TaggedAddresses,
    /// They are not read.
    #[error("has segments of its own (modify_ldt)")]
    LocalSegments,
    /// What it finds there is nowhere else.
    #[error("has made a namespace of its own ({0})")]
    Namespace(&'static str),
    /// Nodes of memory are not asked about, area by area.
    #[error("has memory at {start:#x} with a policy of its own (mbind: {policy})")]
    MemoryPolicy {
        /// Where it begins.
        start: u64,
        /// As the kernel calls it.
        policy: String,
    },
}

/// Why there is no agent in a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoAgent {
    /// It has ended.
    #[error("there is no such process")]
    NoProcess,
    /// The socket's file is there, and nobody has it open.
    #[error("the program has closed all descriptors, the agent's socket with them")]
    Closed,
    /// No socket is there.
    #[error("it was not started by redclone run, or not by you")]
    NeverStarted,
}

/// Memory that is not carried.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OfMemory {
    /// Of a kind that only the kernel can make.
    #[error("{0}, which is not carried")]
    Special(String),
    /// Others write to it.
    #[error("a shared mapping of {0}")]
    SharedFile(String),
    /// It cannot be mapped before it is sealed.
    #[error("of the memfd {0:?}, which is sealed against writing")]
    Sealed(String),
    /// It is the device's.
    #[error("mapped from the device {0}")]
    Device(String),
}

/// What is not carried of descriptors.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OfDescriptor {
    /// The other end is somebody else's.
    #[error("{0}")]
    Socket(String),
    /// The other end is somebody else's.
    #[error("a pipe whose other end is in another process, pipe:[{id}]")]
    Pipe {
        /// By which the kernel tells it from others.
        id: u64,
    },
    /// It has no name by which the copy could open it.
    #[error("the deleted file {0}")]
    Deleted(String),
    /// What it does is not known.
    #[error("the device {0}")]
    Device(String),
    /// The other end is somebody else's.
    #[error("the named pipe {0}")]
    NamedPipe(String),
    /// Nobody tells its owner of what happens to it.
    #[error("{0}, which sends signals (O_ASYNC)")]
    Signalling(String),
    /// It is for one process.
    #[error("{0}, on which there is a lease")]
    Leased(String),
    /// By its name another file is found, or none.
    #[error("{0}, and that is another file by now, or none")]
    Replaced(String),
    /// Another process has it open, or nobody knows who.
    #[error("an epoll that watches a file, added as {number}, of which the process has no descriptor any more")]
    Watching {
        /// The number under which it was added.
        number: i32,
    },
    /// Something else that the kernel knows.
    #[error("{0}, which is not carried")]
    Other(String),
    /// The kernel does not say what it is.
    #[error("{link}: {error}")]
    Unread {
        /// What `/proc` calls it.
        link: String,
        /// What the system said.
        error: nix::errno::Errno,
    },
}

impl Refusal {
    /// Whether it holds as long as the process lives, so that another attempt fails too.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        matches!(self, Self::Seccomp | Self::NoFirstThread | Self::NoAgent { why: NoAgent::Closed, .. })
    }
}
