//! Connections that break between two living processes.
//!
//! Two processes have up to two connections, one for each direction, or one for both (`sharing`). They share an
//! *epoch*, which is stated when one is opened. If either breaks, both are over: frames under way are lost, in either
//! direction. The end that notices begins the next epoch, asks anew for the messages it wants
//! (`quiesce::Replica::reset`), and thereby opens a connection in it. The other end learns of the epoch from that
//! connection. Connections of an earlier epoch are refused.
//!
//! ```text
//!   v.i, epoch 0                                     w.j, epoch 0
//!    │ ────────────────── link 0 ──────╳               │
//!    │ begin_epoch(1), Resume waits                    │
//!    ├── open: "v.i, epoch 1" ───────────────────────► │ begin_epoch(1): drops its links of epoch 0
//!    ├── Resume ─────────────────────────────────────► │
//!    │ ◄───────────────────────── open: "w.j, epoch 1" ┤ its own Resume
//! ```
//! The trap: a sender with nothing more to send would not notice. So its sockets are examined when it goes to sleep,
//! and now and then when it polls.

use super::{Links, Route};
use redrt_transport::network::Incoming;
use redrt_types::{Incarnation, ProcessIndex};
use std::sync::atomic::Ordering;
use tracing::debug;

/// Attempts, with pauses, to open a connection that breaks again before the other end has come back.
const ATTEMPTS_MAX: u32 = 20;

/// Retransmissions without an acknowledgement before the connection is opened again: 6 s.
const UNANSWERED_MAX: u32 = 5;
/// The same before a host is given up for good, where connections are not opened again; TCP may still come through: 25
/// s.
const UNANSWERED_MAX_FOR_GOOD: u32 = 7;

/// An event that broke a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// The link was lost in this epoch. The other end may be alive.
    Lost {
        /// The other end.
        process: ProcessIndex,
        /// The epoch that is over.
        epoch: u32,
    },
    /// The link could not be opened: nobody listens there any more.
    Refused(ProcessIndex),
    /// The other end's host does not answer, and frames are lost.
    Silent(ProcessIndex),
}

impl Broken {
    /// The process at the other end.
    pub fn process(self) -> ProcessIndex {
        match self {
            Self::Lost { process, .. } | Self::Refused(process) | Self::Silent(process) => process,
        }
    }
}

/// Treatment of a link that another process has opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Of the present epoch: take it.
    Same,
    /// Of a later epoch: begin that first.
    Newer,
    /// Of a process that the view does not have yet: keep it until the view does.
    Early,
    /// Of a dead process or a past epoch, or meant for another process: drop it.
    Stale,
}

/// The consequence of a broken link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// A process of another job is gone, or cannot be reached.
    ForeignGone(ProcessIndex),
    /// The connection with a process has to begin this epoch.
    Reconnect(ProcessIndex, u32),
    /// A process may be dead: a view will tell.
    Suspected {
        /// The process.
        process: ProcessIndex,
        /// True if its host does not answer.
        host_is_silent: bool,
    },
}

/// The state of a link that another process has opened, after [`Links::admit`].
pub enum Admitted {
    /// It was dropped, kept for later, or taken, and nothing else follows.
    Settled,
    /// A connection that was lost is back.
    Restored(ProcessIndex),
    /// The connection has to begin the link's epoch; then the link is to be admitted again.
    Newer(Incoming),
}

/// The event of a broken link. Apart from the question whether one broke, which each round of progress asks.
#[cold]
fn event_of(links: &mut Links, broken: Broken, opened_again: bool) -> LinkEvent {
    let process = broken.process();
    debug!(target: "engine", process = process.0, "a link broke");
    if links.is_foreign(process) {
        links.give_up(process);
        return LinkEvent::ForeignGone(process);
    }
    match broken {
        Broken::Lost { epoch, .. } if opened_again => LinkEvent::Reconnect(process, epoch + 1),
        Broken::Lost { .. } | Broken::Refused(_) => LinkEvent::Suspected { process, host_is_silent: false },
        Broken::Silent(_) => LinkEvent::Suspected { process, host_is_silent: true },
    }
}

impl Links {
    /// Takes a link that has broken since; `None` when there are no more. `opened_again`: connections are, where nobody
    /// is dead.
    #[inline]
    pub fn next_event(&mut self, opened_again: bool) -> Option<LinkEvent> {
        let broken = self.broken.pop()?;
        Some(event_of(self, broken, opened_again))
    }

    /// Takes over a link that another process has opened, if it is of the present epoch. `opened_again`: a link may
    /// begin a new epoch.
    pub fn admit(&mut self, receiver: Incoming, opened_again: bool) -> Admitted {
        match self.judge(&receiver) {
            Admission::Stale => {}
            Admission::Early => self.keep_early(receiver),
            Admission::Newer if opened_again => return Admitted::Newer(receiver),
            Admission::Newer => {}
            Admission::Same => {
                let process = receiver.name.from;
                if self.take_receiver(receiver) && !self.is_foreign(process) {
                    return Admitted::Restored(process);
                }
            }
        }
        Admitted::Settled
    }

    /// The treatment of a link that was accepted.
    pub fn judge(&self, receiver: &Incoming) -> Admission {
        let Some(peer) = self.peers.get(receiver.name.from.0 as usize) else { return Admission::Stale };
        let is_fenced = peer.fenced.is_some_and(|fenced| receiver.name.incarnation <= fenced);
        if is_fenced || receiver.name.to != self.identity.me {
            return Admission::Stale;
        }
        if peer.live != Some(receiver.name.incarnation) {
            return Admission::Early;
        }
        match receiver.name.epoch.cmp(&peer.epoch) {
            std::cmp::Ordering::Less => Admission::Stale,
            std::cmp::Ordering::Equal => Admission::Same,
            std::cmp::Ordering::Greater => Admission::Newer,
        }
    }

    /// Ends the connections with a process, and begins this epoch. Returns false if that epoch has begun already, the
    /// process is dead, or it cannot be reached for good.
    pub fn begin_epoch(&mut self, process: ProcessIndex, epoch: u32) -> bool {
        let peer = &mut self.peers[process.0 as usize];
        // A successor may hold the place of a dead incarnation now.
        let is_dead = peer.fenced.is_some() && peer.live.is_none();
        if is_dead || epoch <= peer.epoch {
            return false;
        }
        peer.attempts = if peer.is_confirmed { 0 } else { peer.attempts + 1 };
        peer.is_confirmed = false;
        peer.epoch = epoch;
        debug!(target: "engine", process = process.0, epoch, "a connection begins anew");
        if let Route::Opening { wanted, .. } = &peer.route {
            wanted.store(false, Ordering::Relaxed);
        }
        peer.backlog.clear();
        peer.pushes.clear();
        peer.followed = None;
        peer.route = Route::Unopened;
        let gives_up = peer.attempts > ATTEMPTS_MAX;
        self.receivers.retain(|receiver| receiver.name.from != process);
        self.cursor = 0;
        if gives_up {
            self.peers[process.0 as usize].route = Route::Gone;
            self.broken.push(Broken::Refused(process));
        }
        !gives_up
    }

    /// Keeps a link of a process that the view does not have yet, until [`Links::join`].
    pub fn keep_early(&mut self, receiver: Incoming) {
        self.early.retain(|early| {
            early.name.from != receiver.name.from || early.name.incarnation > receiver.name.incarnation
        });
        self.early.push(receiver);
    }

    /// Takes the kept link of a process that the view has now. Nothing has been sent to it yet, so any epoch of its
    /// will do.
    pub(super) fn take_early(&mut self, process: ProcessIndex, incarnation: Incarnation) {
        let is_its = |receiver: &Incoming| receiver.name.from == process && receiver.name.incarnation == incarnation;
        let (its, others) = std::mem::take(&mut self.early).into_iter().partition::<Vec<_>, _>(is_its);
        self.early = others;
        // Each epoch has one link; the latest counts.
        if let Some(receiver) = its.into_iter().max_by_key(|receiver| receiver.name.epoch) {
            let peer = &mut self.peers[process.0 as usize];
            (peer.epoch, peer.is_confirmed) = (receiver.name.epoch, true);
            self.receivers.push(receiver);
        }
    }

    /// Takes over a link of the present epoch. Returns true if the connection was lost before and is back.
    pub fn take_receiver(&mut self, receiver: Incoming) -> bool {
        let peer = &mut self.peers[receiver.name.from.0 as usize];
        let is_back = receiver.name.epoch > 0 && !peer.is_confirmed;
        peer.is_confirmed = true;
        let process = receiver.name.from;
        debug!(target: "engine", process = process.0, epoch = receiver.name.epoch, "a link was accepted");
        self.receivers.push(receiver);
        self.share(process);
        is_back
    }

    /// Checks sockets that this process only writes to for a close by the other end.
    pub fn poll_senders(&mut self) {
        for number in 0..self.process_count() {
            if let Route::Open(outlet) = &mut self.peers[number as usize].route
                && !outlet.is_shared()
                && outlet.poll_loss()
            {
                self.route_broke(ProcessIndex(number));
            }
        }
    }

    /// Breaks connections whose other end's host has left too many retransmissions in a row unanswered. Unless they are
    /// `opened_again`, that is for good. Returns true if there were any.
    pub fn break_silent(&mut self, opened_again: bool) -> bool {
        let unanswered_max = if opened_again { UNANSWERED_MAX } else { UNANSWERED_MAX_FOR_GOOD };
        let mut any = false;
        for number in 0..self.process_count() {
            let process = ProcessIndex(number);
            let is_silent = |route: &Route| matches!(route, Route::Open(link) if link.unanswered() >= unanswered_max);
            if !is_silent(&self.peers[number as usize].route) {
                continue;
            }
            any = true;
            self.route_broke(process);
            if !opened_again {
                self.broken.retain(|broken| broken.process() != process);
                self.broken.push(Broken::Silent(process));
            }
        }
        any
    }

    /// Breaks the connection with a process in both directions, as `--inject=reset` asks. Returns false if there is
    /// none.
    pub fn disconnect(&mut self, process: ProcessIndex) -> bool {
        let mut any = false;
        if let Route::Open(outlet) = &self.peers[process.0 as usize].route {
            outlet.disconnect();
            any = true;
        }
        for receiver in self.receivers.iter().filter(|receiver| receiver.name.from == process) {
            receiver.inlet().disconnect();
            any = true;
        }
        any
    }
}
