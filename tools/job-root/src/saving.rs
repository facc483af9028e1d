//! Requests of processes for a checkpoint (`redrt_checkpoint`), each on behalf of the whole job.
//!
//! The answer comes when all processes of a checkpoint are copied, and before they go on. A process that goes on from
//! its image knows by itself that the checkpoint was taken. So a request that arrives while a checkpoint is being
//! written waits for the next one.
//!
//! This module also connects checkpoints with standard input and output.

use super::input::INPUT_BYTES_MAX;
use super::{Output, Root};
use coordinator::{Report, StoreNews};
use redrt_types::ReplicaId;
use redrt_wire::daemon::ToDaemon;
use redrt_wire::dynamic::Answer;
use redrt_wire::line::{Generation, LineOrder};

impl Root {
    /// Sends each host its order to begin a checkpoint, because the store has a place for it.
    pub(super) fn begin_line(&mut self, generation: Generation, orders: Vec<LineOrder>) {
        self.unanswered.line_is_settled(generation);
        // A checkpoint that was given up meanwhile is not begun.
        if self.coordinator.line_under_way() == Some(generation) {
            let send = |(host, order)| Output::SendTo(host, ToDaemon::Line { generation, order });
            self.outputs.extend((0..).zip(orders).map(send));
        }
        let opened = coordinator::Input::Store { generation, news: StoreNews::Opened };
        self.coordinator.handle(self.now, opened);
    }

    /// Gives processes that were loaded the standard input that was read since their images were cut.
    pub(super) fn give_missed_input(&mut self) {
        let Some((missed, has_ended)) = self.input.loaded() else { return };
        missed.into_iter().for_each(|bytes| self.give_input(&ToDaemon::Input { bytes }));
        if has_ended {
            self.give_input(&ToDaemon::InputEnd);
        }
    }

    /// Discards the newest checkpoint if more input was read since than is kept.
    pub(super) fn look_at_line_input(&mut self) {
        if self.input.has_all() {
            return;
        }
        if let Some(generation) = self.coordinator.forget_line() {
            let mib = INPUT_BYTES_MAX >> 20;
            let note = format!(
                "checkpoint {generation} is not gone back to: since it more than {mib} MiB of standard input were read"
            );
            self.outputs.push_back(Output::Note(note));
        }
    }

    /// Records the request of a process, with the number of its question.
    pub(super) fn want_line_of_process(&mut self, replica: ReplicaId, number: u64) {
        self.line_askers.push((replica, number));
        if self.coordinator.want_line(self.now, false).is_err() {
            self.answer_line_askers(false);
        }
    }

    /// Notes an order about a checkpoint that goes to all daemons.
    pub(super) fn note_line_order(&mut self, order: &LineOrder) {
        match order {
            // Input that processes get from now on is not in their images.
            LineOrder::Stop => self.input.line_begins(),
            LineOrder::GoOn => {
                self.note_saved_texts();
                self.answer_line_askers(true);
            }
            _ => {}
        }
    }

    pub(super) fn note_line_report(&mut self, report: &Report) {
        match report {
            Report::LineTaken { .. } => {
                self.input.line_kept();
                self.look_at_line_input();
                if !self.line_askers.is_empty() {
                    // Cannot fail: the job takes checkpoints, since it has just taken one.
                    let _ = self.coordinator.want_line(self.now, false);
                }
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
