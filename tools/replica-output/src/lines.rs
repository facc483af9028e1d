//! Cuts a process's output into whole lines, so that lines of different processes never mix.
//!
//! Bytes enter by [`LineCutter::push`], whole lines leave. The rest stays until the line is complete, the stream ends,
//! or the rest exceeds [`LINE_BYTES_MAX`].

use serde::{Deserialize, Serialize};

/// A longer line is passed on in pieces of this size.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// Collects the bytes of one stream and yields whole lines, each with a label in front.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LineCutter {
    label: String,
    partial: Vec<u8>,
    /// True if a part of the current line has left already, with the label in front.
    within_line: bool,
}

impl LineCutter {
    /// Puts `label` in front of each line.
    #[must_use]
    pub fn new(label: String) -> Self {
        Self { label, ..Self::default() }
    }

    /// Takes bytes, and appends completed lines to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            self.partial.extend_from_slice(bytes);
            if self.partial.len() >= LINE_BYTES_MAX {
                self.flush(out);
            }
            return;
        };
        let (whole, rest) = bytes.split_at(end + 1);
        self.partial.extend_from_slice(whole);
        self.flush(out);
        self.partial.extend_from_slice(rest);
    }

    /// Begins another text at the start of a line. The held part of an unfinished line is dropped; a line that was
    /// shown in part is ended.
    pub fn begin_anew(&mut self, out: &mut Vec<u8>) {
        self.partial.clear();
        if std::mem::take(&mut self.within_line) {
            out.push(b'\n');
        }
    }

    /// Bytes of the unfinished line that are held.
    #[must_use]
    pub fn partial_bytes(&self) -> u64 {
        self.partial.len() as u64
    }

    /// True if an unfinished line is held.
    #[must_use]
    pub fn has_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Releases all held bytes, even of an unfinished line.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        if self.label.is_empty() {
            if let Some(last) = self.partial.last() {
                self.within_line = *last != b'\n';
            }
            out.append(&mut self.partial);
            return;
        }
        for line in self.partial.split_inclusive(|byte| *byte == b'\n') {
            if !self.within_line {
                out.extend_from_slice(self.label.as_bytes());
            }
            out.extend_from_slice(line);
            self.within_line = !line.ends_with(b"\n");
        }
        self.partial.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_leave_and_each_is_labelled_once() {
        let mut cutter = LineCutter::new("[3] ".into());
        let mut out = Vec::new();
        for piece in ["a", "b\nc", "d\n\n", "e"] {
            cutter.push(piece.as_bytes(), &mut out);
        }
        assert_eq!(String::from_utf8_lossy(&out), "[3] ab\n[3] cd\n[3] \n");
        cutter.flush(&mut out);
        cutter.push(b"f\n", &mut out);
        assert_eq!(String::from_utf8_lossy(&out), "[3] ab\n[3] cd\n[3] \n[3] ef\n");
    }

    #[test]
    fn another_text_begins_with_a_line_of_its_own() {
        for label in ["", "[3] "] {
            let mut cutter = LineCutter::new(label.into());
            let mut out = Vec::new();
            cutter.push(b"one\nheld", &mut out);
            cutter.begin_anew(&mut out);
            cutter.push(b"two\nseen", &mut out);
            cutter.flush(&mut out);
            cutter.begin_anew(&mut out);
            cutter.push(b"three\n", &mut out);
            let right = format!("{label}one\n{label}two\n{label}seen\n{label}three\n");
            assert_eq!(String::from_utf8_lossy(&out), right);
        }
    }

    #[test]
    fn a_line_without_end_does_not_grow_without_end() {
        let mut cutter = LineCutter::default();
        let mut out = Vec::new();
        cutter.push(&vec![b'x'; LINE_BYTES_MAX + 1], &mut out);
        assert_eq!(out.len(), LINE_BYTES_MAX + 1);
        assert!(!cutter.has_partial());
    }
}
