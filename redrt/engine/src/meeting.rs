//! Waiting for others to come to a collective over a board.
//!
//! Who comes posts it and wakes those that sleep, so nothing arrives here by a link. A waiting member looks at the
//! board itself, for a while without the engine's lock, which is all that it takes where nobody is late.

use super::{Cell, Engine};
use redrt_transport::board::{Awaited, Board};
use std::sync::Arc;

/// Looks at a board in a row, where a process has a core to itself.
const LOOKS: u32 = 200;

/// Looks in a row where processes share cores, each of which is followed by a yield.
const LOOKS_SHARED: u32 = 24;

/// Number of yields after which the process drains incoming messages too: others may wait for what only it can do.
const LOOKS_PER_PROGRESS: u32 = 8;

/// What threads of this process wait for on boards.
#[derive(Default)]
pub struct Meetings {
    waiting: Vec<Waiting>,
    count: u64,
}

struct Waiting {
    board: Arc<Board>,
    awaited: Awaited,
    context: u64,
    /// The thread was told.
    is_told: bool,
}

impl Waiting {
    fn has_come(&self) -> bool {
        self.board.has_come(self.awaited, &mut 0)
    }
}

impl Meetings {
    /// How many waits are over that were not since it was last asked.
    #[inline]
    pub fn look(&mut self) -> u64 {
        let mut over = 0;
        for waiting in &mut self.waiting {
            if !waiting.is_told && waiting.has_come() {
                waiting.is_told = true;
                over += 1;
            }
        }
        over
    }

    /// Whether somebody waits for what has come.
    pub fn has_any_come(&self) -> bool {
        self.waiting.iter().any(Waiting::has_come)
    }

    /// How many waits there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Who has not come, by rank in the communicator, and its context.
    pub fn missing(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let missing = |waiting: &Waiting| Some((waiting.board.missing(waiting.awaited)?, waiting.context));
        self.waiting.iter().filter_map(missing)
    }
}

impl Engine {
    /// More processes than cores on this host.
    pub fn shares_core(&self) -> bool {
        self.shares_core
    }
}

impl Cell {
    /// Waits for something on a board; `context` is that of its communicator.
    #[inline]
    pub fn meet(&self, board: &Arc<Board>, awaited: Awaited, context: u64, shares_core: bool) {
        let mut come = 0;
        if !board.has_come(awaited, &mut come) {
            self.meet_later(board, awaited, context, shares_core, come);
        }
    }

    fn meet_later(&self, board: &Arc<Board>, awaited: Awaited, context: u64, shares_core: bool, mut come: usize) {
        if shares_core {
            for number in 1..=LOOKS_SHARED {
                redrt_process::pause::yield_now();
                if board.has_come(awaited, &mut come) {
                    return;
                }
                if number % LOOKS_PER_PROGRESS == 0 {
                    self.poll_once();
                }
            }
        } else {
            for _ in 0..LOOKS {
                std::hint::spin_loop();
                if board.has_come(awaited, &mut come) {
                    return;
                }
            }
        }
        let mut engine = self.lock();
        engine.meetings.count += 1;
        engine.meetings.waiting.push(Waiting { board: board.clone(), awaited, context, is_told: false });
        drop(engine);
        self.wait_for(|engine| {
            board.has_come(awaited, &mut come).then(|| {
                // One thread at a time waits for each.
                engine.meetings.waiting.retain(|waiting| !Arc::ptr_eq(&waiting.board, board));
            })
        });
    }
}
