//! Threads of an interpreter in three replicas, each with a schedule of its own. A leader records, the others follow.
//! When the leader is lost, one follower leads, and a copy of a remaining replica takes the free place.

use super::*;
use fastrand::Rng;
use std::collections::VecDeque;

const THREADS: u64 = 4;
const SEGMENTS: u32 = 12;

/// A mistake planted in all replicas, which the simulation has to find.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Mistake {
    None,
    /// Followers take the lock in any order.
    AsTheyCome,
    /// A follower waits for a thread to resume that has ended its segment.
    ResumesForEver,
    /// A new leader begins before it has followed all known items.
    LeadsAtOnce,
    /// Semaphores are taken in gaps at any time.
    SemaphoreAtAnyTime,
    /// A starving thread keeps waiting.
    StarvesOn,
    /// In a leader's copy, which follows, threads that the leader has let in go on in any order.
    CopyKeepsPermits,
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
        steps_left: u32,
    },
    Ended,
}

#[derive(Clone)]
struct Process {
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
    fn new(leads: bool) -> Self {
        let states = vec![State::Gap; THREADS as usize];
        let begun = vec![0; THREADS as usize];
        let order = Order { in_gap: (0..THREADS).collect(), ..Order::default() };
        let (seen, has_semaphore, starving) = (Vec::new(), None, None);
        Self { order, states, begun, seen, has_semaphore, at: 0, leads, is_asked: false, starving }
    }

    fn has_ended(&self) -> bool {
        self.states.iter().all(|state| *state == State::Ended)
    }

    /// Makes one step of a randomly chosen thread. Returns false if it could not make one. `known` is the number of
    /// items that this process has received.
    fn step(&mut self, random: &mut Rng, log: &mut Vec<Turn>, known: usize, mistake: Mistake) -> bool {
        let thread = random.usize(..THREADS as usize);
        let number = thread as u64;
        let is_held = self.states.iter().any(|state| matches!(state, State::Holds { .. }));
        let known = if mistake == Mistake::LeadsAtOnce && self.leads { self.at } else { known };
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
                    Mistake::SemaphoreAtAnyTime => Permit::Free,
                    _ => self.order.ask(&mut view, turn),
                };
                if self.has_semaphore.is_some() || permit == Permit::Wait {
                    return false;
                }
                if mistake != Mistake::SemaphoreAtAnyTime {
                    self.order.taken(&mut view, turn);
                }
                self.has_semaphore = Some(number);
                self.states[thread] = State::Gap;
            }
            State::Waits { resumes } => {
                let turn = Turn { thread: number, resumes, ..Turn::default() };
                let permit = match mistake {
                    Mistake::AsTheyCome => Permit::Free,
                    _ => self.order.ask(&mut view, turn),
                };
                self.states[thread] = match permit {
                    Permit::Wait => return false,
                    Permit::Free => State::Permitted { resumes, turn },
                    Permit::Next(turn) => State::Permitted { resumes, turn },
                };
            }
            State::Permitted { resumes, turn } => {
                if is_held && self.leads && self.starving.is_none() && random.u32(..6) == 0 {
                    self.starving = Some((number, 0)).filter(|_| view.front().is_none());
                    if mistake != Mistake::StarvesOn {
                        self.order.starves(&mut view, number);
                    }
                    return self.starving.is_some();
                }
                if is_held {
                    let is_patient = random.u32(..6) > 0;
                    let may = self.order.may_force(&mut view, number, is_patient);
                    self.is_asked |= may;
                    return may;
                }
                let asked = Turn { thread: number, resumes, ..Turn::default() };
                let asks = !matches!(mistake, Mistake::AsTheyCome | Mistake::CopyKeepsPermits);
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
                self.states[thread] = State::Holds { steps_left: random.u32(..4) };
            }
            State::Holds { steps_left: 0 } => {
                self.order.dropped(number, false);
                if mistake == Mistake::ResumesForEver {
                    self.order.in_gap.remove(&number);
                }
                // A thread that has tried without success waits for the semaphore.
                let wants = self.begun[thread].is_multiple_of(3) && self.begun[thread] < SEGMENTS;
                let waits = wants && self.has_semaphore != Some(number);
                self.states[thread] = if waits { State::WaitsForSemaphore } else { State::Gap };
            }
            State::Holds { steps_left } => {
                self.states[thread] = if self.is_asked && random.bool() {
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

/// Runs one seed to the end. Fails if no thread can go on, a thread starves, or the replicas have seen different
/// orders.
fn run(seed: u64, mistake: Mistake) -> Result<(), String> {
    let mut random = Rng::with_seed(seed);
    let mut log = Vec::new();
    let mut leader = Process::new(true);
    let mut followers: VecDeque<_> = [Process::new(false), Process::new(false)].into();
    let dies_at = if random.bool() { random.u64(..800) } else { u64::MAX / 2 };
    let copied_after = random.u64(1..200);
    let (mut now, mut idle) = (0, 0);
    while !leader.has_ended() || followers.iter().any(|follower| !follower.has_ended()) {
        now += 1;
        if now == dies_at && followers.len() == 2 {
            // Items that no other replica has received are lost with the leader; the remaining replicas exchange
            // theirs.
            leader = followers.pop_front().expect("there are two");
            leader.leads = true;
        }
        if now == dies_at + copied_after && followers.len() == 1 {
            let source = if random.bool() { &leader } else { &followers[0] };
            followers.push_back(Process { leads: false, starving: None, ..source.clone() });
        }
        let who = random.usize(..=followers.len());
        let known = log.len();
        let has_moved = match who.checked_sub(1) {
            None => leader.step(&mut random, &mut log, known, mistake),
            Some(follower) => followers[follower].step(&mut random, &mut log, known, mistake),
        };
        idle = if has_moved { 0 } else { idle + 1 };
        // Threads that were let in before may go first, so a few segments of other threads are allowed.
        if leader.starving.is_some_and(|(_, others)| others >= THREADS) {
            return Err(format!("seed {seed}: {:?} starves", leader.starving));
        }
        if idle > 2_000 {
            let told = |process: &Process| format!("{:?} at {} of {:?}", process.states, process.at, process.order);
            let others: Vec<_> = followers.iter().map(told).collect();
            let rest = &log[log.len().saturating_sub(4)..];
            let (count, first) = (log.len(), told(&leader));
            return Err(format!(
                "seed {seed}: nobody goes on after {now} steps, {count} items, {rest:?}: {first}; {others:?}"
            ));
        }
    }
    let wrong = followers.iter().find(|follower| follower.seen != leader.seen);
    wrong.map_or(Ok(()), |follower| Err(format!("seed {seed}: {:?} and {:?}", leader.seen, follower.seen)))
}

#[test]
fn all_replicas_begin_the_same_segments_in_the_same_order() {
    for seed in 0..3_000 {
        assert_eq!(run(seed, Mistake::None), Ok(()));
    }
}

#[test]
fn planted_mistakes_are_found() {
    let planted = [
        Mistake::AsTheyCome,
        Mistake::ResumesForEver,
        Mistake::LeadsAtOnce,
        Mistake::SemaphoreAtAnyTime,
        Mistake::StarvesOn,
        Mistake::CopyKeepsPermits,
    ];
    for mistake in planted {
        assert!((0..300).any(|seed| run(seed, mistake).is_err()), "{mistake:?} is not found");
    }
}
