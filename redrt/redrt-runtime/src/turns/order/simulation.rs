//! Threads of an interpreter in three replicas, each with a schedule of its own. A leader records, the others follow.
//! When the leader is lost, one follower leads, and a copy of a remaining replica takes the free place. In some runs
//! the threads are older than the order.

mod early;

use super::*;
use early::{Early, begin_one};
use simulation_kit::schedule::{Agenda, Standstill};
use simulation_kit::{Nothing, Random, Setup, Simulator, Violation};
use std::collections::VecDeque;

const THREADS: u64 = 4;
const SEGMENTS: u32 = 12;

simulation_kit::named! {
    /// A mistake that is planted in all replicas, and that the simulation has to find.
    pub enum Mistake {
        /// Followers take the lock as they come.
        AsTheyCome,
        /// A follower waits for a thread to resume that has ended its segment.
        ResumesForEver,
        /// A new leader begins before it has followed what is known.
        LeadsAtOnce,
        /// Semaphores are taken in gaps, whatever others do meanwhile.
        SemaphoreAtAnyTime,
        /// A thread that starves waits on.
        StarvesOn,
        /// Threads that a leader has let in go on in its copy, which follows, as they come.
        CopyKeepsPermits,
        /// The order begins before all threads are as far as in other replicas.
        BeginsBehind,
        /// A thread that gives way before the order begins counts that as the end of its segment.
        CountsInterrupted,
        /// Replicas do not learn that a thread has ended before the order begins.
        EndUnsent,
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    /// In a gap, until its schedule lets it ask.
    Gap,
    /// In a gap, waiting for the semaphore.
    WaitsForSemaphore,
    Waits {
        resumes: bool,
    },
    /// Let in: it may try to take the lock.
    Permitted {
        resumes: bool,
        turn: Turn,
    },
    Holds {
        steps_left: usize,
    },
    Ended,
}

#[derive(Clone)]
struct Process {
    /// `None` once the order has begun.
    early: Option<Early>,
    order: Order,
    states: Vec<State>,
    /// Number of segments that each thread has begun.
    begun: Vec<u32>,
    /// Threads that began segments, with the segment's number, and true if the thread had the semaphore: the order that
    /// programs see.
    seen: Vec<(u64, u32, bool)>,
    /// The thread that has the semaphore.
    has_semaphore: Option<u64>,
    at: usize,
    leads: bool,
    /// True if the holder was asked to give way.
    is_asked: bool,
    /// The starving thread in a process that leads, and the number of other threads' segments since.
    starving: Option<(u64, u64)>,
}

struct View<'a> {
    log: &'a mut Vec<Turn>,
    known: usize,
    at: &'a mut usize,
    leads: bool,
}

impl Log for View<'_> {
    fn front(&mut self) -> Option<Turn> {
        self.log.get(*self.at).copied().filter(|_| *self.at < self.known)
    }

    fn pass(&mut self) {
        *self.at += 1;
    }

    fn leads(&mut self) -> bool {
        self.leads
    }

    fn decide(&mut self, turn: Turn) {
        self.log.truncate(*self.at);
        self.log.push(turn);
        *self.at += 1;
    }
}

impl Process {
    /// `init_at`: `None` if the order begins with the threads.
    fn new(leads: bool, init_at: Option<u32>) -> Self {
        let early = init_at.map(|init_at| Early::new(THREADS as usize, init_at));
        let states = vec![State::Gap; THREADS as usize];
        let begun = vec![0; THREADS as usize];
        let in_gap = if early.is_some() { BTreeSet::new() } else { (0..THREADS).collect() };
        let order = Order { in_gap, ..Order::default() };
        let (seen, has_semaphore, starving) = (Vec::new(), None, None);
        Self { early, order, states, begun, seen, has_semaphore, at: 0, leads, is_asked: false, starving }
    }

    fn has_ended(&self) -> bool {
        self.states.iter().all(|state| *state == State::Ended)
    }

    /// Lets one thread, chosen at random, make one step. Returns false if it could not. `known` is the number of items
    /// that this process has received.
    fn step(&mut self, random: &mut Random, log: &mut Vec<Turn>, known: usize, mistake: Option<Mistake>) -> bool {
        if self.early.is_some() {
            return self.step_early(random, mistake);
        }
        let thread = random.below(THREADS as usize);
        let number = thread as u64;
        let is_held = self.states.iter().any(|state| matches!(state, State::Holds { .. }));
        let known = if mistake == Some(Mistake::LeadsAtOnce) && self.leads { self.at } else { known };
        let mut view = View { log, known, at: &mut self.at, leads: self.leads };
        match self.states[thread] {
            State::Ended => return false,
            State::Gap => {
                self.states[thread] = match self.begun[thread] {
                    SEGMENTS => State::Ended,
                    _ => State::Waits { resumes: false },
                }
            }
            State::WaitsForSemaphore => {
                let turn = Turn { thread: number, is_semaphore: true, ..Turn::default() };
                let permit = match mistake {
                    Some(Mistake::SemaphoreAtAnyTime) => Permit::Free,
                    _ => self.order.ask(&mut view, turn),
                };
                if self.has_semaphore.is_some() || permit == Permit::Wait {
                    return false;
                }
                if mistake != Some(Mistake::SemaphoreAtAnyTime) {
                    self.order.taken(&mut view, turn);
                }
                self.has_semaphore = Some(number);
                self.states[thread] = State::Gap;
            }
            State::Waits { resumes } => {
                let turn = Turn { thread: number, resumes, ..Turn::default() };
                let permit = match mistake {
                    Some(Mistake::AsTheyCome) => Permit::Free,
                    _ => self.order.ask(&mut view, turn),
                };
                self.states[thread] = match permit {
                    Permit::Wait => return false,
                    Permit::Free => State::Permitted { resumes, turn },
                    Permit::Next(turn) => State::Permitted { resumes, turn },
                };
            }
            State::Permitted { resumes, turn } => {
                if is_held && self.leads && self.starving.is_none() && random.one_in(6) {
                    self.starving = Some((number, 0)).filter(|_| view.front().is_none());
                    if mistake != Some(Mistake::StarvesOn) {
                        self.order.starves(&mut view, number);
                    }
                    return self.starving.is_some();
                }
                if is_held {
                    let is_patient = !random.one_in(6);
                    let may = self.order.may_force(&mut view, number, is_patient);
                    self.is_asked |= may;
                    return may;
                }
                let asked = Turn { thread: number, resumes, ..Turn::default() };
                let asks = !matches!(mistake, Some(Mistake::AsTheyCome | Mistake::CopyKeepsPermits));
                if asks && !self.order.may_still(&mut view, asked) {
                    self.states[thread] = State::Waits { resumes };
                    return true;
                }
                self.order.taken(&mut view, turn);
                self.is_asked = false;
                self.starving = self.starving.filter(|(starving, _)| *starving != number);
                if !resumes {
                    self.begun[thread] += 1;
                    if let Some((_, others)) = &mut self.starving {
                        *others += 1;
                    }
                    // The thread gives the semaphore back, or tries to take it.
                    let has = self.has_semaphore == Some(number);
                    match self.has_semaphore {
                        Some(owner) if owner == number => self.has_semaphore = None,
                        None if self.begun[thread].is_multiple_of(3) && self.begun[thread] < SEGMENTS => {
                            self.has_semaphore = Some(number);
                        }
                        _ => {}
                    }
                    self.seen.push((number, self.begun[thread], has));
                }
                self.states[thread] = State::Holds { steps_left: random.below(4) };
            }
            State::Holds { steps_left: 0 } => {
                self.order.dropped(number, false);
                if mistake == Some(Mistake::ResumesForEver) {
                    self.order.in_gap.remove(&number);
                }
                // A thread that has tried without success waits for the semaphore.
                let wants = self.begun[thread].is_multiple_of(3) && self.begun[thread] < SEGMENTS;
                let waits = wants && self.has_semaphore != Some(number);
                self.states[thread] = if waits { State::WaitsForSemaphore } else { State::Gap };
            }
            State::Holds { steps_left } => {
                self.states[thread] = if self.is_asked && random.chance(50) {
                    self.order.dropped(number, true);
                    State::Waits { resumes: true }
                } else {
                    State::Holds { steps_left: steps_left - 1 }
                }
            }
        }
        true
    }
}

/// A fault of a run.
enum Fault {
    /// The leader is lost, and its items that no other replica has received with it.
    Death,
    /// A copy takes the free place.
    Copy,
}

/// The simulator of the order of an interpreter's threads.
pub enum TurnsSimulator {}

impl Simulator for TurnsSimulator {
    const NAME: &'static str = "turns";
    const ABOUT: &'static str = "The order in which threads of an interpreter run, in three replicas";
    type Faults = Nothing;
    type Mistake = Mistake;
    type Shape = ();
    type Summary = String;

    fn run(seed: u64, setup: &Setup<Self>) -> Result<String, Violation> {
        let mut random = Random::new(seed);
        let mut log = Vec::new();
        let init_at = random.one_in(3).then(|| random.within(1..SEGMENTS.into()) as u32);
        let mut leader = Process::new(true, init_at);
        let mut followers: VecDeque<_> = [Process::new(false, init_at), Process::new(false, init_at)].into();
        let mut faults = Agenda::default();
        let mut has_begun = init_at.is_none();
        if random.chance(50) {
            let dies_at = random.within(0..800);
            faults.plan(dies_at, Fault::Death);
            faults.plan(dies_at + random.within(1..200), Fault::Copy);
        }
        let (mut now, mut standstill) = (0, Standstill::after(2_000));
        while !leader.has_ended() || followers.iter().any(|follower| !follower.has_ended()) {
            now += 1;
            if !has_begun {
                let mut all: Vec<_> = followers.iter_mut().chain([&mut leader]).collect();
                begin_one(&mut all, setup.mistake);
                has_begun = all.iter().all(|process| process.early.is_none());
            }
            // Nobody is lost before the order has begun.
            match Some(()).filter(|()| has_begun).and_then(|()| faults.due(now)) {
                Some(Fault::Death) => {
                    setup.trace.say(|| format!("{now:>6} the leader dies"));
                    leader = followers.pop_front().expect("there are two");
                    leader.leads = true;
                }
                Some(Fault::Copy) => {
                    let is_of_leader = random.chance(50);
                    setup.trace.say(|| format!("{now:>6} a copy, of the leader: {is_of_leader}"));
                    let source = if is_of_leader { &leader } else { &followers[0] };
                    followers.push_back(Process { leads: false, starving: None, ..source.clone() });
                }
                None => {}
            }
            let who = random.below(followers.len() + 1);
            let known = log.len();
            let process = if who == 0 { &mut leader } else { &mut followers[who - 1] };
            let has_moved = process.step(&mut random, &mut log, known, setup.mistake);
            if has_moved {
                setup.trace.say(|| format!("{now:>6} {who} of {known} items: {:?}", process.states));
            }
            // Threads that were let in before may go first, so a few segments of others are in order.
            if leader.starving.is_some_and(|(_, others)| others >= THREADS) {
                return Err(format!("{:?} starves", leader.starving).into());
            }
            if standstill.is_reached(has_moved) {
                let told = |process: &Process| format!("{:?} at {} of {:?}", process.states, process.at, process.order);
                let others: Vec<_> = followers.iter().map(told).collect();
                let rest = &log[log.len().saturating_sub(4)..];
                let (count, first) = (log.len(), told(&leader));
                let wrong = format!("nobody goes on after {now} steps, {count} items, {rest:?}: {first}; {others:?}");
                return Err(wrong.into());
            }
        }
        let wrong = followers.iter().find(|follower| follower.seen != leader.seen);
        match wrong {
            Some(follower) => Err(format!("{:?} and {:?}", leader.seen, follower.seen).into()),
            None => Ok(format!("{now} steps, {} turns", log.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simulation_kit::{Named, sweep};

    #[test]
    fn all_replicas_begin_the_same_segments_in_the_same_order() {
        sweep::right::<TurnsSimulator>(0..3_000, &Setup::default());
    }

    #[test]
    fn planted_mistakes_are_found() {
        sweep::finds::<TurnsSimulator>(Mistake::ALL, 0..300, &Setup::default());
    }
}
