//! Waiting for what others bring about in memory that processes share, without a message: that they come to a
//! collective over a board, or what the epochs of a window wait for.
//!
//! Who brings it about wakes those that sleep, so nothing arrives here by a link. A waiting thread looks there by
//! itself, for a while without the engine's lock, which is all that it takes where nobody is late.

use super::{Cell, Engine};

/// Looks in a row, where a process has a core to itself.
const LOOKS: u32 = 200;

/// Looks of a thread that makes progress, between two at everything else, where a process has a core to itself.
const LOOKS_BETWEEN: u32 = 8;

/// Looks in a row where processes share cores, each of which is followed by a yield.
const LOOKS_SHARED: u32 = 24;

/// Number of yields after which the process drains incoming messages too: others may wait for what only it can do.
const LOOKS_PER_PROGRESS: u32 = 8;

/// What a thread waits for.
pub trait Meeting: Send {
    /// Whether it has come. Then it stays so until the thread has gone on.
    fn has_come(&self) -> bool;

    /// Who or what is missing, in words; `None` when it has come. `label_of` names the communicator with a context.
    fn missing(&self, label_of: &dyn Fn(u64) -> String) -> Option<String>;
}

/// What threads of this process wait for.
#[derive(Default)]
pub struct Meetings {
    waiting: Vec<Waiting>,
    count: u64,
}

struct Waiting {
    meeting: Box<dyn Meeting>,
    number: u64,
    /// The thread was told.
    is_told: bool,
}

impl Meetings {
    /// How many waits are over that were not since it was last asked.
    #[inline]
    pub fn look(&mut self) -> u64 {
        let mut over = 0;
        for waiting in &mut self.waiting {
            if !waiting.is_told && waiting.meeting.has_come() {
                waiting.is_told = true;
                over += 1;
            }
        }
        over
    }

    /// Looks a few times in a row, before anything else is looked at again.
    #[inline]
    pub fn linger(&self) {
        for _ in 0..LOOKS_BETWEEN {
            if self.waiting.is_empty() || self.has_any_come() {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Whether somebody waits for what has come.
    pub fn has_any_come(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.meeting.has_come())
    }

    /// How many waits there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// What has not come, in words.
    pub fn missing(&self, label_of: &dyn Fn(u64) -> String) -> Vec<String> {
        self.waiting.iter().filter_map(|waiting| waiting.meeting.missing(label_of)).collect()
    }

    /// Somebody begins to wait; the number by which [`Meetings::remove`] ends that.
    pub fn add(&mut self, meeting: Box<dyn Meeting>) -> u64 {
        self.count += 1;
        self.waiting.push(Waiting { meeting, number: self.count, is_told: false });
        self.count
    }

    /// The wait with this number is over.
    pub fn remove(&mut self, number: u64) {
        self.waiting.retain(|waiting| waiting.number != number);
    }
}

impl Engine {
    /// More processes than cores on this host.
    pub fn shares_core(&self) -> bool {
        self.shares_core
    }
}

impl Cell {
    /// Waits for what others bring about in shared memory; `meeting` is made for a wait that lasts.
    pub fn await_shared(
        &self,
        shares_core: bool,
        mut has_come: impl FnMut() -> bool,
        meeting: impl FnOnce() -> Box<dyn Meeting>,
    ) {
        if !self.look(shares_core, &mut has_come) {
            let number = self.lock().meetings.add(meeting());
            self.wait_for(|engine| has_come().then(|| engine.meetings.remove(number)));
        }
    }

    /// Looks a number of times in a row; `true` when it has come.
    pub(super) fn look_repeatedly(&self, has_come: impl FnMut() -> bool) -> bool {
        let shares_core = self.lock().shares_core;
        self.look(shares_core, has_come)
    }

    #[inline(always)]
    fn look(&self, shares_core: bool, mut has_come: impl FnMut() -> bool) -> bool {
        if shares_core {
            for number in 1..=LOOKS_SHARED {
                redrt_process::pause::yield_now();
                if has_come() {
                    return true;
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
