//! A thread for work of any duration, above all writing to files, with a queue before it.
//!
//! The giver of work never waits: a stuck file system (NFS without its server, `fsfreeze`) stops only this thread. The
//! giver sees how much work waits and for how long, and holds those that cause it. Failures come back as events. A
//! bell, an `eventfd` that the giver's loop polls, announces both.

#![forbid(unsafe_code)]

use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Eventfd that wakes the loop of the giver.
pub type Bell = Arc<EventFd>;

/// Makes a bell.
pub fn bell() -> io::Result<Bell> {
    Ok(Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?))
}

/// The giver's end. The thread ends when this is dropped and all work is done; the drop does not wait for that.
#[derive(Debug)]
pub struct Worker<T, E>(Arc<Shared<T, E>>);

/// The thread's end.
#[derive(Debug)]
pub struct Inbox<T, E>(Arc<Shared<T, E>>);

#[derive(Debug)]
struct Shared<T, E> {
    state: Mutex<State<T, E>>,
    changed: Condvar,
    bell: Bell,
    /// The bell rings when waiting work falls to this many bytes.
    low_bytes: usize,
}

#[derive(Debug)]
struct State<T, E> {
    queue: VecDeque<(T, usize)>,
    /// Bytes of queued and current work.
    waiting_bytes: usize,
    /// Bytes of the current work, and the time of its last progress.
    underway: Option<(usize, Instant)>,
    events: VecDeque<E>,
    is_closed: bool,
    is_over: bool,
}

impl<T, E> Shared<T, E> {
    fn lock(&self) -> MutexGuard<'_, State<T, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // Fails only if the bell rings already.
        let _ = self.bell.write(1);
    }
}

impl<T: Send + 'static, E: Send + 'static> Worker<T, E> {
    /// Starts the thread, which takes work from its inbox until there is no more.
    ///
    /// A panic of the thread ends the process, in every build: otherwise the giver would wait without end.
    pub fn start(
        name: &str,
        bell: Bell,
        low_bytes: usize,
        serve: impl FnOnce(&Inbox<T, E>) + Send + 'static,
    ) -> io::Result<Self> {
        let state = State {
            queue: VecDeque::new(),
            waiting_bytes: 0,
            underway: None,
            events: VecDeque::new(),
            is_closed: false,
            is_over: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), bell, low_bytes });
        let inbox = Inbox(shared.clone());
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            if catch_unwind(AssertUnwindSafe(|| serve(&inbox))).is_err() {
                std::process::abort();
            }
        })?;
        Ok(Self(shared))
    }

    /// Queues work of `byte_count` bytes.
    pub fn give(&self, work: T, byte_count: usize) {
        let mut state = self.0.lock();
        state.queue.push_back((work, byte_count));
        state.waiting_bytes += byte_count;
        drop(state);
        self.0.changed.notify_all();
    }

    /// Blocks until at most `byte_count_max` bytes wait: for givers of work that may block.
    pub fn wait_for_room(&self, byte_count_max: usize) {
        let is_full = |state: &mut State<T, E>| state.waiting_bytes > byte_count_max && !state.is_over;
        drop(self.0.changed.wait_while(self.0.lock(), is_full));
    }

    /// Bytes of unfinished work.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.0.lock().waiting_bytes
    }

    /// True if all work is done.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let state = self.0.lock();
        state.queue.is_empty() && state.underway.is_none()
    }

    /// Time of the current work's last progress. `None` without work.
    #[must_use]
    pub fn still_since(&self) -> Option<Instant> {
        self.0.lock().underway.map(|(_, since)| since)
    }

    /// Next event of the thread.
    pub fn poll_event(&self) -> Option<E> {
        self.0.lock().events.pop_front()
    }

    /// Closes the queue: the thread ends when all work is done.
    pub fn close(&self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }

    /// Waits for the thread's end. False after `time_max`.
    pub fn wait_for_end(&self, time_max: Duration) -> bool {
        let state = self.0.lock();
        let waited = self.0.changed.wait_timeout_while(state, time_max, |state| !state.is_over);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }
}

impl<T, E> Drop for Worker<T, E> {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl<T, E> Inbox<T, E> {
    /// The next work; the work taken before counts as done. `None` after the last.
    #[must_use]
    pub fn next(&self) -> Option<T> {
        let mut state = self.0.lock();
        if let Some((byte_count, _)) = state.underway.take() {
            let before = state.waiting_bytes;
            state.waiting_bytes -= byte_count;
            let is_low = before > self.0.low_bytes && state.waiting_bytes <= self.0.low_bytes;
            if is_low || state.queue.is_empty() {
                self.0.ring();
                self.0.changed.notify_all();
            }
        }
        loop {
            if let Some((work, byte_count)) = state.queue.pop_front() {
                state.underway = Some((byte_count, Instant::now()));
                return Some(work);
            }
            if state.is_closed {
                return None;
            }
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Notes progress of the current work.
    pub fn moved(&self) {
        if let Some((_, since)) = &mut self.0.lock().underway {
            *since = Instant::now();
        }
    }

    /// Sends an event to the giver.
    pub fn report(&self, event: E) {
        self.0.lock().events.push_back(event);
        self.0.ring();
    }
}

impl<T, E> Drop for Inbox<T, E> {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.changed.notify_all();
        self.0.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn giving_work_never_waits_and_shows_what_is_not_done() {
        let (go, may_go) = channel::<()>();
        let worker = Worker::start("test", bell().unwrap(), 0, move |inbox: &Inbox<u32, u32>| {
            while let Some(work) = inbox.next() {
                let _ = may_go.recv();
                inbox.report(work);
            }
        })
        .unwrap();
        worker.give(1, 10);
        worker.give(2, 5);
        assert!(!worker.is_idle() && worker.waiting_bytes() == 15);
        worker.close();
        assert!(!worker.wait_for_end(Duration::ZERO));
        drop(go);
        assert!(worker.wait_for_end(Duration::from_secs(60)));
        assert!(worker.is_idle() && worker.waiting_bytes() == 0);
        assert_eq!([worker.poll_event(), worker.poll_event(), worker.poll_event()], [Some(1), Some(2), None]);
    }
}
