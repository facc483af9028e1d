//! Windows whose members are on one host and reach each other's memory by themselves: no message, and nothing that a
//! target would have to do.
//!
//! ```text
//!   origin                              memory that all map
//!     │ MPI_Win_lock ── draw a ticket ──▶ control │ lock, latch, posts, completes of each member
//!     │ MPI_Put ─────── copy ───────────▶ memory  │ part of each member; or the program's, which the kernel copies
//!     │ MPI_Accumulate  latch, combine ─▶         │
//!     │ MPI_Win_flush ─ barrier           of the processor, not of processes
//! ```
//! Whether a window is one its members agree on when they make it (`window::create`): where there are no replicas, all
//! are on one host and share its memory. It is then so for all operations on it. Two ways to one memory would be
//! neither atomic nor ordered with respect to each other.
//!
//! An operation is over when its call returns, so ordering needs nothing. Short puts and gets of memory that only the
//! kernel reaches are the exception: they wait for each other (`gathered`). Accumulates, and what they fetch and
//! compare, hold the target's latch for as long as they last; so they are atomic whatever the operation, the type and
//! the alignment are. Locks are [`Tickets`](redrt_sync::tickets::Tickets). A thread that waits for one, for a post or
//! for a complete waits as at a board (`engine::meeting`), and the thread that gives it wakes those that sleep.
//!
//! A process that dies holding a lock leaves it locked. No process outlives that: without replicas the job ends.

mod control;
mod gathered;
mod memory;

pub use control::Control;
pub use memory::{Part, Reached};

use super::apply::{Done, Form};
use super::kept;
use super::memory::Shared;
use gathered::{Gathered, SHORT_BYTES};
use redrt_engine as engine;
use redrt_engine::doorbell;
use redrt_engine::meeting::Meeting;
use redrt_process::pause;
use redrt_sync::fence;
use redrt_sync::tickets::Ticket;
use redrt_transport::board::Member;
use redrt_transport::shm;
use redrt_transport::shm::Segment;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Calls that complete something after which incoming messages are drained though nobody here waits for any: others may
/// wait for what only this process can do, or for the core that it polls the window on.
const CALLS_PER_PROGRESS: u32 = 64;

/// A window on one host, as a member reaches it.
pub struct Direct {
    control: Control,
    parts: Box<[Part]>,
    members: Box<[Member]>,
    segment: Segment,
    rank: u32,
    shares_core: bool,
    calls: AtomicU32,
    /// How many posts of each target have begun an access epoch here.
    started: Box<[AtomicU32]>,
    /// How many completes of each origin have ended an exposure epoch here.
    ended: Box<[AtomicU32]>,
    gathered: Gathered,
    /// Where the control words are, and the parts of a window that the library has allocated.
    memory: Shared,
}

/// What a member waits for.
#[derive(Clone, Copy)]
enum Awaited {
    /// Its turn at a lock.
    Turn(u32, Ticket),
    /// That a target has posted so often.
    Post(u32, u32),
    /// That an origin has completed so often.
    Complete(u32, u32),
    /// That a member has come to its fence of this number.
    Fence(u32, u32),
}

/// A wait that lasts.
struct Wait {
    direct: Arc<Direct>,
    awaited: Awaited,
}

impl Meeting for Wait {
    fn has_come(&self) -> bool {
        self.direct.has_come(self.awaited)
    }

    fn missing(&self, _: &dyn Fn(u64) -> String) -> Option<String> {
        let what = match self.awaited {
            Awaited::Turn(target, _) => format!("its turn at the lock of a window at rank {target}"),
            Awaited::Post(target, _) => format!("rank {target} to call MPI_Win_post"),
            Awaited::Complete(origin, _) => format!("rank {origin} to call MPI_Win_complete"),
            Awaited::Fence(member, _) => format!("rank {member} to call MPI_Win_fence"),
        };
        (!self.has_come()).then_some(what)
    }
}

fn counters(count: usize) -> Box<[AtomicU32]> {
    (0..count).map(|_| AtomicU32::new(0)).collect()
}

impl Direct {
    /// The window of `members`, of whom this process is number `rank`, with these parts. `memory` begins with the
    /// control words, and holds zeros.
    pub fn new(segment: Segment, members: Box<[Member]>, rank: u32, parts: Box<[Part]>, memory: Shared) -> Self {
        let count = members.len();
        // SAFETY: - the caller has mapped that much, fresh from the kernel or cleared; it is kept beside the words.
        let control = unsafe { Control::new(memory.start(), count) };
        let shares_core = engine::cell().lock().shares_core();
        let (started, ended, calls) = (counters(count), counters(count), AtomicU32::new(0));
        let gathered = Gathered::default();
        Self { control, parts, members, segment, rank, shares_core, calls, started, ended, gathered, memory }
    }

    /// The window is over at all members: its memory is cleared, as far as it is this member's, and kept for the next
    /// one. `own_bytes` of it are the program's.
    pub fn retire(&self, own_bytes: usize) {
        if !kept::is_worth(&self.memory) {
            return;
        }
        // SAFETY: - all members have come to the barrier with which a window is freed, and none uses it after that.
        unsafe { self.control.clear(self.rank) };
        if let Some(own) = self.parts[self.rank as usize].mapped().filter(|_| own_bytes > 0) {
            // SAFETY: - the member's part, which is as long; nobody uses it after the barrier.
            unsafe { own.write_bytes(0, own_bytes) };
        }
        kept::keep(self.memory.clone());
    }

    /// A member's part.
    #[inline]
    pub fn part(&self, member: u32) -> &Part {
        &self.parts[member as usize]
    }

    fn has_come(&self, awaited: Awaited) -> bool {
        // Counts wrap around: the difference is small, or that of a count that is behind.
        let reached = |word: &AtomicU32, count: u32| (word.load(Ordering::Acquire).wrapping_sub(count) as i32) >= 0;
        match awaited {
            Awaited::Turn(target, ticket) => self.control.tickets(target).has_come(ticket),
            Awaited::Post(target, count) => reached(self.control.posts(self.rank, target), count),
            Awaited::Complete(origin, count) => reached(self.control.completes(self.rank, origin), count),
            Awaited::Fence(member, count) => reached(self.control.fences(member), count),
        }
    }

    fn wait(self: &Arc<Self>, awaited: Awaited) {
        if !self.has_come(awaited) {
            let meeting = || Box::new(Wait { direct: self.clone(), awaited }) as Box<dyn Meeting>;
            engine::cell().await_shared(self.shares_core, || self.has_come(awaited), meeting);
        }
    }

    /// Wakes these members if they sleep.
    fn rouse(&self, members: &[Member]) {
        let sleeps = members.iter().map(|member| (member.process, self.segment.sleep_word(member.process)));
        shm::rouse(sleeps, doorbell::poke);
    }

    /// Counts one on, and wakes the member that waits for it.
    fn tell(&self, word: &AtomicU32, member: u32) {
        // This member alone writes it.
        word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        self.rouse(std::slice::from_ref(&self.members[member as usize]));
    }

    /// Locks a member's part.
    pub fn lock(self: &Arc<Self>, target: u32, exclusive: bool) {
        let tickets = self.control.tickets(target);
        let ticket = tickets.draw(exclusive);
        self.wait(Awaited::Turn(target, ticket));
        if tickets.enter(ticket) {
            self.rouse(&self.members);
        }
    }

    /// Gives the lock back; all that was done meanwhile is seen by the next one.
    pub fn unlock(&self, target: u32, exclusive: bool) {
        if self.control.tickets(target).leave(exclusive) {
            self.rouse(&self.members);
        }
        self.make_progress();
    }

    /// Writes packed bytes to a target, at once unless they `may_wait` until [`Direct::carry_out`].
    pub fn put(&self, target: u32, reached: &Reached, data: &[u8], may_wait: bool) -> Done {
        match reached {
            Reached::Elsewhere(pid, address, Form::Block { offset, .. }) if may_wait && data.len() <= SHORT_BYTES => {
                self.gathered.put(target, *pid, address.wrapping_add_signed(*offset), data)
            }
            _ => self.after_others(target).and_then(|()| reached.write(data)),
        }
    }

    /// Reads from a target, at once unless that `may_wait` until [`Direct::carry_out`].
    ///
    /// # Safety
    /// `into` is valid for writes of the bytes that are read until the program wants the operation done.
    pub unsafe fn get(&self, target: u32, reached: &Reached, into: *mut u8, may_wait: bool) -> Done {
        match reached {
            Reached::Elsewhere(pid, address, Form::Block { offset, size }) if may_wait && *size <= SHORT_BYTES => {
                // SAFETY: - as promised to this function.
                unsafe { self.gathered.get(target, *pid, address.wrapping_add_signed(*offset), into, *size) }
            }
            // SAFETY: - as promised to this function.
            _ => self.after_others(target).and_then(|()| unsafe { reached.read_to(into) }),
        }
    }

    /// What waits for this target is done, so that something may be done at once.
    #[inline]
    pub fn after_others(&self, target: u32) -> Done {
        self.carry_out(Some(target)).map_err(|(_, class)| class)
    }

    /// Does what waits for a target, or for all. The first whose memory cannot be reached, and the class of the error.
    #[inline]
    pub fn carry_out(&self, target: Option<u32>) -> Result<(), (u32, c_int)> {
        self.gathered.carry_out(target)
    }

    /// What was done before is done for all, before anything that is done afterwards.
    pub fn flush(&self) {
        fence::full();
        self.make_progress();
    }

    /// To be called by what a program may call again and again until others have done something.
    pub fn make_progress(&self) {
        let calls = self.calls.load(Ordering::Relaxed).wrapping_add(1);
        self.calls.store(calls, Ordering::Relaxed);
        if calls.is_multiple_of(CALLS_PER_PROGRESS) {
            engine::cell().poll_once();
            if self.shares_core {
                pause::yield_now();
            }
        }
    }

    /// A fence: all have come, and what they did before is done.
    pub fn fence(self: &Arc<Self>) {
        let own = self.control.fences(self.rank);
        let count = own.load(Ordering::Relaxed).wrapping_add(1);
        own.store(count, Ordering::Release);
        self.rouse(&self.members);
        let others = (self.rank + 1..self.members.len() as u32).chain(0..self.rank);
        others.for_each(|other| self.wait(Awaited::Fence(other, count)));
        self.make_progress();
    }

    /// Tells origins that this member has posted.
    pub fn post(&self, origins: &[u32]) {
        for origin in origins {
            self.tell(self.control.posts(*origin, self.rank), *origin);
        }
    }

    /// Waits until these targets have posted.
    pub fn start(self: &Arc<Self>, targets: &[u32]) {
        for target in targets {
            let count = self.started[*target as usize].fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            self.wait(Awaited::Post(*target, count));
        }
    }

    /// Tells targets that the access epoch has ended.
    pub fn complete(&self, targets: &[u32]) {
        for target in targets {
            self.tell(self.control.completes(*target, self.rank), *target);
        }
    }

    /// Waits until these origins have ended their access epochs, and ends the exposure epoch.
    pub fn end_exposure(self: &Arc<Self>, origins: &[u32]) {
        for origin in origins {
            let count = self.ended[*origin as usize].fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            self.wait(Awaited::Complete(*origin, count));
        }
    }

    /// Whether they have.
    pub fn have_completed(&self, origins: &[u32]) -> bool {
        let next = |origin: u32| self.ended[origin as usize].load(Ordering::Relaxed).wrapping_add(1);
        origins.iter().all(|origin| self.has_come(Awaited::Complete(*origin, next(*origin))))
    }

    /// A latch is not free. Its owner may need the core, and has it for a moment only.
    #[cold]
    fn pause(&self) {
        if self.shares_core { pause::yield_now() } else { std::hint::spin_loop() }
    }

    /// Holds a member's latch while `act` combines something with its memory.
    #[inline(always)]
    pub fn alone<T>(&self, target: u32, act: impl FnOnce() -> T) -> T {
        /// Given back whatever `act` does.
        struct Taken<'a>(&'a redrt_sync::tickets::Latch);
        impl Drop for Taken<'_> {
            fn drop(&mut self) {
                self.0.give_back();
            }
        }
        let latch = self.control.latch(target);
        while !latch.try_take() {
            self.pause();
        }
        let _taken = Taken(latch);
        act()
    }
}
