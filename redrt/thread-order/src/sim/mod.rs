//! Three replicas of a program with threads, from a seed. Threads run in any order, batches come late, leaders are
//! lost, and copies take the places of the lost. The visible output of each thread, and the final state of all
//! replicas, must be the same.

mod process;
mod program;

use crate::Batch;
use process::{Phase, Process, Said};
use program::{EARLY_PROGRAMS, PROGRAMS};
use std::collections::VecDeque;

/// A bug that can be planted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// A batch has operations that depend on others which it lacks.
    TornCut,
    /// A successor's threads go on by themselves while others still have operations of batches to make.
    LeadsAtOnce,
    /// The leader's events lack the operations that came before.
    EdgesUntold,
    /// The leader sends no event for a busy lock.
    MissUntold,
    /// The leader sends no event for a wait that timed out.
    TimeOutUntold,
    /// A writer does not wait for earlier readers.
    ReadersForgotten,
    /// A copy of the leader goes on as a leader.
    CopyLeads,
    /// A leader is copied with operations that are in no batch.
    CopiedUntold,
    /// Output of a leader is seen before its siblings hold the batches it depends on.
    SeenEarly,
    /// A follower's threads go on by shortcuts past an event.
    GoesPastEvents,
    /// A follower's thread comes to a barrier only when its batch has its return.
    ComesInTurn,
    /// A successor leads before it has taken all batches that it holds.
    LeadsUntaken,
    /// Threads send by one channel as they come.
    SendsAsItComes,
    /// The leader sends no result of an attempt on a channel.
    OutcomeUntold,
    /// A thread that may attempt a call on a channel, and waits for another to have made one, does not ask again.
    AttemptsUnasked,
    /// In a copy a wait on a channel keeps the outcome that it had where it was copied.
    KeepsWaited,
    /// The leader's calls on a channel lack the call that came before.
    ChannelUntold,
    /// Operations of a thread that is gone are forgotten.
    GoneUnknown,
    /// The order begins before all threads are as far as in other replicas.
    BeginsBehind,
    /// A thread that waits when the order begins goes on from its own count.
    KeepsCounts,
    /// Threads that wait when the order begins sleep until a signal reaches them.
    LeavesAsleep,
}

const REPLICAS: usize = 3;
const STEPS_MAX: u32 = 200_000;

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}

struct Replica {
    process: Process,
    is_lost: bool,
    /// Batches under way to it.
    coming: VecDeque<Batch>,
    /// Number of the job's batches that it holds.
    held: usize,
}

struct World {
    random: Random,
    replicas: Vec<Replica>,
    leader: usize,
    /// All batches that some live replica holds.
    log: Vec<Batch>,
    mistake: Option<Mistake>,
    /// Output not seen yet, by thread, with the number of batches that its siblings must hold before it is seen.
    said: Vec<VecDeque<(usize, (u64, u64))>>,
    seen: Vec<Said>,
    losses_left: usize,
    /// Numbers of operations that threads make before the order begins; empty until all replicas are in `MPI_Init`.
    limits: Vec<u64>,
    /// Bound on the batches that a follower holds untaken: above it the leader's threads wait.
    held_max: usize,
}

impl World {
    fn live(&self) -> impl Iterator<Item = usize> {
        (0..REPLICAS).filter(|at| !self.replicas[*at].is_lost)
    }

    fn announce(&mut self, batch: Batch) {
        self.log.push(batch.clone());
        for at in 0..REPLICAS {
            if at == self.leader {
                self.replicas[at].held = self.log.len();
            } else {
                self.replicas[at].coming.push_back(batch.clone());
            }
        }
    }

    /// The leader's next batch.
    fn cut(&mut self) -> Option<Batch> {
        self.replicas[self.leader].process.order.cut()
    }

    fn deliver(&mut self, at: usize) -> bool {
        let replica = &mut self.replicas[at];
        let Some(batch) = replica.coming.pop_front().filter(|_| !replica.is_lost) else { return false };
        replica.process.held.push_back(batch);
        replica.held += 1;
        true
    }

    fn run(&mut self, at: usize, thread: usize) -> bool {
        if self.replicas[at].is_lost {
            return false;
        }
        let leads = at == self.leader;
        if leads && self.live().any(|at| self.replicas[at].process.held.len() > self.held_max) {
            return false;
        }
        let is_over = self.random.below(4) == 0;
        let process = &mut self.replicas[at].process;
        let said = process.said(thread).len();
        let (has_run, batch) = process.step(thread, leads, is_over);
        let new = process.said(thread).get(said).copied();
        if let Some(batch) = batch {
            self.announce(batch);
        }
        // A successor repeats output of its predecessor that was seen.
        let is_new = self.seen[thread].len() + self.said[thread].len() == said;
        if let Some(new) = new.filter(|_| leads && is_new) {
            let needed = if self.mistake == Some(Mistake::SeenEarly) { 0 } else { self.log.len() };
            self.said[thread].push_back((needed, new));
        }
        has_run
    }

    /// Makes output visible whose batches all live replicas hold.
    fn show(&mut self) {
        let held = self.live().map(|at| self.replicas[at].held).min().unwrap_or(0);
        for (said, seen) in self.said.iter_mut().zip(&mut self.seen) {
            while let Some((_, said)) = said.pop_front_if(|(needed, _)| *needed <= held) {
                seen.push(said);
            }
        }
    }

    /// Loses the leader, and some of the batches under way from it.
    fn lose_leader(&mut self) {
        self.show();
        self.replicas[self.leader].is_lost = true;
        self.losses_left -= 1;
        for at in 0..REPLICAS {
            let on_way = self.replicas[at].coming.len();
            let kept = self.random.below(on_way + 1);
            self.replicas[at].coming.truncate(kept);
        }
        let reaches = |at: usize| self.replicas[at].held + self.replicas[at].coming.len();
        let known = self.live().map(reaches).max().expect("one is live");
        self.log.truncate(known);
        for at in 0..REPLICAS {
            let replica = &mut self.replicas[at];
            let from = replica.held + replica.coming.len();
            replica.coming.extend(self.log.iter().skip(from).cloned());
        }
        let next = self.live().next();
        self.leader = next.expect("one is live");
        while self.deliver(self.leader) {}
        self.replicas[self.leader].process.lead();
        // The successor's output includes that of its own threads which nobody has seen.
        let process = &self.replicas[self.leader].process;
        for (thread, (said, seen)) in self.said.iter_mut().zip(&self.seen).enumerate() {
            let unseen = process.said(thread).iter().skip(seen.len());
            *said = unseen.map(|said| (known, *said)).collect();
        }
    }

    /// Puts a copy of a live replica in the place of a lost one.
    fn copy(&mut self) -> bool {
        let Some(place) = (0..REPLICAS).find(|at| self.replicas[*at].is_lost) else { return false };
        let live: Vec<_> = self.live().collect();
        let source = live[self.random.below(live.len())];
        if source == self.leader
            && self.mistake != Some(Mistake::CopiedUntold)
            && let Some(batch) = self.replicas[source].process.order.cut()
        {
            self.announce(batch);
        }
        let source = &self.replicas[source];
        let (process, coming, held) = (source.process.copy(), source.coming.clone(), source.held);
        self.replicas[place] = Replica { process, is_lost: false, coming, held };
        true
    }

    fn has_begun(&self) -> bool {
        self.replicas.iter().all(|replica| replica.process.phase == Phase::Ordered)
    }

    /// Begins the order in a process whose `MPI_Init` is complete: all have come to theirs, and its threads to the points
    /// where those of any replica were.
    fn begin(&mut self, at: usize) -> bool {
        let has_come = self.replicas.iter().all(|replica| replica.process.phase != Phase::Early);
        if !has_come || self.replicas[at].process.phase == Phase::Ordered {
            return false;
        }
        if self.limits.is_empty() {
            let counts = self.replicas.iter().map(|replica| replica.process.counts());
            self.limits =
                counts.reduce(|one, other| one.into_iter().zip(other).map(|(a, b)| a.max(b)).collect()).unwrap();
            self.replicas.iter_mut().for_each(|replica| replica.process.limit(self.limits.clone()));
        }
        let process = &mut self.replicas[at].process;
        let begins = process.may_begin() || self.mistake == Some(Mistake::BeginsBehind);
        if begins {
            process.begin();
        }
        begins
    }

    /// Tries every thread once. Returns true if any could go on.
    fn sweep(&mut self) -> bool {
        let mut has_moved = (0..REPLICAS).any(|at| self.begin(at));
        if let Some(batch) = self.cut() {
            self.announce(batch);
            has_moved = true;
        }
        for at in 0..REPLICAS {
            has_moved |= self.deliver(at);
            for thread in 0..self.said.len() {
                has_moved |= self.run(at, thread);
            }
        }
        has_moved
    }
}

/// A fault that sound replicas never show.
#[derive(PartialEq, Eq, Debug)]
pub enum Wrong {
    /// No thread goes on; with the positions of the live replicas' threads.
    Stalled(Vec<Vec<usize>>),
    Endless,
    /// This replica ends in another state than the leader.
    Differs(usize),
    /// The visible output differs from the leader's.
    Seen,
}

pub fn run(seed: u64, mistake: Option<Mistake>) -> Result<(), Wrong> {
    let mut random = Random(seed);
    let is_early = random.below(4) == 0;
    let programs = if is_early { &EARLY_PROGRAMS[..] } else { &PROGRAMS };
    let phase = if is_early { Phase::Early } else { Phase::Ordered };
    let program = programs[random.below(programs.len())];
    let losses_left = random.below(2 * REPLICAS);
    let held_max = [0, 1, 8, usize::MAX][random.below(4)];
    let start = |at| Replica {
        process: Process::new(program, at == 0, mistake, phase),
        is_lost: false,
        coming: VecDeque::new(),
        held: 0,
    };
    let replicas = (0..REPLICAS).map(start).collect();
    let (said, seen) = (vec![VecDeque::new(); program.0], vec![Vec::new(); program.0]);
    let log = Vec::new();
    let mut world =
        World { random, replicas, leader: 0, log, mistake, said, seen, losses_left, limits: Vec::new(), held_max };
    let mut idle = 0;
    for _ in 0..STEPS_MAX {
        if world.live().all(|at| world.replicas[at].process.has_ended()) {
            return compare(&mut world);
        }
        let at = world.random.below(REPLICAS);
        let has_moved = match world.random.below(40) {
            0..3 => world.deliver(at),
            3 => match world.cut() {
                Some(batch) => {
                    world.announce(batch);
                    true
                }
                None => false,
            },
            6 | 7 if world.begin(at) => true,
            4 if world.has_begun()
                && world.losses_left > 0
                && world.random.below(20) == 0
                && world.live().count() > 1 =>
            {
                world.lose_leader();
                true
            }
            5 if world.random.below(10) == 0 && world.copy() => true,
            _ => {
                let thread = world.random.below(program.0);
                world.run(at, thread)
            }
        };
        world.show();
        idle = if has_moved { 0 } else { idle + 1 };
        // A timed wait ends in one of four attempts.
        if idle > 200 && (0..50).all(|_| !world.sweep()) {
            return Err(Wrong::Stalled(world.live().map(|at| world.replicas[at].process.places()).collect()));
        }
    }
    Err(Wrong::Endless)
}

fn compare(world: &mut World) -> Result<(), Wrong> {
    while let Some(batch) = world.replicas[world.leader].process.order.cut() {
        world.announce(batch);
    }
    (0..REPLICAS).for_each(|at| while world.deliver(at) {});
    world.show();
    let leader = world.replicas[world.leader].process.result();
    for at in world.live() {
        if world.replicas[at].process.result() != leader {
            return Err(Wrong::Differs(at));
        }
    }
    if leader.0 == world.seen { Ok(()) } else { Err(Wrong::Seen) }
}

#[test]
fn replicas_of_programs_with_threads_say_the_same() {
    for seed in 0..10_000 {
        if let Err(wrong) = run(seed, None) {
            panic!("seed {seed}: {wrong:?}");
        }
    }
}

#[test]
fn planted_mistakes_are_found() {
    use Mistake::*;
    for mistake in [
        TornCut,
        LeadsAtOnce,
        EdgesUntold,
        MissUntold,
        TimeOutUntold,
        ReadersForgotten,
        CopyLeads,
        CopiedUntold,
        SeenEarly,
        GoesPastEvents,
        ComesInTurn,
        LeadsUntaken,
        SendsAsItComes,
        OutcomeUntold,
        ChannelUntold,
        AttemptsUnasked,
        KeepsWaited,
        GoneUnknown,
        BeginsBehind,
        KeepsCounts,
        LeavesAsleep,
    ] {
        assert!((0..40_000).any(|seed| run(seed, Some(mistake)).is_err()), "{mistake:?} is not found");
    }
}
