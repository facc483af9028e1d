//! The next event: by time, or any that is ready.

use crate::Random;
use std::collections::BTreeMap;

/// Events by time, and of one time in the order in which they were planned. Messages under way are events, and so are
/// faults that a seed has drawn in advance.
#[derive(Clone, Debug)]
pub struct Agenda<E> {
    events: BTreeMap<(u64, u64), E>,
    planned: u64,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self { events: BTreeMap::new(), planned: 0 }
    }
}

impl<E> Agenda<E> {
    /// Plans an event.
    pub fn plan(&mut self, at: u64, event: E) {
        self.planned += 1;
        self.events.insert((at, self.planned), event);
    }

    /// Takes the next event, and its time.
    pub fn pop(&mut self) -> Option<(u64, E)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }

    /// Takes the next event if its time has come.
    pub fn due(&mut self, now: u64) -> Option<E> {
        let first = self.events.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Takes the first event that meets a condition, and its time, whatever is planned before it.
    pub fn take(&mut self, mut is_wanted: impl FnMut(&E) -> bool) -> Option<(u64, E)> {
        let key = *self.events.iter().find(|(_, event)| is_wanted(event))?.0;
        self.events.remove(&key).map(|event| (key.0, event))
    }

    /// Keeps the events that meet a condition.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&E) -> bool) {
        self.events.retain(|_, event| is_kept(event));
    }

    /// All events, in order.
    pub fn iter(&self) -> impl Iterator<Item = &E> {
        self.events.values()
    }
}

/// Places that run at different speeds. Of the ready events any may be next, but rarely one of a place that lags.
#[derive(Clone, Debug)]
pub struct Speeds(Vec<usize>);

impl Speeds {
    /// Draws a speed for each place, in percent.
    pub fn draw(random: &mut Random, places: usize, of: &[usize]) -> Self {
        assert!(of.iter().all(|speed| *speed > 0), "a place never runs: {of:?}");
        Self((0..places).map(|_| random.pick(of)).collect())
    }

    /// Chooses one of the ready events, each of which is of a place.
    pub fn choose<E: Copy>(&self, random: &mut Random, ready: &[E], place: impl Fn(E) -> usize) -> E {
        loop {
            let event = random.pick(ready);
            if random.chance(self.0[place(event)]) {
                return event;
            }
        }
    }
}

/// Steps in a row in which nothing has moved: many of them are a standstill.
#[derive(Clone, Debug)]
pub struct Standstill {
    idle: u32,
    idle_max: u32,
}

impl Standstill {
    /// A run stands still after more idle steps than this.
    #[must_use]
    pub fn after(idle_max: u32) -> Self {
        Self { idle: 0, idle_max }
    }

    /// Counts a step. Returns true if the run stands still.
    pub fn is_reached(&mut self, has_moved: bool) -> bool {
        self.idle = if has_moved { 0 } else { self.idle + 1 };
        self.idle > self.idle_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_as_they_were_planned() {
        let mut agenda = Agenda::default();
        [(5, "c"), (2, "a"), (2, "b")].into_iter().for_each(|(at, event)| agenda.plan(at, event));
        assert_eq!(agenda.due(1), None);
        assert_eq!((agenda.due(2), agenda.due(2), agenda.due(2)), (Some("a"), Some("b"), None));
        assert_eq!(agenda.pop(), Some((5, "c")));
    }

    #[test]
    fn an_event_is_taken_from_among_others() {
        let mut agenda = Agenda::default();
        (0..5).for_each(|number| agenda.plan(number, number));
        assert_eq!(agenda.take(|number| number % 2 == 1), Some((1, 1)));
        agenda.retain(|number| *number > 2);
        assert!(agenda.iter().eq(&[3, 4]));
    }

    #[test]
    fn a_place_that_lags_is_chosen_rarely() {
        let mut random = Random::new(1);
        let count = |speeds: &Speeds, random: &mut Random| {
            (0..1000).filter(|_| speeds.choose(random, &[0, 1], |place| place) == 0).count()
        };
        let share = count(&Speeds(vec![5, 100]), &mut random);
        assert!((20..90).contains(&share), "{share} of 1000");
    }

    #[test]
    fn a_standstill_is_broken_by_a_step_that_moves() {
        let mut standstill = Standstill::after(2);
        assert_eq!(
            [false, false, true, false, false, false].map(|moved| standstill.is_reached(moved)),
            [false, false, false, false, false, true]
        );
    }
}
