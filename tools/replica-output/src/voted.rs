//! Standard output of a rank as its replicas agree on it, for `--stdout=voted`.
//!
//! A byte is shown, once, when more than half of the counting replicas have printed it at that place: at r = 2 both, at
//! r = 3 two, so that a slow or stopped third one delays nothing. A copy and its source count as one where they agree
//! ([`Kinship`]): a fault in the source's memory makes both print the same wrong byte. Shown text is kept until the
//! other replicas were compared with it; one that differs is outvoted. If no majority is possible any more, the side of
//! the longest-serving replica is shown, and no replica is blamed.
//!
//! ```text
//!            prints what is shown
//!              ┌────────┐     differs       own line and the shown one have ended
//!              └▶ Counting ──────────▶ Astray ──────────────────────────────────▶ Counting
//!                   │   ▲ the others are lost   │ too many lines in a row
//!                   │   └───────────────────────┴─▶ Ignored
//!                   └── lost ─▶ Lost
//! ```
//! *One wrong byte is one finding.* After it, a replica is compared again from the next line on, whatever the length of
//! the wrong one. A line end that flips to another byte, or the reverse, is the exception: there the text goes on at
//! the next byte.
//!
//! *The end of an output means two things.* A lost replica's siblings owe the part that it had not printed yet, and
//! will also print what it had printed beyond them. If it ended well, a shorter output is a difference like any other.
//! Hence `lose` and `end` are separate, and the caller must know which it is. The copy of a program that a script
//! started has a third end, `stop`: its siblings' scripts print on.
//!
//! *Memory.* Shown text is kept up to [`HISTORY_BYTES_MAX`]. A replica that is further behind is not compared where the
//! text is gone, and a finding says so. Output that is not agreed on yet is bounded by the caller
//! ([`VotedStream::ahead_bytes`]).

use super::mismatch::{EXCERPT_BYTES_MAX, Finding, OutputMismatch, Side};
use super::position::TextPosition;
use super::printed::Printed;
use super::restored::{Restored, Saved};
use redrt_types::{Kinship, ReplicaIndex, ReplicaSet};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Bytes of shown text kept for replicas that have not printed it yet.
pub(super) const HISTORY_BYTES_MAX: usize = 8 << 20;
/// Number of differing lines in a row after which a replica is not compared any more.
pub(super) const MISSES_MAX: u32 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum State {
    Counting,
    /// The source differs, and is compared again from the next line on.
    Astray {
        /// True once its own line has ended.
        own_line_ended: bool,
        /// The shown line ends at this offset or later.
        from: u64,
    },
    /// Not compared any more, and followed only if no other replica is left.
    Ignored,
    Lost,
}

/// A line end on one side only.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Split {
    shown: u8,
    was_own: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Source {
    index: ReplicaIndex,
    state: State,
    /// Offset in the shown text up to which it was compared; its output behind that is pending.
    offset: u64,
    place: TextPosition,
    printed: Printed,
    has_ended: bool,
    /// True if output of the others behind its end is not expected of it.
    is_excused: bool,
    /// Differing lines in a row.
    misses: u32,
    /// Set if the byte just before was a line end on one side only.
    split: Option<Split>,
}

impl Source {
    fn new(index: ReplicaIndex) -> Self {
        Self {
            index,
            state: State::Counting,
            offset: 0,
            place: TextPosition::default(),
            printed: Printed::default(),
            has_ended: false,
            is_excused: false,
            misses: 0,
            split: None,
        }
    }

    fn counts(&self) -> bool {
        self.state == State::Counting
    }

    /// The next byte, or `Some(None)` at the end of the output. `None` while that is unknown.
    fn vote(&self) -> Option<Option<u8>> {
        match self.printed.pending.front() {
            Some(byte) => Some(Some(*byte)),
            None if self.has_ended => Some(None),
            None => None,
        }
    }

    /// Takes `count` pending bytes that agree with the shown text.
    fn agree(&mut self, count: usize) {
        let (front, back) = self.printed.pending.as_slices();
        let (front, back) = (&front[..count.min(front.len())], &back[..count.saturating_sub(front.len())]);
        if front.is_empty() {
            return;
        }
        if let Some(split) = self.split.take() {
            self.place.pass(&[split.shown]);
        }
        let lines = self.place.lines;
        self.place.pass(front);
        self.place.pass(back);
        self.printed.pending.drain(..count);
        self.offset += count as u64;
        if self.place.lines > lines {
            self.misses = 0;
        }
    }

    /// The source's line as far as it is known, around the compared place.
    fn excerpt(&self) -> Vec<u8> {
        excerpt(&self.place, self.printed.pending.iter().copied())
    }
}

/// The kept end of the line before `place`, and `rest` up to the line's end.
fn excerpt(place: &TextPosition, rest: impl Iterator<Item = u8>) -> Vec<u8> {
    let mut text = place.tail().to_vec();
    text.extend(rest.take_while(|byte| *byte != b'\n').take(EXCERPT_BYTES_MAX / 2));
    text
}

/// Stream of agreed output: see the module.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct VotedStream {
    /// In order of leadership.
    sources: Vec<Source>,
    /// Replicas that descend from one unproven image.
    kinship: Kinship,
    /// The last part of the shown text.
    history: VecDeque<u8>,
    shown: TextPosition,
    shown_bytes: u64,
    /// True: a difference without a possible majority stops the output.
    stops_undecided: bool,
    has_stopped: bool,
    findings: VecDeque<Finding>,
}

impl VotedStream {
    pub fn new(replicas: impl IntoIterator<Item = ReplicaIndex>, stops_undecided: bool) -> Self {
        Self {
            sources: replicas.into_iter().map(Source::new).collect(),
            kinship: Kinship::default(),
            history: VecDeque::new(),
            shown: TextPosition::default(),
            shown_bytes: 0,
            stops_undecided,
            has_stopped: false,
            findings: VecDeque::new(),
        }
    }

    /// See [`super::sphere_stream::SphereStream::go_back`].
    pub fn go_back(&mut self, replicas: &[Restored], out: &mut Vec<u8>) {
        self.history.clear();
        // Replicas that have differed are alike again.
        self.has_stopped = false;
        let source = |restored: &Restored| Source {
            offset: self.shown_bytes,
            place: TextPosition::before(&restored.output),
            printed: Printed::restored(restored),
            ..Source::new(restored.index)
        };
        self.sources = replicas.iter().map(source).collect();
        if let Some(first) = self.sources.first() {
            self.shown = first.place.clone();
        }
        self.work(out);
    }

    pub fn shown_bytes(&self) -> u64 {
        self.shown_bytes
    }

    /// See [`super::sphere_stream::SphereStream::saved`].
    pub fn saved(&self, replica: ReplicaIndex) -> Option<Saved> {
        let source = self.sources.iter().find(|source| source.index == replica)?;
        let begin_bytes = source.offset.saturating_sub(source.place.begun().len() as u64);
        Some(Saved { text: source.printed.saved(&source.place), begin_bytes })
    }

    /// Sets which replicas descend from one unproven image.
    pub fn set_kinship(&mut self, kinship: &Kinship, out: &mut Vec<u8>) {
        self.kinship = kinship.clone();
        self.work(out);
    }

    /// Number of independent faults that would make all of these print the same wrong text.
    fn weight(&self, replicas: impl Iterator<Item = ReplicaIndex>) -> usize {
        let counting: ReplicaSet = self.counting().map(|source| source.index).collect();
        self.kinship.weight(replicas.collect(), counting)
    }

    fn counting(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| source.counts())
    }

    /// Bytes by which `replica` is ahead of the shown text.
    pub fn ahead_bytes(&self, replica: ReplicaIndex) -> usize {
        self.sources.iter().find(|source| source.index == replica).map_or(0, |source| source.printed.pending.len())
    }

    pub fn poll_finding(&mut self) -> Option<Finding> {
        self.findings.pop_front()
    }

    pub fn push(&mut self, replica: ReplicaIndex, bytes: &[u8], out: &mut Vec<u8>) {
        let Some(source) = self.sources.iter_mut().find(|source| source.index == replica) else { return };
        if matches!(source.state, State::Lost | State::Ignored) || self.has_stopped {
            source.place.pass(bytes);
            return source.printed.pass(bytes);
        }
        source.printed.push(bytes);
        self.work(out);
    }

    /// Removes a lost replica: the others do not wait for it. The last counting one is kept, so that its output before
    /// its death is shown.
    pub fn lose(&mut self, replica: ReplicaIndex, out: &mut Vec<u8>) {
        if self.remove(replica) {
            self.work(out);
        }
    }

    /// Removes a replica unless it is the last counting one. True if it was removed.
    fn remove(&mut self, replica: ReplicaIndex) -> bool {
        if self.sources.iter().all(|source| source.index == replica || !source.counts()) && !self.find_heir(replica) {
            return false;
        }
        if let Some(source) = self.sources.iter_mut().find(|source| source.index == replica) {
            source.state = State::Lost;
            source.printed.pending = VecDeque::new();
        }
        true
    }

    /// Ends the output of a replica that was not lost.
    pub fn end(&mut self, replica: ReplicaIndex, out: &mut Vec<u8>) {
        if let Some(source) = self.sources.iter_mut().find(|source| source.index == replica) {
            source.has_ended = true;
        }
        self.work(out);
    }

    /// Ends the output of a replica whose siblings may print on: it counts up to here.
    pub fn stop(&mut self, replica: ReplicaIndex, out: &mut Vec<u8>) {
        if let Some(source) = self.sources.iter_mut().find(|source| source.index == replica) {
            source.is_excused = true;
        }
        self.work(out);
    }

    /// Removes stopped replicas whose output was compared to the end. True if there were any.
    fn dismiss(&mut self) -> bool {
        let is_done = |source: &Source| source.is_excused && source.counts() && source.printed.pending.is_empty();
        let done: Vec<_> = self.sources.iter().filter(|source| is_done(source)).map(|source| source.index).collect();
        let mut has_left = false;
        for replica in done {
            has_left |= self.remove(replica);
        }
        has_left
    }

    /// Adds a copy of `source`, made when that had printed `printed_bytes`.
    pub fn join(&mut self, replica: ReplicaIndex, source: ReplicaIndex, printed_bytes: u64, out: &mut Vec<u8>) {
        let mut newcomer = Source::new(replica);
        newcomer.printed = Printed::of_newcomer(printed_bytes);
        newcomer.state = State::Ignored;
        if let Some(from) = self.sources.iter().find(|other| other.index == source) {
            let is_followed = match from.state {
                State::Counting => true,
                State::Astray { own_line_ended, .. } => own_line_ended && from.printed.reaches_back_to(printed_bytes),
                State::Ignored | State::Lost => false,
            };
            if is_followed {
                // The source's output since the copy is compared once only, as the source's.
                newcomer.state = from.state;
                newcomer.offset = from.offset;
                newcomer.place = from.place.clone();
                newcomer.split = from.split;
                newcomer.printed = from.printed.copied_at(printed_bytes);
            }
        }
        self.sources.retain(|other| other.index != replica);
        self.sources.push(newcomer);
        self.work(out);
    }

    /// Before the only counting source is lost: makes another one count, if there is one, even if it was not followed.
    /// The new source continues at the end of the shown text.
    fn find_heir(&mut self, lost: ReplicaIndex) -> bool {
        let heirs = |source: &&mut Source| source.index != lost && source.state != State::Lost;
        let Some(heir) = self.sources.iter_mut().find(heirs) else { return false };
        heir.state = State::Counting;
        heir.offset = self.shown_bytes;
        heir.place = self.shown.clone();
        (heir.printed.late_bytes, heir.split) = (0, None);
        true
    }

    fn work(&mut self, out: &mut Vec<u8>) {
        loop {
            let has_moved = self.realign() | self.catch_up() | self.dismiss();
            if self.has_stopped || !(self.show(out) || self.settle(out) || has_moved) {
                break;
            }
        }
        self.trim();
    }

    /// Brings sources back whose line has ended, along with the shown one. True if there were any.
    fn realign(&mut self) -> bool {
        let begin = self.shown_bytes - self.history.len() as u64;
        let mut has_come_back = false;
        for source in &mut self.sources {
            let State::Astray { own_line_ended, from } = &mut source.state else { continue };
            if !*own_line_ended {
                let end = source.printed.pending.iter().position(|byte| *byte == b'\n');
                let line = source.printed.pending.drain(..end.map_or(source.printed.pending.len(), |end| end + 1));
                source.place.pass(&line.collect::<Vec<_>>());
                *own_line_ended = end.is_some() || source.has_ended;
            }
            if !*own_line_ended {
                continue;
            }
            let seen = (*from).max(begin);
            match self.history.range((seen - begin) as usize..).position(|byte| *byte == b'\n') {
                Some(end) => {
                    source.state = State::Counting;
                    source.offset = seen + end as u64 + 1;
                    if source.place.column > 0 {
                        // The source's output has ended within the line.
                        source.place.pass(b"\n");
                    }
                    has_come_back = true;
                }
                None => *from = self.shown_bytes,
            }
        }
        has_come_back
    }

    /// Compares sources that are behind with the shown text. True if one differs.
    fn catch_up(&mut self) -> bool {
        let mut differs = false;
        let begin = self.shown_bytes - self.history.len() as u64;
        for at in 0..self.sources.len() {
            let source = &mut self.sources[at];
            if !source.counts() || source.offset >= self.shown_bytes {
                continue;
            }
            let shown = self.history.range((source.offset - begin) as usize..);
            let count = shown.zip(&source.printed.pending).take_while(|(shown, own)| shown == own).count();
            source.agree(count);
            let source = &self.sources[at];
            if source.offset < self.shown_bytes && source.vote().is_some() {
                self.outvote(at);
                differs = true;
            }
        }
        differs
    }

    /// Handles a source that differs from shown text: the others have decided.
    fn outvote(&mut self, at: usize) {
        let begin = self.shown_bytes - self.history.len() as u64;
        let source = &self.sources[at];
        let next = (source.offset - begin) as usize;
        let agree = |other: &&Source| other.counts() && other.offset > source.offset;
        let others: Vec<_> = self.sources.iter().filter(agree).map(|other| other.index).collect();
        let is_majority = self.weight(others.iter().copied()) > self.counting().count() - others.len();
        let shown = Side {
            replicas: others,
            text: excerpt(&source.place, self.history.range(next..).copied()),
            has_ended: false,
        };
        let byte = self.history[next];
        let culprit = is_majority.then_some(source.index);
        self.differ(shown, &[at], culprit, Some(byte));
    }

    /// Shows text that more than half agree on. True if there was any.
    fn show(&mut self, out: &mut Vec<u8>) -> bool {
        let is_there = |source: &&Source| source.counts() && source.offset == self.shown_bytes;
        let there = || self.sources.iter().filter(is_there);
        let is_agreed = |byte: &u8| {
            let agrees = |source: &&Source| source.vote() == Some(Some(*byte));
            // A source without the byte yet may print anything.
            let others = self.counting().count() - there().filter(agrees).count();
            self.weight(there().filter(agrees).map(|source| source.index)) > others
        };
        let Some(winner) = there().filter_map(|source| source.vote().flatten()).find(is_agreed) else { return false };
        let agrees = |at: &usize| {
            let source = &self.sources[*at];
            is_there(&source) && source.vote() == Some(Some(winner))
        };
        let agreeing: Vec<_> = (0..self.sources.len()).filter(agrees).collect();
        let texts = || agreeing.iter().map(|at| self.sources[*at].printed.pending.as_slices().0);
        let first = self.sources[agreeing[0]].printed.pending.as_slices().0;
        let agreed_bytes = texts().fold(first.len(), |agreed, other| {
            let agreed = agreed.min(other.len());
            if first[..agreed] == other[..agreed] {
                return agreed;
            }
            first.iter().zip(other).position(|(one, other)| one != other).unwrap_or(agreed)
        });
        self.pass(&agreeing, agreed_bytes, out);
        true
    }

    /// Shows the first `count` bytes of these sources, which are the same.
    fn pass(&mut self, agreeing: &[usize], count: usize, out: &mut Vec<u8>) {
        let bytes = &self.sources[agreeing[0]].printed.pending.as_slices().0[..count];
        out.extend_from_slice(bytes);
        self.history.extend(bytes);
        self.shown.pass(bytes);
        self.shown_bytes += count as u64;
        for at in agreeing {
            self.sources[*at].agree(count);
        }
    }

    /// If no majority is possible, lets the longest-serving source decide. True if it did.
    fn settle(&mut self, out: &mut Vec<u8>) -> bool {
        let there = |(_, source): &(usize, &Source)| source.counts() && source.offset == self.shown_bytes;
        let votes = self.sources.iter().enumerate().filter(there);
        let votes: Vec<_> = votes.filter_map(|(at, source)| Some((at, source.vote()?))).collect();
        let missing = self.counting().count() - votes.len();
        let mut sides: Vec<(Option<u8>, usize)> = Vec::new();
        for (_, vote) in &votes {
            if !sides.iter().any(|(other, _)| other == vote) {
                let its = votes.iter().filter(|(_, other)| other == vote);
                sides.push((*vote, self.weight(its.map(|(at, _)| self.sources[*at].index))));
            }
        }
        let total: usize = sides.iter().map(|(_, weight)| weight).sum();
        let agreed = sides.iter().find(|(_, weight)| weight * 2 > total + missing).map(|(vote, _)| *vote);
        let may_agree = sides.iter().any(|(_, weight)| (weight + missing) * 2 > total + missing);
        if sides.len() < 2 && votes.iter().all(|(_, vote)| vote.is_none()) || may_agree && agreed.is_none() {
            return false;
        }
        let is_majority = agreed.is_some();
        let winner = agreed.unwrap_or(votes[0].1);
        let (keep, lose): (Vec<_>, Vec<_>) = votes.iter().partition(|(_, vote)| *vote == winner);
        if lose.is_empty() {
            return false;
        }
        let losers: Vec<_> = lose.into_iter().map(|(at, _)| at).collect();
        let first = &self.sources[keep[0].0];
        let side = Side {
            replicas: keep.iter().map(|(at, _)| self.sources[*at].index).collect(),
            text: first.excerpt(),
            has_ended: winner.is_none(),
        };
        self.has_stopped = self.stops_undecided && !is_majority;
        if is_majority {
            losers.iter().for_each(|at| self.differ(side.clone(), &[*at], Some(self.sources[*at].index), winner));
        } else {
            self.differ(side, &losers, None, winner);
        }
        if winner.is_some() && !self.has_stopped {
            let keep: Vec<_> = keep.into_iter().map(|(at, _)| at).collect();
            self.pass(&keep, 1, out);
        }
        true
    }

    /// Reports that these sources differ from the shown side, whose next byte is `shown`.
    fn differ(&mut self, shown_side: Side, losers: &[usize], culprit: Option<ReplicaIndex>, shown: Option<u8>) {
        let place = &self.sources[losers[0]].place;
        let (line, column) = (place.lines + 1, place.column + 1);
        let mut sides = vec![shown_side];
        let (mut given_up, mut is_new) = (Vec::new(), false);
        for at in losers {
            let source = &mut self.sources[*at];
            let text = source.excerpt();
            let has_ended = source.printed.pending.is_empty();
            // A line end that one side lacked, and a difference at the very next byte, are one difference.
            is_new |= source.split.is_none();
            match sides[1..].iter_mut().find(|side| side.text == text && side.has_ended == has_ended) {
                Some(side) => side.replicas.push(source.index),
                None => sides.push(Side { replicas: vec![source.index], text, has_ended }),
            }
            source.leave(shown);
            if source.state == State::Ignored {
                given_up.push(source.index);
            }
        }
        if is_new || !given_up.is_empty() {
            self.findings.push_back(Finding::Mismatch(OutputMismatch { line, column, culprit, sides, given_up }));
        }
    }

    /// Drops shown text that all sources were compared with, or that exceeds the limit.
    fn trim(&mut self) {
        let begin = self.shown_bytes - self.history.len() as u64;
        let needed = self.sources.iter().filter_map(|source| match source.state {
            // The line end just before may have to be found again.
            State::Counting => Some(source.offset - u64::from(source.split.is_some())),
            State::Astray { from, .. } => Some(from),
            State::Ignored | State::Lost => None,
        });
        let oldest = self.shown_bytes.saturating_sub(HISTORY_BYTES_MAX as u64);
        let keep_from = needed.min().unwrap_or(self.shown_bytes).max(oldest);
        let forgotten: Vec<u8> = self.history.drain(..keep_from.saturating_sub(begin) as usize).collect();
        for source in self.sources.iter_mut().filter(|source| source.counts() && source.offset < keep_from) {
            if source.printed.late_bytes == 0 {
                self.findings.push_back(Finding::Uncompared { replica: source.index });
            }
            source.printed.late_bytes += keep_from - source.offset;
            source.place.pass(&forgotten[(source.offset - begin) as usize..]);
            source.offset = keep_from;
        }
    }
}

impl Source {
    /// Leaves the text at a difference; the shown text goes on with `shown`.
    fn leave(&mut self, shown: Option<u8>) {
        let own = self.printed.pending.pop_front();
        let (Some(shown), Some(own)) = (shown, own) else {
            // One of the two texts has ended: there is no later line to compare.
            own.into_iter().for_each(|own| self.printed.pending.push_front(own));
            return self.ignore();
        };
        if let Some(split) = self.split.take() {
            // The split was no flipped bit: lines have different lengths.
            self.printed.pending.push_front(own);
            if split.was_own {
                self.place.pass(b"\n");
            }
            self.state = State::Astray { own_line_ended: split.was_own, from: self.offset - 1 };
            return;
        }
        self.misses += 1;
        if self.misses >= MISSES_MAX {
            self.printed.pending.push_front(own);
            return self.ignore();
        }
        if (shown == b'\n') == (own == b'\n') {
            self.place.pass(&[own]);
            self.state = State::Astray { own_line_ended: false, from: self.offset };
        } else {
            self.split = Some(Split { shown, was_own: own == b'\n' });
            self.offset += 1;
        }
    }

    fn ignore(&mut self) {
        self.state = State::Ignored;
        self.place.pass(&Vec::from(std::mem::take(&mut self.printed.pending)));
    }
}

#[cfg(test)]
mod tests;
