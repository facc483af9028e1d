//! Restores broken connections, with the replication protocol. See the module `link::reset` for the begin of a new
//! connection, and `quiesce::Replica::reset` for the frames that both ends then exchange.
//!
//! Payloads under way have landings here that will never be filled. They are given up when the offer comes again, as
//! after the loss of a supplier. Further copies, which are only compared, are dropped at once. At r = 1 there is no log
//! to send anything again from, and the job ends with that reason.

use super::Engine;
use super::link::{Admission, Broken};
use super::message::Data;
use redrt_transport::network::Incoming;
use redrt_types::ProcessIndex;
use redrt_wire::control::FromAgent;
use redrt_wire::event::Event;
use tracing::debug;

/// Flushes of a program that polls in vain, between two checks of sockets that are only written to.
const FLUSHES_PER_LOOK: u32 = 32;

/// Retransmissions without an acknowledgement before the connection is opened again: 6 s.
const UNANSWERED_MAX: u32 = 5;
/// The same before a host is given up for good, where connections are not opened again; TCP may still come through: 25
/// s.
const UNANSWERED_MAX_FOR_GOOD: u32 = 7;

impl Engine {
    /// Handles a broken link. Its other end may be dead, which a view will say, or alive.
    pub(super) fn link_broke(&mut self, broken: Broken) {
        debug!(target: "engine", process = broken.process().0, "a link broke");
        if self.is_foreign(broken.process()) {
            return self.foreign_gone(broken.process());
        }
        match broken {
            Broken::Lost { process, epoch } if self.is_replicated() => self.reconnect(process, epoch + 1),
            Broken::Lost { process, .. } | Broken::Refused(process) | Broken::Silent(process) => {
                let (peer, host_is_silent) = (self.world.replica(process), matches!(broken, Broken::Silent(_)));
                self.runtime.tell(FromAgent::Suspect { peer, host_is_silent });
            }
        }
    }

    /// Handles all links that have broken since.
    pub(super) fn heed_broken(&mut self) {
        while let Some(broken) = self.links.next_broken() {
            self.link_broke(broken);
        }
    }

    /// Breaks links to hosts that do not answer, and handles that at once: the program may be outside of MPI for long,
    /// and others wait for its earlier messages. Returns true if there was such a host.
    pub(super) fn look_for_silence(&mut self) -> bool {
        let opened_again = self.is_replicated();
        let unanswered_max = if opened_again { UNANSWERED_MAX } else { UNANSWERED_MAX_FOR_GOOD };
        let any = self.links.break_silent(unanswered_max, opened_again);
        self.heed_broken();
        any
    }

    /// Takes over a link that another process has opened, if it is of the present epoch or begins a new one.
    pub(super) fn admit(&mut self, receiver: Incoming) {
        match self.links.judge(&receiver) {
            Admission::Stale => return,
            Admission::Early => return self.links.keep_early(receiver),
            // At r = 1 connections are never opened again.
            Admission::Newer if !self.is_replicated() => return,
            Admission::Newer => self.reconnect(receiver.name.from, receiver.name.epoch),
            Admission::Same => {}
        }
        if self.is_foreign(receiver.name.from) {
            self.links.take_receiver(receiver);
            return;
        }
        let peer = self.world.replica(receiver.name.from);
        if self.links.judge(&receiver) == Admission::Same && self.links.take_receiver(receiver) {
            self.runtime.tell(FromAgent::Event(Event::Reconnected { replica: self.me, peer }));
        }
    }

    /// Begins an epoch of the connection with another process, and asks the process anew for the messages it owes.
    fn reconnect(&mut self, process: ProcessIndex, epoch: u32) {
        if !self.links.begin_epoch(process, epoch) {
            return;
        }
        let is_void = |data: &Data, from: Option<ProcessIndex>| match data {
            Data::Remote(from, _) => *from == process,
            _ => from == Some(process),
        };
        let shadows = self.messages.iter().filter(|(_, message)| message.is_shadow);
        let void = shadows.filter(|(_, message)| is_void(&message.data, message.pull.as_ref().map(|pull| pull.from)));
        for key in void.map(|(key, _)| key).collect::<Vec<_>>() {
            if let Some(pull) = self.messages.remove(key).pull {
                self.landings.remove(pull.landing);
            }
        }
        let peer = self.world.replica(process);
        self.replication().reset(process, peer);
        self.carry_out();
        // A waiter has something to send.
        self.requests.completions += 1;
    }

    /// Checks sockets that are only written to, at every so many flushes of a program that polls.
    pub(super) fn look_at_links(&mut self) {
        if self.replication().note_idle_flush(FLUSHES_PER_LOOK) {
            self.links.look_at_senders();
        }
    }
}
