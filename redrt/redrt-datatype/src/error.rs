//! Failures of constructors and conversions.

/// The result of a constructor or a conversion.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// A contradiction in the arguments, or unconvertible data.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// A size, a displacement or an extent does not fit 64 bits.
    #[error("the datatype would be larger than 64 bits can count")]
    TooLarge,
    /// A subarray is not within its array.
    #[error("dimension {dimension}: elements {first}.. ({count}) of {length}")]
    OutsideArray {
        /// The dimension, counted from 0.
        dimension: usize,
        /// First requested element.
        first: i64,
        /// Number of requested elements.
        count: i64,
        /// Number of existing elements.
        length: i64,
    },
    /// The dimensions of a grid of processes do not multiply to the number of processes.
    #[error("a grid of {grid:?} does not have {size} processes")]
    Grid {
        /// Processes in each dimension.
        grid: Vec<i32>,
        /// Number of processes.
        size: i32,
    },
    /// A process is not one of a grid.
    #[error("there is no rank {rank} among {size}")]
    OutsideGrid {
        /// The process's rank.
        rank: i32,
        /// Number of processes.
        size: i32,
    },
    /// A dimension of an array has no elements.
    #[error("dimension {dimension}: the length is {length}")]
    Length {
        /// The dimension, counted from 0.
        dimension: usize,
        /// Length of the dimension.
        length: i64,
    },
    /// Blocks of a distribution have no elements.
    #[error("dimension {dimension}: the distribution argument is {argument}")]
    BlockLength {
        /// The dimension, counted from 0.
        dimension: usize,
        /// Elements in a block.
        argument: i64,
    },
    /// A dimension that is not distributed has more than one process.
    #[error("dimension {dimension}: {process_count} processes, but it is not distributed")]
    Undistributed {
        /// The dimension, counted from 0.
        dimension: usize,
        /// Number of processes.
        process_count: i64,
    },
    /// One block for each process does not cover the dimension.
    #[error("dimension {dimension}: {process_count} blocks of {argument} do not cover {length}")]
    Uncovered {
        /// The dimension, counted from 0.
        dimension: usize,
        /// Number of processes.
        process_count: i64,
        /// Elements in a block.
        argument: i64,
        /// Number of elements.
        length: i64,
    },
    /// A value is too large for its external32 representation.
    #[error("a value of {native_bytes} bytes does not fit {external_bytes} bytes in external32")]
    Conversion {
        /// Bytes in memory.
        native_bytes: usize,
        /// Bytes in external32.
        external_bytes: usize,
    },
    /// The external32 data ends within an element.
    #[error("the external32 data ends in the middle of an element")]
    Truncated,
}
