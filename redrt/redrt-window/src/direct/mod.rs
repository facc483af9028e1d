//! Windows whose members are on one host and reach each other's memory themselves, without messages and without work of
//! the target.
//!
//! ```text
//!   origin                              memory that all map
//!     │ MPI_Win_lock ── draw a ticket ──▶ control │ lock, latch, posts, completes of each member
//!     │ MPI_Put ─────── copy ───────────▶ memory  │ part of each member; or the program's, which the kernel copies
//!     │ MPI_Accumulate  latch, combine ─▶         │
//!     │ MPI_Win_flush ─ barrier           of the processor, not of processes
//! ```
//! The members agree at its creation that a window is direct (`window::create`): there are no replicas, and all members
//! are on one host and share its memory. Then all operations on it are direct: with two ways to one memory, operations
//! would be neither atomic nor ordered.
//!
//! An operation is done when its call returns, so ordering needs no work. Short puts and gets of memory that only the
//! kernel reaches are the exception: they are gathered (`gathered`). Accumulates, fetches and compares hold the
//! target's latch while they run, so they are atomic for any operation, type and alignment. Locks are
//! [`Tickets`](redrt_sync::tickets::Tickets). A thread that waits for a turn, a post or a complete waits as at a board
//! (`engine::meeting`), and the thread that provides it wakes sleepers.
//!
//! A process that dies with a lock leaves it locked. No process outlives that: without replicas the job ends.

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

/// Number of completing calls after which incoming messages are drained, though no thread here waits for any. Others
/// may wait for this process's progress, or for its core, which it uses to poll the window.
const CALLS_PER_PROGRESS: u32 = 64;

/// A direct window of one member.
pub struct Direct {
    control: Control,
    parts: Box<[Part]>,
    members: Box<[Member]>,
    segment: Segment,
    rank: u32,
    shares_core: bool,
    calls: AtomicU32,
    /// Number of posts of each target that have begun an access epoch here.
    started: Box<[AtomicU32]>,
    /// Number of completes of each origin that have ended an exposure epoch here.
    ended: Box<[AtomicU32]>,
    gathered: Gathered,
    /// Memory of the control words, and of the parts if the library has allocated them.
    memory: Shared,
}

/// Event that a member waits for.
#[derive(Clone, Copy)]
enum Awaited {
    /// Its turn at the lock of a target.
    Turn(u32, Ticket),
    /// The post of a target with this number.
    Post(u32, u32),
    /// The complete of an origin with this number.
    Complete(u32, u32),
    /// The fence of a member with this number.
    Fence(u32, u32),
}

/// A wait that did not end at once, for the engine.
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
    /// A window of `members`, in which this process has rank `rank`. `memory` begins with the control words, and is
    /// zero.
    pub fn new(segment: Segment, members: Box<[Member]>, rank: u32, parts: Box<[Part]>, memory: Shared) -> Self {
        let count = members.len();
        // SAFETY: - mapped, on a page and zeros: the caller has mapped that many bytes, fresh from the kernel or
        //           cleared.
        //         - stays mapped: `memory` is kept in the same value.
        let control = unsafe { Control::new(memory.start(), count) };
        let shares_core = engine::cell().lock().shares_core();
        let (started, ended, calls) = (counters(count), counters(count), AtomicU32::new(0));
        let gathered = Gathered::default();
        Self { control, parts, members, segment, rank, shares_core, calls, started, ended, gathered, memory }
    }

    /// Ends the window, after all members have stopped using it. Clears this member's words and `own_bytes` bytes of
    /// its part, and keeps the memory for the next window.
    pub fn retire(&self, own_bytes: usize) {
        if !kept::is_worth(&self.memory) {
            return;
        }
        // SAFETY: - no member uses these words: all have come to the barrier that precedes the end of a window.
        unsafe { self.control.clear(self.rank) };
        if let Some(own) = self.parts[self.rank as usize].mapped().filter(|_| own_bytes > 0) {
            // SAFETY: - valid for writes of own_bytes bytes: the member's part, which is as long.
            //         - not used by others: all have come to the barrier.
            unsafe { own.write_bytes(0, own_bytes) };
        }
        kept::keep(self.memory.clone());
    }

    /// The part of a member.
    #[inline]
    pub fn part(&self, member: u32) -> &Part {
        &self.parts[member as usize]
    }

    fn has_come(&self, awaited: Awaited) -> bool {
        // Counts wrap around: the signed difference is negative if the count is behind.
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

    /// Increments a count, and wakes the member that waits for it.
    fn notify(&self, word: &AtomicU32, member: u32) {
        // Load and store in place of an addition: only this member writes the word.
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

    /// Releases the lock. The next holder sees all writes that were made under it.
    pub fn unlock(&self, target: u32, exclusive: bool) {
        if self.control.tickets(target).leave(exclusive) {
            self.rouse(&self.members);
        }
        self.make_progress();
    }

    /// Writes packed bytes to a target. With `may_wait` that may be put off until [`Direct::carry_out`].
    pub fn put(&self, target: u32, reached: &Reached, data: &[u8], may_wait: bool) -> Done {
        match reached {
            Reached::Elsewhere(pid, address, Form::Block { offset, .. }) if may_wait && data.len() <= SHORT_BYTES => {
                self.gathered.put(target, *pid, address.wrapping_add_signed(*offset), data)
            }
            _ => self.after_others(target).and_then(|()| reached.write(data)),
        }
    }

    /// Reads from a target. With `may_wait` that may be put off until [`Direct::carry_out`].
    ///
    /// # Safety
    /// `into` is valid for writes of the bytes that are read, with `may_wait` until [`Direct::carry_out`] has returned.
    pub unsafe fn get(&self, target: u32, reached: &Reached, into: *mut u8, may_wait: bool) -> Done {
        match reached {
            Reached::Elsewhere(pid, address, Form::Block { offset, size }) if may_wait && *size <= SHORT_BYTES => {
                // SAFETY: - valid for writes of size bytes until it is carried out: the caller's duty above.
                unsafe { self.gathered.get(target, *pid, address.wrapping_add_signed(*offset), into, *size) }
            }
            // SAFETY: - valid for writes of the bytes that are read: the caller's duty above.
            _ => self.after_others(target).and_then(|()| unsafe { reached.read_to(into) }),
        }
    }

    /// Carries out gathered operations on a target, before another operation on it is done.
    #[inline]
    pub fn after_others(&self, target: u32) -> Done {
        self.carry_out(Some(target)).map_err(|(_, class)| class)
    }

    /// Carries out gathered operations on a target, or on all for `None`. Fails with the first target whose memory
    /// cannot be reached, and the error class.
    #[inline]
    pub fn carry_out(&self, target: Option<u32>) -> Result<(), (u32, c_int)> {
        self.gathered.carry_out(target)
    }

    /// Orders earlier memory operations before later ones, for all members.
    pub fn flush(&self) {
        fence::full();
        self.make_progress();
    }

    /// Makes progress in some of its calls. To be called by every function that a program may repeat until others have
    /// done something.
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

    /// Waits until all members have come to this fence. Their earlier operations are done then.
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
            self.notify(self.control.posts(*origin, self.rank), *origin);
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
            self.notify(self.control.completes(*target, self.rank), *target);
        }
    }

    /// Waits until these origins have ended their access epochs, and ends the exposure epoch.
    pub fn end_exposure(self: &Arc<Self>, origins: &[u32]) {
        for origin in origins {
            let count = self.ended[*origin as usize].fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            self.wait(Awaited::Complete(*origin, count));
        }
    }

    /// Returns true if these origins have ended their access epochs.
    pub fn have_completed(&self, origins: &[u32]) -> bool {
        let next = |origin: u32| self.ended[origin as usize].load(Ordering::Relaxed).wrapping_add(1);
        origins.iter().all(|origin| self.has_come(Awaited::Complete(*origin, next(*origin))))
    }

    /// Pauses while a latch is not free. Its owner has it for a moment only, and may need the core.
    #[cold]
    fn pause(&self) {
        if self.shares_core { pause::yield_now() } else { std::hint::spin_loop() }
    }

    /// Holds a member's latch while `act` combines something with its memory.
    #[inline(always)]
    pub fn alone<T>(&self, target: u32, act: impl FnOnce() -> T) -> T {
        /// Releases the latch, also if `act` panics.
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
