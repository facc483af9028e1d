//! Copies of the process: what others keep for them, the moment at which one is made, how it takes its place.
//!
//! ```text
//!   cloner's agent: hold ──▶ threads stop, image ──▶ the source lets go, and goes on
//!                                            └─────▶ the copy: become_copy, Outside ──view──▶ InView ──▶ Done
//! ```
//! While an image is taken the agent holds the engine, so no thread is in the middle of anything, and everything that
//! the protocol has said was carried out. In a copy the program's threads wait at the gate until the view that has it;
//! frames are taken from then on (`quiesce`'s join).
//!
//! A line is images of processes from which all go on ([`Cell::hold_for_line`]). Where messages are numbered each that
//! is loaded from one is such a copy. Where they are not, all of a job must be at rest, and go on as they were.

use super::link::{Identity, Links};
use super::message::Data;
use super::signals::Signals;
use super::{Cell, Engine};
use quiesce::matching::Order;
use redrt_sync::biased::Guard;
use redrt_transport::Landings;
use redrt_types::ReplicaId;
use redrt_wire::card::Card;
use redrt_wire::clone::Pins;
use redrt_wire::control::FromAgent;
use std::io;
use std::sync::atomic::Ordering;
use tracing::debug;

/// How far a copy is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Joining {
    /// No view has it.
    Outside,
    /// It goes on from an image, with the whole job, in which messages are not numbered, and has not heard how the
    /// others are reached.
    Restored,
    /// It has its place, and has not heard its leader.
    InView,
    /// It is like any other.
    Done,
}

impl Joining {
    /// Whether threads of the program wait before they enter MPI.
    pub fn is_closed(self) -> bool {
        matches!(self, Self::Outside | Self::Restored)
    }
}

/// The engine, held while an image is taken.
pub struct Held<'a> {
    engine: Guard<'a, Engine>,
    cell: &'a Cell,
}

impl Cell {
    /// Keeps what these newcomers may ask for, and for no others more than the view says.
    pub fn set_pins(&self, pins: &Pins) {
        let mut engine = self.lock_at_any_time();
        if let Some(replication) = &mut engine.replication {
            replication.set_pins(&pins.awaited, &pins.ready);
            // Who leaves may owe nothing any more.
            engine.requests.completions += 1;
            engine.carry_out();
        }
        engine.tell_sleeper(&self.sleeper);
    }

    /// Takes in what has arrived and sends what can go, though no thread of the program may be in MPI: copies need it,
    /// and siblings that are behind.
    pub fn help_others(&self) {
        let mut engine = self.lock_at_any_time();
        if engine.joining.is_closed() {
            return;
        }
        self.take_news(&mut engine);
        engine.progress(1);
        engine.flush();
        self.stir(&mut engine);
        engine.tell_sleeper(&self.sleeper);
    }

    /// Learns how processes can be reached.
    pub fn set_cards(&self, cards: Vec<Card>) {
        let mut engine = self.lock_at_any_time();
        let (me, count) = (engine.world.process(engine.me), engine.world.process_count());
        for card in cards.into_iter().filter(|card| card.process != me && card.process.0 < count) {
            engine.links.set_card(card);
        }
        if engine.joining == Joining::Restored {
            engine.joining = Joining::Done;
            engine.links.pump();
            self.gate.notify_all();
            engine.tell_sleeper(&self.sleeper);
            drop(engine);
            self.wake();
        }
    }

    /// Holds the engine for an image of a line. All others of whom there is one are held, too, until all images are
    /// taken. `None` in a process that has yet to hear of its place. A copy that has not heard its leader has all that
    /// was decided: nobody joins a running job while a line is taken, and of one that went back all have one image.
    pub fn hold_for_line(&self) -> Option<Held<'_>> {
        self.is_wanted.store(true, Ordering::Relaxed);
        let mut engine = self.lock_at_any_time();
        self.is_wanted.store(false, Ordering::Relaxed);
        if engine.joining.is_closed() {
            return None;
        }
        engine.flush();
        if engine.replication.is_none() {
            // What is in hand may still cause something to be sent, to processes that are copied already.
            engine.links.suspend();
        }
        Some(Held { engine, cell: self })
    }

    /// Holds the engine for an image. `None` when nobody awaits one: others would keep nothing for the copy.
    pub fn hold(&self) -> Option<Held<'_>> {
        self.is_wanted.store(true, Ordering::Relaxed);
        let mut engine = self.lock_at_any_time();
        self.is_wanted.store(false, Ordering::Relaxed);
        let is_awaited = engine.replication.as_ref().is_some_and(|replication| replication.expects_sibling());
        if engine.joining != Joining::Done || !is_awaited {
            return None;
        }
        engine.flush();
        // Threads still run: nobody can be stopped while it shows a line.
        debug!(target: "engine", "held for a cut");
        Some(Held { engine, cell: self })
    }
}

impl Held<'_> {
    /// In the copy: it is this process from now on.
    pub fn become_copy(&mut self, me: ReplicaId, identity: Identity, shares_core: bool) -> io::Result<()> {
        self.cell.sleeper.become_process(&identity, shares_core)?;
        self.engine.become_copy(me, identity, shares_core);
        self.cell.choose_bias(&mut self.engine);
        Ok(())
    }
}

impl Held<'_> {
    /// Does something that tells siblings of this process.
    pub fn tell(&mut self, act: impl FnOnce(&mut Engine)) {
        act(&mut self.engine);
    }

    /// Whether nothing may be on its way between processes whose images belong together: nobody would send it again.
    pub fn needs_rest(&self) -> bool {
        self.engine.replication.is_none()
    }

    /// Sends what connections have taken, and takes in what has reached this host. Whether all that was sent has
    /// reached the others.
    pub fn settle(&mut self) -> bool {
        self.cell.take_news(&mut self.engine);
        let has_arrived = self.engine.links.flush_networks();
        while self.engine.receive_from_networks(u64::MAX) {}
        has_arrived
    }

    /// Whether anything can come from elsewhere than this host.
    pub fn uses_networks(&self) -> bool {
        self.engine.links.uses_networks()
    }

    /// What waits goes.
    pub fn resume(mut self) {
        self.engine.links.pump();
        let cell = self.cell;
        drop(self);
        cell.wake();
    }

    /// In a process without siblings that goes on from an image of a line, as all others of its job do: what it had
    /// sent to them and they had not taken is where it was.
    pub fn become_restored(&mut self, identity: Identity, shares_core: bool) -> io::Result<()> {
        self.cell.sleeper.become_process(&identity, shares_core)?;
        self.engine.become_restored(identity, shares_core);
        self.cell.choose_bias(&mut self.engine);
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.engine.tell_sleeper(&self.cell.sleeper);
    }
}

impl Engine {
    fn become_copy(&mut self, me: ReplicaId, identity: Identity, shares_core: bool) {
        self.me = me;
        self.joining = Joining::Outside;
        self.shares_core = shares_core;
        let mut links = Links::new(identity, self.world.process_count());
        let replication = self.replication.as_mut().expect("only replicated processes are cloned");
        links.set_members(&self.world, replication.view());
        std::mem::replace(&mut self.links, links).disown();
        // Payloads that were on their way to the source are offered again.
        self.landings = Landings::default();
        self.messages.retain(|_, message| !message.is_shadow);
        for (_, message) in &mut self.messages {
            message.pull = None;
            if matches!(message.data, Data::Remote(..) | Data::Landing(_)) {
                message.data = Data::Awaited;
            }
        }
        self.direct_refused = false;
        self.faults.clear();
        self.alarm_ns = None;
        Signals::become_copy();
        replication.become_copy(me);
        let mut matched = Vec::new();
        self.contexts.set_order(Order::Following, &mut matched);
        self.deliver_all(matched);
    }

    fn become_restored(&mut self, identity: Identity, shares_core: bool) {
        self.joining = Joining::Restored;
        self.shares_core = shares_core;
        self.links.become_restored(identity);
        // This host may allow what the last one did not.
        self.direct_refused = false;
        self.alarm_ns = None;
    }

    /// Whether it is no copy, or one that is in step.
    pub(super) fn has_joined(&self) -> bool {
        self.joining == Joining::Done
    }

    /// Says once that this copy has heard its leader.
    pub(super) fn tell_in_step(&mut self) {
        if !self.replication().is_in_step() {
            return;
        }
        self.joining = Joining::Done;
        debug!(target: "engine", "this copy is in step");
        self.runtime.tell(FromAgent::InStep);
    }
}
