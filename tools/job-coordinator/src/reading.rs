//! Standard input on its way through the coordinator to the processes of rank 0.
//!
//! The trap: an image of a process has the input that its host had and that the process had not read. Input that comes
//! to the host when the process is stopped, and its image is not cut, may be in the image or not. Given again after a
//! return it would be there twice. So input waits here while a process of rank 0 is stopped for an image, whoever has
//! read it: a coordinator that comes back has input that the one before had read.

use super::input::{INPUT_BYTES_MAX, PIECE_BYTES_MAX};
use super::mutation::{self, Mutation};
use super::{Coordinator, Output};
use redrt_types::VirtualRank;
use redrt_wire::daemon::ToDaemon;

impl Coordinator {
    /// True while a process of rank 0 is stopped for an image, or about to be.
    pub(super) fn readers_are_stopped(&self) -> bool {
        self.manager.is_stopping(VirtualRank(0))
    }

    pub(super) fn handle_input(&mut self, bytes: &[u8]) {
        let is_held = self.readers_are_stopped() && !mutation::is(Mutation::InputNotHeld);
        match is_held || self.input.has_waiting() {
            true => self.input.wait(bytes),
            false => self.read(bytes),
        }
    }

    pub(super) fn handle_end_of_input(&mut self) {
        match self.readers_are_stopped() || self.input.has_waiting() {
            true => self.input.wait_with_end(),
            false => self.end_input(),
        }
    }

    /// Gives processes the input that has waited for them. Returns false if there was none, or it still waits.
    pub(super) fn poll_input(&mut self) -> bool {
        if !self.input.has_waiting() || self.readers_are_stopped() {
            return false;
        }
        let (bytes, has_ended) = self.input.take_waiting();
        bytes.chunks(PIECE_BYTES_MAX).for_each(|piece| self.read(piece));
        if has_ended {
            self.end_input();
        }
        true
    }

    fn read(&mut self, bytes: &[u8]) {
        if self.input.record_read(bytes) {
            self.give_input(&ToDaemon::Input { bytes: bytes.to_vec() });
        }
        self.inspect_checkpoint_input();
    }

    fn end_input(&mut self) {
        if self.input.record_end() {
            self.give_input(&ToDaemon::InputEnd);
        }
    }

    /// The replication manager first gives up copies that stand ready, since their images would lack this input.
    fn give_input(&mut self, message: &ToDaemon) {
        self.manager.input_passed(self.now);
        self.pass_all_on();
        let orders = self.input.readers().map(|host| Output::SendTo(host, message.clone()));
        self.outputs.extend(orders);
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
    pub(super) fn inspect_checkpoint_input(&mut self) {
        if self.input.has_all() {
            return;
        }
        if let Some(generation) = self.manager.forget_checkpoint() {
            let mib = INPUT_BYTES_MAX >> 20;
            let note = format!(
                "checkpoint {generation} is not gone back to: since it more than {mib} MiB of standard input were read"
            );
            self.outputs.push_back(Output::Note(note));
        }
    }
}
