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
    /// Names of the hosts that were lost, in this order.
    lost_hosts: Vec<String>,
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

    pub fn lost_hosts(&self) -> &[String] {
        &self.lost_hosts
    }

    pub fn record(&mut self, input: &Input) {
        match input {
            Input::WentBack(_) => {
                self.return_count += u32::from(!std::mem::replace(&mut self.is_returning, true));
            }
            Input::Job(replication_manager::Input::Signalled { number, .. }) => self.signal_number = *number,
            _ => {}
        }
    }

    pub fn record_lost(&mut self, host: &str) {
        self.lost_hosts.push(host.to_owned());
    }

    /// All processes of this life have met.
    pub fn record_met(&mut self) {
        self.is_returning = false;
    }

    pub fn record_started(&mut self) {
        self.started_count += 1;
    }
}
