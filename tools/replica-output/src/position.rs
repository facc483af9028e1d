//! Position in a text: whole lines and units, and the unfinished unit behind them.

use super::mismatch::EXCERPT_BYTES_MAX;
use super::units::unit_end;
use redrt_wire::checkpoint::SavedText;
use serde::{Deserialize, Serialize};

/// Position: see the module.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct TextPosition {
    /// Number of whole lines.
    pub lines: u64,
    /// Bytes of the unfinished line.
    pub column: u64,
    /// Number of whole units.
    pub units: u64,
    /// Bytes of the unfinished unit.
    #[serde(with = "serde_bytes")]
    begun: Vec<u8>,
}

impl TextPosition {
    /// The boundary at which a saved text begins.
    pub fn before(saved: &SavedText) -> Self {
        Self { lines: saved.lines, column: saved.column, units: saved.units, begun: Vec::new() }
    }

    /// Advances over these bytes.
    pub fn pass(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(end) = unit_end(self.begun.len(), rest) {
            let unit;
            (unit, rest) = rest.split_at(end);
            self.units += 1;
            if unit.ends_with(b"\n") {
                self.lines += 1;
                self.column = 0;
            } else {
                self.column += unit.len() as u64;
            }
            self.begun.clear();
        }
        self.column += rest.len() as u64;
        self.begun.extend_from_slice(rest);
    }

    /// Bytes of the unfinished unit.
    pub fn begun(&self) -> &[u8] {
        &self.begun
    }

    /// End of the unfinished unit, half an excerpt at most.
    pub fn tail(&self) -> &[u8] {
        &self.begun[self.begun.len().saturating_sub(EXCERPT_BYTES_MAX / 2)..]
    }

    /// State for an image of a text up to here. `pending`: output behind this position.
    pub fn saved(&self, pending: impl Iterator<Item = u8>) -> SavedText {
        SavedText {
            units: self.units,
            lines: self.lines,
            column: self.column - self.begun.len() as u64,
            text: self.begun.iter().copied().chain(pending).collect(),
            ..SavedText::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::units::UNIT_BYTES_MAX;
    use super::*;

    #[test]
    fn lines_columns_and_the_end_of_a_long_line_are_known() {
        let mut place = TextPosition::default();
        for bytes in ["ab", "c\nde\n", "f"] {
            place.pass(bytes.as_bytes());
        }
        assert_eq!((place.lines, place.column, place.begun()), (2, 1, &b"f"[..]));
        place.pass(&[b'x'; 3 * EXCERPT_BYTES_MAX]);
        place.pass(b"yz");
        assert_eq!((place.column, place.tail().len()), (3 * EXCERPT_BYTES_MAX as u64 + 3, EXCERPT_BYTES_MAX / 2));
        assert!(place.tail().ends_with(b"xyz"));
        place.pass(b"\n");
        assert_eq!((place.lines, place.units, place.column, place.tail()), (3, 3, 0, &b""[..]));
    }

    #[test]
    fn a_very_long_line_is_cut_at_the_same_bytes_however_it_arrives() {
        let mut line = vec![b'x'; 2 * UNIT_BYTES_MAX + 5];
        line.extend(b"\nnext");
        for piece_bytes in [1000, UNIT_BYTES_MAX - 1, UNIT_BYTES_MAX, line.len()] {
            let mut place = TextPosition::default();
            for piece in line[..2 * UNIT_BYTES_MAX + 5].chunks(piece_bytes) {
                place.pass(piece);
            }
            let saved = place.saved(b"yy".iter().copied());
            assert_eq!((saved.units, saved.lines, saved.column), (2, 0, 2 * UNIT_BYTES_MAX as u64));
            assert_eq!(saved.text, b"xxxxxyy");
            place.pass(&line[2 * UNIT_BYTES_MAX + 5..]);
            assert_eq!((place.units, place.lines, place.column, place.begun()), (3, 1, 4, &b"next"[..]));
        }
    }
}
