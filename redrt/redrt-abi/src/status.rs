//! `MPI_Status`.

use super::{MPI_UNDEFINED, Output};
use std::ffi::c_int;

/// `MPI_Status` of the standard ABI: three public ints and five of the library's. The Fortran status has the same
/// layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Status {
    /// `MPI_SOURCE`.
    pub source: c_int,
    /// `MPI_TAG`.
    pub tag: c_int,
    /// `MPI_ERROR`.
    pub error: c_int,
    /// Bytes (two halves, low first), cancelled, unused, unused.
    internal: [c_int; 5],
}

impl Status {
    /// A message of `byte_count` bytes from `source` with `tag`; no error, not cancelled.
    #[must_use]
    pub fn new(source: c_int, tag: c_int, byte_count: u64) -> Self {
        let mut status = Self { source, tag, error: 0, internal: [0; 5] };
        status.set_byte_count(byte_count);
        status
    }

    /// The empty status (MPI-5.0 section 3.7.3): any source, any tag, nothing received.
    #[must_use]
    pub fn empty() -> Self {
        Self::new(super::MPI_ANY_SOURCE, super::MPI_ANY_TAG, 0)
    }

    /// The status of a receive from `MPI_PROC_NULL` (section 3.10).
    #[must_use]
    pub fn proc_null() -> Self {
        Self::new(super::MPI_PROC_NULL, super::MPI_ANY_TAG, 0)
    }

    /// Bytes received.
    #[must_use]
    pub fn byte_count(&self) -> u64 {
        u64::from(self.internal[0] as u32) | u64::from(self.internal[1] as u32) << 32
    }

    /// Sets the bytes received.
    pub fn set_byte_count(&mut self, byte_count: u64) {
        self.internal[0] = byte_count as u32 as c_int;
        self.internal[1] = (byte_count >> 32) as u32 as c_int;
    }

    /// Returns true if the operation was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.internal[2] != 0
    }

    /// Marks the operation as cancelled or not.
    pub fn set_cancelled(&mut self, cancelled: bool) {
        self.internal[2] = c_int::from(cancelled);
    }
}

impl Output<Status> {
    /// Writes the outcome of one operation, unless the pointer is null. The call itself returns the error.
    pub fn set_outcome(&self, outcome: Status) {
        // MPI-5.0 section 3.2.5: message-passing calls leave the error field unmodified, except those that complete
        // several operations. An empty status has MPI_SUCCESS there, and is not written here (section 3.7.3).
        if !self.is_null()
            && let Ok(Status { error, .. }) = self.get()
        {
            self.set_if_wanted(Status { error, ..outcome });
        }
    }
}

/// `value` if it fits a C `int`, else `MPI_UNDEFINED`.
#[must_use]
pub fn int_or_undefined(value: i64) -> c_int {
    c_int::try_from(value).unwrap_or(MPI_UNDEFINED)
}
