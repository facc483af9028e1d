//! Counts over all lives of the job, which follow from inputs alone.

use super::Input;
use serde::{Deserialize, Serialize};

/// The counts.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct History {
    /// Number of returns to a checkpoint.
    return_count: u32,
    /// True until all processes of a return have met. If they are lost before, the next attempt is the same return.
    is_returning: bool,
    /// Number of processes that were started.
    started_count: u64,
    /// Number of the last signal for the program.
    signal_number: u64,
    /// Name of the host that was lost last.
    lost_host: Option<String>,
}

impl History {
    pub fn return_count(&self) -> u32 {
        self.return_count
    }

    pub fn started_count(&self) -> u64 {
        self.started_count
    }

    pub fn signal_number(&self) -> u64 {
        self.signal_number
    }

    pub fn lost_host(&self) -> Option<&str> {
        self.lost_host.as_deref()
    }

    pub fn record(&mut self, input: &Input) {
        match input {
            Input::WentBack(_) => {
                self.return_count += u32::from(!std::mem::replace(&mut self.is_returning, true));
            }
            Input::Job(replication_manager::Input::Signalled { number, .. }) => self.signal_number = *number,
            Input::HostLost { name, .. } => self.lost_host = Some(name.clone()),
            _ => {}
        }
    }

    /// All processes of this life have met.
    pub fn record_met(&mut self) {
        self.is_returning = false;
    }

    pub fn record_started(&mut self) {
        self.started_count += 1;
    }
}
