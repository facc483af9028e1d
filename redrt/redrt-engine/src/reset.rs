//! Links that are opened, break, or are refused. Broken ones are restored, with the replication protocol. See the
//! module `link::reset` for the begin of a new connection, and `quiesce::Replica::reset` for the frames that both ends
//! then exchange.
//!
//! Payloads under way have rendezvous buffers here that will never be filled. They are given up when the offer comes
//! again, as after the loss of a supplier. Further copies, which are only compared, are dropped at once. At r = 1 there
//! is no log to send anything again from, and the job ends with that reason.

use super::Engine;
use super::link::{Admitted, LinkEvent};
use super::refusal::Fault;
use redrt_transport::network::Incoming;
use redrt_types::{Incarnation, ProcessIndex};
use redrt_wire::control::FromAgent;
use redrt_wire::event::Event;
use tracing::warn;

impl Engine {
    /// Takes over a link that another process has opened.
    pub(super) fn add_receiver(&mut self, mut receiver: Incoming) {
        let (name, me, opened_again) = (&mut receiver.name, self.world.process(self.me), self.is_replicated());
        let is_of_job = name.job == self.links.job();
        if !is_of_job {
            // It proved knowledge of the secret of this job's links, so this job has given it away.
            let met = if opened_again { None } else { self.links.meet_stranger(name.job, name.from) };
            let Some(process) = met else { return self.refuse(None, &Fault::Stranger(receiver.name.from.0)) };
            name.from = process;
        } else if name.from.0 >= self.world.process_count() || name.from == me {
            return self.refuse(None, &Fault::Stranger(receiver.name.from.0));
        }
        let mut admitted = self.links.admit(receiver, opened_again);
        if let Admitted::Newer(receiver) = admitted {
            self.reconnect(receiver.name.from, receiver.name.epoch);
            admitted = self.links.admit(receiver, opened_again);
        }
        if let Admitted::Restored(process) = admitted {
            let peer = self.world.replica(process);
            self.runtime.report(FromAgent::Event(Event::Reconnected { replica: self.me, peer }));
        }
    }

    /// Handles all links that have broken since. The other end of one may be dead, which a view will say, or alive.
    pub(super) fn follow_broken(&mut self) {
        let opened_again = self.is_replicated();
        while let Some(event) = self.links.next_event(opened_again) {
            match event {
                LinkEvent::Reconnect(process, epoch) => self.reconnect(process, epoch),
                LinkEvent::Suspected { process, host_is_silent } => {
                    let peer = self.world.replica(process);
                    self.runtime.report(FromAgent::Suspect { peer, host_is_silent });
                }
                LinkEvent::ForeignGone(process) => {
                    // Ends a wait for the others to part. That end is in order once both have parted, or are about to.
                    self.requests.completions += 1;
                    if let Some(loss) = self.runtime.loss_of(process, &self.links.name_of(process)) {
                        self.runtime.abort(1, loss);
                    }
                }
            }
        }
    }

    /// Begins an epoch of the connection with another process, and asks the process anew for the messages it owes.
    fn reconnect(&mut self, process: ProcessIndex, epoch: u32) {
        if !self.links.begin_epoch(process, epoch) {
            return;
        }
        for pull in self.arrivals.drop_shadows_of(process) {
            self.fetches.give_up(&pull);
        }
        let peer = self.world.replica(process);
        self.replication().reset(process, peer);
        self.carry_out();
        // A waiter has something to send.
        self.requests.completions += 1;
    }

    /// Closes the link to the sender of a frame that no sound process sends, and tells `redrun`. The frame must be out
    /// of use. See the module `refusal`.
    #[cold]
    pub(super) fn refuse(&mut self, from: Option<ProcessIndex>, fault: &Fault) {
        warn!(target: "engine", from = ?from.map(|from| from.0), %fault, "a frame is refused");
        if let Some(from) = from.filter(|from| self.links.is_foreign(*from)) {
            self.links.close(from, Incarnation(0));
            let what = format!("{} {fault}", self.links.name_of(from));
            return self.runtime.report(FromAgent::Refused { peer: None, what });
        }
        let peer = match fault {
            Fault::Protocol { by, .. } => Some(*by),
            _ => from.map(|from| self.world.replica(from)),
        };
        if let Some(peer) = peer {
            let member = self.view().and_then(|view| view.member(peer));
            let incarnation = member.map_or(Incarnation(0), |member| member.incarnation);
            self.links.close(self.world.process(peer), incarnation);
            if self.view().is_some_and(|view| !view.is_live(peer)) {
                return;
            }
        }
        self.runtime.report(FromAgent::Refused { peer, what: fault.to_string() });
    }
}
