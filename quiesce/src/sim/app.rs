//! The interpreter of a simulated program.

use super::process::Process;
use super::program::{Instruction, LARGE_BYTES, To};
use crate::decision::Lookup;
use crate::matching::Pattern;
use crate::outcome::{Call, Outcome, Place, Question};
use redrt_types::{ContextId, Tag};
use simulation_kit::random::mix;
use std::cell::Cell;
use std::collections::VecDeque;

/// The program of one process and its registers.
#[derive(Clone, Hash, Debug)]
pub struct App {
    rank: u32,
    pub(super) rank_count: u32,
    pub(super) program: VecDeque<Instruction>,
    pub(super) state: u64,
    /// Data that the program computes with, without effect on its path. Part of every payload.
    pub(super) data: u64,
    /// Added to the tags and lengths of its messages. Zero unless it is corrupt.
    skew: u16,
    matched: u32,
    pub(super) open: VecDeque<usize>,
    /// Position in the thread's stream of decisions.
    pub(super) decision_index: u64,
    /// The progress within the current instruction.
    pending: Option<Pending>,
    /// `state` after each outcome, by which replicas are compared.
    pub(super) history: Vec<u64>,
    /// Number of calls begun, followed by true while the latest one is not over.
    pub(super) calls: u64,
    is_in_call: bool,
    /// True if it gives its place when it asks for outcomes.
    pub(super) counts_calls: bool,
    /// The kind of the latest call.
    kind: u16,
    /// The values it has written to its rank's file.
    pub(super) written: Vec<u64>,
}

#[derive(Clone, Copy, Hash, Debug)]
enum Pending {
    /// By an outcome, this open receive completes. It will be complete.
    Completes(usize),
    /// A receive is being cancelled. True if it was still waiting.
    Cancels(bool),
    /// A probe found this source and tag. The message will be there.
    Found(u32, Tag),
    /// Waits for this receive, and then perhaps for a token.
    Announcement(usize),
}

/// The part of memory that a corruption at rest reaches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Part {
    /// Payloads of later messages.
    Data,
    /// Tags and lengths of later messages.
    Envelope,
    /// The path of the program, and later payloads.
    Path,
}

/// The progress of a program in one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The program did something.
    Went,
    /// The program polled in vain, and will poll again.
    Polled,
    /// The program waits for an event.
    Blocked,
    /// The program has ended.
    Finished,
}

impl App {
    pub(super) fn new(rank: u32, rank_count: u32, program: Vec<Instruction>) -> Self {
        Self {
            rank,
            rank_count,
            program: program.into(),
            state: mix(u64::from(rank)),
            data: 0,
            skew: 0,
            matched: rank,
            open: VecDeque::new(),
            decision_index: 0,
            pending: None,
            history: Vec::new(),
            calls: 0,
            is_in_call: false,
            counts_calls: true,
            kind: 0,
            written: Vec::new(),
        }
    }

    /// Number of calls begun. After the last call the thread is at no place any more.
    fn calls(&self) -> u64 {
        if self.is_finished() { u64::MAX } else { self.calls }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.program.is_empty()
    }

    pub(super) fn current(&self) -> Option<&Instruction> {
        self.program.front()
    }

    pub(super) fn place(&self) -> Place {
        Place { thread: 0, calls: self.calls(), kind: self.kind }
    }

    /// The place that is given when an outcome is asked for or a message is sent.
    pub(super) fn told_place(&self) -> Place {
        if self.counts_calls { self.place() } else { Place { thread: 0, ..Place::NOWHERE } }
    }

    /// The value that it would write now.
    fn output(&self) -> u64 {
        mix(self.state ^ self.data)
    }

    /// The length of the rest of the program, which polls do not change.
    pub(super) fn waits_for(&self) -> usize {
        self.program.len()
    }

    fn corrupt(&mut self, part: Part) {
        match part {
            Part::Data => self.data ^= 1 << 17,
            Part::Envelope => self.skew = 1,
            Part::Path => self.state ^= 1 << 17,
        }
    }

    pub(super) fn absorb(&mut self, outcome: u64) {
        self.state = mix(self.state ^ outcome);
        self.history.push(self.state);
    }
}

impl Process {
    /// Executes one step of the program.
    pub(super) fn step(&mut self) -> Progress {
        if let Some((part, _)) = self.corrupt_at_rest.take_if(|(_, count)| self.sent.len() >= *count) {
            self.app.corrupt(part);
            self.is_tainted = true;
        }
        if !self.app.is_in_call {
            self.leave_path();
        }
        let Some(instruction) = self.app.program.front().copied() else { return Progress::Finished };
        self.app.calls += u64::from(!std::mem::replace(&mut self.app.is_in_call, true));
        self.app.kind = instruction.kind();
        if self.collects {
            self.collect();
        }
        let progress = self.execute(instruction);
        if let Some(progress) = progress {
            self.app.is_in_call = progress != Progress::Polled;
            return progress;
        }
        self.app.is_in_call = false;
        self.app.program.pop_front();
        self.app.pending = None;
        if self.app.is_finished() {
            self.end_path();
        }
        Progress::Went
    }

    /// Executes an instruction. `None` when it is done.
    fn execute(&mut self, instruction: Instruction) -> Option<Progress> {
        match instruction {
            Instruction::Send { to, context, tag, length_bytes } => {
                let to = match to {
                    To::Rank(rank) => rank,
                    To::Matched => self.app.matched,
                };
                self.send_state(to, context, tag, length_bytes);
                None
            }
            Instruction::Post { context, pattern } => {
                let request = self.post(context, pattern);
                self.app.open.push_back(request);
                None
            }
            Instruction::WaitNext => self.complete(0),
            Instruction::WaitAny => self.wait_any(),
            Instruction::TestNext => self.test_next(),
            Instruction::Probe { context, tag } => self.probe_receive(context, tag, false),
            Instruction::PollProbe { context, tag } => self.probe_receive(context, tag, true),
            Instruction::CancelLast { context, pattern } => self.cancel_last(context, pattern),
            Instruction::Read => self.read(),
            Instruction::Write => self.write(),
            Instruction::PollOnce { context } => self.poll_once(context),
            Instruction::WaitSends => (self.sends_open > 0).then_some(Progress::Blocked),
            Instruction::PassToken { context, tag } => {
                self.pass_token(context, tag);
                None
            }
            Instruction::TakeToken { from, context, tag } => self.take_token(from, context, tag),
            Instruction::Clock => self.read_time(),
        }
    }

    fn send_state(&mut self, to: u32, context: ContextId, tag: Tag, length_bytes: u64) {
        let payload = mix(self.app.state ^ self.app.data ^ (u64::from(to) << 32) ^ self.sent.len() as u64);
        let skew = self.app.skew;
        self.send(to, context, Tag(tag.0 + i32::from(skew)), length_bytes + u64::from(skew), payload);
    }

    /// Ends the open receive at this place in the list, if it is complete.
    fn complete(&mut self, place: usize) -> Option<Progress> {
        let Some((source, tag, payload)) = self.completed(self.app.open[place]) else {
            return Some(Progress::Blocked);
        };
        self.app.open.remove(place);
        self.app.matched = source;
        self.app
            .absorb(payload ^ mix(u64::from(source) << 20 ^ u64::from(tag.0.cast_unsigned()) ^ (place as u64) << 50));
        None
    }

    /// Asks for the next outcome. `evaluate` determines it when this process decides, or returns `None` if it has to
    /// wait.
    fn outcome(
        &mut self,
        (call, arguments): (Call, u64),
        evaluate: impl FnOnce(&Self) -> Option<Outcome>,
    ) -> Option<Outcome> {
        self.outcome_for(Question { call, arguments, data: 0, place: self.app.told_place() }, evaluate)
    }

    fn outcome_for(&mut self, question: Question, evaluate: impl FnOnce(&Self) -> Option<Outcome>) -> Option<Outcome> {
        let index = self.app.decision_index;
        let outcome = match self.lookup(index, question) {
            Lookup::Decided(outcome) => outcome,
            Lookup::Wait => return None,
            Lookup::MustDecide => {
                let outcome = evaluate(self)?;
                self.decide(index, question, outcome.clone());
                outcome
            }
        };
        self.app.decision_index += 1;
        Some(outcome)
    }

    fn read(&mut self) -> Option<Progress> {
        let clock = self.clock;
        match self.outcome((Call::Observe, 1), |_| Some(Outcome::Bytes(vec![clock as u8]))) {
            Some(Outcome::Bytes(read)) => self.app.absorb(read.iter().map(|byte| u64::from(*byte)).sum()),
            Some(other) => panic!("{} decided {other:?} for a reading", self.me()),
            None => return Some(Progress::Blocked),
        }
        None
    }

    fn write(&mut self) -> Option<Progress> {
        let (index, place, value) = (self.app.decision_index, self.app.written.len() as u64, self.app.output());
        let question = Question { call: Call::Change, arguments: place, data: value, place: self.app.told_place() };
        let has_written = Cell::new(false);
        let change = |process: &Self| {
            let may_change = process.replica.unstable_count() == 0 && process.is_backed(index);
            has_written.set(may_change);
            may_change.then(|| Outcome::Bytes(Vec::new()))
        };
        match self.outcome_for(question, change) {
            Some(Outcome::Bytes(_)) => {}
            Some(other) => panic!("{} decided {other:?} for a write", self.me()),
            None => return Some(Progress::Blocked),
        }
        if has_written.get() {
            self.changes.push((place, value));
        }
        self.app.written.push(value);
        None
    }

    fn poll_once(&mut self, context: ContextId) -> Option<Progress> {
        match self.outcome((Call::TestMessage, 1 << 40 | context.0), |_| Some(Outcome::NotReady)) {
            Some(Outcome::NotReady) => self.app.absorb(5),
            Some(other) => panic!("{} decided {other:?} for a probe", self.me()),
            None => return Some(Progress::Blocked),
        }
        None
    }

    fn wait_any(&mut self) -> Option<Progress> {
        if self.app.pending.is_none() {
            let first = |process: &Self| {
                let is_complete = |request: &usize| process.completed(*request).is_some();
                Some(Outcome::Index(process.app.open.iter().position(is_complete)? as u32))
            };
            match self.outcome((Call::WaitAny, self.app.open.len() as u64), first) {
                Some(Outcome::Index(place)) => self.app.pending = Some(Pending::Completes(place as usize)),
                Some(other) => panic!("{} decided {other:?} for MPI_Waitany", self.me()),
                None => return Some(Progress::Blocked),
            }
        }
        let Some(Pending::Completes(place)) = self.app.pending else { unreachable!() };
        self.complete(place)
    }

    fn test_next(&mut self) -> Option<Progress> {
        if self.app.pending.is_none() {
            let test = |process: &Self| {
                let is_complete = process.completed(process.app.open[0]).is_some();
                Some(if is_complete { Outcome::Flag(true) } else { Outcome::NotReady })
            };
            match self.outcome((Call::Test, 1 + self.app.open[0] as u64), test) {
                Some(Outcome::Flag(true)) => self.app.pending = Some(Pending::Completes(0)),
                Some(Outcome::NotReady) => {
                    self.app.absorb(1);
                    return Some(Progress::Polled);
                }
                Some(other) => panic!("{} decided {other:?} for MPI_Test", self.me()),
                None => return Some(Progress::Blocked),
            }
        }
        self.complete(0)
    }

    fn cancel_last(&mut self, context: ContextId, pattern: Pattern) -> Option<Progress> {
        let request = *self.app.open.back().expect("one was opened");
        let index = self.app.decision_index;
        let question = Question { call: Call::Cancel, arguments: 1, data: 0, place: self.app.told_place() };
        if self.app.pending.is_none() {
            let is_frozen = self.freeze(context, request);
            self.app.pending = Some(Pending::Cancels(is_frozen));
            // A leader's ballot is not sent. It counts if this process follows another by then, or has a new leader.
            self.cast_ballot(index, question, is_frozen);
        }
        let Some(Pending::Cancels(is_frozen)) = self.app.pending else { unreachable!() };
        let outcome = self.outcome_for(question, |process| {
            let agreed = if is_frozen { process.count_ballots(index, question)? } else { false };
            Some(Outcome::Flag(agreed))
        });
        match outcome {
            Some(Outcome::Flag(true)) => {
                assert!(self.cancel(context, request), "{} cannot cancel what was agreed", self.me());
                self.app.absorb(3);
                self.app.open.pop_back();
                let again = self.post(context, pattern);
                self.app.open.push_back(again);
            }
            Some(Outcome::Flag(false)) => {
                self.app.absorb(4);
                self.thaw(context, request);
            }
            Some(other) => panic!("{} decided {other:?} for MPI_Cancel", self.me()),
            None => {
                self.record_hindrance(index, question);
                return Some(Progress::Blocked);
            }
        }
        None
    }

    fn probe_receive(&mut self, context: ContextId, tag: Tag, poll: bool) -> Option<Progress> {
        if self.app.pending.is_none() {
            let find = |process: &Self| match process.probe(context, Pattern { source: None, tag: Some(tag) }) {
                Some((source, tag)) => Some(Outcome::Message { source, tag }),
                None => poll.then_some(Outcome::NotReady),
            };
            match self.outcome(
                (
                    if poll { Call::TestMessage } else { Call::Probe },
                    1 + context.0 * 1_000 + u64::from(tag.0.cast_unsigned()),
                ),
                find,
            ) {
                Some(Outcome::Message { source, tag }) => self.app.pending = Some(Pending::Found(source, tag)),
                Some(Outcome::NotReady) => {
                    self.app.absorb(2);
                    return Some(Progress::Polled);
                }
                Some(other) => panic!("{} decided {other:?} for MPI_Probe", self.me()),
                None => return Some(Progress::Blocked),
            }
        }
        if let Some(Pending::Found(source, tag)) = self.app.pending {
            let pattern = Pattern::exact(source, tag);
            if self.probe(context, pattern).is_none() {
                return Some(Progress::Blocked);
            }
            let taken = if poll { self.take(context, pattern) } else { None };
            let request = taken.unwrap_or_else(|| self.post(context, pattern));
            self.app.open.push_front(request);
            self.app.pending = Some(Pending::Completes(0));
        }
        self.complete(0)
    }

    fn pass_token(&mut self, context: ContextId, tag: Tag) {
        let (rank, rank_count) = (self.app.rank, self.app.rank_count);
        let chosen = (self.app.state % u64::from(rank_count)) as u32;
        for other in (0..rank_count).filter(|other| *other != rank) {
            let payload = self.app.state - self.app.state % u64::from(rank_count) + u64::from(chosen);
            self.send(other, context, tag, 8, payload);
        }
        if chosen != rank {
            self.send_state(chosen, context, Tag(tag.0 + 1), LARGE_BYTES);
        }
    }

    fn take_token(&mut self, from: u32, context: ContextId, tag: Tag) -> Option<Progress> {
        if self.app.pending.is_none() {
            let request = self.post(context, Pattern::exact(from, tag));
            self.app.pending = Some(Pending::Announcement(request));
        }
        if let Some(Pending::Announcement(request)) = self.app.pending {
            let Some((_, _, payload)) = self.completed(request) else { return Some(Progress::Blocked) };
            self.app.absorb(payload);
            if payload % u64::from(self.app.rank_count) != u64::from(self.app.rank) {
                return None;
            }
            let token = self.post(context, Pattern::exact(from, Tag(tag.0 + 1)));
            self.app.open.push_front(token);
            self.app.pending = Some(Pending::Completes(0));
        }
        self.complete(0)
    }
}
