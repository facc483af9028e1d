//! Pre-copy rounds while the program runs, and the decision to end them.

use super::{Event, Source, descriptors, objects, send};
use crate::error::{During, Error, Operation, Phase};
use crate::ranges::RangeSet;
use cloner_agent::abi::PAUSE;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes per second that one thread copies at the cut, assumed until measured.
const COPY_RATE_GUESS: f64 = 2e9;
/// A round counts as progress if it leaves less than this fraction of what the round before left.
const SHRINKING: f64 = 0.9;
const STUCK_ROUND_COUNT: u32 = 2;

/// Decides after each round whether another one is worthwhile. Pure: no clock and no I/O.
#[derive(Clone, Debug)]
pub struct Converging {
    target: Duration,
    round_count_max: u32,
    left_before: Option<u64>,
    stuck: u32,
}

/// Decision after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Round,
    /// The rest fits the downtime target.
    Cut,
    /// Memory does not converge.
    GiveUp,
}

impl Converging {
    /// For a program that may be stopped for `target`, after at most `round_count_max` rounds.
    #[must_use]
    pub fn new(target: Duration, round_count_max: u32) -> Self {
        Self { target, round_count_max, left_before: None, stuck: 0 }
    }

    /// Decides after round `round`, which left `left` bytes, at a copy rate of `rate` bytes per second.
    pub fn after_round(&mut self, round: u32, left: u64, rate: f64) -> Next {
        if left as f64 <= rate * self.target.as_secs_f64() {
            return Next::Cut;
        }
        let shrinks = self.left_before.is_none_or(|before| (left as f64) < before as f64 * SHRINKING);
        self.stuck = if shrinks { 0 } else { self.stuck + 1 };
        self.left_before = Some(left);
        if self.stuck == STUCK_ROUND_COUNT || round >= self.round_count_max { Next::GiveUp } else { Next::Round }
    }
}

impl Source<'_> {
    /// Runs more rounds if more was written since the last one than the downtime target allows.
    pub(super) fn catch_up(&mut self, events: &mut dyn FnMut(Event)) -> Result<(), Error> {
        let next = self.scan(Phase::PreCopy, false)?;
        let (left, _) = self.news(&next);
        let left: u64 = left.iter().map(|piece| piece.end - piece.start).sum();
        let rate = self.cost.reading_rate().unwrap_or(COPY_RATE_GUESS);
        if left as f64 <= rate * self.options.downtime_target.as_secs_f64() {
            return Ok(());
        }
        self.precopy(events)
    }

    /// Sends rounds until the rest is small or stops shrinking.
    ///
    /// Errors with [`Error::Diverges`] in the latter case if the caller demands convergence.
    pub(super) fn precopy(&mut self, events: &mut dyn FnMut(Event)) -> Result<(), Error> {
        let phase = Phase::PreCopy;
        let mut converging = Converging::new(self.options.downtime_target, self.options.round_count_max);
        loop {
            self.round_count += 1;
            let parked = if self.tracker.needs_stop() { Some(self.control.park(PAUSE)?) } else { None };
            let mut picture = self.scan(phase, true)?;
            if let Some(parked) = parked {
                parked.release().during(phase, Operation::Resume)?;
            }
            let (pieces, fresh) = self.news(&picture);
            let bytes: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
            let begin = Instant::now();
            let found = descriptors::gather(self.control, true, false);
            let open = found.during(phase, Operation::ReadDescriptors)?.objects;
            objects::add_open(&mut picture.plan, &open).during(phase, Operation::FindShared)?;
            self.begin_round(&picture, &fresh, phase)?;
            if self.round_count == 1 {
                // Only in the first round: at the cut, just the changes are left.
                let parts = objects::parts(self.control, &picture.plan, &open, false);
                let parts = parts.during(phase, Operation::FindShared)?;
                let sent = self.objects.send(self.control, &parts, &open, &mut self.outputs[0]);
                sent.during(phase, Operation::SendShared)?;
            }
            self.cost.done_bytes.store(0, Ordering::Relaxed);
            let (round, cost) = (self.round_count, &self.cost);
            let mut tick = || {
                let done_bytes = cost.done_bytes.load(Ordering::Relaxed);
                events(Event::Round { round, done_bytes, total_bytes: bytes, elapsed: begin.elapsed() });
            };
            let (sent, below, reading) = (&self.sent, &self.below, &self.reading);
            let huge = |block| !sent.contains(block) && !below.contains(block) && reading.allows_huge(block);
            let memory = send::Memory::Live(&self.control.memory);
            let (encoding, pages) = (self.options.encoding, self.pages.as_ref());
            let job = send::Sending { memory, pieces: &pieces, encoding, cost, huge: &huge, pages };
            send::send(&job, self.outputs, &mut tick).during(phase, Operation::SendRound(round))?;
            self.end_round(false, phase)?;
            self.sent = picture.scan.populated;
            self.below = RangeSet::new();
            if let Some(pages) = &mut self.pages {
                pages.get_mut().expect("no thread panics").all_seen();
            }
            let elapsed = begin.elapsed();

            let next = self.scan(phase, false)?;
            let (left, _) = self.news(&next);
            let dirty_bytes = left.iter().map(|piece| piece.end - piece.start).sum();
            events(Event::RoundEnded { round, bytes, elapsed, dirty_bytes });
            let rate = self.cost.reading_rate().unwrap_or(COPY_RATE_GUESS);
            match converging.after_round(round, dirty_bytes, rate) {
                Next::Round => {}
                Next::Cut => return Ok(()),
                Next::GiveUp if self.options.must_converge => {
                    return Err(Error::Diverges { phase, left_bytes: dirty_bytes, round_count: round });
                }
                Next::GiveUp => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 1e9;

    fn converging() -> Converging {
        Converging::new(Duration::from_millis(10), 30)
    }

    #[test]
    fn rounds_end_when_the_rest_is_small() {
        let mut rounds = converging();
        assert_eq!(rounds.after_round(1, 100_000_000, RATE), Next::Round);
        assert_eq!(rounds.after_round(2, 20_000_000, RATE), Next::Round);
        assert_eq!(rounds.after_round(3, 9_999_999, RATE), Next::Cut);
    }

    #[test]
    fn rounds_end_when_the_rest_does_not_shrink() {
        let mut rounds = converging();
        assert_eq!(rounds.after_round(1, 100_000_000, RATE), Next::Round);
        assert_eq!(rounds.after_round(2, 99_000_000, RATE), Next::Round);
        assert_eq!(rounds.after_round(3, 101_000_000, RATE), Next::GiveUp);
    }

    #[test]
    fn rounds_that_always_shrink_a_little_end_too() {
        let mut rounds = Converging::new(Duration::ZERO, 5);
        let all: Vec<_> = (1..=5).map(|round| rounds.after_round(round, 1 << (40 - round), RATE)).collect();
        assert_eq!(all[..4], [Next::Round; 4]);
        assert_eq!(all[4], Next::GiveUp);
    }
}
