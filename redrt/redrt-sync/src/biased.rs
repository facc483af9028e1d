//! A lock that one thread takes without a barrier.
//!
//! ```text
//!   the owner:  inside ── light ── wanted? ──no──▶ has it
//!                                     └──yes─▶ not inside ── mutex ──▶ has it
//!   others:     mutex ── wanted ── heavy ── wait until not inside ──▶ have it
//! ```
//! The owner is a thread that takes the lock far more often than all others: in a program with one thread in MPI, that
//! thread. Its fast way has no full barrier, and no instruction that locks a line. All others share a mutex. The
//! mutex's holder keeps the owner off the fast way, at the cost of a heavy barrier. Without the bias the lock is a
//! mutex for all.

use crate::fence::{self, Reach};
use crate::primitive::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, UnsafeCell, thread_number, yield_now};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A value behind a biased lock.
pub struct Biased<T> {
    /// The owner's thread number. It never changes, since `inside` is the owner's alone.
    owner: usize,
    /// True while there is a fast way. Changed under the mutex, while `wanted`.
    bias: AtomicBool,
    /// True while the owner has the value, or is about to check that it may.
    inside: AtomicBool,
    /// True while the mutex's holder keeps the owner off: it has the value, or is about to have it.
    wanted: AtomicBool,
    mutex: Mutex<()>,
    /// The mutex's guard while the value is held by the mutex; `None` on the fast way. Not in [`Guard`], which thus is
    /// one word and stays in a register.
    held: UnsafeCell<Option<MutexGuard<'static, ()>>>,
    value: UnsafeCell<T>,
}

// SAFETY: - at any time one thread at most has the value, and `held` with it: the owner, while `inside` and not
//           `wanted`, or the holder of the mutex, after it has made the owner see `wanted` and seen it not `inside`.
//         - a guard is not sent to another thread, so the mutex is released by the thread that took it.
unsafe impl<T: Send> Send for Biased<T> {}
// SAFETY: as for Send; a shared reference to the value is only reached through a guard.
unsafe impl<T: Send> Sync for Biased<T> {}

/// The locked value; dropping it unlocks.
pub struct Guard<'a, T> {
    lock: &'a Biased<T>,
    /// Only the thread that has locked may unlock.
    _not_send: PhantomData<*const ()>,
}

impl<T> Biased<T> {
    /// Makes a lock whose owner is the calling thread; a mutex at first.
    pub fn new(value: T) -> Self {
        Self {
            owner: thread_number(),
            bias: AtomicBool::new(false),
            inside: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            mutex: Mutex::new(()),
            held: UnsafeCell::new(None),
            value: UnsafeCell::new(value),
        }
    }

    /// Locks by the fast way if the calling thread is the owner and there is one; else by the mutex.
    ///
    /// # Panics
    /// When a thread has panicked while it held the mutex.
    #[inline(always)]
    pub fn lock(&self) -> Guard<'_, T> {
        if self.bias.load(Ordering::Acquire) && self.owner == thread_number() {
            self.inside.store(true, Ordering::Relaxed);
            fence::light();
            // The bias may have gone since, and with it others' duty to set `wanted`.
            if !self.wanted.load(Ordering::Acquire) && self.bias.load(Ordering::Relaxed) {
                return Guard { lock: self, _not_send: PhantomData };
            }
            self.inside.store(false, Ordering::Release);
        }
        self.lock_slowly()
    }

    /// Locks by the mutex.
    ///
    /// # Panics
    /// When a thread has panicked while it held the mutex.
    #[inline(never)]
    pub fn lock_slowly(&self) -> Guard<'_, T> {
        self.keep_owner_off(self.mutex.lock().expect("no thread panics while it holds the lock"))
    }

    fn keep_owner_off<'a>(&'a self, mutex: MutexGuard<'a, ()>) -> Guard<'a, T> {
        if self.bias.load(Ordering::Relaxed) && self.owner != thread_number() {
            self.want();
        }
        // SAFETY: - the mutex is part of the lock, which is borrowed, and so neither moved nor dropped, until the guard
        //           below is dropped, and this one with it.
        let mutex = unsafe { std::mem::transmute::<MutexGuard<'a, ()>, MutexGuard<'static, ()>>(mutex) };
        // SAFETY: - this thread has the value now, and `held` with it.
        unsafe { *self.held.get() = Some(mutex) };
        Guard { lock: self, _not_send: PhantomData }
    }

    fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
        fence::heavy(Reach::Process);
        // The owner does not stay inside: it releases sooner or later, and does not come back.
        while self.inside.load(Ordering::Acquire) {
            yield_now();
        }
    }

    /// Returns true while a thread keeps the owner off: the owner should release the lock.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }
}

impl<'a, T> Guard<'a, T> {
    /// Waits for `condvar`, unlocked meanwhile. It may return at any time, as waits on condition variables do. The
    /// owner's fast way has no mutex to wait with, so it first comes back with one.
    ///
    /// # Panics
    /// When a thread has panicked while it held the mutex.
    #[must_use]
    pub fn wait(self, condvar: &Condvar) -> Self {
        let lock = self.lock;
        std::mem::forget(self);
        // SAFETY: - this thread has the value, and `held` with it, until it unlocks below.
        let Some(mutex) = (unsafe { (*lock.held.get()).take() }) else {
            lock.inside.store(false, Ordering::Release);
            return lock.lock_slowly();
        };
        // `wanted` stays set until the next thread has had the mutex. By then this thread waits, and misses no
        // notification.
        lock.keep_owner_off(condvar.wait(mutex).expect("no thread panics while it holds the lock"))
    }

    #[inline]
    fn has_mutex(&self) -> bool {
        // SAFETY: - this thread has the value, and `held` with it.
        unsafe { (*self.lock.held.get()).is_some() }
    }

    /// Gives the owner its fast way, or takes it away. The caller must hold the mutex ([`Biased::lock_slowly`]), and
    /// heavy barriers must be possible.
    ///
    /// # Panics
    /// When the guard was taken by the fast way.
    pub fn set_bias(this: &mut Self, bias: bool) {
        assert!(this.has_mutex(), "a bias is changed by the holder of the mutex");
        if bias == this.lock.bias.load(Ordering::Relaxed) {
            return;
        }
        if bias && this.lock.owner != thread_number() {
            this.lock.want();
        }
        this.lock.bias.store(bias, Ordering::Release);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: - this thread alone has the value for as long as the guard lives.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: - this thread alone has the value for as long as the guard lives, and the guard is borrowed alone.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.has_mutex() {
            self.lock.unlock_slowly();
        } else {
            self.lock.inside.store(false, Ordering::Release);
        }
    }
}

impl<T> Biased<T> {
    /// Unlocks by the mutex; called by the thread that has the value.
    fn unlock_slowly(&self) {
        // SAFETY: - this thread has the value, and `held` with it, until it releases the mutex.
        let mutex = unsafe { (*self.held.get()).take() };
        self.wanted.store(false, Ordering::Release);
        drop(mutex);
    }
}

#[cfg(all(test, redrt_loom))]
mod tests {
    use super::*;
    use crate::primitive::set_thread_number;
    use loom::cell::UnsafeCell as Tracked;
    use loom::sync::Arc;
    use loom::thread;

    /// A value that loom watches: it complains when two threads have it at once, or one misses another's write.
    type Count = Tracked<u32>;

    fn add(lock: &Biased<Count>) {
        // SAFETY: - exclusive access is what loom checks here.
        lock.lock().with_mut(|count| unsafe { *count += 1 });
    }

    fn biased() -> Arc<Biased<Count>> {
        set_thread_number(1);
        let lock = Biased::new(Count::new(0));
        Guard::set_bias(&mut lock.lock_slowly(), true);
        Arc::new(lock)
    }

    fn other(lock: &Arc<Biased<Count>>, number: usize, work: fn(&Biased<Count>)) -> thread::JoinHandle<()> {
        let lock = lock.clone();
        thread::spawn(move || {
            set_thread_number(number);
            work(&lock);
        })
    }

    fn total(lock: &Biased<Count>) -> u32 {
        // SAFETY: - the lock is held while the closure runs.
        lock.lock().with(|count| unsafe { *count })
    }

    #[test]
    fn one_thread_at_a_time_has_it() {
        loom::model(|| {
            let lock = biased();
            let others = [other(&lock, 2, add)];
            add(&lock);
            add(&lock);
            others.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(total(&lock), 3);
        });
    }

    #[test]
    fn two_others_take_turns() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let lock = biased();
            let others = [other(&lock, 2, add), other(&lock, 3, add)];
            add(&lock);
            others.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(total(&lock), 3);
        });
    }

    #[test]
    fn the_bias_may_go_and_come() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let lock = biased();
            let agent = other(&lock, 2, |lock| {
                Guard::set_bias(&mut lock.lock_slowly(), false);
                add(lock);
                Guard::set_bias(&mut lock.lock_slowly(), true);
            });
            add(&lock);
            add(&lock);
            agent.join().unwrap();
            assert_eq!(total(&lock), 3);
        });
    }

    #[test]
    fn a_call_is_not_missed() {
        for owner_waits in [true, false] {
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(3);
            builder.check(move || {
                let lock = biased();
                let condvar = Arc::new(Condvar::new());
                let theirs = (lock.clone(), condvar.clone());
                let wait = |lock: &Biased<Count>, condvar: &Condvar| {
                    let mut guard = lock.lock();
                    // SAFETY: - the guard holds the lock while the closure runs.
                    while guard.with(|count| unsafe { *count }) == 0 {
                        guard = guard.wait(condvar);
                    }
                };
                let call = |lock: &Biased<Count>, condvar: &Condvar| {
                    let guard = lock.lock();
                    // SAFETY: - the guard holds the lock while the closure runs.
                    guard.with_mut(|count| unsafe { *count = 1 });
                    condvar.notify_all();
                };
                let thread = thread::spawn(move || {
                    set_thread_number(2);
                    if owner_waits { call(&theirs.0, &theirs.1) } else { wait(&theirs.0, &theirs.1) }
                });
                if owner_waits {
                    wait(&lock, &condvar)
                } else {
                    call(&lock, &condvar)
                }
                thread.join().unwrap();
            });
        }
    }
}

#[cfg(all(test, not(redrt_loom)))]
mod tests {
    use super::*;

    #[test]
    fn threads_that_run_at_once_add_up() {
        const ROUNDS: u32 = if cfg!(miri) { 50 } else { 20_000 };
        crate::fence::register();
        let lock = Biased::new(0_u32);
        Guard::set_bias(&mut lock.lock_slowly(), true);
        let others = 2;
        std::thread::scope(|scope| {
            for _ in 0..others {
                scope.spawn(|| (0..ROUNDS / 10).for_each(|_| *lock.lock() += 1));
            }
            (0..ROUNDS).for_each(|_| *lock.lock() += 1);
        });
        assert_eq!(*lock.lock(), ROUNDS + others * (ROUNDS / 10));
    }
}
