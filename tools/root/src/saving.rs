//! Processes that ask for a line (`redrt_checkpoint`), each on behalf of the whole job.
//!
//! One who asks is told when all processes of a line are copied, before they go on: a process that goes on from its
//! image knows by itself that the line was taken. So who asks while a line is being written waits for the next one.

use super::{Output, Root};
use coordinator::Report;
use redrt_types::ReplicaId;
use redrt_wire::daemon::ToDaemon;
use redrt_wire::dynamic::Answer;
use redrt_wire::line::LineOrder;

impl Root {
    /// A process asks, by the question of this number.
    pub(super) fn want_line_of_process(&mut self, replica: ReplicaId, number: u64) {
        self.line_askers.push((replica, number));
        if self.coordinator.want_line(self.now, false).is_err() {
            self.answer_line_askers(false);
        }
    }

    /// All daemons are about to be told this of a line.
    pub(super) fn note_line_order(&mut self, order: &LineOrder) {
        match order {
            // What processes are given of standard input from now on is not in their images.
            LineOrder::Stop => self.input.line_begins(),
            LineOrder::GoOn => self.answer_line_askers(true),
            _ => {}
        }
    }

    pub(super) fn note_line_report(&mut self, report: &Report) {
        match report {
            Report::LineTaken { .. } if !self.line_askers.is_empty() => {
                // The job takes lines, since this is one.
                let _ = self.coordinator.want_line(self.now, false);
            }
            Report::LineFailed { .. } => self.answer_line_askers(false),
            _ => {}
        }
    }

    fn answer_line_askers(&mut self, is_taken: bool) {
        for (replica, number) in std::mem::take(&mut self.line_askers) {
            if let Some(host) = self.host(replica) {
                let answer = ToDaemon::Dynamic(replica, number, Answer::Checkpoint(is_taken));
                self.outputs.push_back(Output::SendTo(host, answer));
            }
        }
    }
}
