//! The user's signals in a replicated world: all replicas of a rank get each at the same MPI call of their program.
//!
//! Replicas do not reach a call at the same time, and none may have passed it. So the leader asks all how far they are,
//! by two decisions in a stream of their own:
//!
//! ```text
//!   leader                                   follower
//!     │ a signal comes: decides `word`          │
//!     ├──────────── Decisions{word} ──────────► │ will not begin call 8: its program is in call 7
//!     │ ◄──────────── Ballot{8} ────────────────┤
//!     │ its own program is in call 5:           │
//!     │ the greatest of 6 and 8 is decided      │ (a program that comes to call 8 meanwhile waits)
//!     ├──────────── Decisions{8} ─────────────► │
//!     │ raised at call 8                        │ raised at call 8
//! ```
//! Each process that makes progress answers, so no program waits for another's computation, except a follower for its
//! leader. A new leader takes up the announcements of the last one: it has the decision, and gets the ballots again. A
//! copy may have been made before a signal was announced, and hear of it after its siblings have agreed: it begins no
//! call until it is in step, and its program is behind its source's answer before that.
//!
//! The program's main thread gets all signals. Its call is counted before it looks ([`are_pending`]); the answering
//! thread sets that flag first and reads the count then, with a heavy barrier between (`redrt_sync::fence`).

use super::Cell;
use super::replication::sphere::Sphere;
use quiesce::{Call, Outcome, Place, Question, StreamId};
use redrt_sync::fence::{self, Reach};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::debug;

/// Number of the thread that gets signals.
const MAIN_THREAD: u64 = 0;
/// Bits of a word that name the signal; the higher bits number it.
const SIGNAL_BITS: u32 = 8;

/// The question of both decisions: no thread of the program asks it.
const SIGNAL: Question = Question { call: Call::Signal, arguments: 0, data: 0, place: Place::NOWHERE };

process_local! {
    /// True if the main thread must look for signals before it begins a call.
    static PENDING: AtomicBool = AtomicBool::new(false);
}

/// Returns true if the main thread must look for signals. To be asked after its call was counted, and a light barrier.
#[inline]
pub fn are_pending() -> bool {
    PENDING.load(Ordering::Relaxed)
}

/// A signal that was announced, and whose call is not decided.
struct Open {
    signal: i32,
    /// The first call that this process has promised not to begin; `None` before its answer.
    limit: Option<u64>,
}

/// The signals of a process.
#[derive(Default)]
pub(super) struct Signals {
    /// Heard of and perhaps not announced, by number.
    heard: BTreeMap<u64, i32>,
    /// The highest announced number.
    announced: Option<u64>,
    open: Option<Open>,
    /// Decided signals, each with the call at which it comes, in order.
    due: VecDeque<(u64, i32)>,
    /// True if a decision of the leader has come that was not looked at.
    is_told: bool,
}

/// The main thread's next step before it begins a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Raise {
    /// Begin the call.
    Nothing,
    /// Raise this signal, and ask again.
    Signal(i32),
}

impl Cell {
    /// Takes in a signal of the user. Its number is higher than those of earlier signals. [`Cell::help_others`] does
    /// the rest, until [`Cell::are_signals_agreed`].
    pub fn handle_signal(&self, number: u64, signal: i32) {
        let mut engine = self.lock_at_any_time();
        engine.signals.handle(number, signal);
        engine.agree_on_signals();
        engine.flush();
        self.stir(&mut engine);
        engine.notify_sleeper(&self.sleeper);
        drop(engine);
        self.wake();
    }

    /// Takes in a signal where replicas need not make the same calls: it comes at the next call.
    pub fn handle_signal_alone(&self, signal: i32) {
        self.lock_at_any_time().signals.decided(signal, 0);
    }

    /// Returns true if all signals heard of are decided.
    pub fn are_signals_agreed(&self) -> bool {
        self.lock_at_any_time().signals.are_agreed()
    }
}

impl Signals {
    /// Returns true if nothing is left to do but to raise decided signals.
    #[inline]
    pub(super) fn are_agreed(&self) -> bool {
        self.heard.is_empty() && self.open.is_none() && !self.is_told
    }

    /// Makes the main thread of a copy look: it begins no call until the copy is in step.
    pub(super) fn become_copy(&self) {
        PENDING.store(true, Ordering::Relaxed);
    }

    /// Takes in a signal of the user, unless it was announced already.
    fn handle(&mut self, number: u64, signal: i32) {
        if Some(number) > self.announced {
            self.heard.insert(number, signal);
        }
    }

    /// Takes in that an outcome of this stream is decided.
    pub(super) fn handle_decision(&mut self, stream: StreamId) {
        self.is_told |= stream == StreamId::Signals;
    }

    /// The main thread's step before it begins this call; `None` if it has to wait.
    pub(super) fn next(&mut self, call: u64) -> Option<Raise> {
        if let Some((_, signal)) = self.due.pop_front_if(|(at, _)| *at <= call) {
            return Some(Raise::Signal(signal));
        }
        let limit = self.open.as_ref().and_then(|open| open.limit);
        if limit.is_some_and(|limit| call >= limit) {
            return None;
        }
        PENDING.store(self.open.is_some() || !self.due.is_empty(), Ordering::Relaxed);
        Some(Raise::Nothing)
    }

    /// Announces, answers, decides or takes decisions, as far as possible now. Returns true if anything has come of it.
    pub(super) fn agree(&mut self, sphere: &mut Sphere<'_>) -> bool {
        self.is_told = false;
        let mut has_moved = false;
        while self.take_step(sphere) {
            has_moved = true;
        }
        has_moved
    }

    fn take_step(&mut self, sphere: &mut Sphere<'_>) -> bool {
        if let Some(Outcome::Value(value)) = sphere.peek_outcome(StreamId::Signals) {
            sphere.pass_outcome(StreamId::Signals);
            match self.open.take() {
                None => self.announced(value),
                Some(open) => self.decided(open.signal, value),
            }
            return true;
        }
        match (self.open.is_some(), sphere.is_deciding()) {
            (false, true) => self.announce_next(sphere),
            (true, true) => self.decide_call(sphere),
            (true, false) => self.promise(sphere),
            (false, false) => false,
        }
    }

    /// Casts this process's ballot, once. From then on its main thread begins no call at or beyond the limit.
    fn promise(&mut self, sphere: &mut Sphere<'_>) -> bool {
        let has_promised = self.open.as_ref().is_some_and(|open| open.limit.is_some());
        if !has_promised {
            let limit = limit(sphere);
            self.open.iter_mut().for_each(|open| open.limit = Some(limit));
            sphere.cast_ballot(StreamId::Signals, SIGNAL, limit);
        }
        !has_promised
    }

    fn announce_next(&mut self, sphere: &mut Sphere<'_>) -> bool {
        let Some((number, signal)) = self.heard.first_key_value().map(|(number, signal)| (*number, *signal)) else {
            return false;
        };
        let word = number << SIGNAL_BITS | u64::from(signal.cast_unsigned());
        sphere.answer(StreamId::Signals, SIGNAL, Outcome::Value(word));
        self.announced(word);
        true
    }

    fn announced(&mut self, word: u64) {
        let (number, signal) = (word >> SIGNAL_BITS, (word & ((1 << SIGNAL_BITS) - 1)) as i32);
        debug!(target: "engine", number, signal, "a signal is announced");
        self.announced = self.announced.max(Some(number));
        self.heard.retain(|heard, _| Some(*heard) > self.announced);
        self.open = Some(Open { signal, limit: None });
    }

    fn decide_call(&mut self, sphere: &mut Sphere<'_>) -> bool {
        let Some(highest) = sphere.highest_ballot(StreamId::Signals) else { return false };
        let call = highest.max(limit(sphere));
        sphere.answer(StreamId::Signals, SIGNAL, Outcome::Value(call));
        if let Some(open) = self.open.take() {
            self.decided(open.signal, call);
        }
        true
    }

    fn decided(&mut self, signal: i32, call: u64) {
        debug!(target: "engine", signal, call, "the call is decided at which a signal comes");
        self.due.push_back((call, signal));
        PENDING.store(true, Ordering::Relaxed);
    }
}

/// The first call that the main thread has not begun. The flag makes it look before that call.
fn limit(sphere: &Sphere<'_>) -> u64 {
    PENDING.store(true, Ordering::Relaxed);
    fence::heavy(Reach::Process);
    sphere.calls_of(MAIN_THREAD).saturating_add(1)
}
