//! What becomes of links to processes of other jobs. See `contact`.

use super::{Cell, Engine, contact};
use redrt_types::ProcessIndex;
use std::sync::atomic::Ordering;

impl Engine {
    /// Whether it is a process of another job.
    pub(super) fn is_foreign(&self, process: ProcessIndex) -> bool {
        self.links.is_foreign(process)
    }

    /// How links hold a process of another job that has opened one; `None` when there can be none.
    pub(super) fn meet_stranger(&mut self, job: u64, process: ProcessIndex) -> Option<ProcessIndex> {
        if self.is_replicated() {
            return None;
        }
        let number = contact::note(job, process)?;
        self.links.meet_known();
        Some(number.process())
    }

    /// A link to a process of another job broke. That it has ended is in order once both have parted, or are about to.
    pub(super) fn foreign_gone(&mut self, process: ProcessIndex) {
        self.links.give_up(process);
        // A wait for the others to part is over.
        self.requests.completions += 1;
        if let Some(loss) = self.runtime.loss_of(process, &self.links.name_of(process)) {
            self.runtime.abort(1, loss);
        }
    }
}

impl Cell {
    /// Something that a thread waits for, other than a message, has come.
    pub fn tell_waiting(&self) {
        // Also in a copy whose threads wait for the view that this thread will hear of.
        self.lock_at_any_time().requests.completions += 1;
        self.has_news.store(true, Ordering::SeqCst);
        self.wake();
    }
}
