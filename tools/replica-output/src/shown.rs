//! Digests of a shown text, to recognize the text when it is printed again: a job that goes back to a checkpoint
//! repeats its output since, and that may differ (a clock, a random number).
//!
//! The text, and the boundary at which repeated text begins, enter; text to show leaves. Repeated text is held until it
//! completes the next piece. If the digests agree it is dropped, as it was shown. From the first differing piece on
//! everything is shown, beginning with that piece's first line: whole lines, none of them lost.
//!
//! ```text
//!              ┌─ new text: noted and shown             the piece differs: it and all that follows is shown
//!              └▶ Recording ◀──────────────────────────────────────────────┐
//!                   │   ▲ all that was shown was printed again             │
//!          go_back  ▼   │                                                  │
//!                 Comparing ── a piece is the same: left out ─▶ Comparing ─┘
//! ```
//! *Memory.* A piece is one line. With more than [`PIECES_MAX`] pieces neighbours are merged, up to `UNIT_BYTES_MAX`
//! of text: a difference is then found that much later, and up to that many equal lines are shown twice. A checkpoint
//! ([`ShownText::mark`]) stays a boundary of pieces. If all pieces have the maximum length the oldest half is
//! forgotten: after a return to a checkpoint before that, all is shown again. Nothing is lost in either case.

use super::restored::Saved;
use super::units::{UNIT_BYTES_MAX, unit_end};
use redrt_wire::checkpoint::SavedText;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use twox_hash::XxHash3_64;

/// Maximum number of digests of one text.
pub const PIECES_MAX: usize = 1 << 14;
/// Maximum number of digests of a job's texts, which its journal has too; more if there are very many texts.
pub const PIECES_OF_JOB_MAX: usize = 1 << 20;
/// Number of digests of each of very many texts.
const PIECES_MIN: usize = 1 << 8;
/// Maximum number of checkpoints whose boundaries are kept: more than a store keeps.
const MARKS_MAX: usize = 64;
/// Odd, so that multiplication loses no digest.
const DIGEST_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Successive units of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Piece {
    units: u64,
    bytes: u64,
    /// Polynomial of the units' digests, so that the digests of two pieces give that of both.
    digest: u64,
}

impl Piece {
    fn of_unit(unit: &[u8]) -> Self {
        Self { units: 1, bytes: unit.len() as u64, digest: XxHash3_64::oneshot(unit) }
    }

    fn then(self, next: Self) -> Self {
        let factor = DIGEST_FACTOR.wrapping_pow(next.units as u32);
        Self {
            units: self.units + next.units,
            bytes: self.bytes + next.bytes,
            digest: self.digest.wrapping_mul(factor).wrapping_add(next.digest),
        }
    }
}

/// Repeated text, from a boundary of pieces on.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Again {
    /// Index of the next piece.
    index: usize,
    /// Units of text before that piece.
    units: u64,
    /// Whole units of the piece that have come.
    held_piece: Piece,
    /// Bytes of those units, and of the unfinished one.
    #[serde(with = "serde_bytes")]
    held: Vec<u8>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Log {
    /// Units before the first piece.
    begin: u64,
    pieces: VecDeque<Piece>,
    pieces_max: usize,
    /// Units before the unfinished one.
    end: u64,
    /// The shown part of the unfinished unit.
    #[serde(with = "serde_bytes")]
    begun: Vec<u8>,
    /// Boundaries to keep, the oldest first.
    marks: VecDeque<u64>,
    again: Option<Again>,
    /// True if the job's previous life left no digests.
    lacks_past: bool,
    /// Set if it is unknown whether the next text was shown.
    unknown: Option<Unknown>,
}

/// Reason why digests are missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Unknown {
    /// The job's previous life left none.
    OtherLife,
    /// The digests were dropped to bound memory.
    Forgotten,
}

/// Digests of a shown text: see the module.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ShownText(Option<Log>);

/// Repeated text differs from this unit on. The text to show begins with that unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Departure {
    /// Units of text before the difference.
    pub units: u64,
    /// True if a difference is not known: the job was resumed without digests.
    pub is_resumed: bool,
}

impl ShownText {
    /// Digests for one of `text_count` texts of a job that can go back. For other jobs the [`Default`] keeps nothing.
    #[must_use]
    pub fn kept(text_count: usize) -> Self {
        Self::kept_by((PIECES_OF_JOB_MAX / text_count.max(1)).clamp(PIECES_MIN, PIECES_MAX))
    }

    /// The text was shown in another life of the job, without digests.
    #[must_use]
    pub fn lacking_past(mut self) -> Self {
        self.0.iter_mut().for_each(|log| log.lacks_past = true);
        self
    }

    /// Digests with the same limit, for a text of which nothing was shown before this unit.
    pub(super) fn empty_from(&self, units: u64) -> Self {
        let mut shown = self.0.as_ref().map_or_else(Self::default, |log| Self::kept_by(log.pieces_max));
        shown.0.iter_mut().for_each(|log| (log.begin, log.end) = (units, units));
        shown
    }

    /// Takes back the last bytes, which were not shown after all. `None` if the shown text is unknown then.
    #[must_use]
    pub fn without_last(mut self, byte_count: u64) -> Option<Self> {
        if let Some(log) = &mut self.0 {
            let begun_bytes = (log.begun.len() as u64).checked_sub(byte_count)?;
            log.begun.truncate(begun_bytes as usize);
        }
        Some(self)
    }

    pub(super) fn kept_by(pieces_max: usize) -> Self {
        Self(Some(Log {
            begin: 0,
            pieces: VecDeque::new(),
            pieces_max,
            end: 0,
            begun: Vec::new(),
            marks: VecDeque::new(),
            again: None,
            lacks_past: false,
            unknown: None,
        }))
    }

    /// Continues the text. Text to show is appended to `out`; after a departure it begins with a whole line.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<Departure> {
        let Some(log) = self.0.as_mut().filter(|_| !bytes.is_empty()) else {
            out.extend_from_slice(bytes);
            return None;
        };
        if let Some(why) = log.unknown.take() {
            let departure = Departure { units: log.end, is_resumed: why == Unknown::OtherLife };
            log.show(bytes, out);
            return Some(departure);
        }
        match &mut log.again {
            None => {
                log.show(bytes, out);
                None
            }
            Some(again) => {
                again.held.extend_from_slice(bytes);
                log.compare(out)
            }
        }
    }

    /// Ends the text. Held text may be new, so it is shown. Digests are kept for a job that is resumed.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Option<Departure> {
        let log = self.0.as_mut()?;
        // Behind all pieces, held text repeats the beginning of the unfinished unit.
        let again = log.again.take().filter(|again| again.index < log.pieces.len() && !again.held.is_empty())?;
        out.extend_from_slice(&again.held);
        Some(Departure { units: again.units, is_resumed: false })
    }

    /// Continues from the unit with this number, whose text may have been shown.
    pub fn go_back(&mut self, units: u64) {
        let Some(log) = &mut self.0 else { return };
        (log.again, log.unknown) = (None, None);
        if std::mem::take(&mut log.lacks_past) {
            return log.forget(units, Unknown::OtherLife);
        }
        match log.boundary(units) {
            Some(index) => log.again = Some(Again { index, units, held_piece: Piece::default(), held: Vec::new() }),
            None => log.forget(units, Unknown::Forgotten),
        }
    }

    /// Makes this unit a permanent boundary of pieces: the text can be gone back to from here on.
    pub fn mark(&mut self, units: u64) {
        let Some(log) = &mut self.0 else { return };
        log.marks.retain(|mark| *mark < units);
        log.marks.push_back(units);
        if log.marks.len() > MARKS_MAX {
            log.marks.pop_front();
        }
        // No return goes behind the oldest mark.
        let oldest = log.marks[0];
        while let Some(piece) = log.pieces.front().filter(|piece| log.begin + piece.units <= oldest)
            && log.again.as_ref().is_none_or(|again| again.index > 0)
        {
            log.begin += piece.units;
            log.pieces.pop_front();
            log.again.iter_mut().for_each(|again| again.index -= 1);
        }
    }

    /// State for an image of a process with this text, of which `end_bytes` have come. During a comparison it begins
    /// with the held text, since it is unknown whether that was shown.
    pub(super) fn save(&mut self, saved: Saved, end_bytes: u64) -> SavedText {
        let Saved { mut text, begin_bytes } = saved;
        if let Some(again) = self.0.as_ref().and_then(|log| log.again.as_ref()) {
            let held_begin = end_bytes - again.held.len() as u64;
            let before = begin_bytes.saturating_sub(held_begin) as usize;
            if let Some(before) = again.held.get(..before).filter(|before| !before.is_empty()) {
                text.units = again.units;
                text.lines -= memchr::memchr_iter(b'\n', before).count() as u64;
                text.column = 0;
                text.text.splice(..0, before.iter().copied());
            }
        }
        self.mark(text.units);
        text
    }
}

impl Log {
    /// Index of the piece that begins with this unit; the number of pieces for the unfinished unit.
    fn boundary(&self, units: u64) -> Option<usize> {
        let mut at = self.begin;
        for (index, piece) in self.pieces.iter().enumerate() {
            if at >= units {
                return (at == units).then_some(index);
            }
            at += piece.units;
        }
        (at == units).then_some(self.pieces.len())
    }

    /// Drops all digests: the text continues with this unit.
    fn forget(&mut self, units: u64, why: Unknown) {
        self.pieces.clear();
        self.begun.clear();
        (self.begin, self.end, self.unknown) = (units, units, Some(why));
    }

    /// Shows new text and records its digests.
    fn show(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(bytes);
        let mut rest = bytes;
        while let Some(end) = unit_end(self.begun.len(), rest) {
            let unit;
            (unit, rest) = rest.split_at(end);
            let piece = if self.begun.is_empty() {
                Piece::of_unit(unit)
            } else {
                self.begun.extend_from_slice(unit);
                Piece::of_unit(&std::mem::take(&mut self.begun))
            };
            self.end += 1;
            self.pieces.push_back(piece);
            if self.pieces.len() > self.pieces_max {
                self.coarsen();
            }
        }
        self.begun.extend_from_slice(rest);
    }

    /// Merges neighbours; if none can be merged, forgets the oldest half.
    fn coarsen(&mut self) {
        let mut all = std::mem::take(&mut self.pieces).into_iter().peekable();
        let mut at = self.begin;
        while let Some(mut piece) = all.next() {
            let fits = |next: &Piece| {
                piece.bytes + next.bytes <= UNIT_BYTES_MAX as u64 && !self.marks.contains(&(at + piece.units))
            };
            if let Some(next) = all.next_if(fits) {
                piece = piece.then(next);
            }
            at += piece.units;
            self.pieces.push_back(piece);
        }
        if self.pieces.len() > self.pieces_max / 4 * 3 {
            let oldest = self.pieces.drain(..self.pieces_max / 2);
            self.begin += oldest.map(|piece| piece.units).sum::<u64>();
        }
    }

    /// Compares held text as far as it has come.
    fn compare(&mut self, out: &mut Vec<u8>) -> Option<Departure> {
        let again = self.again.as_mut()?;
        // Offset within the held text at which the next piece begins.
        let mut begin = 0;
        while let Some(piece) = self.pieces.get(again.index) {
            let mut came = again.held_piece;
            while came.units < piece.units
                && let Some(end) = unit_end(0, &again.held[begin + came.bytes as usize..])
            {
                let from = begin + came.bytes as usize;
                came = came.then(Piece::of_unit(&again.held[from..from + end]));
            }
            again.held_piece = came;
            let is_whole = came.units == piece.units;
            let held_bytes = (again.held.len() - begin) as u64;
            if is_whole && came != *piece || !is_whole && held_bytes >= piece.bytes {
                again.held.drain(..begin);
                return Some(self.depart(out));
            }
            if !is_whole {
                again.held.drain(..begin);
                return None;
            }
            begin += piece.bytes as usize;
            again.units += piece.units;
            again.index += 1;
            again.held_piece = Piece::default();
        }
        again.held.drain(..begin);
        let common = again.held.iter().zip(&self.begun).take_while(|(one, other)| one == other).count();
        if common == self.begun.len() {
            let rest = again.held.split_off(common);
            self.again = None;
            self.show(&rest, out);
            return None;
        }
        (common < again.held.len()).then(|| self.depart(out))
    }

    /// Ends the comparison: held text differs from the shown text.
    fn depart(&mut self, out: &mut Vec<u8>) -> Departure {
        let again = self.again.take().expect("something is compared");
        self.pieces.truncate(again.index);
        self.marks.retain(|mark| *mark <= again.units);
        self.end = again.units;
        self.begun.clear();
        self.show(&again.held, out);
        Departure { units: again.units, is_resumed: false }
    }
}

#[cfg(test)]
mod tests;
