//! A bit that `--inject stdout:V.I@#K` flips in a replica's output.
//!
//! The place is counted in lines, because the division of a text into pieces depends on timing. One of the line's first
//! bytes is hit; in a shorter line its end.

use redrt_wire::fault::ProcessFault;

/// Number of first bytes of a line from which one is drawn.
const BYTES_DRAWN_FROM: u64 = 24;

/// A flip to be made: see the module.
#[derive(Debug)]
pub struct Corruption {
    /// Lines that must pass before.
    lines_left: u64,
    /// Bytes of the line that must pass before, unless the line ends earlier.
    bytes_left: u64,
    bit: u32,
    line: u64,
    asked: ProcessFault,
}

impl Corruption {
    /// The flip of this fault. `None` if the fault is of another kind.
    #[must_use]
    pub fn of(fault: &ProcessFault) -> Option<Self> {
        let ProcessFault::FlipOutput { line, bit } = *fault else { return None };
        let (byte, bit) = (bit / 8 % BYTES_DRAWN_FROM, (bit % 8) as u32);
        Some(Self { lines_left: line.saturating_sub(1), bytes_left: byte, bit, line, asked: *fault })
    }

    /// The fault to report once the bit has flipped.
    #[must_use]
    pub fn asked(&self) -> ProcessFault {
        self.asked
    }

    /// Lets output pass. Changes the byte if it is among these, and returns a description then.
    pub fn pass(&mut self, bytes: &mut [u8]) -> Option<String> {
        for byte in bytes {
            if self.lines_left > 0 {
                self.lines_left -= u64::from(*byte == b'\n');
            } else if self.bytes_left > 0 && *byte != b'\n' {
                self.bytes_left -= 1;
            } else {
                *byte ^= 1 << self.bit;
                return Some(format!("bit {} of a byte of line {} of standard output flipped", self.bit, self.line));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corrupted(text: &str, line: u64, bit: u64, piece_bytes: usize) -> (String, usize) {
        let mut corruption = Corruption::of(&ProcessFault::FlipOutput { line, bit }).expect("it is of this kind");
        let mut text = text.as_bytes().to_vec();
        let mut flips = 0;
        for piece in text.chunks_mut(piece_bytes) {
            // One flip is enough: the daemon drops the fault after it.
            if flips == 0 {
                flips += usize::from(corruption.pass(piece).is_some());
            }
        }
        (String::from_utf8_lossy(&text).into_owned(), flips)
    }

    #[test]
    fn one_bit_of_the_line_is_flipped_however_the_text_is_cut() {
        for piece_bytes in [1, 2, 5, 100] {
            assert_eq!(corrupted("abc\ndef\n", 2, 8, piece_bytes), ("abc\nddf\n".into(), 1));
            assert_eq!(corrupted("abc\ndef\n", 1, 8 * 20 + 1, piece_bytes), ("abc\x08def\n".into(), 1));
            assert_eq!(corrupted("abc\ndef\n", 3, 0, piece_bytes), ("abc\ndef\n".into(), 0));
        }
        assert!(Corruption::of(&ProcessFault::Kill { send: 1 }).is_none());
    }
}
