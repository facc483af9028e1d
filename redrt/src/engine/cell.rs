//! The one engine of a process, its lock, and those who bring it news.

use super::Engine;
use super::cloning::Joining;
use super::opening;
use super::sleep::Sleeper;
use crate::transport::tcp::Receiver;
use redrt_sync::biased::{Biased, Guard};
use redrt_sync::fence;
use redrt_types::View;
use redrt_wire::control::Passive;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

/// What a thread that sleeps must be woken for, when another thread of the process brings it about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Happened {
    completions: u64,
    busy_links: usize,
}

impl Engine {
    pub(super) fn happened(&self) -> Happened {
        Happened { completions: self.requests.completions, busy_links: self.links.busy_count() }
    }

    /// Wakes the thread that sleeps on the transports if something has happened since that it must look at. To be called
    /// before the lock is let go.
    #[inline]
    pub(super) fn tell_sleeper(&self, sleeper: &Sleeper) {
        if self.asleep.is_some_and(|before| before != self.happened()) {
            sleeper.wake();
        }
    }
}

/// The engine, locked. Letting go of it wakes the thread that sleeps on the transports if that may now have what it waits
/// for, say a message of another thread of this process, or must wait for another link as well.
pub struct Locked<'a> {
    engine: Guard<'a, Engine>,
    sleeper: &'a Sleeper,
}

impl Deref for Locked<'_> {
    type Target = Engine;

    #[inline]
    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.engine.tell_sleeper(self.sleeper);
    }
}

/// The engine and what its threads wait on.
pub struct Cell {
    pub(super) engine: Biased<Engine>,
    /// One thread of the program at most is in MPI.
    one_thread: AtomicBool,
    pub(super) others: Condvar,
    pub(super) sleeper: Sleeper,
    /// Links that others have opened, on their way to the engine.
    opened: Mutex<Vec<Receiver>>,
    /// The agent has changed something since the polling thread last looked; it must look again before it sleeps.
    pub(super) has_news: AtomicBool,
    /// The cloner's agent waits for the engine: whoever holds it lets go, and nobody else takes it.
    pub(super) is_wanted: AtomicBool,
    /// Where threads wait for the first view of a copy.
    gate: Condvar,
}

static CELL: OnceLock<Cell> = OnceLock::new();

/// Installs the engine of this process; once, in `MPI_Init`. With `one_thread`, none but the calling one will be in MPI, so the lock is biased
/// towards it where that pays.
///
/// # Panics
/// When there is one already: `MPI_Init` has checked.
pub fn install(engine: Engine, sleeper: Sleeper, one_thread: bool) {
    let (opened, has_news) = (Mutex::default(), AtomicBool::new(false));
    let (is_wanted, gate) = (AtomicBool::new(false), Condvar::new());
    let engine = Biased::new(engine);
    let one_thread = AtomicBool::new(one_thread);
    let cell = Cell { engine, one_thread, others: Condvar::new(), sleeper, opened, has_news, is_wanted, gate };
    cell.choose_bias(&mut cell.engine.lock_slowly());
    assert!(CELL.set(cell).is_ok(), "the engine is installed twice");
}

/// The engine of this process, `None` before `MPI_Init`.
pub fn get() -> Option<&'static Cell> {
    CELL.get()
}

/// The engine of this process.
///
/// # Panics
/// Before `MPI_Init`: every API function has checked.
#[inline]
pub fn cell() -> &'static Cell {
    CELL.get().expect("the engine is used after MPI_Init")
}

impl Cell {
    /// Locks the engine.
    ///
    /// # Panics
    /// When another thread than the program's panicked while holding it: its state cannot be trusted any more.
    #[inline(always)]
    pub fn lock(&self) -> Locked<'_> {
        Locked { engine: self.lock_to_wait(), sleeper: &self.sleeper }
    }

    #[inline(always)]
    pub(super) fn lock_to_wait(&self) -> Guard<'_, Engine> {
        while self.is_wanted.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        let engine = self.lock_at_any_time();
        if engine.joining == Joining::Outside { self.wait_at_gate(engine) } else { engine }
    }

    /// Locks the engine, also that of a copy which has no place yet: for the threads that bring it one.
    #[inline(always)]
    pub(super) fn lock_at_any_time(&self) -> Guard<'_, Engine> {
        self.engine.lock()
    }

    /// Gives the program's thread its fast way to the engine, or takes it away. It makes others' way slower by 20 microseconds, which is
    /// nothing to a thread that seldom comes; but where processes share cores, it would be the processes that wait.
    pub(super) fn choose_bias(&self, engine: &mut Guard<'_, Engine>) {
        let bias = self.one_thread.load(Ordering::Relaxed) && !engine.shares_core && fence::is_registered();
        Guard::set_bias(engine, bias);
    }

    /// Other threads come as often as the first one, from now on.
    pub fn share(&self) {
        if self.one_thread.swap(false, Ordering::Relaxed) {
            self.choose_bias(&mut self.engine.lock_slowly());
        }
    }

    #[cold]
    pub(super) fn wait_at_gate<'a>(&'a self, mut engine: Guard<'a, Engine>) -> Guard<'a, Engine> {
        while engine.joining == Joining::Outside {
            engine = engine.wait(&self.gate);
        }
        engine
    }

    /// Has whoever waits for `engine` look again at this time at the latest.
    pub fn set_alarm(&self, engine: &mut Engine, alarm_ns: u64) {
        if engine.alarm_ns.is_none_or(|before| before > alarm_ns) {
            engine.alarm_ns = Some(alarm_ns);
            // The thread that polls may be asleep already.
            self.wake();
        }
    }

    /// Lets the threads that wait for the one that polls look.
    pub(super) fn stir(&self, engine: &mut Engine) {
        if engine.waiters.any() {
            engine.waiters.stir();
            self.others.notify_all();
        }
    }

    /// Changes the membership.
    pub fn apply_view(&self, view: View) {
        let mut engine = self.lock_at_any_time();
        engine.apply_view(view);
        self.stir(&mut engine);
        self.gate.notify_all();
        engine.tell_sleeper(&self.sleeper);
        drop(engine);
        self.wake();
    }

    /// What this process says of itself if it cannot go on unless others do something; see the module `passive`.
    pub fn passive(&self, thread_count: u32, initial: &View) -> Option<Passive> {
        let mut engine = self.lock_at_any_time();
        let view = engine.view_number(initial);
        let is_busy = self.has_news.load(Ordering::SeqCst) || engine.joining == Joining::Outside;
        if is_busy { None } else { engine.passive(thread_count, view) }
    }

    /// Lets all threads of this process look again, after the agent changed something.
    pub fn wake(&self) {
        self.has_news.store(true, Ordering::SeqCst);
        self.sleeper.wake();
        self.others.notify_all();
    }

    /// Hands over a link that another process has opened.
    pub fn link_opened(&self, receiver: Receiver) {
        if receiver.epoch > 0 {
            // The other end waits to be asked anew, and the program may be outside of MPI for long.
            let mut engine = self.lock();
            engine.add_receiver(receiver);
            engine.links.pump();
            drop(engine);
            return self.wake();
        }
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).push(receiver);
        self.wake();
    }

    /// Hands over a link that this process wanted. What waits for it goes out at once: the program may be outside of MPI
    /// for long.
    pub fn link_dialled(&self, opened: opening::Opened) {
        let mut engine = self.lock_at_any_time();
        engine.links.opened(opened);
        engine.links.pump();
        drop(engine);
        self.wake();
    }

    pub(super) fn take_news(&self, engine: &mut Engine) {
        if self.has_news.load(Ordering::Relaxed) && self.has_news.swap(false, Ordering::SeqCst) {
            for receiver in self.opened.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
                // One that a copy found in its memory is its source's.
                if receiver.is_current() {
                    engine.add_receiver(receiver);
                }
            }
        }
    }
}
