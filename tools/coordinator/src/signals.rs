//! Signals that the user sends `redrun`, and that are meant for the program.
//!
//! Replicas agree among themselves at which call one comes, and can do that once all know each other. So what is sent
//! before that is kept until then; in a job without replicas the daemons send it to processes as soon as there are any.

use super::Coordinator;
use redrt_wire::daemon::ToDaemon;

impl Coordinator {
    /// The program is to get this signal. Of those that are kept, several of one kind are one, as the kernel has it.
    pub(super) fn pass_signal(&mut self, number: u64, signal: i32) {
        let is_early = self.placement.is_empty() || self.line_being_loaded().is_some();
        let waits = !self.cards_sent && (is_early || self.settings.world.is_replicated());
        if self.ending.is_some() {
            return;
        }
        if !waits {
            self.send(ToDaemon::Deliver { number, signal });
        } else if self.kept_signals.iter().all(|(_, kept)| *kept != signal) {
            self.kept_signals.push((number, signal));
        }
    }

    /// All processes know each other.
    pub(super) fn pass_kept_signals(&mut self) {
        for (number, signal) in std::mem::take(&mut self.kept_signals) {
            self.send(ToDaemon::Deliver { number, signal });
        }
    }

    /// All processes stand still, or go on.
    pub(super) fn suspend(&mut self, stands_still: bool) {
        self.send(ToDaemon::Suspend(stands_still));
    }
}
