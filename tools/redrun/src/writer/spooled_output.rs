//! Output of a job that nobody sees, in order: in memory, and beyond a limit in an unnamed file.

use super::TargetIndex;
use std::io::{self, Read, Seek, SeekFrom, Write};
use tempfile::SpooledTempFile;

/// Bytes kept in memory; more go to a file.
const MEMORY_BYTES_MAX: usize = 1 << 20;
/// Limit of kept bytes. Beyond it processes are held until a console takes some.
pub const KEPT_BYTES_MAX: u64 = 1 << 30;
/// Maximum bytes of one piece.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// Header of each piece: target (1 byte), true if the job printed it (1 byte), length (4 bytes).
const HEADER_BYTES: u64 = 6;

#[derive(Debug)]
pub struct Piece {
    pub target: TargetIndex,
    /// True for output of the job, false for this program's.
    pub is_of_job: bool,
    /// The bytes not shown yet.
    pub bytes: Vec<u8>,
}

/// Kept output: see the module.
#[derive(Debug)]
pub struct SpooledOutput {
    file: SpooledTempFile,
    read_at: u64,
    write_at: u64,
    /// The piece being shown, without its shown part.
    front: Option<Piece>,
    /// Kept bytes by target.
    byte_counts: Vec<u64>,
}

impl SpooledOutput {
    /// Empty, for this number of targets.
    pub fn new(target_count: usize) -> Self {
        let file = SpooledTempFile::new(MEMORY_BYTES_MAX);
        Self { file, read_at: 0, write_at: 0, front: None, byte_counts: vec![0; target_count] }
    }

    /// True if output for this target is kept.
    pub fn has(&self, target: TargetIndex) -> bool {
        self.byte_counts[target] > 0
    }

    /// True if nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.byte_counts.iter().all(|&count| count == 0)
    }

    /// True if more can be kept.
    pub fn has_room(&self) -> bool {
        self.write_at < KEPT_BYTES_MAX
    }

    /// Keeps as much as fits one piece. Returns the number of bytes.
    ///
    /// # Errors
    /// When the disk takes nothing. Nothing is kept then.
    pub fn push(&mut self, target: TargetIndex, is_of_job: bool, bytes: &[u8]) -> io::Result<usize> {
        let piece = &bytes[..bytes.len().min(PIECE_BYTES_MAX)];
        let length = u32::try_from(piece.len()).expect("a piece is short");
        self.file.seek(SeekFrom::Start(self.write_at))?;
        self.file.write_all(&[target as u8, u8::from(is_of_job)])?;
        self.file.write_all(&length.to_le_bytes())?;
        self.file.write_all(piece)?;
        self.write_at += HEADER_BYTES + u64::from(length);
        self.byte_counts[target] += u64::from(length);
        Ok(piece.len())
    }

    /// The oldest kept piece.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn front(&mut self) -> io::Result<Option<&Piece>> {
        if self.front.is_none() && self.read_at < self.write_at {
            self.file.seek(SeekFrom::Start(self.read_at))?;
            let mut header = [0; HEADER_BYTES as usize];
            self.file.read_exact(&mut header)?;
            let [target, is_of_job, length @ ..] = header;
            let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
            self.file.read_exact(&mut bytes)?;
            self.read_at += HEADER_BYTES + bytes.len() as u64;
            self.front = Some(Piece { target: usize::from(target), is_of_job: is_of_job != 0, bytes });
        }
        Ok(self.front.as_ref())
    }

    /// Removes bytes of the front piece that were shown.
    pub fn shown(&mut self, byte_count: usize) {
        let Some(piece) = &mut self.front else { return };
        piece.bytes.drain(..byte_count);
        self.byte_counts[piece.target] -= byte_count as u64;
        if piece.bytes.is_empty() {
            self.front = None;
        }
        if self.is_empty() {
            // A new file frees the old one's space on disk.
            *self = Self::new(self.byte_counts.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_shown_in_order_also_when_it_was_much() {
        let mut kept = SpooledOutput::new(2);
        let long: Vec<u8> = (0..3 * MEMORY_BYTES_MAX).map(|at| (at % 251) as u8).collect();
        let mut rest = &long[..];
        while !rest.is_empty() {
            rest = &rest[kept.push(0, true, rest).unwrap()..];
        }
        assert_eq!(kept.push(1, false, b"between").unwrap(), 7);
        kept.push(0, true, b"last").unwrap();
        let mut shown = vec![(0, Vec::new())];
        while let Some(Piece { target, is_of_job, bytes }) = kept.front().unwrap() {
            let target = *target;
            assert_eq!(*is_of_job, target == 0);
            // Part of a piece is taken at a time.
            let count = bytes.len().div_ceil(2);
            if shown.last().unwrap().0 != target {
                shown.push((target, Vec::new()));
            }
            shown.last_mut().unwrap().1.extend_from_slice(&bytes[..count]);
            kept.shown(count);
        }
        assert!(shown == [(0, long), (1, b"between".to_vec()), (0, b"last".to_vec())]);
        assert!(kept.is_empty() && !kept.has(0));
        kept.push(1, true, b"anew").unwrap();
        assert!(kept.front().unwrap().is_some_and(|piece| piece.target == 1 && piece.bytes == b"anew"));
    }
}
