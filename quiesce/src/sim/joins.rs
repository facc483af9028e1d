//! The coordinator's side of joins (pins, cut, view, pins), and all faults that may hit them.
//!
//! ```text
//!  begin ─▶ pinning ──── cut ────▶ restoring ──── view ────▶ joining ── in step ─▶ unpin
//!              │                      │                         │
//!              └─ source or spare ────┴── source or spare ──────┴── the newcomer is lost ─▶ unpin
//! ```
//! In runs that are not about clones the view comes with the cut, and there is one join at a time.

use super::process::{Control, Process};
use super::world::Simulation;
use redrt_types::{Admission, CutNumber, Incarnation, ReplicaId, View, World};
use simulation_kit::Random;

/// Maximum number of joins at a time.
const AT_ONCE_MAX: usize = 3;

/// The progress of a join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Pinning,
    /// The copy is made. No view contains it yet, and the others run on.
    Restoring,
    /// The copy is made, and waits until it is needed.
    Ready,
    /// The copy is in the view.
    Joining,
    /// The copy has received a frame of its leader, and counts like any other replica.
    InStep,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Join {
    pub(super) newcomer: ReplicaId,
    pub(super) source: ReplicaId,
    pub(super) stage: Stage,
    /// True if the copy waits until it is needed to judge.
    pub(super) is_arbiter: bool,
    /// Number of its cut among all cuts.
    cut: CutNumber,
}

impl Join {
    /// Mean number of steps until a copy has its memory. Some take so long that others join and leave in between.
    fn restore_pause(&self) -> usize {
        if self.cut.0 % 3 == 1 { 80 } else { 8 }
    }
}

impl Simulation {
    /// Advances all joins by a step.
    pub(super) fn advance_joins(&mut self) {
        let (pause, at_once_max) = if self.is_about_clones { (10, AT_ONCE_MAX) } else { (30, 1) };
        let at_once = self.joins.iter().filter(|join| !join.is_arbiter).count();
        if at_once < at_once_max && self.joins_left > 0 {
            if self.random.below(pause) == 0 {
                self.begin_join();
            }
            if !self.is_about_clones && self.arbitration.is_none() {
                return;
            }
        }
        for place in (0..self.joins.len()).rev() {
            let join = self.joins[place];
            let is_detailed = self.is_about_clones || self.arbitration.is_some();
            let next = if is_detailed { self.advance(join) } else { self.advance_plainly(join) };
            match next {
                Some(Join { stage: Stage::InStep, .. }) => {
                    self.joins.remove(place);
                    if self.is_about_clones {
                        self.retire_one_of(join);
                    }
                }
                Some(join) => self.joins[place] = join,
                None => drop(self.joins.remove(place)),
            }
        }
    }

    /// Advances a join without extra faults. `None` when it is over.
    fn advance_plainly(&mut self, join: Join) -> Option<Join> {
        let is_cut = join.stage == Stage::Joining;
        let is_lost = if is_cut { !self.view.is_live(join.newcomer) } else { !self.view.is_live(join.source) };
        if is_lost || is_cut && self.process(join.newcomer).replica.is_in_step() && self.random.below(20) == 0 {
            self.end_join(join, is_lost);
            return None;
        }
        if !is_cut && self.is_pinned(join) && self.random.below(20) == 0 {
            let join = self.cut(join);
            self.admit(join);
            return Some(Join { stage: Stage::Joining, ..join });
        }
        Some(join)
    }

    /// Advances a join, with faults at any step. `None` when it is over.
    fn advance(&mut self, join: Join) -> Option<Join> {
        let is_lost = match join.stage {
            Stage::Pinning | Stage::Restoring => {
                let rarity = if join.is_arbiter { 3_000 } else { 10 * join.restore_pause() };
                !self.view.is_live(join.source) || self.random.below(rarity) == 0
            }
            // Held copies are dropped now and then, and made anew.
            Stage::Ready => !self.view.is_live(join.source) || self.random.below(5_000) == 0,
            Stage::Joining | Stage::InStep => !self.view.is_live(join.newcomer),
        };
        if is_lost {
            self.end_join(join, true);
            return None;
        }
        let before = join.stage;
        let mut join = join;
        let next = match join.stage {
            Stage::Pinning if self.is_pinned(join) && self.random.below(8) == 0 => {
                join = self.cut(join);
                Stage::Restoring
            }
            Stage::Restoring if join.is_arbiter && self.random.below(8) == 0 => Stage::Ready,
            Stage::Restoring if !join.is_arbiter && self.random.below(join.restore_pause()) == 0 => {
                self.admit(join);
                Stage::Joining
            }
            Stage::Joining if self.process(join.newcomer).replica.is_in_step() && self.random.below(8) == 0 => {
                self.end_join(join, false);
                Stage::InStep
            }
            stage => stage,
        };
        if next != before {
            if next == Stage::Ready {
                self.joins.iter_mut().filter(|other| other.newcomer == join.newcomer).for_each(|it| it.stage = next);
                self.send_pins(None);
            }
            self.kill_somebody(join);
        }
        Some(Join { stage: next, ..join })
    }

    /// Kills a process that is involved in a join, since faults at its steps are the interesting ones.
    pub(super) fn kill_somebody(&mut self, join: Join) {
        if self.deaths_left == 0 || !self.random.chance(30) {
            return;
        }
        let place = match self.random.below(3) {
            0 => self.world.process(join.source).0 as usize,
            1 => self.world.process(join.newcomer).0 as usize,
            _ => self.random.below(self.processes.len()),
        };
        self.kill_at(place);
    }

    /// Retires a replica after a join. It may be the source, which was to move, even if it is the only other one. Or
    /// the degree is lowered, and any replica leaves.
    fn retire_one_of(&mut self, join: Join) {
        let live: Vec<_> = self.view.live(join.newcomer.rank).collect();
        let victim = match self.random.below(100) {
            0..40 => self.random.pick(&live),
            40..80 => join.source,
            _ => return,
        };
        let place = self.world.process(victim).0 as usize;
        if self.may_lose(place) {
            self.summary.retired += 1;
            self.summary.moved += u64::from(victim == join.source && live.len() == 2);
            // The victim is killed, or is told to leave and does not receive that.
            let is_fenced = self.random.chance(50);
            self.lose(place, is_fenced);
        }
    }

    /// Returns true if a live replica has all decisions of its sphere that any other may have noticed.
    pub(super) fn is_full_member(&self, replica: ReplicaId) -> bool {
        let is_condemned = self.arbitration.as_ref().is_some_and(|it| it.is_condemned(replica));
        self.view.is_live(replica) && !is_condemned && !self.joins.iter().any(|join| join.newcomer == replica)
    }

    /// Returns true if all processes have set the pin of a copy. One that is being restored gets it with its view, so
    /// the pin must wait.
    fn is_pinned(&self, join: Join) -> bool {
        let is_pin =
            |control: &Control| matches!(control, Control::Pins { awaited, .. } if awaited.contains(&join.newcomer));
        let has_not_heard = |process: &Process| process.alive && process.controls.iter().any(is_pin);
        let is_restored = |other: &Join| other.stage == Stage::Restoring;
        !self.processes.iter().any(has_not_heard) && !self.joins.iter().any(is_restored)
    }

    /// Sends the complete pins to all processes. The pin of `ended` is left out.
    pub(super) fn send_pins(&mut self, ended: Option<ReplicaId>) {
        let kept = self.joins.iter().filter(|join| Some(join.newcomer) != ended);
        let (ready, awaited): (Vec<_>, Vec<_>) = kept.partition(|join| join.stage == Stage::Ready);
        let places = |joins: Vec<&Join>| joins.into_iter().map(|join| join.newcomer).collect();
        let pins = Control::Pins { awaited: places(awaited), ready: places(ready) };
        self.send_all(&pins);
    }

    fn begin_join(&mut self) {
        let place = self.random.below(self.processes.len());
        let newcomer = self.processes[place].me();
        let is_taken = self.joins.iter().any(|join| join.newcomer == newcomer);
        // A copy of a suspect would vote like any sound replica.
        let is_suspect =
            self.arbitration.is_some() && self.suspect().is_some_and(|suspect| suspect.rank == newcomer.rank);
        if self.processes[place].alive || self.view.is_live(newcomer) || is_taken || is_suspect {
            return;
        }
        let sources: Vec<_> = self.view.live(newcomer.rank).filter(|source| self.is_full_member(*source)).collect();
        if sources.is_empty() {
            return;
        }
        let source = self.random.pick(&sources);
        self.joins_left -= 1;
        self.begin(newcomer, source, false);
    }

    pub(super) fn begin(&mut self, newcomer: ReplicaId, source: ReplicaId, is_arbiter: bool) {
        self.say(|| format!("{newcomer}  join    as a copy of {source}{}", if is_arbiter { ", to judge" } else { "" }));
        self.joins.push(Join { newcomer, source, stage: Stage::Pinning, is_arbiter, cut: CutNumber(0) });
        self.send_pins(None);
    }

    fn cut(&mut self, join: Join) -> Join {
        let Join { newcomer, source, .. } = join;
        let place = self.world.process(newcomer);
        let original = self.world.process(source).0 as usize;
        self.processes[original].flush();
        self.post_outgoing(original);
        let copy = self.process(source).copy(newcomer);
        self.processes[place.0 as usize] = copy;
        // Frames of the place's former life are fenced.
        self.links.forget(|(from, to)| from == place || to == place);
        self.transfers.retain(|(from, to, ..)| *from != newcomer && *to != newcomer);
        self.breaks.forget(place, newcomer);
        self.processes.iter_mut().for_each(|process| process.forget_epoch(newcomer));
        self.say(|| format!("{newcomer}  cut     from {source}"));
        self.cut_count += 1;
        Join { cut: CutNumber(self.cut_count), ..join }
    }

    /// The admission of a copy to its place, with the next incarnation.
    pub(super) fn admission(&mut self, join: Join) -> Admission {
        let Join { newcomer, source, cut, .. } = join;
        let place = self.world.process(newcomer).0 as usize;
        self.lives[place] += 1;
        Admission { replica: newcomer, incarnation: Incarnation(self.lives[place]), source: source.index, cut }
    }

    fn admit(&mut self, join: Join) {
        let newcomer = join.newcomer;
        self.summary.joins += 1;
        let admission = self.admission(join);
        self.view = self.view.with(admission);
        self.say(|| format!("{newcomer}  admit   view {}", self.view.number.0));
        self.send_all(&Control::View(self.view.clone()));
        self.send_pins(None);
    }

    pub(super) fn end_join(&mut self, join: Join, is_lost: bool) {
        let newcomer = join.newcomer;
        self.say(|| format!("{newcomer}  join    {}", if is_lost { "given up" } else { "complete" }));
        if is_lost {
            self.summary.abandoned += 1;
        }
        if matches!(join.stage, Stage::Restoring | Stage::Ready) {
            let place = self.world.process(newcomer).0 as usize;
            self.processes[place].alive = false;
        }
        self.send_pins(Some(newcomer));
    }
}

/// A view in which some places are free at the start. Joins there raise degrees.
pub(super) fn with_free_places(full: &View, world: &World, random: &mut Random) -> View {
    let mut view = full.clone();
    for replica in world.replicas() {
        if random.chance(30) && view.live(replica.rank).count() > 1 {
            view = view.without(&[replica]);
        }
    }
    view
}
