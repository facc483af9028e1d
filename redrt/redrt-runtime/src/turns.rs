//! Order of an interpreter's threads at its global lock (CPython): the same in all replicas of a rank.
//!
//! With this order, programs of several threads behave the same in all replicas, to the extent that one thread runs at
//! a time: a thread runs in one piece between two gaps, and the next thread is decided. The preloaded library reports
//! the events of the lock (`redrt/redrt-preload/src/interpreter.rs`). The machine is `order`. Its items are outcomes of
//! a stream of their own, so an output waits until the siblings hold the order on which it depends.

mod order;

use crate::threads;
use crate::turn::{
    DECIDED, DROPPED, ENDED, ENTERS, FORCES, MAY, MAY_TAKE, PARTED, RESUMES, SEMAPHORE, STARVES, TAKEN, TIMED_OUT,
};
#[cfg(any(test, feature = "simulation"))]
pub use order::simulation::TurnsSimulator;
use order::{Log, Order, Permit, Turn};
use quiesce::{Call, Outcome, Place, Question, StreamId};
use redrt_engine::{Engine, Outlook};
use redrt_wire::control::Threads;
use redrt_wire::event::Parting;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// The stream of the order. No thread has this number: numbers of threads are 0 or hashes.
const STREAM: StreamId = StreamId::Thread(u64::from_be_bytes(*b"turns   "));

/// Processor time, in milliseconds, that the holder may use while a thread waits, before it has to give way. Long,
/// since it gives way in the midst of its segment, at another place in each replica.
const PATIENCE_MS: c_int = 500;
/// Number of segments of other threads, of 5 ms each, after which a waiting thread is the next one.
const STARVES_AFTER: c_int = 10;

process_local! {
    static ORDER: LazyLock<Mutex<Order>> = LazyLock::new(Mutex::default);
    /// True once the order has ended: threads run unordered.
    static HAS_ENDED: AtomicBool = AtomicBool::new(false);
}

/// Locks the order. It comes after the engine in the order of locks.
fn order() -> MutexGuard<'static, Order> {
    ORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log for Engine {
    fn front(&mut self) -> Option<Turn> {
        loop {
            let outcome = self.agree(|sphere| sphere.peek_outcome(STREAM))?;
            if let Outcome::Bytes(bytes) = outcome
                && let Some(turn) = Turn::from_bytes(&bytes)
            {
                return Some(turn);
            }
            // A sound leader does not decide that: it is skipped.
            self.agree(|sphere| sphere.pass_outcome(STREAM));
        }
    }

    fn pass(&mut self) {
        self.agree(|sphere| sphere.pass_outcome(STREAM));
    }

    fn leads(&mut self) -> bool {
        self.agree(|sphere| sphere.is_deciding())
    }

    fn decide(&mut self, turn: Turn) {
        let question = Question { call: Call::Turn, arguments: turn.thread, data: 0, place: Place::NOWHERE };
        self.agree(|sphere| sphere.answer(STREAM, question, Outcome::Bytes(turn.to_bytes())));
        self.flush();
    }
}

/// Ends the order: threads run unordered from now on. Called in `MPI_Finalize`, and where replicas have parted.
pub fn finish() {
    let cell = redrt_engine::cell();
    finish_in(&mut cell.lock());
    cell.wake();
}

/// Does the same with the engine locked. Threads that wait are to be woken.
pub fn finish_in(engine: &mut Engine) {
    let applied = applies();
    HAS_ENDED.store(true, Ordering::Release);
    threads::order_threads(false);
    if applied {
        // Later turns of the leader no longer put this process behind.
        engine.agree(|sphere| sphere.end_thread(STREAM));
    }
}

/// Returns true if this thread is the next one to run in the interpreter, as in the leader.
pub fn is_next(engine: &mut Engine, thread: u64) -> bool {
    engine.front().is_some_and(|turn| turn.thread == thread)
}

fn applies() -> bool {
    !HAS_ENDED.load(Ordering::Acquire) && threads::agrees(|options| options.threads == Threads::Order)
}

/// Handles an event of the interpreter's lock. Threads of the interpreter call it, from the preloaded library.
pub(crate) unsafe extern "C" fn hook(event: c_int, argument: c_int) -> c_int {
    if !applies() {
        return 0;
    }
    threads::order_threads(true);
    threads::make_known();
    let (cell, thread) = (redrt_engine::cell(), threads::number());
    let has = |flag: c_int| argument & flag != 0;
    let (resumes, is_semaphore) = (has(RESUMES), has(SEMAPHORE));
    let wanted = Turn { thread, resumes, is_semaphore, has_timed_out: has(TIMED_OUT), is_forced: false };
    match event {
        ENTERS => {
            let permit = cell.wait_for_many(|engine| {
                let permit = order().ask(engine, wanted);
                let waits_here = permit == Permit::Wait && !HAS_ENDED.load(Ordering::Acquire);
                if !waits_here {
                    return Outlook::Done(permit);
                }
                // A semaphore may be taken only after a second question, MAY_TAKE, while the lock's mutex is held.
                match engine.front() {
                    Some(turn) if is_semaphore && turn.thread == thread => Outlook::Done(Permit::Next(turn)),
                    None if is_semaphore && engine.leads() => Outlook::Done(Permit::Free),
                    _ => Outlook::Asleep,
                }
            });
            answer(wanted, permit)
        }
        MAY_TAKE if !is_semaphore => {
            let mut engine = cell.lock();
            let may_still = order().may_still(&mut *engine, wanted);
            if may_still { MAY } else { 0 }
        }
        MAY_TAKE => {
            let mut engine = cell.lock();
            answer(wanted, order().ask(&mut *engine, wanted))
        }
        TAKEN => {
            let mut engine = cell.lock();
            let may_be_next = order().taken(&mut *engine, wanted);
            drop(engine);
            if may_be_next {
                cell.wake();
            }
            0
        }
        DROPPED => {
            let mut engine = cell.lock();
            order().dropped(thread, resumes);
            let is_passed_over = engine.front().is_some_and(|turn| turn.resumes && turn.thread == thread);
            drop(engine);
            if is_passed_over {
                cell.wake();
            }
            0
        }
        ENDED => {
            let engine = cell.lock();
            order().ended(thread);
            drop(engine);
            cell.wake();
            0
        }
        PARTED => {
            finish();
            cell.lock().agree(|sphere| sphere.report_divergence(Parting::Turns, None));
            0
        }
        FORCES => {
            let mut engine = cell.lock();
            let may_force = order().may_force(&mut *engine, thread, argument < PATIENCE_MS);
            if may_force { MAY } else { DECIDED }
        }
        STARVES => {
            if argument >= STARVES_AFTER {
                let mut engine = cell.lock();
                order().starves(&mut *engine, thread);
            }
            0
        }
        _ => 0,
    }
}

fn answer(wanted: Turn, permit: Permit) -> c_int {
    match permit {
        // The thread goes on without the semaphore.
        Permit::Next(turn) if wanted.is_semaphore && !turn.is_semaphore => {
            DECIDED | if turn.has_timed_out { TIMED_OUT } else { 0 }
        }
        Permit::Next(_) => MAY | DECIDED,
        Permit::Free => MAY,
        Permit::Wait => 0,
    }
}
