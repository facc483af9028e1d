//! Signals that the user sends `redrun` for the program.
//!
//! Replicas agree at which call a signal arrives, which they can once all know each other. Signals before that are kept
//! until then. In a job without replicas, daemons deliver a signal as soon as there are processes.

use super::Coordinator;
use redrt_wire::daemon::ToDaemon;

impl Coordinator {
    /// Delivers a signal to the program, or keeps it. Of kept signals several of one kind become one, as in the kernel.
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

    /// Delivers the kept signals, because all processes know each other now.
    pub(super) fn pass_kept_signals(&mut self) {
        for (number, signal) in std::mem::take(&mut self.kept_signals) {
            self.send(ToDaemon::Deliver { number, signal });
        }
    }

    /// Stops all processes, or lets them go on.
    pub(super) fn suspend(&mut self, stands_still: bool) {
        self.send(ToDaemon::Suspend(stands_still));
    }
}
