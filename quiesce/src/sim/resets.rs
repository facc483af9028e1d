//! Connections that break between two processes which live on.
//!
//! Packets in flight are lost from some point on, in one direction or both, and so are later ones until the connection
//! begins anew: an *epoch* ends. One end notices or both do, each in its own time. An end that does not notice learns
//! of the new epoch by its first packet. The trap: an end may send in a new epoch that the other does not know, and
//! these packets may be lost, too. Then it is not enough that the other end notices the end of the old one.

use super::Faults;
use super::world::Simulation;
use redrt_types::{ProcessIndex, ReplicaId};
use simulation_kit::Random;
use std::collections::BTreeMap;

/// A process will notice that its connection with another has broken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notice {
    pub(super) at: ReplicaId,
    peer: ReplicaId,
    /// The epoch that has ended.
    epoch: u32,
}

/// The connections that are broken, and the breaks to come.
pub(super) struct Breaks {
    /// A generator of its own, so that runs without resets stay the same.
    random: Random,
    left: usize,
    pub(super) notices: Vec<Notice>,
    /// Links that deliver no packets of this epoch or earlier ones.
    pub(super) cut: BTreeMap<(ProcessIndex, ProcessIndex), u32>,
}

impl Breaks {
    /// Turns the faults of some runs into resets.
    pub(super) fn perhaps(seed: u64, faults: Faults) -> Faults {
        let may = matches!(faults, Faults::None | Faults::Deaths);
        if may && Random::new(seed ^ 0x7265_7365).chance(30) { Faults::Resets } else { faults }
    }

    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        let mut random = Random::new(seed ^ 0x7365_7473);
        let left = if faults == Faults::Resets { 1 + random.below(6) } else { 0 };
        Self { random, left, notices: Vec::new(), cut: BTreeMap::new() }
    }

    /// Drops the breaks of a place that another process takes.
    pub(super) fn forget(&mut self, place: ProcessIndex, replica: ReplicaId) {
        self.cut.retain(|(from, to), _| *from != place && *to != place);
        self.notices.retain(|notice| notice.at != replica && notice.peer != replica);
    }
}

impl Simulation {
    /// Breaks a random connection now and then.
    pub(super) fn break_connections(&mut self) {
        if self.breaks.left == 0 || self.breaks.random.below(40) != 0 {
            return;
        }
        let count = self.processes.len();
        let (one, other) = (self.breaks.random.below(count), self.breaks.random.below(count));
        let may = |place: usize| self.processes[place].alive && !self.processes[place].is_new();
        if one == other || !may(one) || !may(other) {
            return;
        }
        self.breaks.left -= 1;
        self.summary.resets += 1;
        let (here, there) = (self.processes[one].me(), self.processes[other].me());
        self.say(|| format!("{here}  breaks  its connection with {there}"));
        let is_both = self.breaks.random.chance(60);
        self.cut_link(here, there);
        if is_both {
            self.cut_link(there, here);
        }
    }

    /// Loses the packets from one process to the other from some point on.
    fn cut_link(&mut self, from: ReplicaId, to: ReplicaId) {
        let link = (self.world.process(from), self.world.process(to));
        let epoch = self.process(from).epoch(to);
        self.breaks.cut.insert(link, epoch);
        let notices = [(from, to), (to, from)].map(|(at, peer)| Notice { at, peer, epoch });
        // The sender notices, or the receiver, or both.
        let choice = self.breaks.random.below(3);
        self.breaks
            .notices
            .extend(notices.iter().enumerate().filter(|(end, _)| *end != choice).map(|(_, notice)| *notice));
        self.links.cut(&mut self.breaks.random, |other| other == link);
        let random = &mut self.breaks.random;
        self.transfers.retain(|(one, other, ..)| (*one, *other) != (from, to) || random.chance(50));
    }

    /// Lets a process notice, unless it knows of the new epoch already. Returns its place.
    pub(super) fn notice(&mut self, number: usize) -> usize {
        let Notice { at, peer, epoch } = self.breaks.notices.swap_remove(number);
        let place = self.world.process(at).0 as usize;
        let process = &mut self.processes[place];
        if process.alive && process.epoch(peer) <= epoch {
            process.begin_epoch(peer, epoch + 1);
            process.runnable = true;
            self.say(|| format!("{at}  notices that the connection with {peer} is lost"));
        }
        place
    }
}
