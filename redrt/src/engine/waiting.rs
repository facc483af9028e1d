//! Whoever waits makes progress: it polls, offers its core to others, and sleeps when nothing comes.

use super::Engine;
use super::cell::Cell;
use super::cloning::Joining;
use super::request::{self, RequestId};
use super::sleep::{self, Yielding};
use crate::coll::schedule;
use crate::runtime::clock::monotonic_ns;
use redrt_sync::biased::Guard;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What somebody who waits sees.
pub enum Outlook<T> {
    /// What it has waited for.
    Done(T),
    /// Not before so many more operations are complete, at least one.
    Complete(u64),
    /// Perhaps something else has to happen.
    Open,
}

/// When somebody who waits looks again.
#[derive(Clone, Copy)]
struct Wanted {
    /// When so many operations are complete.
    completions: u64,
    /// When anything has happened, too.
    is_open: bool,
    seen: u64,
}

impl Wanted {
    /// As an outlook says that was taken when `completions` operations were complete; or what was waited for.
    fn of<T>(outlook: Outlook<T>, completions: u64) -> Result<Self, T> {
        let (more, is_open) = match outlook {
            Outlook::Done(value) => return Err(value),
            Outlook::Complete(more) => (more, false),
            Outlook::Open => (1, true),
        };
        Ok(Self { completions: completions.saturating_add(more), is_open, seen: completions })
    }

    /// How many are missing when `completions` operations are complete. At least one: who has come further by itself must take in what others have sent as well.
    fn missing(&self, completions: u64) -> u64 {
        self.completions.saturating_sub(completions).max(1)
    }

    /// Pauses between two polls that find nothing.
    fn pauses(&self, engine: &mut Engine) -> u64 {
        if engine.shares_core {
            // Somebody else can use the time.
            0
        } else if engine.links.receivers().is_empty() {
            // Each look takes the line of the next record away from its writer: who needs many messages looks less often.
            (self.completions - self.seen).min(sleep::PAUSES_MAX)
        } else {
            // A socket is locked while it is looked at, and whoever brings it a message waits for that.
            sleep::PAUSES_OF_A_SOCKET
        }
    }

    /// Whether a look is worth it when `completions` operations are complete. While there is progress, it waits for as many as it was told of: operations
    /// that nobody has asked for count as well.
    fn is_due(&self, completions: u64, progressed: bool) -> bool {
        self.is_open || completions >= self.completions || !progressed && completions != self.seen
    }
}

/// After so many calls that found nothing a process that has a core to itself offers it to others.
const IDLE_POLLS: u32 = 16;

impl Engine {
    fn ask_waiter<T>(&mut self, check: &mut impl FnMut(&mut Engine) -> Outlook<T>) -> Result<Wanted, T> {
        let outlook = check(self);
        Wanted::of(outlook, self.requests.completions)
    }
}

impl Cell {
    /// Makes progress until `check` yields a value.
    #[inline]
    pub fn wait_for<T>(&self, mut check: impl FnMut(&mut Engine) -> Option<T>) -> T {
        self.wait_for_many(|engine| check(engine).map_or(Outlook::Open, Outlook::Done))
    }

    /// Makes progress until `check` has what it waits for, which is asked again when that is worth it.
    pub fn wait_for_many<T>(&self, mut check: impl FnMut(&mut Engine) -> Outlook<T>) -> T {
        let mut engine = self.lock_to_wait();
        let mut wanted = match engine.ask_waiter(&mut check) {
            Ok(wanted) => wanted,
            Err(value) => {
                engine.tell_sleeper(&self.sleeper);
                return value;
            }
        };
        if crate::window::wait_for_program() {
            // It has come further.
            engine.requests.completions += 1;
        }
        while engine.polling {
            engine.tell_sleeper(&self.sleeper);
            let begun = engine.waiters.begin();
            engine = engine.wait(&self.others);
            if engine.joining == Joining::Outside {
                engine = self.wait_at_gate(engine);
            }
            engine.waiters.end(begun);
            wanted = match engine.ask_waiter(&mut check) {
                Ok(wanted) => wanted,
                Err(value) => {
                    engine.tell_sleeper(&self.sleeper);
                    return value;
                }
            };
        }
        engine.polling = true;
        let (mut engine, value) = self.poll(engine, wanted, check);
        engine.polling = false;
        self.stir(&mut engine);
        value
    }

    fn poll<'a, T>(
        &'a self,
        mut engine: Guard<'a, Engine>,
        mut wanted: Wanted,
        mut check: impl FnMut(&mut Engine) -> Outlook<T>,
    ) -> (Guard<'a, Engine>, T) {
        let (mut idle, mut yielding, mut spun) = (0, Yielding::default(), 0);
        let mut advanced = u64::MAX;
        loop {
            if self.is_wanted.load(Ordering::Relaxed) || self.engine.is_wanted() {
                drop(engine);
                engine = self.lock_to_wait();
            }
            self.take_news(&mut engine);
            let missing = wanted.missing(engine.requests.completions);
            let progressed = engine.progress(missing);
            if schedule::is_active() && engine.requests.completions != advanced {
                advanced = engine.requests.completions;
                drop(engine);
                schedule::advance_all();
                engine = self.lock_to_wait();
            }
            if wanted.is_due(engine.requests.completions, progressed) {
                wanted = match engine.ask_waiter(&mut check) {
                    Ok(wanted) => wanted,
                    Err(value) => return (engine, value),
                };
            }
            if engine.waiters.any() {
                if engine.told_completions != engine.requests.completions {
                    engine.told_completions = engine.requests.completions;
                    self.stir(&mut engine);
                }
                // Others may want the lock to begin operations of their own.
                drop(engine);
                engine = self.lock_to_wait();
            }
            if progressed {
                (idle, yielding, spun) = (0, Yielding::default(), 0);
                continue;
            }
            idle += 1;
            if idle == sleep::POLLS_BEFORE_FLUSH && engine.is_replicated() {
                engine.flush();
            }
            for _ in 0..wanted.pauses(&mut engine) {
                std::hint::spin_loop();
            }
            if !engine.shares_core {
                if idle % 64 == 0 {
                    drop(engine);
                    engine = self.lock_to_wait();
                }
                spun += 1 + sleep::POLLS_OF_A_SOCKET * engine.links.receivers().len() as u32;
                if spun < sleep::SPIN_POLLS {
                    continue;
                }
            } else if idle < sleep::SPIN_POLLS_SHARED {
                continue;
            } else if yielding.goes_on(sleep::switches) {
                idle = 0;
                drop(engine);
                std::thread::yield_now();
                engine = self.lock_to_wait();
                continue;
            }
            engine = self.sleep(engine);
            (idle, yielding, spun) = (0, Yielding::default(), 0);
        }
    }

    /// Makes progress once, for calls that do not wait.
    pub fn poll_once(&self) {
        let mut engine = self.lock();
        self.take_news(&mut engine);
        engine.progress(1);
        if crate::window::wait_for_program() {
            engine.requests.completions += 1;
        }
        drop(engine);
        if schedule::is_active() {
            schedule::advance_all();
        }
    }

    /// Makes progress for a program that is busy elsewhere; not while one of its threads waits, which does so itself.
    pub fn assist(&self) {
        if !self.lock().polling {
            self.poll_once();
        }
    }

    /// A call that does not wait found nothing. Where processes share a core, the one that it polls for may need it; and other jobs may, of
    /// which nothing is known here.
    pub fn idle_poll(&self) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mut engine = self.lock();
        engine.idle_poll();
        let shares_core = engine.shares_core;
        drop(engine);
        if shares_core || COUNT.fetch_add(1, Ordering::Relaxed).is_multiple_of(IDLE_POLLS) {
            std::thread::yield_now();
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
        let alarm = engine.alarm_ns.map(|alarm| (alarm, alarm.saturating_sub(monotonic_ns())));
        engine.asleep = Some(engine.happened());
        drop(engine);
        let is_gone = self.sleeper.sleep(bed, alarm.map(|(_, remaining)| Duration::from_nanos(remaining)));
        self.sleeper.awake();
        let mut engine = self.lock_to_wait();
        engine.asleep = None;
        if is_gone {
            engine.links.look_at_senders();
        }
        if engine.alarm_ns.is_some_and(|alarm| alarm <= monotonic_ns()) {
            engine.alarm_ns = None;
            self.stir(&mut engine);
        }
        engine
    }

    /// Waits for one request and frees it.
    pub fn finish(&self, id: RequestId) -> request::Status {
        self.wait_for(|engine| engine.requests.is_complete(id).then(|| engine.requests.take(id)))
    }
}
