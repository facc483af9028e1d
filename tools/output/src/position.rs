//! How far a text has come: whole lines and bytes of the line after them, with the end of that line for excerpts.

use super::mismatch::EXCERPT_BYTES_MAX;
use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct TextPosition {
    /// Whole lines.
    pub lines: u64,
    /// Bytes of the unfinished one.
    pub column: u64,
    /// The last of these bytes, half an excerpt of them.
    tail: Vec<u8>,
}

impl TextPosition {
    /// Goes on over these bytes.
    pub fn pass(&mut self, bytes: &[u8]) {
        let newlines = bytes.iter().filter(|byte| **byte == b'\n').count();
        self.lines += newlines as u64;
        let rest = match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => {
                self.column = 0;
                self.tail.clear();
                &bytes[end + 1..]
            }
            None => bytes,
        };
        self.column += rest.len() as u64;
        self.tail.extend_from_slice(&rest[rest.len().saturating_sub(EXCERPT_BYTES_MAX / 2)..]);
        self.tail.drain(..self.tail.len().saturating_sub(EXCERPT_BYTES_MAX / 2));
    }

    /// What is known of the unfinished line.
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_columns_and_the_end_of_a_long_line_are_known() {
        let mut place = TextPosition::default();
        for bytes in ["ab", "c\nde\n", "f"] {
            place.pass(bytes.as_bytes());
        }
        assert_eq!((place.lines, place.column, place.tail()), (2, 1, &b"f"[..]));
        place.pass(&[b'x'; 3 * EXCERPT_BYTES_MAX]);
        place.pass(b"yz");
        assert_eq!((place.column, place.tail().len()), (3 * EXCERPT_BYTES_MAX as u64 + 3, EXCERPT_BYTES_MAX / 2));
        assert!(place.tail().ends_with(b"xyz"));
        place.pass(b"\n");
        assert_eq!((place.lines, place.column, place.tail()), (3, 0, &b""[..]));
    }
}
