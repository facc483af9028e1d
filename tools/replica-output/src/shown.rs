//! What was shown of a text, by digests, and the same text when it is printed again: a job that goes back to a
//! checkpoint prints anew what it had printed since, and that may be another text (a clock, a random number).
//!
//! Enters: the text, and the boundary at which a text that is printed again begins. Leaves: what is to be shown. What
//! is printed again is held until it makes up the next piece of what was shown. If the digests agree it is left out: it
//! was shown. From the first piece that differs on all is shown, beginning with its first line: whole lines, and none
//! is lost.
//!
//! ```text
//!              ┌─ new text: noted and shown             the piece differs: it and all that follows is shown
//!              └▶ Recording ◀──────────────────────────────────────────────┐
//!                   │   ▲ all that was shown was printed again             │
//!          go_back  ▼   │                                                  │
//!                 Comparing ── a piece is the same: left out ─▶ Comparing ─┘
//! ```
//! *Memory.* A piece is one line. With more than [`PIECES_MAX`] of them neighbours are put together, up to
//! [`UNIT_BYTES_MAX`] of text: a difference is then found that much later, and that many lines that are the same come
//! again. A checkpoint ([`ShownText::mark`]) stays a boundary of pieces. If all pieces are as long as that, the oldest
//! half is forgotten: after a return to a checkpoint before that, all is shown again. Nothing is lost in either case.

use super::restored::Saved;
use super::units::{UNIT_BYTES_MAX, unit_end};
use redrt_wire::line::SavedText;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use twox_hash::XxHash3_64;

/// Digests kept of one text …
pub const PIECES_MAX: usize = 1 << 14;
/// … and of all texts of a job, which its journal has too, unless it has very many texts.
pub const PIECES_OF_JOB_MAX: usize = 1 << 20;
/// Of very many texts, each has so many.
const PIECES_MIN: usize = 1 << 8;
/// Checkpoints whose boundaries are kept: more than a store keeps.
const MARKS_MAX: usize = 64;
/// Odd, so that no digest is multiplied to nothing.
const DIGEST_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Some units of the text, one after another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Piece {
    units: u64,
    bytes: u64,
    /// A polynomial of the digests of the units: those of two pieces make that of both.
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

/// A text that is printed again, at a boundary of pieces.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Again {
    /// The piece that comes next.
    index: usize,
    /// Units before it.
    units: u64,
    /// What has come of it: whole units …
    held_piece: Piece,
    /// … and their bytes, with what follows them.
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
    /// The unfinished one, as far as it was shown.
    #[serde(with = "serde_bytes")]
    begun: Vec<u8>,
    /// Boundaries that are kept, the oldest first.
    marks: VecDeque<u64>,
    again: Option<Again>,
    /// The last life of the job has left nothing to compare with.
    lacks_past: bool,
    /// Nobody knows whether what comes next was shown.
    unknown: Option<Unknown>,
}

/// Why it is not known what was shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Unknown {
    /// The last life of the job has left nothing to compare with.
    OtherLife,
    /// It was forgotten.
    Forgotten,
}

/// See the module.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ShownText(Option<Log>);

/// What is printed again is another text from this unit on. What is to be shown begins with that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Departure {
    /// Units before it.
    pub units: u64,
    /// It is not known to be another text: a job was resumed that has left nothing to compare with.
    pub is_resumed: bool,
}

impl ShownText {
    /// One of so many texts of a job that can go back. Of one that cannot, nothing is kept ([`Default`]).
    #[must_use]
    pub fn kept(text_count: usize) -> Self {
        Self::kept_by((PIECES_OF_JOB_MAX / text_count.max(1)).clamp(PIECES_MIN, PIECES_MAX))
    }

    /// It was shown in another life of the job, of which nothing is known.
    #[must_use]
    pub fn lacking_past(mut self) -> Self {
        self.0.iter_mut().for_each(|log| log.lacks_past = true);
        self
    }

    /// As much is kept as of this, of a text of which nothing was shown before this unit.
    pub(super) fn empty_from(&self, units: u64) -> Self {
        let mut shown = self.0.as_ref().map_or_else(Self::default, |log| Self::kept_by(log.pieces_max));
        shown.0.iter_mut().for_each(|log| (log.begin, log.end) = (units, units));
        shown
    }

    /// The last bytes were not shown after all. None if it is not known what was shown then.
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

    /// The text goes on with `bytes`. What is to be shown is appended to `out`: if the text has departed from what was
    /// shown, beginning with a line that is to be shown whole.
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

    /// The text ends here: what is held of it was perhaps not shown. What was shown before stays known, for a job that
    /// is resumed.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Option<Departure> {
        let log = self.0.as_mut()?;
        // What is held at the end of all pieces is how the unfinished unit begins.
        let again = log.again.take().filter(|again| again.index < log.pieces.len() && !again.held.is_empty())?;
        out.extend_from_slice(&again.held);
        Some(Departure { units: again.units, is_resumed: false })
    }

    /// What is printed from now on begins with the unit of this number, and was perhaps shown.
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

    /// The text can be gone back to from here on: this is a boundary of pieces, and stays one.
    pub fn mark(&mut self, units: u64) {
        let Some(log) = &mut self.0 else { return };
        log.marks.retain(|mark| *mark < units);
        log.marks.push_back(units);
        if log.marks.len() > MARKS_MAX {
            log.marks.pop_front();
        }
        // Nobody goes back to before the oldest of them.
        let oldest = log.marks[0];
        while let Some(piece) = log.pieces.front().filter(|piece| log.begin + piece.units <= oldest)
            && log.again.as_ref().is_none_or(|again| again.index > 0)
        {
            log.begin += piece.units;
            log.pieces.pop_front();
            log.again.iter_mut().for_each(|again| again.index -= 1);
        }
    }

    /// An image is made of a process whose text this is; `end_bytes` of it have come. While they are compared it begins
    /// with what is held, of which nobody knows whether it was shown.
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
    /// The piece that begins with the unit of this number; the number of pieces for the unfinished unit.
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

    /// What was shown is of no use: the text goes on with the unit of this number.
    fn forget(&mut self, units: u64, why: Unknown) {
        self.pieces.clear();
        self.begun.clear();
        (self.begin, self.end, self.unknown) = (units, units, Some(why));
    }

    /// New text.
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

    /// Puts neighbours together; if there is nothing to put together, forgets the oldest.
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

    /// Compares what is held, as far as it has come.
    fn compare(&mut self, out: &mut Vec<u8>) -> Option<Departure> {
        let again = self.again.as_mut()?;
        // Within what is held: where the piece that comes next begins.
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

    /// What is held is another text than was shown.
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
