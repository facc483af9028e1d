//! The daemon's part in flips of bits in threads (`--inject thread:`): a thread waits, and a helper hits it.

use super::HostDaemon;
use super::child::ChildEvent;
use super::copying::{Reply, Task, Victim, heard};
use super::spawn;
use anyhow::{Context, Result};
use control_network::link::Link;
use redrt_types::ReplicaId;
use redrt_wire::control::{FromAgent, ToAgent};
use redrt_wire::daemon::FromDaemon;
use redrt_wire::event::Event;
use redrt_wire::fault::ProcessFault;
use std::os::unix::net::UnixStream;

pub struct Flipper {
    helper: std::process::Child,
    pub(super) link: Link<UnixStream>,
    replica: ReplicaId,
    asked: ProcessFault,
    /// Number of the send at which the thread stands.
    send: u64,
    /// True once the outcome is reported.
    is_done: bool,
}

impl HostDaemon {
    /// Starts a helper for a fault in a child's thread, which stands still at this send.
    pub(super) fn start_flipper(&mut self, number: usize, fault: (ProcessFault, u64), thread: i32, word: u64) {
        if let Err(error) = self.try_start_flipper(number, fault, thread, word) {
            self.no_flip(self.children[number].replica, &format!("{error:#}"));
        }
    }

    fn try_start_flipper(
        &mut self,
        number: usize,
        (asked, send): (ProcessFault, u64),
        thread: i32,
        word: u64,
    ) -> Result<()> {
        let child = &self.children[number];
        let ProcessFault::FlipThread { bit: drawn, .. } = asked else { anyhow::bail!("it asks for another fault") };
        let pid = child.program.context("the process is not known yet")?.as_raw();
        let replica = child.replica;
        let (helper, link) = spawn::start_helper(&Task::Flip { victim: Victim { pid, thread, word }, drawn })?;
        let number = self.next_flipper;
        self.next_flipper += 1;
        self.watch_helper(ChildEvent::Flipper, number, &link)?;
        self.flippers.insert(number, Flipper { helper, link, replica, asked, send, is_done: false });
        Ok(())
    }

    /// Handles a helper's replies.
    pub(super) fn flipper_ready(&mut self, number: usize) {
        let Some(flipper) = self.flippers.get_mut(&number) else { return };
        let (replica, asked, send) = (flipper.replica, flipper.asked, flipper.send);
        let (replies, has_ended) = heard(&mut flipper.link);
        for reply in replies {
            let Some(flipper) = self.flippers.get_mut(&number).filter(|flipper| !flipper.is_done) else { break };
            match reply {
                Reply::Flipped { what, steps, place } => {
                    flipper.is_done = true;
                    let fault = format!("{what} flipped {steps} instructions after send {send}, at {place}");
                    let event = FromAgent::Event(Event::Injected { replica, asked, fault });
                    self.send(&FromDaemon::Agent { replica, message: event });
                }
                Reply::Failed(told) => {
                    flipper.is_done = true;
                    self.no_flip(replica, &told.sentence);
                }
                _ => {}
            }
        }
        if has_ended && let Some(Flipper { helper, link, is_done, .. }) = self.flippers.remove(&number) {
            let exit = self.end_helper(helper, &link);
            if !is_done {
                self.no_flip(replica, &format!("the helper ended: {exit}"));
            }
        }
    }

    /// Handles remaining replies about a process that has ended, before its end is reported.
    pub(super) fn handle_flippers(&mut self, replica: ReplicaId) {
        let of_it: Vec<_> = self.flippers.iter().filter(|(_, one)| one.replica == replica).map(|(at, _)| *at).collect();
        of_it.into_iter().for_each(|number| self.flipper_ready(number));
    }

    fn no_flip(&mut self, replica: ReplicaId, why: &str) {
        self.send(&FromDaemon::Note(format!("no bit of replica {replica}'s thread was flipped: {why}")));
        if let Some(number) = self.number_of.get(&replica) {
            self.children[*number].send(&ToAgent::NoFlip);
        }
    }
}
