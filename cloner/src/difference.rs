//! Reasons why a host, or the receiving process on it, cannot run a copy.

use serde::{Deserialize, Serialize};

/// One reason. The text is shown to the user of the source.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Difference {
    /// The image was written by another version of this program.
    #[error("the image has version {there}, this program {here}")]
    Version {
        /// Version of the image.
        there: u32,
        /// Version that this program reads.
        here: u32,
    },
    /// Not all streams of the image arrived.
    #[error("the image has {there} streams, {here} are here")]
    Streams {
        /// Number of streams that the image was sent through.
        there: u32,
        /// Number of streams that arrived.
        here: usize,
    },
    /// The receiving process did not get the process id that the copy needs: another process has it.
    #[error("process id {0} could not be had")]
    ProcessId(u32),
    /// The hosts have different processor architectures.
    #[error("the program runs on {there}, this is {here}")]
    Machine {
        /// Architecture of the source, as `uname -m` prints it.
        there: String,
        /// Architecture of this host.
        here: String,
    },
    /// The kernels use pages of different sizes.
    #[error("pages of {there} bytes there, of {here} here")]
    PageSize {
        /// Bytes of a page in the source.
        there: u64,
        /// Bytes of a page on this host.
        here: u64,
    },
    /// Flags of `/proc/cpuinfo` that the source has and this processor lacks: the program may rely on them.
    #[error("this processor lacks {}", .0.join(", "))]
    Processor(Vec<String>),
    /// The kernel saves other register sets, or saves them at other offsets: signal frames would not fit.
    #[error("the system saves other registers: {there:#x} there, {here:#x} here")]
    Registers {
        /// XCR0 of the source.
        there: u64,
        /// XCR0 of this host.
        here: u64,
    },
    /// The vdso has other code: a thread of the program may be stopped in the middle of it.
    #[error("the kernel lends other code (vdso) than {release}")]
    Vdso {
        /// Kernel release of the source, as `uname -r` prints it.
        release: String,
    },
    /// A mapped file that is missing here or has other content. Mapped files are not part of the image.
    #[error("{path} is not here, or not what it was")]
    File {
        /// Path of the file in the source.
        path: String,
    },
}
