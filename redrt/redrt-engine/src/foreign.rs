//! Events on links to processes of other jobs. See `contact`.

use super::{Cell, Engine, contact};
use redrt_types::ProcessIndex;
use std::sync::atomic::Ordering;

impl Engine {
    pub(super) fn is_foreign(&self, process: ProcessIndex) -> bool {
        self.links.is_foreign(process)
    }

    /// The index by which links hold a process of another job that opened one; `None` where links to other jobs are
    /// impossible.
    pub(super) fn meet_stranger(&mut self, job: u64, process: ProcessIndex) -> Option<ProcessIndex> {
        if self.is_replicated() {
            return None;
        }
        let number = contact::note(job, process)?;
        self.links.meet_known();
        Some(number.process())
    }

    /// Handles a broken link to a process of another job. Its end is in order once both have parted, or are about to.
    pub(super) fn foreign_gone(&mut self, process: ProcessIndex) {
        self.links.give_up(process);
        // Ends a wait for the others to part.
        self.requests.completions += 1;
        if let Some(loss) = self.runtime.loss_of(process, &self.links.name_of(process)) {
            self.runtime.abort(1, loss);
        }
    }
}

impl Cell {
    /// Makes waiting threads look again, after something other than a message has come.
    pub fn tell_waiting(&self) {
        // Also in a copy whose threads wait for a view: this thread will bring it.
        self.lock_at_any_time().requests.completions += 1;
        self.has_news.store(true, Ordering::SeqCst);
        self.wake();
    }
}
