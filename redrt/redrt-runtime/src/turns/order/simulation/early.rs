//! Threads that are there before `MPI_Init`, which thread 0 calls within one of its segments, with the lock.

use super::{Mistake, Process, SEGMENTS, State};
use simulation_kit::Random;

/// In place of a count: the thread has ended.
const UNTIL_IT_ENDS: u32 = u32::MAX;

/// A process whose threads have no order yet.
#[derive(Clone, Default)]
pub struct Early {
    /// True when thread 0 is in `MPI_Init`. It has given the lock up.
    is_in_init: bool,
    /// Number of segments that thread 0 has begun when it calls `MPI_Init`.
    init_at: u32,
    /// Number of segments that each thread has ended.
    made: Vec<u32>,
    /// Numbers up to which threads go on in `MPI_Init`; empty until all replicas are there.
    limits: Vec<u32>,
}

impl Early {
    pub fn new(threads: usize, init_at: u32) -> Self {
        Self { init_at, made: vec![0; threads], ..Self::default() }
    }
}

impl Process {
    /// Lets one thread, chosen at random, make one step before the order begins. Returns false if it could not.
    pub fn step_early(&mut self, random: &mut Random, mistake: Option<Mistake>) -> bool {
        let thread = random.below(self.states.len());
        let is_held = self.states.iter().any(|state| matches!(state, State::Holds { .. }));
        let Some(early) = &mut self.early else { return false };
        if thread == 0 && early.is_in_init {
            return false;
        }
        let limit = early.limits.get(thread).copied().unwrap_or(0);
        match self.states[thread] {
            State::Gap if early.is_in_init && early.made[thread] >= limit => return false,
            State::Gap if self.begun[thread] == SEGMENTS => self.states[thread] = State::Ended,
            State::Gap => self.states[thread] = State::Waits { resumes: false },
            State::Waits { .. } if is_held => return false,
            State::Waits { resumes } => {
                self.begun[thread] += u32::from(!resumes);
                self.states[thread] = State::Holds { steps_left: random.below(4) };
                if thread == 0 && self.begun[0] == early.init_at {
                    early.is_in_init = true;
                    self.states[0] = State::Gap;
                }
            }
            State::Holds { steps_left: 0 } => {
                early.made[thread] += 1;
                self.states[thread] = State::Gap;
            }
            // Others may ask it to give way at any time.
            State::Holds { .. } if random.one_in(3) => {
                if mistake == Some(Mistake::CountsInterrupted) {
                    early.made[thread] += 1;
                }
                self.states[thread] = State::Waits { resumes: true };
            }
            State::Holds { steps_left } => self.states[thread] = State::Holds { steps_left: steps_left - 1 },
            _ => return false,
        }
        true
    }

    /// How far its threads are; `None` if it is not in `MPI_Init` yet. A segment underway is counted.
    fn counts(&self, mistake: Option<Mistake>) -> Option<Vec<u32>> {
        let early = self.early.as_ref().filter(|early| early.is_in_init)?;
        let count = |(state, made): (&State, &u32)| match state {
            State::Ended if mistake == Some(Mistake::EndUnsent) => 0,
            State::Ended => UNTIL_IT_ENDS,
            State::Gap => *made,
            _ => made + 1,
        };
        Some(self.states.iter().zip(&early.made).map(count).collect())
    }

    /// Begins the order if threads are as far as in all replicas. Thread 0 has the lock again. Returns true if it has
    /// begun.
    fn begin(&mut self, mistake: Option<Mistake>) -> bool {
        let Some(early) = &self.early else { return false };
        let is_there = |thread: usize| match self.states[thread] {
            State::Ended => true,
            State::Gap => early.made[thread] >= early.limits[thread],
            _ => false,
        };
        let is_complete = !early.limits.is_empty() && (1..self.states.len()).all(is_there);
        let is_held = self.states.iter().any(|state| matches!(state, State::Holds { .. }));
        let begins = is_complete || mistake == Some(Mistake::BeginsBehind) && !early.limits.is_empty() && !is_held;
        if begins {
            self.early = None;
            self.states[0] = State::Holds { steps_left: 1 };
        }
        begins
    }
}

/// Begins the order in one of these replicas, if it can. Returns true if it has begun.
pub fn begin_one(processes: &mut [&mut Process], mistake: Option<Mistake>) -> bool {
    if processes.iter().any(|process| process.early.as_ref().is_some_and(|early| early.limits.is_empty())) {
        let Some(counts) = processes.iter().map(|process| process.counts(mistake)).collect::<Option<Vec<_>>>() else {
            return false;
        };
        let furthest = |one: Vec<u32>, other: Vec<u32>| one.into_iter().zip(other).map(|(a, b)| a.max(b)).collect();
        let limits = counts.into_iter().reduce(furthest).unwrap_or_default();
        for early in processes.iter_mut().filter_map(|process| process.early.as_mut()) {
            early.limits.clone_from(&limits);
        }
    }
    processes.iter_mut().any(|process| process.begin(mistake))
}
