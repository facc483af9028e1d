//! Three replicas of a program with threads, from a seed. Threads run in any order, batches come late, leaders are
//! lost, and copies take the places of the lost. The visible output of each thread, and the final state of all
//! replicas, must be the same.

mod process;
mod program;

use crate::Batch;
use process::{Phase, Process, Said};
use program::{EARLY_PROGRAMS, PROGRAMS, RACING_PROGRAM};
use simulation_kit::network::Links;
use simulation_kit::schedule::Standstill;
use simulation_kit::{Nothing, Random, Setup, Simulator, Trace, Violation};
use std::collections::VecDeque;

simulation_kit::named! {
    /// A bug that can be planted.
    pub enum Mistake {
        /// A batch has operations that depend on others which it lacks.
        TornCut,
        /// A successor's threads go on by themselves while others still have operations of batches to make.
        LeadsAtOnce,
        /// The leader's events lack the operations that came before.
        EdgesUnsent,
        /// The leader sends no event for a busy lock.
        MissUnsent,
        /// The leader sends no event for a wait that timed out.
        TimeOutUnsent,
        /// A writer does not wait for earlier readers.
        ReadersForgotten,
        /// A copy of the leader goes on as a leader.
        CopyLeads,
        /// A leader is copied with operations that are in no batch.
        CopiedUnsent,
        /// A leader is copied between a thread's attempt of a call on the pipe and its record.
        CopiedMidway,
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
        OutcomeUnsent,
        /// A thread that may attempt a call on a channel, and waits for another to have made one, does not ask again.
        AttemptsUnasked,
        /// In a copy a wait on a channel keeps the outcome that it had where it was copied.
        KeepsWaited,
        /// The leader's calls on a channel lack the call that came before.
        ChannelUnsent,
        /// Operations of a thread that is gone are forgotten.
        GoneUnknown,
        /// The order begins before all threads are as far as in other replicas.
        BeginsBehind,
        /// A thread that was woken and has not run yet counts as one that waits when the order begins.
        WokenSeemsWaiting,
        /// The order begins while a thread has yet to wake others after its last operation.
        BeginsMidway,
        /// A thread stands still with a lock that others need on the way to their limits.
        StandsWithLock,
        /// A thread that waits when the order begins goes on from its own count.
        KeepsCounts,
        /// Threads that wait when the order begins sleep until a signal reaches them.
        LeavesAsleep,
        /// A follower ends the order before it has made the operations of its leader's last batches.
        EndsAtOnce,
        /// A follower ends the order when its own program comes to that point.
        LeavesOffAlone,
        /// A thread waits for an operation of another one that has ended without it.
        WaitsForEnded,
    }
}

const REPLICAS: usize = 3;
const STEPS_MAX: u32 = 200_000;

struct Replica {
    process: Process,
    is_lost: bool,
    /// Number of the job's batches that it holds.
    held: usize,
}

struct World {
    random: Random,
    trace: Trace,
    step: u32,
    replicas: Vec<Replica>,
    /// Batches under way to each replica.
    coming: Links<usize, Batch>,
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
    /// True if the program comes to a point where the order ends.
    may_end: bool,
    /// True if the program races: each replica may take another path, and none may stand still.
    is_racing: bool,
    ended: Option<Ended>,
}

/// The end of the order in a leader.
struct Ended {
    /// Number of batches, with the empty one.
    batches: usize,
    /// Number of outputs that each thread had made.
    said: Vec<usize>,
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
                self.coming.send(at, batch.clone());
            }
        }
        self.say(|| format!("batch   {} of the leader {}", self.log.len(), self.leader));
    }

    fn say(&self, what: impl FnOnce() -> String) {
        self.trace.say(|| format!("{:>7}  {}", self.step, what()));
    }

    fn deliver(&mut self, at: usize) -> bool {
        let replica = &mut self.replicas[at];
        let Some(batch) = self.coming.deliver(at).filter(|_| !replica.is_lost) else { return false };
        replica.process.held.push_back(batch);
        replica.held += 1;
        true
    }

    fn run(&mut self, at: usize, thread: usize) -> bool {
        if self.replicas[at].is_lost {
            return false;
        }
        let leads = at == self.leader;
        let orders = leads && self.ended.is_none();
        // A follower that takes no more batches, since it has parted or ended, is not waited for.
        let is_behind =
            |process: &Process| process.held.len() > self.held_max && !process.order.is_over() && !process.has_ended();
        if orders && self.live().any(|at| is_behind(&self.replicas[at].process)) {
            return false;
        }
        let is_over = self.random.one_in(4);
        if self.is_racing && !leads && self.passes_over(at, thread) {
            self.replicas[at].process.part();
        }
        let process = &mut self.replicas[at].process;
        let said = process.said(thread).len();
        let (has_run, batch) = process.step(thread, leads, is_over);
        let new = process.said(thread).get(said).copied();
        if let Some(batch) = batch {
            self.announce(batch);
        }
        if leads && self.ended.is_none() && self.replicas[at].process.order.is_over() {
            self.announce_end();
            // The thread's last act comes after the end, and is seen when siblings know that.
            self.ended.iter_mut().for_each(|ended| ended.said[thread] = ended.said[thread].min(said));
        }
        // A successor repeats output of its predecessor that was seen.
        let is_new = self.seen[thread].len() + self.said[thread].len() == said;
        if let Some(new) = new.filter(|_| leads && is_new) {
            let needed = if self.mistake == Some(Mistake::SeenEarly) { 0 } else { self.log.len() };
            self.said[thread].push_back((needed, new));
        }
        if has_run {
            self.say(|| format!("run     thread {thread} of {at}, which says {new:?}"));
        }
        has_run
    }

    /// Returns true if a thread's next operation is one that the leader's thread does not make: it has ended, and all
    /// that it has made is known here.
    fn passes_over(&self, at: usize, thread: usize) -> bool {
        let (leader, replica) = (&self.replicas[self.leader], &self.replicas[at]);
        let knows_all = replica.held == self.log.len() && replica.process.held.is_empty();
        knows_all && leader.process.thread_has_ended(thread) && !replica.process.order.has_next(thread as u64)
    }

    /// The program of the leader comes to the point where the order ends. Some followers are there already.
    fn end(&mut self) {
        self.may_end = false;
        for at in (0..REPLICAS).filter(|at| *at != self.leader) {
            if self.random.one_in(2) {
                let _ = self.replicas[at].process.order.leave_off();
            }
        }
        let order = &mut self.replicas[self.leader].process.order;
        if order.leave_off() {
            let last = order.end();
            last.into_iter().for_each(|batch| self.announce(batch));
            self.announce_end();
        }
    }

    fn announce_end(&mut self) {
        self.announce(Batch::default());
        let process = &self.replicas[self.leader].process;
        let said = (0..self.said.len()).map(|thread| process.said(thread).len()).collect();
        self.say(|| format!("ends    the order of the leader {}, after {said:?} outputs", self.leader));
        self.ended = Some(Ended { batches: self.log.len(), said });
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
        self.coming.cut(&mut self.random, |_| true);
        let reaches = |at: usize| self.replicas[at].held + self.coming.under_way(at).count();
        let known = self.live().map(reaches).max().expect("one is live");
        self.log.truncate(known);
        self.ended = self.ended.take().filter(|ended| ended.batches <= known);
        for at in 0..REPLICAS {
            let from = self.replicas[at].held + self.coming.under_way(at).count();
            self.log.iter().skip(from).for_each(|batch| self.coming.send(at, batch.clone()));
        }
        let next = self.live().next();
        self.say(|| format!("lost    the leader {}, {known} batches are known", self.leader));
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
        let live: Vec<_> = self.live().collect();
        let source = self.random.pick(&live);
        self.copy_of(source)
    }

    fn copy_of(&mut self, source: usize) -> bool {
        let Some(place) = (0..REPLICAS).find(|at| self.replicas[*at].is_lost) else { return false };
        // The cut waits for a thread between an attempt and its record.
        if self.replicas[source].process.is_attempting() && self.mistake != Some(Mistake::CopiedMidway) {
            return false;
        }
        if source == self.leader
            && self.mistake != Some(Mistake::CopiedUnsent)
            && let Some(batch) = self.replicas[source].process.order.cut()
        {
            self.announce(batch);
        }
        self.say(|| format!("copy    of {source} in the place {place}"));
        self.coming.forget(|at| at == place);
        let coming: Vec<_> = self.coming.under_way(source).cloned().collect();
        coming.into_iter().for_each(|batch| self.coming.send(place, batch));
        let is_leaders = source == self.leader;
        let source = &self.replicas[source];
        self.replicas[place] = Replica { process: source.process.copy(), is_lost: false, held: source.held };
        // The last moment at which the copy may know what nobody else does.
        if is_leaders && self.losses_left > 0 && self.random.one_in(3) {
            self.lose_leader();
        }
        true
    }

    fn has_begun(&self) -> bool {
        self.replicas.iter().all(|replica| replica.process.phase == Phase::Ordered)
    }

    /// Begins the order in a process whose `MPI_Init` is complete: all have come to theirs, and its threads to the
    /// points where those of any replica were.
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
            self.say(|| format!("begins  the order in {at}"));
        }
        begins
    }

    /// Tries every thread once. Returns true if any could go on.
    fn sweep(&mut self) -> bool {
        let mut has_moved = (0..REPLICAS).any(|at| self.begin(at));
        has_moved |= self.cut();
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
enum Wrong {
    /// No thread goes on; with the positions of the live replicas' threads.
    Stalled(Vec<Vec<usize>>),
    Endless,
    /// This replica ends in another state than the leader.
    Differs(usize),
    /// The visible output differs from the leader's.
    Seen,
}

/// The simulator of the order of locks.
pub enum ThreadOrderSimulator {}

impl Simulator for ThreadOrderSimulator {
    const NAME: &'static str = "thread-order";
    const ABOUT: &'static str = "The order in which threads of replicas take locks: late batches, losses, copies";
    type Faults = Nothing;
    type Mistake = Mistake;
    type Shape = ();
    type Summary = String;

    fn run(seed: u64, setup: &Setup<Self>) -> Result<String, Violation> {
        let mut world = World::new(seed, setup);
        world.play().map_err(|wrong| Violation::from(format!("{wrong:?}")))?;
        Ok(format!("{} steps, {} batches", world.step, world.log.len()))
    }
}

impl World {
    fn new(seed: u64, setup: &Setup<ThreadOrderSimulator>) -> Self {
        let (mut random, mistake) = (Random::new(seed), setup.mistake);
        let is_racing = random.one_in(8);
        let is_early = !is_racing && random.one_in(4);
        let program = match (is_racing, is_early) {
            (true, _) => RACING_PROGRAM,
            (false, true) => random.pick(&EARLY_PROGRAMS),
            (false, false) => random.pick(&PROGRAMS),
        };
        let phase = if is_early { Phase::Early } else { Phase::Ordered };
        let losses_left = random.below(2 * REPLICAS);
        let may_end = random.one_in(3);
        let held_max = random.pick(&[0, 1, 8, usize::MAX]);
        let races = [(); REPLICAS].map(|()| if is_racing { random.below(4) as u64 } else { 0 });
        let start = |at| {
            let process = Process::new(program, at == 0, mistake, phase, races[at]);
            Replica { process, is_lost: false, held: 0 }
        };
        Self {
            random,
            trace: setup.trace,
            step: 0,
            replicas: (0..REPLICAS).map(start).collect(),
            coming: Links::default(),
            leader: 0,
            log: Vec::new(),
            mistake,
            said: vec![VecDeque::new(); program.0],
            seen: vec![Vec::new(); program.0],
            losses_left,
            limits: Vec::new(),
            held_max,
            may_end,
            is_racing,
            ended: None,
        }
    }

    fn play(&mut self) -> Result<(), Wrong> {
        let mut standstill = Standstill::after(200);
        while self.step < STEPS_MAX {
            self.step += 1;
            if self.live().all(|at| self.replicas[at].process.has_ended()) {
                return compare(self);
            }
            let at = self.random.below(REPLICAS);
            let has_moved = match self.random.below(40) {
                0..3 => self.deliver(at),
                3 => self.cut(),
                6 | 7 if self.begin(at) => true,
                4 if self.has_begun() && self.losses_left > 0 && self.random.one_in(20) && self.live().count() > 1 => {
                    self.lose_leader();
                    true
                }
                5 if self.random.one_in(10) && self.copy() => true,
                9 if self.replicas[self.leader].process.is_attempting() && self.copy_of(self.leader) => true,
                8 if self.may_end && self.has_begun() && self.random.one_in(10) => {
                    self.end();
                    true
                }
                _ => {
                    let thread = self.random.below(self.said.len());
                    self.run(at, thread)
                }
            };
            self.show();
            // A timed wait ends in one of four attempts.
            if standstill.is_reached(has_moved) && (0..50).all(|_| !self.sweep()) {
                return Err(Wrong::Stalled(self.live().map(|at| self.replicas[at].process.places()).collect()));
            }
        }
        Err(Wrong::Endless)
    }

    /// Announces the leader's operations that are in no batch. Returns true if there are any.
    fn cut(&mut self) -> bool {
        let batch = self.replicas[self.leader].process.order.cut();
        batch.map(|batch| self.announce(batch)).is_some()
    }
}

fn compare(world: &mut World) -> Result<(), Wrong> {
    if world.is_racing {
        return Ok(());
    }
    while world.cut() {}
    (0..REPLICAS).for_each(|at| while world.deliver(at) {});
    world.show();
    let leader = world.replicas[world.leader].process.result();
    if let Some(Ended { said, .. }) = &world.ended {
        // From the end of the order on, threads run as they come.
        let until = |all: &[Said]| -> Vec<Said> {
            all.iter().zip(said).map(|(own, count)| own.iter().copied().take(*count).collect()).collect()
        };
        let differs = |at: &usize| until(&world.replicas[*at].process.result().0) != until(&leader.0);
        return match world.live().find(differs) {
            Some(at) => Err(Wrong::Differs(at)),
            None if until(&leader.0) == until(&world.seen) => Ok(()),
            None => Err(Wrong::Seen),
        };
    }
    for at in world.live() {
        if world.replicas[at].process.result() != leader {
            return Err(Wrong::Differs(at));
        }
    }
    if leader.0 == world.seen { Ok(()) } else { Err(Wrong::Seen) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simulation_kit::{Named, sweep};

    #[test]
    fn replicas_of_programs_with_threads_say_the_same() {
        sweep::right::<ThreadOrderSimulator>(0..10_000, &Setup::default());
    }

    #[test]
    fn planted_mistakes_are_found() {
        sweep::finds::<ThreadOrderSimulator>(Mistake::ALL, 0..40_000, &Setup::default());
    }
}
