//! What a process lacks of its host.

use serde::{Deserialize, Serialize};

/// Something without which a process cannot go on, while its siblings elsewhere may have it; in words that can be a
/// line of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Lack {
    /// Its descriptors: the program has closed them.
    #[error("the program has closed all descriptors after MPI_Init, the library's with them")]
    Closed,
    /// The process of another rank, with which it shares memory.
    #[error("it shares memory with rank {rank} (MPI_Win_allocate_shared), and they are not on one host any more")]
    Neighbor {
        /// Whose process is elsewhere.
        rank: u32,
    },
    /// Memory that it is to share.
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
