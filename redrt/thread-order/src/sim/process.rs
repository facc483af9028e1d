//! One simulated process: its memory, its locks, and threads that run one instruction at a time.

use super::Mistake;
use super::program::{Instruction, Memory, Program, Registers, VARIABLES};
use crate::{Batch, Operation, Order, Point, Shortcut, Step};
use std::collections::VecDeque;

/// `EBUSY`, and below `ETIMEDOUT`: the errors that programs here distinguish.
const BUSY: i32 = 16;
/// `PTHREAD_BARRIER_SERIAL_THREAD`.
const LAST: i32 = -1;
const TIMED_OUT: i32 = 110;

/// Channel by which all threads send.
const CHANNEL: u64 = 7;

/// The pipe, and its room.
const PIPE: u64 = 8;
const PIPE_ROOM: usize = 3;
/// `EAGAIN`, as a negative result.
const WOULD_BLOCK: i32 = -11;

/// Visible output of a thread.
pub type Said = Vec<(u64, u64)>;

#[derive(Clone, Default)]
struct Lock {
    owner: Option<usize>,
    readers: Vec<usize>,
    /// Latest operation that had it alone.
    last: Option<Operation>,
    /// Later operations that had it with others.
    last_readers: Vec<Operation>,
}

impl Lock {
    fn is_free(&self) -> bool {
        self.owner.is_none() && self.readers.is_empty()
    }
}

/// A wait in a condition variable.
#[derive(Clone)]
struct Waiting {
    condition: usize,
    is_woken: bool,
    /// True if it began before this process led, or was copied: signals of that time woke nobody here.
    is_old: bool,
    /// True if the thread sleeps, as it did before the order began: it does not know of any turn.
    sleeps: bool,
}

/// A call on the pipe that a leader's thread has made and not recorded.
#[derive(Clone, Copy)]
enum Done {
    Attempted(i32),
    /// The time of its wait is over.
    Waited(i32),
}

/// Progress of a call on the pipe.
enum Exchanged {
    NotYet,
    Attempted,
    Is(i32),
}

#[derive(Clone)]
struct Thread {
    at: usize,
    /// True between its question whether it may make a call on the pipe, and the call.
    has_asked: bool,
    /// True while it waits for the pipe.
    waits: bool,
    done: Option<Done>,
    own: Registers,
    waiting: Option<Waiting>,
    /// The round of the barrier that it has come to, and true if it came last.
    came: Option<(u64, bool)>,
    said: Said,
    has_ended: bool,
}

/// Life of a process before the order begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Early,
    /// The program is in `MPI_Init`. Threads stand still at their limits.
    InInit,
    Ordered,
}

#[derive(Clone)]
pub struct Process {
    pub order: Order,
    pub phase: Phase,
    /// Number of operations that each thread has made before the order began.
    early: Vec<u64>,
    /// Numbers up to which they go on in `MPI_Init`; empty until all replicas are there.
    limits: Vec<u64>,
    /// Batches that it holds and has not taken: it takes the next one when a thread has nothing to do without it.
    pub held: VecDeque<Batch>,
    program: Program,
    memory: Memory,
    locks: [Lock; 2],
    /// Number of messages sent.
    sent: u64,
    /// Items in the pipe.
    pipe: VecDeque<u64>,
    /// The thread that has attempted a call on the pipe and not recorded it.
    attempting: Option<usize>,
    /// Round of the barrier, and number of threads that have come in it.
    barrier: (u64, usize),
    threads: Vec<Thread>,
}

/// A thread's request for a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LockMode {
    Alone,
    WithOthers,
    /// Only if it is free.
    Attempt,
    /// Again, after a condition variable.
    Again {
        has_timed_out: bool,
    },
}

impl Process {
    /// A process of this program. `race`: what its threads read without a lock, and may differ between replicas.
    pub fn new(program: Program, leads: bool, mistake: Option<Mistake>, phase: Phase, race: u64) -> Self {
        let mut order = Order::new(leads);
        order.mistake = mistake;
        let thread = |me| Thread {
            at: 0,
            has_asked: false,
            waits: false,
            done: None,
            own: Registers { me: me as u64, ..Registers::default() },
            waiting: None,
            came: None,
            said: Vec::new(),
            has_ended: false,
        };
        let threads = (0..program.0).map(thread).collect();
        let (held, mut memory, locks) = (VecDeque::new(), [0; VARIABLES], Default::default());
        memory[VARIABLES - 1] = race;
        Self {
            order,
            phase,
            early: vec![0; program.0],
            limits: Vec::new(),
            held,
            program,
            memory,
            locks,
            sent: 0,
            pipe: VecDeque::new(),
            attempting: None,
            barrier: (0, 0),
            threads,
        }
    }

    /// Makes a copy, which follows.
    pub fn copy(&self) -> Self {
        let mut copy = self.clone();
        if !self.has(Mistake::CopyLeads) {
            copy.order.join();
        }
        copy.threads.iter_mut().filter_map(|thread| thread.waiting.as_mut()).for_each(|waiting| waiting.is_old = true);
        copy
    }

    pub fn has_ended(&self) -> bool {
        self.threads.iter().all(|thread| thread.has_ended)
    }

    /// Returns true if a thread has attempted a call on the pipe and not recorded it.
    pub fn is_attempting(&self) -> bool {
        self.attempting.is_some()
    }

    pub fn thread_has_ended(&self, thread: usize) -> bool {
        self.threads[thread].has_ended
    }

    /// Ends the order here: the program has taken another path than in the leader.
    pub fn part(&mut self) {
        let _ = self.order.end();
    }

    /// Output of its threads, and its memory.
    pub fn result(&self) -> (Vec<Said>, Memory) {
        (self.threads.iter().map(|thread| thread.said.clone()).collect(), self.memory)
    }

    pub fn said(&self, thread: usize) -> &Said {
        &self.threads[thread].said
    }

    /// Positions of its threads.
    pub fn places(&self) -> Vec<usize> {
        self.threads.iter().map(|thread| thread.at).collect()
    }

    /// How far its threads are: the number of their operations, or that they wait.
    pub fn counts(&self) -> Vec<u64> {
        let count = |(thread, made): (usize, &u64)| if self.waits(thread) { u64::MAX } else { *made };
        self.early.iter().enumerate().map(count).collect()
    }

    /// Lets threads go on until they are as far as in the replica where they are furthest.
    pub fn limit(&mut self, limits: Vec<u64>) {
        self.limits = limits;
    }

    /// Returns true if no thread but the first one goes on by itself: each stands still before an operation at its
    /// limit, waits for another, or has ended.
    pub fn may_begin(&self) -> bool {
        let rests = |thread: usize| {
            let is_there = self.early[thread] >= self.limits[thread];
            let stands = is_there && self.takes_lock(thread).is_some() && !self.keeps_going(thread);
            let stands = stands || is_there && self.has(Mistake::BeginsMidway);
            let is_blocked = self.takes_lock(thread).is_some_and(|lock| !self.locks[lock].is_free());
            stands || is_blocked || self.waits(thread) || self.threads[thread].has_ended
        };
        !self.limits.is_empty() && (1..self.threads.len()).all(rests)
    }

    /// The lock that a thread takes next, if that is its next act.
    fn takes_lock(&self, thread: usize) -> Option<usize> {
        match (self.program.1)(thread)[self.threads[thread].at] {
            Instruction::Lock(lock) => Some(lock),
            _ => None,
        }
    }

    /// Returns true if a thread goes on beyond its limit, to give back a lock.
    fn keeps_going(&self, thread: usize) -> bool {
        !self.has(Mistake::StandsWithLock) && self.locks.iter().any(|lock| lock.owner == Some(thread))
    }

    /// Returns true if a thread waits and no other has woken it.
    fn waits(&self, thread: usize) -> bool {
        let Thread { waiting, came, .. } = &self.threads[thread];
        let seems = self.has(Mistake::WokenSeemsWaiting);
        waiting.as_ref().is_some_and(|waiting| seems || !waiting.is_woken)
            || came.is_some_and(|(round, _)| seems || self.barrier.0 == round)
    }

    /// Begins the order: its threads have made operations. The one that begins it is at the same point in all replicas,
    /// whatever it has made.
    pub fn begin(&mut self) {
        self.early[0] = 0;
        for number in 0..self.threads.len() {
            self.order.adopt(number as u64, Point { made: self.early[number], waits: self.waits(number) });
            if self.threads[number].has_ended {
                self.order.leave(number as u64);
            }
        }
        self.phase = Phase::Ordered;
        self.threads[0].at += 1;
    }

    /// Returns true if a thread may make an operation before the order begins.
    fn may_be_early(&self, thread: usize) -> bool {
        let limit = self.limits.get(thread).copied().unwrap_or(0);
        self.phase == Phase::Early || self.early[thread] < limit || self.keeps_going(thread)
    }

    /// Treatment of a thread's next operation, by the batches held.
    fn next(&mut self, thread: u64) -> Step {
        if self.phase != Phase::Ordered {
            return if self.may_be_early(thread as usize) { Step::Free } else { Step::Wait };
        }
        let step = self.order.next_by(thread, || self.held.pop_front());
        if step == Step::Wait && self.order.ended_before(thread).is_some() {
            self.part();
            return Step::Over;
        }
        step
    }

    /// Takes the place of a lost leader, with all batches it holds.
    pub fn lead(&mut self) {
        if !self.has(Mistake::LeadsUntaken) {
            self.held.drain(..).for_each(|batch| self.order.learn(batch));
        }
        self.order.lead();
    }

    fn has(&self, mistake: Mistake) -> bool {
        self.order.mistake == Some(mistake)
    }

    /// Takes a lock if the order and its owner permit. Returns the call's result; `None` for not yet.
    fn acquire(&mut self, thread: usize, lock: usize, mode: LockMode) -> Option<i32> {
        let number = thread as u64;
        let is_shared = mode == LockMode::WithOthers;
        let Lock { owner, readers, last, last_readers } = &self.locks[lock];
        let is_early = self.phase != Phase::Ordered;
        let is_free = owner.is_none() && (is_shared || readers.is_empty());
        let mut after: Vec<Operation> = last.iter().copied().collect();
        if !is_shared && !self.has(Mistake::ReadersForgotten) {
            after.extend(last_readers);
        }
        after.retain(|before| before.thread != number);
        let counts = self.order.counts(number);
        let may_count = match counts.shortcut() {
            Shortcut::Follows => true,
            _ if is_early => false,
            Shortcut::Leads => mode == LockMode::Alone && after.is_empty(),
            Shortcut::Ask | Shortcut::Unordered => false,
        };
        let step = match mode {
            _ if may_count => Step::Decided { takes: true, result: 0 },
            // A thread that was woken goes on up to its next lock.
            LockMode::Again { .. } if is_early => Step::Free,
            _ => self.next(number),
        };
        let (operation, takes, result) = match step {
            _ if may_count && !is_free => return None,
            Step::Wait => return None,
            Step::Decided { .. } if may_count => (Operation { thread: number, number: counts.go() }, true, 0),
            Step::Decided { takes, result } => {
                if takes && !is_free {
                    return None;
                }
                (self.order.follow(number), takes, result)
            }
            Step::Free if is_early => {
                if !is_free {
                    return None;
                }
                self.early[thread] += 1;
                (Operation { thread: number, number: 0 }, true, 0)
            }
            Step::Over => {
                let result = match mode {
                    LockMode::Attempt if !is_free => BUSY,
                    _ if !is_free => return None,
                    LockMode::Again { has_timed_out: true } => TIMED_OUT,
                    _ => 0,
                };
                (Operation { thread: number, number: 0 }, result != BUSY, result)
            }
            Step::Free => {
                let result = match mode {
                    LockMode::Attempt if !is_free => BUSY,
                    _ if !is_free => return None,
                    LockMode::Again { has_timed_out: true } if !self.has(Mistake::TimeOutUnsent) => TIMED_OUT,
                    _ => 0,
                };
                let takes = result != BUSY;
                let is_said = takes || !self.has(Mistake::MissUnsent);
                let after = if takes && !self.has(Mistake::EdgesUnsent) { after } else { Vec::new() };
                let told = if is_said { result } else { 0 };
                (self.order.record(number, after, takes || !is_said, told), takes, result)
            }
        };
        if takes {
            let lock = &mut self.locks[lock];
            if is_shared {
                lock.readers.push(thread);
                lock.last_readers.retain(|before| before.thread != number);
                lock.last_readers.push(operation);
            } else {
                lock.owner = Some(thread);
                lock.last = Some(operation).filter(|operation| operation.number > 0);
                lock.last_readers.clear();
            }
        }
        Some(result)
    }

    fn release(&mut self, thread: usize, lock: usize) {
        let lock = &mut self.locks[lock];
        if lock.owner == Some(thread) {
            lock.owner = None;
        } else {
            lock.readers.retain(|reader| *reader != thread);
        }
    }

    /// Waits at the barrier. Returns true if the thread came last; `None` while it waits.
    fn meet(&mut self, thread: usize) -> Option<bool> {
        let number = thread as u64;
        let Some((round, is_last)) = self.threads[thread].came else {
            let leads = self.order.leads();
            if self.has(Mistake::ComesInTurn) && !leads && self.next(number) == Step::Wait {
                return None;
            }
            let (round, come) = self.barrier;
            let is_last = come + 1 == self.threads.len();
            self.barrier = if is_last { (round + 1, 0) } else { (round, come + 1) };
            self.threads[thread].came = Some((round, is_last));
            return None;
        };
        if self.barrier.0 == round {
            return None;
        }
        if self.phase != Phase::Ordered {
            self.early[thread] += 1;
            self.threads[thread].came = None;
            return Some(is_last);
        }
        let counts = self.order.counts(number);
        let result = match counts.shortcut() {
            Shortcut::Follows => {
                counts.go();
                0
            }
            Shortcut::Leads if !is_last => {
                counts.go();
                0
            }
            Shortcut::Leads => {
                self.order.record(number, Vec::new(), true, LAST);
                LAST
            }
            Shortcut::Ask | Shortcut::Unordered => match self.next(number) {
                Step::Decided { result, .. } => {
                    self.order.follow(number);
                    result
                }
                Step::Over if is_last => LAST,
                Step::Over => 0,
                // This process leads now: the thread comes here again.
                Step::Free | Step::Wait => return None,
            },
        };
        self.threads[thread].came = None;
        Some(result == LAST)
    }

    /// Makes a call on the pipe in the leader's order: `attempt` never waits. A leader attempts the call in one step
    /// and records it in another, and nobody attempts one in between. A call that `waits` ends without a result when
    /// its time `is_over`.
    fn exchange(
        &mut self,
        thread: usize,
        waits: bool,
        is_over: bool,
        attempt: fn(&mut Self, usize) -> i32,
    ) -> Exchanged {
        let number = thread as u64;
        // A thread that waits notices only afterwards that its process has become a copy.
        if self.threads[thread].waits {
            if !is_over && self.pipe.is_empty() {
                return Exchanged::NotYet;
            }
            self.threads[thread].waits = false;
            self.threads[thread].done = Some(Done::Waited(WOULD_BLOCK)).filter(|_| is_over);
            return Exchanged::Attempted;
        }
        // A thread may have to wait between its question and its attempt: it asks again.
        let may_attempt = self.threads[thread].has_asked && self.attempting.is_none();
        let step = if may_attempt && self.has(Mistake::AttemptsUnasked) { Step::Free } else { self.next(number) };
        match step {
            Step::Wait => Exchanged::NotYet,
            Step::Over => {
                self.attempting = self.attempting.filter(|other| *other != thread);
                let done = self.threads[thread].done.take();
                let result = done
                    .map_or_else(|| attempt(self, thread), |(Done::Attempted(result) | Done::Waited(result))| result);
                self.threads[thread].waits = waits && result == WOULD_BLOCK && !is_over;
                if self.threads[thread].waits { Exchanged::Attempted } else { Exchanged::Is(result) }
            }
            Step::Free => {
                if let Some(done) = self.threads[thread].done.take() {
                    let (Done::Attempted(result) | Done::Waited(result)) = done;
                    self.attempting = self.attempting.filter(|other| *other != thread);
                    self.order.record_outcome(PIPE, number, result, &[result as u8]);
                    return Exchanged::Is(result);
                }
                let had_asked = std::mem::replace(&mut self.threads[thread].has_asked, true);
                if self.attempting.is_some() || !had_asked {
                    return if had_asked { Exchanged::NotYet } else { Exchanged::Attempted };
                }
                self.threads[thread].has_asked = false;
                let result = attempt(self, thread);
                self.threads[thread].waits = waits && result == WOULD_BLOCK;
                if !self.threads[thread].waits {
                    self.threads[thread].done = Some(Done::Attempted(result));
                    self.attempting = Some(thread);
                }
                Exchanged::Attempted
            }
            Step::Decided { result, .. } => {
                let is_found = self.order.found(number) == [result as u8];
                assert!(is_found || self.has(Mistake::OutcomeUnsent), "a result comes with what was found");
                let done = self.threads[thread].done.take();
                self.threads[thread].has_asked = false;
                self.attempting = self.attempting.filter(|other| *other != thread);
                // A call that failed is not tried: it would have succeeded if it came later. A copy of a leader has
                // made its source's attempt already; what it has waited for counts for nothing.
                match done {
                    Some(Done::Attempted(_)) => {}
                    Some(Done::Waited(own)) if self.has(Mistake::KeepsWaited) => {
                        self.order.follow_on(PIPE, number);
                        return Exchanged::Is(own);
                    }
                    _ if result > 0 => _ = attempt(self, thread),
                    _ => {}
                }
                self.order.follow_on(PIPE, number);
                Exchanged::Is(result)
            }
        }
    }

    fn write(&mut self, thread: usize) -> i32 {
        if self.pipe.len() >= PIPE_ROOM {
            return WOULD_BLOCK;
        }
        let Registers { me, number, .. } = self.threads[thread].own;
        self.pipe.push_back(me << 8 | number);
        1
    }

    fn drain(&mut self, thread: usize) -> i32 {
        let count = self.pipe.len().min(2);
        let own = &mut self.threads[thread].own;
        for item in self.pipe.drain(..count) {
            own.value = own.value.rotate_left(7) ^ item;
        }
        if count == 0 { WOULD_BLOCK } else { count as i32 }
    }

    /// Runs one instruction of a thread; true if it could. `leads`: this process decides. `is_over`: a timed wait may
    /// end now. Also returns the batch that visible output depends on.
    pub fn step(&mut self, thread: usize, leads: bool, is_over: bool) -> (bool, Option<Batch>) {
        if self.phase == Phase::Ordered && self.order.takes_sleepers() && !self.has(Mistake::LeavesAsleep) {
            let waiting = self.threads.iter_mut().filter_map(|thread| thread.waiting.as_mut());
            waiting.for_each(|waiting| waiting.is_woken = true);
        }
        if self.threads[thread].has_ended {
            return (false, None);
        }
        let at = self.threads[thread].at;
        let instruction = (self.program.1)(thread)[at];
        let mut next = at + 1;
        let mut batch = None;
        match instruction {
            Instruction::Lock(lock) => {
                if self.acquire(thread, lock, LockMode::Alone).is_none() {
                    return (false, None);
                }
            }
            Instruction::Read(lock) => {
                if self.acquire(thread, lock, LockMode::WithOthers).is_none() {
                    return (false, None);
                }
            }
            Instruction::TryLock(lock) => match self.acquire(thread, lock, LockMode::Attempt) {
                Some(result) => self.threads[thread].own.got = result == 0,
                None => return (false, None),
            },
            Instruction::Unlock(lock) => self.release(thread, lock),
            Instruction::Wait { condition, lock, is_timed } => {
                let Some(waiting) = &self.threads[thread].waiting else {
                    self.release(thread, lock);
                    let sleeps = self.phase != Phase::Ordered;
                    let is_old = !leads && !sleeps;
                    self.threads[thread].waiting = Some(Waiting { condition, is_woken: false, is_old, sleeps });
                    return (true, None);
                };
                let has_timed_out = is_timed && is_over && !waiting.is_woken;
                let may_end = waiting.is_woken || waiting.is_old || has_timed_out;
                let knows_turn = waiting.is_woken || !waiting.sleeps;
                let is_decided = knows_turn && matches!(self.next(thread as u64), Step::Decided { .. });
                if !may_end && !is_decided {
                    return (false, None);
                }
                let Some(result) = self.acquire(thread, lock, LockMode::Again { has_timed_out }) else {
                    return (false, None);
                };
                let has_failed = result != 0 || has_timed_out && !is_decided;
                self.threads[thread].waiting = None;
                self.threads[thread].own.got = !has_failed;
            }
            Instruction::Signal(condition) => self.wake(condition, 1),
            Instruction::Broadcast(condition) => self.wake(condition, usize::MAX),
            Instruction::Barrier => {
                let had_come = self.threads[thread].came.is_some();
                match self.meet(thread) {
                    Some(is_last) => self.threads[thread].own.got = is_last,
                    None => return (!had_come && self.threads[thread].came.is_some(), None),
                }
            }
            Instruction::Do(act) => act(&mut self.memory, &mut self.threads[thread].own),
            Instruction::JumpIf(holds, to) => {
                if holds(&self.memory, &self.threads[thread].own) {
                    next = to;
                }
            }
            Instruction::Jump(to) => next = to,
            Instruction::Output => {
                if leads {
                    batch = self.order.cut();
                }
                let Registers { number, value, .. } = self.threads[thread].own;
                self.threads[thread].said.push((number, value));
            }
            Instruction::Send => {
                let number = thread as u64;
                match self.next(number) {
                    _ if self.has(Mistake::SendsAsItComes) => {}
                    Step::Wait => return (false, None),
                    Step::Over => {}
                    Step::Free => _ = self.order.record_on(CHANNEL, number),
                    Step::Decided { .. } => _ = self.order.follow_on(CHANNEL, number),
                }
                // Its place on the channel is in a batch before the message leaves.
                if leads {
                    batch = self.order.cut();
                }
                self.sent += 1;
                let value = self.threads[thread].own.value;
                self.threads[thread].said.push((self.sent, value));
            }
            Instruction::Write => match self.exchange(thread, false, is_over, Self::write) {
                Exchanged::Is(result) => self.threads[thread].own.got = result > 0,
                Exchanged::Attempted => return (true, None),
                Exchanged::NotYet => return (false, None),
            },
            Instruction::Drain => match self.exchange(thread, true, is_over, Self::drain) {
                Exchanged::Is(result) => self.threads[thread].own.number = result.max(0) as u64,
                Exchanged::Attempted => return (true, None),
                Exchanged::NotYet => return (false, None),
            },
            Instruction::Init => {
                if self.phase == Phase::Early {
                    self.phase = Phase::InInit;
                    return (true, None);
                }
                return (false, None);
            }
            Instruction::End => {
                self.threads[thread].has_ended = true;
                if self.phase == Phase::Ordered {
                    self.order.leave(thread as u64);
                }
            }
        }
        self.threads[thread].at = next;
        (true, batch)
    }

    fn wake(&mut self, condition: usize, count: usize) {
        let waiting = self.threads.iter_mut().filter_map(|thread| thread.waiting.as_mut());
        let waiting = waiting.filter(|waiting| waiting.condition == condition && !waiting.is_woken);
        waiting.take(count).for_each(|waiting| waiting.is_woken = true);
    }
}
