//! Processes that ask for a line (`redrt_checkpoint`), each on behalf of the whole job.
//!
//! One who asks is told when all processes of a line are copied, before they go on: a process that goes on from its
//! image knows by itself that the line was taken. So who asks while a line is being written waits for the next one.
//!
//! And what a line has to do with messages and with standard input.

use super::input::INPUT_BYTES_MAX;
use super::{Output, Root};
use coordinator::{Report, StoreNews};
use redrt_types::ReplicaId;
use redrt_wire::daemon::ToDaemon;
use redrt_wire::dynamic::Answer;
use redrt_wire::line::{Generation, LineOrder};

impl Root {
    /// The store has a place for a line: every host begins, each by an order of its own.
    pub(super) fn begin_line(&mut self, generation: Generation, orders: Vec<LineOrder>) {
        self.unanswered.line_is_settled(generation);
        // One that was given up meanwhile is not begun.
        if self.coordinator.line_under_way() == Some(generation) {
            let send = |(host, order)| Output::SendTo(host, ToDaemon::Line { generation, order });
            self.outputs.extend((0..).zip(orders).map(send));
        }
        let opened = coordinator::Input::Store { generation, news: StoreNews::Opened };
        self.coordinator.handle(self.now, opened);
    }

    /// All processes that were being loaded are there: what was read of standard input since is given to them.
    pub(super) fn give_missed_input(&mut self) {
        let Some((missed, has_ended)) = self.input.loaded() else { return };
        missed.into_iter().for_each(|bytes| self.give_input(&ToDaemon::Input { bytes }));
        if has_ended {
            self.give_input(&ToDaemon::InputEnd);
        }
    }

    /// A line since which more was read than is kept is of no use.
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
                    // The job takes lines, since this is one.
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
