//! Standard input on its way to rank 0, and what replicas print on its way to the user.

use super::Shell;
use crate::coordinator::{Input, Report};
use redrt_types::{ReplicaId, VirtualRank};
use redrt_wire::daemon::ToDaemon;
use std::io::Read;

/// Standard input read ahead of what rank 0 has taken.
const INPUT_WINDOW_BYTES: u64 = 256 << 10;

impl Shell<'_> {
    /// Sends on what comes out, and stops those who print faster than it can be shown or compared.
    pub(super) fn after_output(&mut self, replica: ReplicaId) {
        while let Some((rank, finding)) = self.outputs.poll_finding() {
            self.handle(Input::Output { rank, finding });
        }
        self.write_outputs();
        let ahead = self.outputs.is_far_ahead(replica);
        if ahead && !self.held.contains(&Some(replica)) && self.told_of_hold.insert(replica) {
            self.report(&Report::OutputHeld { replica });
        }
        self.hold(Some(replica), ahead);
    }

    pub(super) fn write_outputs(&mut self) {
        let elapsed = self.started_at.elapsed();
        let written = match self.outputs.is_idle(elapsed) {
            true => Ok(()),
            false => self.console.around(|| (self.outputs.write(elapsed), self.outputs.ends_line())),
        };
        if written.is_err() && self.exit_code.is_none() {
            self.handle(Input::OutputClosed);
        }
        let (full, drained) = self.outputs.fill_state();
        if full {
            self.hold(None, true);
        } else if drained {
            self.hold(None, false);
        }
        for replica in self.held.iter().copied().flatten().collect::<Vec<_>>() {
            let ahead = self.outputs.is_far_ahead(replica);
            self.hold(Some(replica), ahead);
        }
    }

    pub(super) fn hold(&mut self, replica: Option<ReplicaId>, held: bool) {
        let changed = if held { self.held.insert(replica) } else { self.held.remove(&replica) };
        let host = replica.and_then(|replica| self.host(replica));
        match host.filter(|_| changed) {
            Some(host) => self.fleet.send(host, &ToDaemon::HoldOutput { replica, held }),
            None if changed => self.fleet.send_all(&ToDaemon::HoldOutput { replica, held }),
            None => {}
        }
    }

    /// Standard input is read while the job runs, there is room, and, at a terminal, this is the foreground job.
    pub(super) fn wants_input(&self) -> bool {
        let running = self.is_launched() && self.exit_code.is_none();
        let Some(input) = self.input.as_ref().filter(|_| running) else { return false };
        let is_foreground =
            || nix::unistd::tcgetpgrp(input).map_or(true, |foreground| foreground == nix::unistd::getpgrp());
        // What was sent while a replica of rank 0 is being copied would be missing in its copy.
        let is_copied = self.coordinator.is_cutting(VirtualRank(0));
        self.input_in_flight_bytes() < INPUT_WINDOW_BYTES && !is_copied && is_foreground()
    }

    /// Read, and not yet taken by the slowest host that needs it.
    pub(super) fn input_in_flight_bytes(&self) -> u64 {
        let slowest = self.input_taken_bytes.values().copied().min().unwrap_or(self.input_sent_bytes);
        self.input_sent_bytes - slowest
    }

    pub(super) fn send_input(&mut self, message: &ToDaemon) {
        for host in self.input_taken_bytes.keys().copied().collect::<Vec<_>>() {
            self.fleet.send(host, message);
        }
    }

    pub(super) fn read_input(&mut self) {
        let Some(input) = &mut self.input else { return };
        let mut bytes = vec![0; 64 << 10];
        match input.read(&mut bytes) {
            Ok(0) | Err(_) => {
                self.input = None;
                self.note_input();
                self.send_input(&ToDaemon::InputEnd);
            }
            Ok(count) => {
                bytes.truncate(count);
                self.input_sent_bytes += count as u64;
                self.note_input();
                self.send_input(&ToDaemon::Input { bytes });
            }
        }
    }

    pub(super) fn note_input(&mut self) {
        self.coordinator.input_passed(self.now());
        self.carry_out();
    }
}
