//! Cuts a text into units: its lines, and parts of [`UNIT_BYTES_MAX`] of longer lines.
//!
//! Cuts follow from the text alone, not from the pieces in which it arrives. So the number of units before a place is
//! the same for all texts that agree up to there.

/// Maximum length of a unit; longer lines are several units.
pub const UNIT_BYTES_MAX: usize = 1 << 20;

/// End of the unfinished unit within `bytes`, which follow its first `begun_bytes`. `None` if it does not end there.
pub(super) fn unit_end(begun_bytes: usize, bytes: &[u8]) -> Option<usize> {
    let room = UNIT_BYTES_MAX - begun_bytes;
    let within = &bytes[..bytes.len().min(room)];
    match memchr::memchr(b'\n', within) {
        Some(line_end) => Some(line_end + 1),
        None => (within.len() == room).then_some(room),
    }
}
