//! A replica whose program leaves the path of its siblings: it makes one call more, or less, or another.
//!
//! The coordinator's side: outvoted replicas are ended. Without a majority, those that have left their leader's path
//! are ended, and the run is open from then on: later errors do not count.

use super::broken::Broken;
use super::check;
use super::process::Process;
use super::program::{Instruction, LARGE_BYTES, To};
use super::world::Simulation;
use crate::frame::Finding;
use crate::matching::Pattern;
use crate::outcome::StreamId;
use crate::path::{PathFinding, PathReport};
use redrt_types::{ContextId, ReplicaId, ReplicaSet, Tag, VirtualRank};
use simulation_kit::Random;

/// The way in which a program leaves the path of its siblings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Departure {
    /// It makes this call before its next one.
    More(Instruction),
    /// It skips the next call that asks for an outcome or sends.
    Less,
    /// It replaces the next such call by this one.
    Other(Instruction),
    /// It goes on with other data: its output and messages are wrong, and its calls are right.
    Data,
    /// The program ends at this call.
    End,
    /// It goes on as before, and its next announcement of a message to one process is lost.
    Lost,
}

impl Departure {
    /// Draws a departure of any kind.
    pub(super) fn any(random: &mut Random) -> Self {
        let send = Instruction::Send {
            to: To::Matched,
            context: ContextId(1),
            tag: Tag(9_999),
            length_bytes: random.pick(&[8, LARGE_BYTES]),
        };
        let tag = random.pick(&[None, Some(Tag(9_998))]);
        let receive = Instruction::Post { context: ContextId(1), pattern: Pattern { source: None, tag } };
        let poll = Instruction::PollOnce { context: ContextId(2) };
        let calls = [Instruction::Read, Instruction::Write, poll, send, receive];
        match random.below(9) {
            0..3 => Self::More(random.pick(&calls)),
            3 | 4 => Self::Less,
            5 => Self::Other(random.pick(&calls)),
            6 => Self::Data,
            7 => Self::Lost,
            _ => Self::End,
        }
    }
}

/// The departure in a run, and its consequences so far.
pub(super) struct PathWatch {
    /// The replica whose program leaves its path.
    departing: ReplicaId,
    /// True if the verdict is undecidable.
    is_open: bool,
    /// True if a process has ever reported that. It may have written data that arbiters would have contradicted.
    was_open: bool,
    /// True if a difference was left to copies that stand ready.
    was_disputed: bool,
    /// The first wrong verdict.
    wrong: Option<Broken>,
    /// All writes to files: the rank, the position and the value.
    changes: Vec<(VirtualRank, u64, u64)>,
    /// Number of times all processes were asked for their waits since any other event.
    asked_count: u32,
}

impl PathWatch {
    pub(super) fn new(departing: ReplicaId) -> Self {
        Self {
            departing,
            is_open: false,
            was_open: false,
            was_disputed: false,
            wrong: None,
            changes: Vec::new(),
            asked_count: 0,
        }
    }

    pub(super) fn departing(&self) -> ReplicaId {
        self.departing
    }
}

impl Process {
    /// Lets the program leave the path of its siblings, between two calls.
    pub(super) fn leave_path(&mut self) {
        let calls = self.app.calls;
        let Some((_, departure)) = self.leaves_path.take_if(|(at, _)| calls >= *at) else { return };
        let is_call = |it: &Instruction| {
            matches!(
                it,
                Instruction::Read | Instruction::Write | Instruction::PollOnce { .. } | Instruction::Send { .. }
            )
        };
        let next = self.app.program.iter().position(is_call);
        self.is_tainted = true;
        match (departure, next) {
            (Departure::More(instruction), _) => self.app.program.push_front(instruction),
            (Departure::Less, Some(next)) => _ = self.app.program.remove(next),
            (Departure::Other(instruction), Some(next)) if self.app.program[next] != instruction => {
                self.app.program[next] = instruction;
            }
            (Departure::Data, _) => self.app.data ^= 1 << 17,
            (Departure::Lost, _) => self.loses_word = true,
            (Departure::End, _) => {
                self.app.program.clear();
                self.end_path();
            }
            _ => self.is_tainted = false,
        }
    }

    /// Tells siblings the place of its thread, if they ask.
    pub(super) fn answer_questions(&mut self) {
        if self.replica.has_questions() {
            self.replica.record_place(self.app.place());
            self.drain();
        }
    }

    /// Ends the stream of its program.
    pub(super) fn end_path(&mut self) {
        self.replica.end_stream(StreamId::Thread(0));
        self.drain();
    }

    pub(super) fn state_waits(&mut self) {
        self.replica.state_waits();
        self.replica.ask_overdue();
        self.record_passed();
    }

    /// Notes the place of its thread, which may have passed the leader's.
    pub(super) fn record_passed(&mut self) {
        if !self.replica.threads_behind().is_empty() {
            self.replica.record_passed(self.app.place());
        }
        self.drain();
    }
}

impl Simulation {
    /// Records a process's writes and reports, and ends the replicas that have parted.
    pub(super) fn watch_paths(&mut self, place: usize) {
        let process = &mut self.processes[place];
        let me = process.me();
        process.answer_questions();
        let changes = std::mem::take(&mut process.changes);
        let reports = std::mem::take(&mut process.partings);
        let is_corrupt = |report: &&crate::frame::MismatchReport| report.finding == Finding::ReplicaCorrupt;
        let named: Vec<_> = process.reports.iter().filter(is_corrupt).filter_map(|report| report.culprit).collect();
        let named = if self.arbitration.is_some() { Vec::new() } else { named };
        let Some(watch) = &mut self.paths else { return };
        watch.asked_count = 0;
        watch.changes.extend(changes.into_iter().map(|(at, value)| (me.rank, at, value)));
        let mut wrong: Vec<_> = named.into_iter().map(|culprit| (culprit, None)).collect();
        for report in reports {
            self.say(|| format!("{me}  parted  {report:?}"));
            self.check_finding(me, &report);
            if let Some(arbitration) = &mut self.arbitration {
                arbitration.told(me, report);
                continue;
            }
            let ended = match &report.finding {
                PathFinding::Outvoted(culprits) => *culprits,
                PathFinding::Undecidable => {
                    self.record_open_path();
                    report.parted
                }
                PathFinding::Disputed => ReplicaSet::EMPTY,
            };
            wrong.extend(ended.iter().map(|index| (ReplicaId { rank: me.rank, index }, Some(report.view))));
        }
        for (replica, view) in wrong {
            let is_its = self.view.member(replica).is_some_and(|member| view.is_none_or(|view| member.joined <= view));
            let place = self.world.process(replica).0 as usize;
            if is_its && self.may_lose(place) {
                self.summary.named += 1;
                self.lose(place, false);
            }
        }
    }

    /// Checks that named replicas have left their path, and that some are named where two lineages have stayed on it.
    fn check_finding(&mut self, by: ReplicaId, report: &PathReport) {
        let is_tainted = |index| self.process(ReplicaId { rank: by.rank, index }).is_tainted;
        let wrong = match &report.finding {
            PathFinding::Outvoted(culprits) => {
                let sound = culprits.iter().find(|index| !is_tainted(*index));
                sound.map(|index| Broken::SoundOutvoted { by, replica: ReplicaId { rank: by.rank, index } })
            }
            PathFinding::Undecidable => {
                self.paths.iter_mut().for_each(|watch| watch.was_open = true);
                let is_tainted = |index| self.process(ReplicaId { rank: by.rank, index }).is_tainted;
                let votes: Vec<_> = report.claims.iter().map(|(index, _)| (*index, is_tainted(*index))).collect();
                // Otherwise they contradict a replica that is lost.
                let is_live = votes.iter().any(|(_, is_tainted)| *is_tainted);
                let kinship = self.processes[self.world.process(by).0 as usize].replica.view().kinship(by.rank);
                (is_live && sdc_detect::agreed(&votes, kinship) == Some(&false)).then_some(Broken::PathLeftOpen(by))
            }
            PathFinding::Disputed => {
                self.paths.iter_mut().for_each(|watch| watch.was_disputed = true);
                None
            }
        };
        if let (Some(wrong), Some(watch)) = (wrong, &mut self.paths) {
            watch.wrong.get_or_insert(wrong);
        }
    }

    /// Ends a replica that has left its path and whose frame was refused, because an earlier one is missing.
    pub(super) fn end_refused(&mut self) {
        for place in 0..self.processes.len() {
            let Some(Broken::Refused { error, .. }) = &self.processes[place].failure else { continue };
            let refused = error.by;
            if !self.process(refused).is_tainted {
                continue;
            }
            self.processes[place].failure = None;
            let victim = self.world.process(refused).0 as usize;
            if self.may_lose(victim) {
                self.lose(victim, false);
            } else {
                self.record_open_path();
            }
        }
    }

    /// Checks that a replica which is named, for its messages or its path, is corrupt.
    pub(super) fn record_named(&mut self, culprit: ReplicaId) {
        let is_sound = !self.process(culprit).is_tainted;
        if let Some(watch) = self.paths.as_mut().filter(|_| is_sound) {
            watch.wrong.get_or_insert(Broken::SoundOutvoted { by: culprit, replica: culprit });
        }
    }

    /// Records that the verdict is undecidable, so that the run has served its purpose.
    pub(super) fn record_open_path(&mut self) {
        self.paths.iter_mut().for_each(|watch| watch.is_open = true);
    }

    /// Called when no event is possible. Makes all processes claim their waits. Returns false when that was done often
    /// enough.
    pub(super) fn ask_for_waits(&mut self) -> bool {
        let Some(watch) = &mut self.paths else { return false };
        // Missing messages are asked for ever more rarely.
        watch.asked_count += 1;
        if watch.asked_count > 64 {
            return false;
        }
        for place in 0..self.processes.len() {
            if self.processes[place].alive {
                self.processes[place].state_waits();
                self.post_outgoing(place);
            }
        }
        true
    }

    /// Returns true if the only two replicas of a rank wait at different places. Nobody knows which is right, and the
    /// job ends with a report of their waits.
    fn is_torn(&self) -> bool {
        (0..self.world.rank_count()).map(VirtualRank).any(|rank| {
            let live: Vec<_> = self.survivors(rank).filter(|process| process.alive).collect();
            let [one, other] = live[..] else { return false };
            let is_apart = one.app.waits_for() != other.app.waits_for();
            let is_tainted = one.is_tainted || other.is_tainted;
            // With arbitration the job also ends where the two have sent a message that is never received. It does not
            // where they were found to differ, since that must be judged or reported as undecidable.
            match self.arbitration {
                Some(_) => !self.has_disputed() && (is_tainted && is_apart || one.is_tainted != other.is_tainted),
                None => is_tainted && is_apart,
            }
        })
    }

    /// Returns true if the last two replicas of a rank are on different paths. Where neither asks for more than the
    /// other, the only symptom is a job that cannot go on, and that ends with a report of its waits.
    fn has_torn_pair(&self) -> bool {
        (0..self.world.rank_count()).map(VirtualRank).any(|rank| {
            let live: Vec<_> = self.survivors(rank).filter(|process| process.alive).collect();
            matches!(live[..], [one, other] if one.is_tainted != other.is_tainted)
        })
    }

    /// Returns true if a difference was left to copies that stand ready.
    fn has_disputed(&self) -> bool {
        self.paths.as_ref().is_some_and(|watch| watch.was_disputed)
    }

    /// Returns true if the run has served its purpose: replicas have parted without a verdict, or the last one of a
    /// rank has left its path, and no other contradicts it.
    pub(super) fn is_path_open(&self) -> bool {
        let Some(watch) = &self.paths else { return false };
        let is_wrong = |rank| {
            let mut live = self.survivors(VirtualRank(rank)).filter(|process| process.alive);
            live.all(|process| process.is_tainted)
        };
        watch.is_open || check::has_open(self) || (0..self.world.rank_count()).any(is_wrong)
    }

    /// Checks the properties of such a run.
    pub(super) fn check_paths(&self) -> Result<(), Broken> {
        let Some(watch) = &self.paths else { return Ok(()) };
        if let (Some(wrong), true) = (&watch.wrong, self.arbitration.is_some()) {
            return Err(wrong.clone());
        }
        if self.is_path_open() || self.is_torn() {
            return Ok(());
        }
        if let Some(wrong) = &watch.wrong {
            return Err(wrong.clone());
        }
        for process in self.processes.iter().filter(|process| self.view.is_live(process.me()) && !process.is_tainted) {
            match check::ended(process, &check::rest::strays(self, process)) {
                Err(Broken::Hangs(_)) if self.arbitration.is_none() && self.has_torn_pair() => return Ok(()),
                ended => ended?,
            }
        }
        for (number, (rank, at, value)) in watch.changes.iter().enumerate() {
            // Writes of the last one of two are not contradicted by any replica.
            let Some(witness) = self.survivors(*rank).find(|process| !process.is_tainted) else { continue };
            // A pair's leader may have died before it sent the decision on a write. Its sibling has written over that
            // then.
            let is_last = !watch.changes[number + 1..].iter().any(|(of, there, _)| (of, there) == (rank, at));
            // If that was one write too many, it stays.
            let has_lost = self.view.live(*rank).count() < 2;
            let counts = (is_last && !has_lost || self.world.degree(*rank) > 2) && !watch.was_open;
            if counts && witness.app.written.get(*at as usize) != Some(value) {
                return Err(Broken::Written { rank: *rank, at: *at });
            }
        }
        for rank in (0..self.world.rank_count()).map(VirtualRank) {
            let Some(witness) = self.survivors(rank).find(|process| !process.is_tainted) else { continue };
            let has = |at: usize| watch.changes.iter().any(|(of, place, _)| (*of, *place) == (rank, at as u64));
            if let Some(at) = (0..witness.app.written.len()).find(|at| !has(*at)) {
                return Err(Broken::Written { rank, at: at as u64 });
            }
        }
        Ok(())
    }
}
