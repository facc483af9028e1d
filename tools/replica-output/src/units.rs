//! Cuts a text into units: its lines, and a line that is longer than [`UNIT_BYTES_MAX`] into parts of that size.
//!
//! Where a text is cut follows from the text alone, not from the pieces in which it arrives. So the number of units
//! before a place says the same of all texts that agree up to there.

/// A longer line is several units.
pub const UNIT_BYTES_MAX: usize = 1 << 20;

/// Where the unfinished unit ends within `bytes`, which follow the first `begun_bytes` of it; none if it does not.
pub(super) fn unit_end(begun_bytes: usize, bytes: &[u8]) -> Option<usize> {
    let room = UNIT_BYTES_MAX - begun_bytes;
    let within = &bytes[..bytes.len().min(room)];
    match memchr::memchr(b'\n', within) {
        Some(line_end) => Some(line_end + 1),
        None => (within.len() == room).then_some(room),
    }
}
