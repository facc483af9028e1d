//! The engine of this process behind its lock, and the wait for its operations.
//!
//! A waiting thread makes progress: it polls, and when nothing comes, sleeps. If several threads wait, one of them
//! polls or sleeps on the transports, and the others wait for it on a condition variable.

use super::request::{self, RequestId};
use super::sleep::{self, Sleeper, Yielding};
use super::waiters::Happened;
use super::{Engine, Runtime, parting, rivals, tasks};
use redrt_process::clock::monotonic_ns;
use redrt_process::pause;
use redrt_sync::biased::{Biased, Guard};
use redrt_sync::fence;
use redrt_transport::network::{Incoming, Opened};
use redrt_types::{Incarnation, ProcessIndex, View};
use redrt_wire::control::Passive;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// State of a wait, as its `check` reports it.
pub enum Outlook<T> {
    /// Over, with this result.
    Done(T),
    /// Open until at least this many more operations are complete, at least one.
    Complete(u64),
    /// Open; any event may end it.
    Open,
    /// Like `Open`, but other threads of this program compute meanwhile: the waiter sleeps at once.
    Asleep,
}

/// Condition under which a waiter checks again.
#[derive(Clone, Copy)]
struct Wanted {
    /// Check when at least this number of operations is complete.
    completions: u64,
    /// Check after every round of progress, too.
    is_open: bool,
    /// Poll for a while before sleeping.
    spins: bool,
    seen: u64,
}

impl Wanted {
    /// Asks a waiting thread for its outlook; `Err` with the result of a wait that is over.
    fn ask<T>(engine: &mut Engine, check: &mut impl FnMut(&mut Engine) -> Outlook<T>) -> Result<Self, T> {
        let outlook = check(engine);
        Self::of(outlook, engine.requests.completions)
    }

    /// The condition for an outlook taken when `completions` operations were complete; `Err` with the result of a wait
    /// that is over.
    fn of<T>(outlook: Outlook<T>, completions: u64) -> Result<Self, T> {
        let (more, is_open, spins) = match outlook {
            Outlook::Done(value) => return Err(value),
            Outlook::Complete(more) => (more, false, true),
            Outlook::Open => (1, true, true),
            Outlook::Asleep => (1, true, false),
        };
        Ok(Self { completions: completions.saturating_add(more), is_open, spins, seen: completions })
    }

    /// Operations missing when `completions` are complete. At least one: a waiter whose target is met still drains
    /// incoming frames once.
    fn missing(&self, completions: u64) -> u64 {
        self.completions.saturating_sub(completions).max(1)
    }

    /// Pauses between two polls that find nothing.
    fn pauses(&self, engine: &mut Engine) -> u64 {
        if engine.shares_core {
            // Another process can use the time.
            0
        } else if engine.links.receivers().is_empty() {
            // Each look takes the cache line of the next record away from its writer. A wait for many messages looks
            // less often.
            (self.completions - self.seen).min(sleep::PAUSES_MAX)
        } else {
            // A socket is locked during a look, and a process that delivers to it waits for that lock.
            sleep::PAUSES_OF_A_SOCKET
        }
    }

    /// Returns true if a check is worth it when `completions` operations are complete. While there is progress, it
    /// waits for its full number: operations that other waiters asked for count too.
    fn is_due(&self, completions: u64, progressed: bool) -> bool {
        self.is_open || completions >= self.completions || !progressed && completions != self.seen
    }
}

/// Number of empty calls after which a process that has a core to itself yields it.
const IDLE_POLLS: u32 = 16;

/// Pause of a follower that polls in vain where processes share cores, so that others run.
const FOLLOW_PAUSE: Duration = Duration::from_micros(100);

/// The engine, locked. Its release wakes the thread that sleeps on the transports if that thread may now be done, say
/// by a message of another thread of this process, or must also watch another link.
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
        self.engine.notify_sleeper(self.sleeper);
    }
}

/// The engine and what its threads wait on.
pub struct Cell {
    runtime: &'static dyn Runtime,
    engine: Biased<Engine>,
    /// True while one thread of the program at most is in MPI.
    one_thread: AtomicBool,
    others: Condvar,
    pub(super) sleeper: Sleeper,
    /// Links that others have opened, to be taken over by the engine.
    opened: Mutex<Vec<Incoming>>,
    /// True if the agent has changed something since the polling thread last looked: it must look again before it
    /// sleeps.
    has_news: AtomicBool,
    /// True while the cloner's agent waits for the engine: its holder releases it, and no other thread takes it.
    pub(super) is_wanted: AtomicBool,
    /// Threads wait here for the first view of a copy.
    pub(super) gate: Condvar,
}

process_local! {
    static CELL: OnceLock<Cell> = OnceLock::new();
}

/// Installs the engine of this process; once, in `MPI_Init`. With `one_thread`, only the calling thread will be in MPI,
/// so the lock is biased towards it where that pays.
///
/// # Panics
/// When an engine is installed already: `MPI_Init` has checked.
pub fn install(engine: Engine, sleeper: Sleeper, one_thread: bool) {
    let (opened, has_news) = (Mutex::default(), AtomicBool::new(false));
    let (is_wanted, gate) = (AtomicBool::new(false), Condvar::new());
    let (runtime, engine) = (engine.runtime, Biased::new(engine));
    let one_thread = AtomicBool::new(one_thread);
    let cell = Cell { runtime, engine, one_thread, others: Condvar::new(), sleeper, opened, has_news, is_wanted, gate };
    cell.choose_bias(&mut cell.engine.lock_slowly());
    assert!(CELL.set(cell).is_ok(), "the engine is installed twice");
}

/// The engine of this process; `None` before `MPI_Init`.
pub fn get() -> Option<&'static Cell> {
    CELL.get()
}

/// The engine of this process.
///
/// # Panics
/// Before `MPI_Init`: every API function checks that.
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
    fn lock_to_wait(&self) -> Guard<'_, Engine> {
        while self.is_wanted.load(Ordering::Relaxed) {
            pause::yield_now();
        }
        let engine = self.lock_at_any_time();
        if engine.joining.is_closed() { self.wait_at_gate(engine) } else { engine }
    }

    /// Locks the engine, even of a copy that has no place yet: for the threads that give it one.
    #[inline(always)]
    pub(super) fn lock_at_any_time(&self) -> Guard<'_, Engine> {
        self.engine.lock()
    }

    /// Gives the program's thread its fast way to the engine, or takes it away. The bias makes the way of other threads
    /// slower by 20 microseconds. That is nothing to a thread that seldom comes; but where processes share cores, other
    /// processes would wait.
    pub(super) fn choose_bias(&self, engine: &mut Guard<'_, Engine>) {
        let bias = self.one_thread.load(Ordering::Relaxed) && !engine.shares_core && fence::is_registered();
        Guard::set_bias(engine, bias);
    }

    /// Returns true if only one thread of the program is ever in MPI, and no thread makes progress for it.
    #[inline]
    pub(super) fn has_one_thread(&self) -> bool {
        self.one_thread.load(Ordering::Relaxed)
    }

    /// Ends the bias: from now on other threads come as often as the first one.
    pub fn share(&self) {
        if self.one_thread.swap(false, Ordering::Relaxed) {
            self.choose_bias(&mut self.engine.lock_slowly());
        }
    }

    #[cold]
    fn wait_at_gate<'a>(&'a self, mut engine: Guard<'a, Engine>) -> Guard<'a, Engine> {
        while engine.joining.is_closed() {
            engine = if self.sleeper.is_simulated() {
                // A simulated process that is lost here drops all it has, and nobody opens the gate for it.
                if std::thread::panicking() || redrt_process::simulation::is_over() {
                    return engine;
                }
                drop(engine);
                let is_of_program = redrt_process::simulation::sleep(None);
                assert!(is_of_program, "who opens the gate waits at it");
                self.lock_at_any_time()
            } else {
                engine.wait(&self.gate)
            };
        }
        engine
    }

    /// Makes progress until `check` yields a value.
    #[inline]
    pub fn wait_for<T>(&self, mut check: impl FnMut(&mut Engine) -> Option<T>) -> T {
        self.wait_for_many(|engine| check(engine).map_or(Outlook::Open, Outlook::Done))
    }

    /// Makes progress until `check` has a result. `check` is called again when its last outlook makes that worthwhile.
    pub fn wait_for_many<T>(&self, mut check: impl FnMut(&mut Engine) -> Outlook<T>) -> T {
        let mut engine = self.lock_to_wait();
        let mut wanted = match Wanted::ask(&mut engine, &mut check) {
            Ok(wanted) => wanted,
            Err(value) => {
                engine.notify_sleeper(&self.sleeper);
                return value;
            }
        };
        if tasks::program_has_come_further(self.runtime) {
            // Tasks that wait for the program must look again.
            engine.requests.completions += 1;
        }
        while engine.waiters.are_served() {
            // The polling thread may be asleep, and siblings wait to learn this process's progress.
            engine.flush();
            engine.notify_sleeper(&self.sleeper);
            let begun = engine.waiters.begin();
            engine = engine.wait(&self.others);
            if engine.joining.is_closed() {
                engine = self.wait_at_gate(engine);
            }
            engine.waiters.end(begun);
            wanted = match Wanted::ask(&mut engine, &mut check) {
                Ok(wanted) => wanted,
                Err(value) => {
                    engine.notify_sleeper(&self.sleeper);
                    return value;
                }
            };
        }
        engine.waiters.poll(true);
        let (mut engine, value) = self.poll(engine, wanted, check);
        engine.waiters.poll(false);
        self.stir(&mut engine);
        value
    }

    fn poll<'a, T>(
        &'a self,
        mut engine: Guard<'a, Engine>,
        mut wanted: Wanted,
        mut check: impl FnMut(&mut Engine) -> Outlook<T>,
    ) -> (Guard<'a, Engine>, T) {
        let (mut idle, mut yielding, mut spun, mut has_rivals) = (0, Yielding::default(), 0, false);
        let mut advanced = u64::MAX;
        loop {
            if self.is_wanted.load(Ordering::Relaxed) || self.engine.is_wanted() {
                drop(engine);
                engine = self.lock_to_wait();
            }
            self.take_news(&mut engine);
            let missing = wanted.missing(engine.requests.completions);
            let progressed = engine.progress(missing);
            if progressed && yielding.has_begun() && engine.parting.has_waited(sleep::switches) {
                parting::part();
            }
            if tasks::is_active() && engine.requests.completions != advanced {
                advanced = engine.requests.completions;
                drop(engine);
                tasks::advance_all();
                engine = self.lock_to_wait();
            }
            if wanted.is_due(engine.requests.completions, progressed) {
                wanted = match Wanted::ask(&mut engine, &mut check) {
                    Ok(wanted) => wanted,
                    Err(value) => return (engine, value),
                };
            }
            if engine.waiters.any() {
                let completions = engine.requests.completions;
                if engine.waiters.must_stir(completions) {
                    self.stir(&mut engine);
                }
                // Other threads may want the lock to begin operations of their own.
                drop(engine);
                engine = self.lock_to_wait();
            }
            if progressed {
                (idle, yielding, spun, has_rivals) = (0, Yielding::default(), 0, false);
                continue;
            }
            idle += 1;
            if idle == sleep::POLLS_BEFORE_FLUSH && engine.is_replicated() {
                engine.flush();
            }
            if self.sleeper.is_simulated() || !wanted.spins {
                engine = self.sleep(engine);
                continue;
            }
            for _ in 0..wanted.pauses(&mut engine) {
                std::hint::spin_loop();
            }
            if !engine.shares_core {
                engine.meetings.linger();
                if idle % 64 == 0 {
                    drop(engine);
                    if idle % sleep::POLLS_BEFORE_YIELD == 0 {
                        pause::yield_now();
                    }
                    engine = self.lock_to_wait();
                }
                spun += 1 + sleep::POLLS_OF_A_SOCKET * engine.links.receivers().len() as u32;
                if spun < sleep::SPIN_POLLS {
                    continue;
                }
            } else if idle < sleep::SPIN_POLLS_SHARED {
                continue;
            } else if !has_rivals && (yielding.has_begun() || rivals::may_yield()) && yielding.goes_on(sleep::switches)
            {
                idle = 0;
                drop(engine);
                has_rivals = !rivals::yield_now();
                engine = self.lock_to_wait();
                continue;
            }
            engine = self.sleep(engine);
            (idle, yielding, spun, has_rivals) = (0, Yielding::default(), 0, false);
        }
    }

    /// Returns true if a wildcard receive of this context must not be posted yet, because followers are far behind.
    #[inline]
    pub fn is_crowded(&self, context: u64) -> bool {
        let mut engine = self.lock();
        engine.is_replicated() && engine.agree(|sphere| sphere.is_crowded(context))
    }

    /// Waits until a wildcard receive of this context may be posted.
    #[inline]
    pub fn wait_until_not_crowded(&self, context: u64) {
        if self.is_crowded(context) {
            self.wait_for(|engine| (!engine.agree(|sphere| sphere.is_crowded(context))).then_some(()));
        }
    }

    /// Makes progress once, for calls that do not wait.
    pub fn poll_once(&self) {
        let mut engine = self.lock();
        self.take_news(&mut engine);
        engine.progress(1);
        if tasks::program_has_come_further(self.runtime) {
            engine.requests.completions += 1;
        }
        drop(engine);
        if tasks::is_active() {
            tasks::advance_all();
        }
    }

    /// Makes progress for a program that is busy elsewhere. A thread that waits polls by itself, so then nothing is
    /// done.
    pub fn assist(&self) {
        if !self.lock().waiters.are_served() {
            self.poll_once();
        }
    }

    /// Called when a call that does not wait found nothing. Where processes share a core, the process that it polls for
    /// may need the core. So may other jobs, which this process cannot see.
    pub fn idle_poll(&self) {
        process_local! {
            static COUNT: AtomicU32 = AtomicU32::new(0);
        }
        let mut engine = self.lock();
        if engine.replication.as_mut().is_some_and(|replication| replication.record_idle_poll()) {
            engine.flush();
            if engine.replication().record_idle_flush() {
                engine.links.poll_senders();
            }
        }
        let shares_core = engine.shares_core;
        drop(engine);
        if shares_core || COUNT.fetch_add(1, Ordering::Relaxed).is_multiple_of(IDLE_POLLS) {
            pause::yield_now();
        }
    }

    /// The same for a follower whose leader has not yet stated the outcome of a poll. Where processes share a core, the
    /// leader may need it: a follower that polled again at once would take a share of the processor for nothing.
    pub fn idle_follow(&self) {
        let mut engine = self.lock();
        let pauses = engine.shares_core && !engine.replication().is_deciding();
        drop(engine);
        if pauses {
            pause::sleep(FOLLOW_PAUSE);
        }
    }

    fn sleep<'a>(&'a self, mut engine: Guard<'a, Engine>) -> Guard<'a, Engine> {
        let completions = engine.requests.completions;
        engine.flush();
        if engine.requests.completions != completions {
            return engine;
        }
        let Engine { links, meetings, .. } = &mut *engine;
        let has_arrived = || self.has_news.load(Ordering::SeqCst) || meetings.has_any_come();
        let Some(bed) = self.sleeper.prepare(links, has_arrived) else { return engine };
        let left_ns = engine.waiters.alarm_ns().map(|alarm| alarm.saturating_sub(monotonic_ns()));
        let happened = Happened::now(&engine.requests, &engine.links);
        engine.waiters.fall_asleep(happened);
        drop(engine);
        let is_gone = self.sleeper.sleep(bed, left_ns.map(Duration::from_nanos));
        self.sleeper.awake();
        let mut engine = self.lock_to_wait();
        engine.waiters.wake_up();
        if is_gone {
            engine.links.poll_senders();
        }
        if engine.waiters.alarm_ns().is_some() && engine.waiters.take_alarm(monotonic_ns()) {
            self.stir(&mut engine);
        }
        engine
    }

    /// Makes waiters for `engine` look again at this time at the latest, by this machine's monotonic clock.
    pub fn set_alarm(&self, engine: &mut Engine, alarm_ns: u64) {
        if engine.waiters.set_alarm(alarm_ns) {
            // The polling thread may be asleep already.
            self.wake();
        }
    }

    /// Wakes the threads that wait for the polling thread, so that they look.
    pub(super) fn stir(&self, engine: &mut Engine) {
        if engine.waiters.any() {
            engine.waiters.stir();
            self.others.notify_all();
        }
    }

    /// The other live replicas of this rank with their incarnations, and true if this process decides for all of them.
    /// Works also in a copy that has no place yet.
    pub fn siblings(&self) -> (Vec<(ProcessIndex, Incarnation)>, bool) {
        let mut engine = self.lock_at_any_time();
        if engine.replication.is_none() {
            return (Vec::new(), false);
        }
        let (me, leads) = (engine.me, engine.replication().is_deciding());
        let view = engine.replication().view();
        let others = view.live(me.rank).filter(|other| *other != me);
        let lives = others.filter_map(|other| Some((other, view.member(other)?.incarnation))).collect::<Vec<_>>();
        let lives = lives.into_iter().map(|(other, life)| (engine.world.process(other), life));
        (lives.collect(), leads)
    }

    /// Applies a new view.
    pub fn apply_view(&self, view: View) {
        let mut engine = self.lock_at_any_time();
        engine.apply_view(view);
        self.stir(&mut engine);
        self.gate.notify_all();
        engine.notify_sleeper(&self.sleeper);
        drop(engine);
        self.wake();
    }

    /// This process's statement that it cannot go on unless others act; `None` while it can. See the module `passive`.
    pub fn passive(&self, thread_count: u32, initial: &View) -> Option<Passive> {
        let mut engine = self.lock_at_any_time();
        let view = engine.view().map_or(initial.number, |view| view.number);
        let is_busy = self.has_news.load(Ordering::SeqCst) || engine.joining.is_closed();
        if is_busy { None } else { engine.passive(thread_count, view) }
    }

    /// Returns true if all of its threads that may call MPI are in calls that wait.
    pub fn is_waiting(&self, thread_count: u32) -> bool {
        self.lock_at_any_time().waiters.are_all_waiting(thread_count)
    }

    /// Announces to siblings what the threads of this process wait for, and whether they have passed positions that
    /// siblings ask about; see `replication/outcomes.rs`.
    pub fn announce_paths(&self) {
        self.announce(|engine| {
            if engine.is_replicated() {
                engine.agree(|sphere| sphere.announce_paths());
            }
        });
    }

    /// Runs `act`, which sends siblings news of this process, unless the process may not speak yet.
    pub fn announce(&self, act: impl FnOnce(&mut Engine)) {
        let mut engine = self.lock_at_any_time();
        if !engine.joining.is_closed() {
            act(&mut engine);
        }
    }

    /// Makes all threads of this process look again, after a change that no frame brings.
    pub fn wake(&self) {
        self.has_news.store(true, Ordering::SeqCst);
        // The woken thread stirs the others. A notification from here could be lost: the caller has not locked the
        // engine, and a thread may have looked in vain and be about to wait.
        self.sleeper.wake();
    }

    /// Hands over a link that another process has opened.
    pub fn link_opened(&self, receiver: Incoming) {
        if receiver.name.epoch > 0 {
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

    /// Hands over a link that this process wanted. Waiting frames go out at once: the program may be outside of MPI for
    /// long.
    pub fn link_dialled(&self, opened: Opened) {
        let mut engine = self.lock_at_any_time();
        engine.links.opened(opened);
        engine.links.pump();
        engine.follow_broken();
        drop(engine);
        self.wake();
    }

    /// Breaks links to hosts that do not answer.
    pub fn break_silent(&self) {
        let mut engine = self.lock_at_any_time();
        let opened_again = engine.is_replicated();
        if engine.links.break_silent(opened_again) {
            // Handled at once: the program may be outside of MPI for long, and others wait for its earlier messages.
            engine.follow_broken();
            drop(engine);
            self.wake();
        }
    }

    pub(super) fn take_news(&self, engine: &mut Engine) {
        if self.has_news.load(Ordering::Relaxed) && self.has_news.swap(false, Ordering::SeqCst) {
            for receiver in self.opened.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
                // A link that a copy found in its memory belongs to its source.
                if receiver.inlet().is_current() {
                    engine.add_receiver(receiver);
                }
            }
            self.stir(engine);
        }
    }

    /// Makes waiting threads look again, after something other than a message has come.
    pub fn notify_waiting(&self) {
        // Also in a copy whose threads wait for a view: this thread will bring it.
        self.lock_at_any_time().requests.completions += 1;
        self.has_news.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Waits for one request, frees it, and returns its outcome.
    pub fn finish(&self, id: RequestId) -> request::Status {
        self.wait_for(|engine| engine.requests.is_complete(id).then(|| engine.requests.take(id)))
    }
}
