//! Waits for events in memory that processes share, without a message: others that come to a collective over a board,
//! or the epochs of a window.
//!
//! The process that causes the event wakes the sleepers, so nothing arrives here by a link. A waiting thread first
//! looks by itself, for a while without the engine's lock; where nobody is late that is all it takes.

use super::{Cell, rivals};

/// Looks in a row, where a process has a core to itself.
const LOOKS: u32 = 200;

/// Looks of a polling thread between two rounds of everything else, where a process has a core to itself.
const LOOKS_BETWEEN: u32 = 8;

/// Looks in a row where processes share cores, each after a yield.
const LOOKS_SHARED: u32 = 24;

/// Looks after which the process drains incoming messages too: others may wait for its answers.
const LOOKS_PER_PROGRESS: u32 = 8;

/// An event that a thread waits for.
pub trait Meeting: Send {
    /// Returns true if the event has come. It must stay so until the thread has gone on.
    fn has_come(&self) -> bool;

    /// A description of the missing processes or events; `None` when it has come. `label_of` names the communicator of
    /// a context.
    fn missing(&self, label_of: &dyn Fn(u64) -> String) -> Option<String>;
}

/// The events that threads of this process wait for.
#[derive(Default)]
pub struct Meetings {
    waiting: Vec<Waiting>,
    count: u64,
}

struct Waiting {
    meeting: Box<dyn Meeting>,
    number: u64,
    /// True once its coming was counted.
    is_told: bool,
}

impl Meetings {
    /// Number of events that have come since the last call.
    #[inline]
    pub fn poll(&mut self) -> u64 {
        let mut over = 0;
        for waiting in &mut self.waiting {
            if !waiting.is_told && waiting.meeting.has_come() {
                waiting.is_told = true;
                over += 1;
            }
        }
        over
    }

    /// Looks a few times in a row, before anything else is polled again.
    #[inline]
    pub fn linger(&self) {
        for _ in 0..LOOKS_BETWEEN {
            if self.waiting.is_empty() || self.has_any_come() {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Returns true if an event has come that a thread waits for.
    pub fn has_any_come(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.meeting.has_come())
    }

    /// Number of waits so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Descriptions of the events that have not come.
    pub fn missing(&self, label_of: &dyn Fn(u64) -> String) -> Vec<String> {
        self.waiting.iter().filter_map(|waiting| waiting.meeting.missing(label_of)).collect()
    }

    /// Adds a wait. [`Meetings::remove`] ends it by the number returned.
    pub fn add(&mut self, meeting: Box<dyn Meeting>) -> u64 {
        self.count += 1;
        self.waiting.push(Waiting { meeting, number: self.count, is_told: false });
        self.count
    }

    /// Ends the wait with this number.
    pub fn remove(&mut self, number: u64) {
        self.waiting.retain(|waiting| waiting.number != number);
    }
}

impl Cell {
    /// Waits for an event in shared memory. `meeting` is made only for a wait that lasts.
    pub fn await_shared(
        &self,
        shares_core: bool,
        mut has_come: impl FnMut() -> bool,
        meeting: impl FnOnce() -> Box<dyn Meeting>,
    ) {
        if !self.poll_event(shares_core, &mut has_come) {
            let number = self.lock().meetings.add(meeting());
            self.wait_for(|engine| has_come().then(|| engine.meetings.remove(number)));
        }
    }

    /// Polls a number of times in a row. Returns true if it has come.
    pub(super) fn poll_repeatedly(&self, has_come: impl FnMut() -> bool) -> bool {
        let shares_core = self.lock().shares_core;
        self.poll_event(shares_core, has_come)
    }

    #[inline(always)]
    fn poll_event(&self, shares_core: bool, mut has_come: impl FnMut() -> bool) -> bool {
        if shares_core {
            if !rivals::may_yield() {
                return has_come();
            }
            for number in 1..=LOOKS_SHARED {
                let is_alone = rivals::yield_now();
                if has_come() {
                    return true;
                }
                if !is_alone {
                    return false;
                }
                if number % LOOKS_PER_PROGRESS == 0 {
                    self.poll_once();
                }
            }
        } else {
            for _ in 0..LOOKS {
                std::hint::spin_loop();
                if has_come() {
                    return true;
                }
            }
        }
        false
    }
}
