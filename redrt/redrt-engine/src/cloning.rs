//! Copies of the process: the messages kept for them, the moment of the cut, and how a copy takes its place.
//!
//! ```text
//!   cloner's agent: hold ──▶ threads stop, image ──▶ the source lets go, and goes on
//!                                            └─────▶ the copy: become_copy, Outside ──view──▶ InView ──▶ Done
//! ```
//! While an image is taken the agent holds the engine. So no thread is within an operation, and all outputs of the
//! protocol have been carried out. In a copy the program's threads wait at the gate until the view that has it; frames
//! are taken from then on (`quiesce`'s join).
//!
//! A checkpoint is a set of images from which all processes go on ([`Cell::hold_for_checkpoint`]). Where messages are
//! numbered, each process loaded from a checkpoint is such a copy. Where they are not, the whole job must be at rest,
//! and each process goes on as itself.

use super::link::{Identity, Links};
use super::{Cell, Engine};
use quiesce::matching::Order;
use redrt_sync::biased::Guard;
use redrt_types::ReplicaId;
use redrt_wire::card::Card;
use redrt_wire::clone::Pins;
use std::io;
use std::sync::atomic::Ordering;
use tracing::debug;

/// Progress of a copy on its way into the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Joining {
    /// No view has it yet.
    Outside,
    /// It goes on from an image, with the whole job, in a job whose messages are not numbered. It does not yet know how
    /// the others are reached.
    Restored,
    /// It has its place, and has not heard from its leader yet.
    InView,
    /// It is like any other process.
    Done,
}

impl Joining {
    /// Returns true if threads of the program wait before they enter MPI.
    pub fn is_closed(self) -> bool {
        matches!(self, Self::Outside | Self::Restored)
    }

    /// Takes in the progress of the protocol. Returns true, once, if this copy is in step now: it has heard from its
    /// leader.
    pub(super) fn advance(&mut self, has_heard: bool) -> bool {
        let is_in_step = *self == Self::InView && has_heard;
        if is_in_step {
            *self = Self::Done;
            debug!(target: "engine", "this copy is in step");
        }
        is_in_step
    }
}

/// The engine, held while an image is taken.
pub struct Held<'a> {
    engine: Guard<'a, Engine>,
    cell: &'a Cell,
}

impl Cell {
    /// Keeps messages that these newcomers may ask for. For others it keeps only what the view demands.
    pub fn set_pins(&self, pins: &Pins) {
        let mut engine = self.lock_at_any_time();
        if let Some(replication) = &mut engine.replication {
            replication.set_pins(&pins.awaited, &pins.ready);
            // A process that waits to leave may owe nothing any more.
            engine.requests.completions += 1;
            engine.carry_out();
        }
        engine.notify_sleeper(&self.sleeper);
    }

    /// Makes progress though no thread of the program may be in MPI: copies need it, and siblings that are behind.
    pub fn help_others(&self) {
        let mut engine = self.lock_at_any_time();
        if engine.joining.is_closed() {
            return;
        }
        self.take_news(&mut engine);
        engine.progress(1);
        engine.flush();
        self.stir(&mut engine);
        engine.notify_sleeper(&self.sleeper);
    }

    /// Takes in how processes can be reached.
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
            engine.notify_sleeper(&self.sleeper);
            drop(engine);
            self.wake();
        }
    }

    /// Holds the engine for an image of a checkpoint, together with all other processes of the job, until all images
    /// are taken. `None` in a process that does not know its place yet. A copy that has not heard from its leader may
    /// be held: it has all decisions, since nobody joins a running job while a checkpoint is taken, and replicas that
    /// went back to a checkpoint share one image.
    pub fn hold_for_checkpoint(&self) -> Option<Held<'_>> {
        self.is_wanted.store(true, Ordering::Relaxed);
        let mut engine = self.lock_at_any_time();
        self.is_wanted.store(false, Ordering::Relaxed);
        if engine.joining.is_closed() {
            return None;
        }
        engine.flush();
        if engine.replication.is_none() {
            // Frames at hand may still cause sends, to processes that are copied already.
            engine.links.suspend();
        }
        Some(Held { engine, cell: self })
    }

    /// Holds the engine for an image. `None` when no copy is awaited: the others would keep no messages for it.
    pub fn hold(&self) -> Option<Held<'_>> {
        self.is_wanted.store(true, Ordering::Relaxed);
        let mut engine = self.lock_at_any_time();
        self.is_wanted.store(false, Ordering::Relaxed);
        let is_awaited = engine.replication.as_ref().is_some_and(|replication| replication.expects_sibling());
        if engine.joining != Joining::Done || !is_awaited {
            return None;
        }
        engine.flush();
        // Threads still run, so none is stopped while it holds the lock of the log.
        debug!(target: "engine", "held for a cut");
        Some(Held { engine, cell: self })
    }
}

impl Held<'_> {
    /// Runs in the copy: it is the process `me` from now on.
    pub fn become_copy(&mut self, me: ReplicaId, identity: Identity, shares_core: bool) -> io::Result<()> {
        self.cell.sleeper.become_process(&identity, shares_core)?;
        let engine = &mut *self.engine;
        engine.me = me;
        engine.joining = Joining::Outside;
        engine.shares_core = shares_core;
        let mut links = Links::new(identity, engine.world.process_count());
        let replication = engine.replication.as_mut().expect("only replicated processes are cloned");
        links.set_members(&engine.world, replication.view());
        std::mem::replace(&mut engine.links, links).disown();
        // Payloads that were under way to the source are offered again.
        engine.fetches = Default::default();
        engine.arrivals.become_copy();
        engine.faults.clear();
        engine.waiters.forget_alarm();
        engine.signals.become_copy();
        replication.become_copy(me);
        let matched = engine.arrivals.set_order(Order::Following);
        engine.deliver_all(matched);
        self.cell.choose_bias(&mut self.engine);
        Ok(())
    }

    /// Runs `act`, which sends siblings news of this process.
    pub fn announce(&mut self, act: impl FnOnce(&mut Engine)) {
        act(&mut self.engine);
    }

    /// Returns true if nothing may be under way between processes whose images belong together: nobody would send it
    /// again.
    pub fn needs_rest(&self) -> bool {
        self.engine.replication.is_none()
    }

    /// Sends bytes that connections have buffered, and takes in what has reached this host. Returns true if all sent
    /// bytes have reached the other hosts.
    pub fn settle(&mut self) -> bool {
        self.cell.take_news(&mut self.engine);
        let has_arrived = self.engine.links.flush_networks();
        while self.engine.receive_from_networks(u64::MAX) {}
        has_arrived
    }

    /// Returns true if messages can come from another host.
    pub fn uses_networks(&self) -> bool {
        self.engine.links.uses_networks()
    }

    /// Lets the source go on; waiting frames are sent.
    pub fn resume(mut self) {
        self.engine.links.pump();
        let cell = self.cell;
        drop(self);
        cell.wake();
    }

    /// Runs in a process without siblings that goes on from an image of a checkpoint, as all processes of its job do:
    /// frames that were sent and not taken are still in the rings.
    pub fn become_restored(&mut self, identity: Identity, shares_core: bool) -> io::Result<()> {
        self.cell.sleeper.become_process(&identity, shares_core)?;
        let engine = &mut *self.engine;
        engine.joining = Joining::Restored;
        engine.shares_core = shares_core;
        engine.links.become_restored(identity);
        // This host may permit direct reads that the last one refused.
        engine.fetches.forget_refusal();
        engine.waiters.forget_alarm();
        self.cell.choose_bias(&mut self.engine);
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.engine.notify_sleeper(&self.cell.sleeper);
    }
}
