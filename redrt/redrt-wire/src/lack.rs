//! Resources of its host that a process lacks.

use serde::{Deserialize, Serialize};

/// A resource without which a process cannot go on, while its siblings elsewhere may have it. Its text can be a line of
/// its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Lack {
    /// Its descriptors: the program has closed them.
    #[error("the program has closed all descriptors after MPI_Init, the library's with them")]
    Closed,
    /// A process of another rank, with which it shares memory.
    #[error("it shares memory with rank {rank} (MPI_Win_allocate_shared), and they are not on one host any more")]
    Neighbor {
        /// Rank of that process, which is elsewhere.
        rank: u32,
    },
    /// Memory that it has to share.
    #[error("cannot map memory that ranks share: {}", std::io::Error::from_raw_os_error(*.errno))]
    SharedMemory {
        /// The system's error.
        errno: i32,
    },
    /// A connection with other processes: descriptors or memory for it.
    #[error("cannot connect to other processes: {}", std::io::Error::from_raw_os_error(*.errno))]
    Connection {
        /// The system's error.
        errno: i32,
    },
}
