//! Reasons why a process is not copied.

use crate::difference::Difference;

/// A reason, worded to follow the name of the process.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// It has a child process: the copy would not be the child's parent.
    #[error("it has a child process, {pid} {name}")]
    Child {
        /// Process id of the child.
        pid: i32,
        /// Name of the child's program.
        name: String,
    },
    /// It runs under a seccomp filter, which a copy would lack.
    #[error("it runs under a seccomp filter")]
    Seccomp,
    /// Its first thread has ended, so `/proc` shows neither its memory nor its descriptors.
    #[error("its first thread has ended")]
    NoFirstThread,
    /// A tracer is attached: tracer and agent cannot both stop its threads.
    #[error("process {by} traces it")]
    Traced {
        /// Process id and name of the tracer.
        by: String,
    },
    /// No agent answers in it.
    #[error("process {pid} has no agent: {why}")]
    NoAgent {
        /// Id of the process.
        pid: u32,
        /// Reason why there is no agent.
        why: NoAgent,
    },
    /// The agent is of another version than this program.
    #[error("the agent in the process has version {theirs}, this program {own}")]
    AgentVersion {
        /// Version of the agent.
        theirs: u32,
        /// Version of this program.
        own: u32,
    },
    /// The agent cannot open its own `/proc/self`, so it has no descriptors to hand out.
    #[error("the agent cannot open its own /proc/self/mem: the program's first thread has ended, or /proc is hidden")]
    AgentBlind,
    /// It has memory that cannot be carried.
    #[error("memory at {start:#x} is {what}")]
    Memory {
        /// First address of the area.
        start: u64,
        /// Kind of the memory.
        what: OfMemory,
    },
    /// It has a descriptor that cannot be carried.
    #[error("descriptor {fd} is {what}")]
    Descriptor {
        /// Number of the descriptor.
        fd: i32,
        /// Kind of the descriptor.
        what: OfDescriptor,
    },
    /// It has a property of the whole process that cannot be carried.
    #[error("it {0}")]
    Process(Of),
    /// The destination, host or receiving process, is unfit.
    #[error("{0}")]
    ByDestination(Difference),
}

/// Properties of a whole process that a copy cannot have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Of {
    /// Other user or groups: changing them takes privileges that a copy lacks.
    #[error("runs as another user or in other groups than what copies it")]
    Identity,
    /// Ambient capabilities, which take privileges to obtain.
    #[error("has ambient capabilities")]
    AmbientCapabilities,
    /// Another root directory: the same path names other files at the destination.
    #[error("has another root directory (chroot)")]
    Root,
    /// Shadow stacks, whose content the kernel does not let anybody write.
    #[error("has shadow stacks")]
    ShadowStack,
    /// Tagged addresses: pointers in its memory are invalid without that mode.
    #[error("has its addresses tagged (ARCH_ENABLE_TAGGED_ADDR)")]
    TaggedAddresses,
    /// Local segments, which are not read.
    #[error("has segments of its own (modify_ldt)")]
    LocalSegments,
    /// A namespace of its own, the content of which is not carried.
    #[error("has made a namespace of its own ({0})")]
    Namespace(&'static str),
    /// A memory policy of one area: policies are carried for threads only.
    #[error("has memory at {start:#x} with a policy of its own (mbind: {policy})")]
    MemoryPolicy {
        /// First address of the area.
        start: u64,
        /// The policy as `/proc/PID/numa_maps` prints it.
        policy: String,
    },
}

/// Reason why a process has no agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoAgent {
    /// The process has ended.
    #[error("there is no such process")]
    NoProcess,
    /// The file of its socket exists, but nothing listens.
    #[error("the program has closed all descriptors, the agent's socket with them")]
    Closed,
    /// It has no socket: it was not started with an agent, or by another user.
    #[error("it was not started by redclone run, or not by you")]
    NeverStarted,
}

/// Kinds of memory that are not carried.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OfMemory {
    /// A special mapping that only the kernel can make.
    #[error("{0}, which is not carried")]
    Special(String),
    /// A shared, writable mapping of a file: other processes may write to it.
    #[error("a shared mapping of {0}")]
    SharedFile(String),
    /// A mapped memfd that is sealed against writing: it could not be filled once it is sealed.
    #[error("of the memfd {0:?}, which is sealed against writing")]
    Sealed(String),
    /// Memory of a device.
    #[error("mapped from the device {0}")]
    Device(String),
}

/// Kinds of descriptors that are not carried.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OfDescriptor {
    /// A socket: the other end does not know the copy.
    #[error("{0}")]
    Socket(String),
    /// A pipe to another process.
    #[error("a pipe whose other end is in another process, pipe:[{id}]")]
    Pipe {
        /// Inode by which the kernel identifies the pipe.
        id: u64,
    },
    /// A deleted file: no path leads to it at the destination.
    #[error("the deleted file {0}")]
    Deleted(String),
    /// A device whose state cannot be read.
    #[error("the device {0}")]
    Device(String),
    /// A named pipe: its other end is in another process.
    #[error("the named pipe {0}")]
    NamedPipe(String),
    /// A descriptor with signal-driven I/O, whose signals would not be set up in the copy.
    #[error("{0}, which sends signals (O_ASYNC)")]
    Signalling(String),
    /// A file with a lease, which belongs to one process.
    #[error("{0}, on which there is a lease")]
    Leased(String),
    /// A file whose path now leads to another file, or to none.
    #[error("{0}, and that is another file by now, or none")]
    Replaced(String),
    /// An epoll that watches a file without any descriptor left in this process.
    #[error("an epoll that watches a file, added as {number}, of which the process has no descriptor any more")]
    Watching {
        /// Descriptor number under which the file was added.
        number: i32,
    },
    /// Another kind of kernel object.
    #[error("{0}, which is not carried")]
    Other(String),
    /// A descriptor that cannot be examined.
    #[error("{link}: {error}")]
    Unread {
        /// Target of its link in `/proc/PID/fd`.
        link: String,
        /// Error of the call that failed.
        error: nix::errno::Errno,
    },
}

impl Refusal {
    /// Returns true if the reason holds as long as the process lives, so that another attempt would fail too.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        matches!(self, Self::Seccomp | Self::NoFirstThread | Self::NoAgent { why: NoAgent::Closed, .. })
    }
}
