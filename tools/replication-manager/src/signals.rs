//! Signals that the user sends `redrun` for the program.
//!
//! Replicas agree at which call a signal arrives, which they can once all know each other. Signals before that are kept
//! until then. In a job without replicas, daemons deliver a signal as soon as there are processes.

use super::effect::Effects;
use super::facts::Facts;
use redrt_wire::daemon::ToDaemon;
use serde::{Deserialize, Serialize};

/// Signals for the program; see the module.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Signals {
    /// True once the hosts of the processes are known.
    is_launched: bool,
    /// Numbers of signals that wait until all processes know each other.
    kept: Vec<(u64, i32)>,
}

impl Signals {
    /// The processes are about to be launched.
    pub(super) fn launch(&mut self) {
        self.is_launched = true;
    }

    /// Delivers a signal to the program, or keeps it. Of kept signals several of one kind become one, as in the kernel.
    /// `is_loaded` says that processes are being loaded from a checkpoint.
    pub(super) fn pass(&mut self, facts: Facts<'_>, (number, signal): (u64, i32), is_loaded: bool, out: &mut Effects) {
        let is_early = !self.is_launched || is_loaded;
        let waits = !facts.course.have_met() && (is_early || facts.members.world().is_replicated());
        if facts.course.is_ending() {
            return;
        }
        if !waits {
            out.send(ToDaemon::Deliver { number, signal });
        } else if self.kept.iter().all(|(_, kept)| *kept != signal) {
            self.kept.push((number, signal));
        }
    }

    /// Delivers the kept signals, because all processes know each other now.
    pub(super) fn pass_kept(&mut self, out: &mut Effects) {
        for (number, signal) in self.kept.drain(..) {
            out.send(ToDaemon::Deliver { number, signal });
        }
    }
}
