//! What makes a host, or a process there, unfit for a copy.

use serde::{Deserialize, Serialize};

/// One of the reasons.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Difference {
    /// The image is of another version of this program.
    #[error("the image has version {there}, this program {here}")]
    Version {
        /// Of the image.
        there: u32,
        /// Of this program.
        here: u32,
    },
    /// Streams are missing.
    #[error("the image has {there} streams, {here} are here")]
    Streams {
        /// Which it has.
        there: u32,
        /// Which arrived.
        here: usize,
    },
    /// Another process has it.
    #[error("process id {0} could not be had")]
    ProcessId(u32),
    /// Another kind of processor.
    #[error("the program runs on {there}, this is {here}")]
    Machine {
        /// Of the source.
        there: String,
        /// Of this host.
        here: String,
    },
    /// The kernel has other pages.
    #[error("pages of {there} bytes there, of {here} here")]
    PageSize {
        /// Of the source.
        there: u64,
        /// Of this host.
        here: u64,
    },
    /// The program may use what this processor cannot do.
    #[error("this processor lacks {}", .0.join(", "))]
    Processor(Vec<String>),
    /// Sets of registers, or where they are in the saved state.
    #[error("the system saves other registers: {there:#x} there, {here:#x} here")]
    Registers {
        /// Of the source.
        there: u64,
        /// Of this host.
        here: u64,
    },
    /// The program may be within that code.
    #[error("the kernel lends other code (vdso) than {release}")]
    Vdso {
        /// The kernel of the source.
        release: String,
    },
    /// A file that is mapped, and not part of the image.
    #[error("{path} is not here, or not what it was")]
    File {
        /// The file.
        path: String,
    },
}
