//! Order of the program's locks: the same in all replicas of a rank.
//!
//! With this order, a program without data races behaves the same in all replicas: between two locks, a thread does not
//! depend on others. The preloaded library counts each operation, and reports those that matter to other threads
//! (`redrt/redrt-preload/src/ordered`). The machine is `thread-order`. Its batches are outcomes of a stream of their
//! own, so an output waits until the siblings hold the order on which it depends.
//!
//! Threads that may call MPI at once (`MPI_THREAD_MULTIPLE`) post their sends and receives in one order as well: a
//! communicator is a channel of that machine.
//!
//! A leader sends the operations of its threads before each MPI call and each change of a file, and every millisecond
//! while there are any. A follower's thread waits with an operation until the leader's has arrived.

mod ending;

pub use ending::finish;

use crate::lock_events::{
    ADOPTS, AHEAD, BEFORE, BEGINS, BEGUN, DECIDED, ENDED, ENTERS, EXCHANGED, FOLLOWED, FREE, Found, LEAVES,
    LockOperation, MADE, MATTERS, MAY_CANCEL, PARTED, REPEATED, SHARES, SLEEPS, TAKES,
};
use crate::{preload, threads, turns, workers};
use quiesce::{Call, Outcome, Place, Question, StreamId};
use redrt_abi::MPI_THREAD_MULTIPLE;
use redrt_engine::reading::{Awaited, Patience};
use redrt_engine::{Engine, Locked, Outlook, rivals, traces};
use redrt_process::clock::monotonic_ns;
use redrt_wire::control::Threads;
use redrt_wire::event::Parting;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thread_order::{Batch, Notes, Operation, Order, Point, Step};

/// The stream of the order. No thread has this number: numbers of threads are 0 or hashes.
const STREAM: StreamId = StreamId::Thread(u64::from_be_bytes(*b"locks   "));
const QUESTION: Question = Question { call: Call::Turn, arguments: 0, data: 0, place: Place::NOWHERE };

/// Channel of all calls on the process's descriptors. No communicator has it: their contexts are hashes.
const DESCRIPTORS: u64 = u64::from_be_bytes(*b"descript");

/// Longest time for which a leader that does not call MPI delays its operations.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(1);

process_local! {
    /// `None` until threads are ordered.
    static ORDER: Mutex<Option<Order>> = const { Mutex::new(None) };
    /// True from the first ordered thread until [`finish`].
    static IS_ON: AtomicBool = AtomicBool::new(false);
    /// Counts the threads that wait for their turn, and marks operations that siblings do not have yet. The preloaded
    /// library reads it.
    static NOTES: Notes = const { Notes::new() };
    /// True while the thread that sends operations sleeps.
    static IS_IDLE: Mutex<bool> = const { Mutex::new(false) };
    static HAS_BEGUN: Condvar = const { Condvar::new() };
    /// Number of threads in [`sleep`].
    static SLEEPERS: AtomicU32 = AtomicU32::new(0);
}

/// Locks the order. It comes after the engine in the order of locks.
fn order() -> MutexGuard<'static, Option<Order>> {
    ORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a copy follow, in whatever role its source was.
pub fn become_copy() {
    if let Some(order) = &mut *order() {
        order.join();
    }
    preload::stir_waiters();
}

/// Sends siblings the operations that they do not have yet. To be called before anything leaves that may depend on
/// them.
#[inline]
pub fn announce() {
    if NOTES.is_untold.load(Ordering::SeqCst) {
        announce_in(&mut redrt_engine::cell().lock());
    }
}

/// Does the same as [`announce`], with the engine locked.
pub fn announce_in(engine: &mut Engine) {
    // In a process without siblings no operation is noted.
    if NOTES.is_untold.load(Ordering::SeqCst)
        && engine.agree(|sphere| sphere.is_deciding())
        && let Some((stream, question, outcome)) = untold()
    {
        engine.agree(|sphere| sphere.answer(stream, question, outcome));
        engine.flush();
        NOTES.is_far_ahead.store(engine.agree(|sphere| sphere.is_far_ahead(STREAM)), Ordering::Relaxed);
    }
}

/// Waits while followers are many operations behind. A thread whose wait would never end goes on.
fn await_followers(thread: u64) {
    let cell = redrt_engine::cell();
    let mut patience = Patience::default();
    cell.wait_for_many(|engine| {
        let is_ahead =
            IS_ON.load(Ordering::Acquire) && engine.agree(|sphere| sphere.is_deciding() && sphere.is_far_ahead(STREAM));
        if is_ahead && !engine.agree(|sphere| patience.is_order_vain(sphere, STREAM, thread)) {
            return Outlook::Asleep;
        }
        NOTES.is_far_ahead.store(false, Ordering::Relaxed);
        Outlook::Done(())
    });
}

/// The batch of operations that siblings do not have yet; `None` if there are none.
pub fn untold() -> Option<(StreamId, Question, Outcome)> {
    if !NOTES.is_untold.swap(false, Ordering::SeqCst) {
        return None;
    }
    let batch = order().as_mut().and_then(Order::cut)?;
    Some((STREAM, QUESTION, outcome(&batch)?))
}

fn outcome(batch: &Batch) -> Option<Outcome> {
    postcard::to_stdvec(batch).ok().map(Outcome::Bytes)
}

/// Body of the thread that sends a leader's operations while no thread of the program calls MPI.
fn announce_now_and_then() {
    while IS_ON.load(Ordering::Acquire) {
        if NOTES.is_untold.load(Ordering::SeqCst) {
            redrt_engine::cell().announce(announce_in);
            std::thread::sleep(ANNOUNCE_INTERVAL);
            continue;
        }
        let mut is_idle = IS_IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        *is_idle = true;
        while *is_idle && !NOTES.is_untold.load(Ordering::SeqCst) && IS_ON.load(Ordering::Acquire) {
            is_idle = HAS_BEGUN.wait_timeout(is_idle, Duration::from_secs(1)).unwrap_or_else(PoisonError::into_inner).0;
        }
        *is_idle = false;
    }
}

fn record_untold() {
    if !NOTES.is_untold.swap(true, Ordering::SeqCst) {
        let mut is_idle = IS_IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *is_idle, false) {
            HAS_BEGUN.notify_one();
        }
    }
}

fn applies() -> bool {
    threads::agrees(|options| options.threads == Threads::Order)
}

/// Starts the order, if the job asks for it. Returns the address of [`NOTES`]; 0 if threads are not ordered.
fn begin() -> u64 {
    if !applies() {
        return 0;
    }
    let leads = redrt_engine::cell().lock().agree(|sphere| sphere.is_deciding());
    // An order that exists is kept: threads keep the addresses of their counts.
    let mut known = order();
    if known.is_none() {
        *known = Some(Order::new(leads));
        drop(known);
        IS_ON.store(true, Ordering::Release);
        threads::order_threads(true);
        threads::announce_before_calls(announce);
        // The thread is the library's own: its locks are not ordered.
        let was_internal = preload::set_internal(true);
        let spawned = workers::spawn("redrt-order", Box::new(announce_now_and_then));
        preload::set_internal(was_internal);
        if spawned.is_err() {
            return 0;
        }
    }
    std::ptr::from_ref::<Notes>(&NOTES) as u64
}

/// Adds a thread to the order. Returns the address of its counts, which stay as long as the process.
fn enter(thread: u64) -> u64 {
    // Siblings may ask for its place.
    threads::make_known();
    order().as_mut().map_or(0, |order| Arc::as_ptr(&order.counts(thread)) as u64)
}

/// Takes the next batch of the leader, if one is known.
fn held(engine: &mut Engine) -> Option<Batch> {
    loop {
        let outcome = engine.agree(|sphere| sphere.peek_outcome(STREAM))?;
        engine.agree(|sphere| sphere.pass_outcome(STREAM));
        // A sound leader decides batches only: anything else is skipped.
        if let Outcome::Bytes(bytes) = outcome
            && let Ok(batch) = postcard::from_bytes(&bytes)
        {
            return Some(batch);
        }
    }
}

/// Answer to a thread about its next operation, from the batches that have arrived; `None` while it has to wait.
fn next(engine: &mut Engine, order: &mut Order, thread: u64) -> Option<u64> {
    if engine.agree(|sphere| sphere.is_deciding()) {
        while let Some(batch) = held(engine) {
            order.learn(batch);
        }
        order.lead();
    }
    let step = order.next_by(thread, || held(engine));
    if step == Step::Over {
        ending::close(engine, None);
    }
    if step == Step::Wait
        && let Some(ended) = order.ended_before(thread)
    {
        ending::part_in(engine, order, Parting::Ended, Some(ended));
        wake_waiting();
        return Some(0);
    }
    if order.takes_sleepers() {
        preload::stir_waiters();
    }
    answer(step)
}

fn answer(step: Step) -> Option<u64> {
    match step {
        Step::Wait => None,
        Step::Over => Some(0),
        Step::Free => Some(FREE),
        Step::Decided { takes, result } => {
            Some(DECIDED | if takes { TAKES } else { 0 } | u64::from(result.cast_unsigned()) << 32)
        }
    }
}

/// A thread for which another one waits: it has not taken a lock yet that it took in the leader.
struct Behind {
    thread: u64,
    pulse: u64,
    since_ns: u64,
    next_ns: u64,
    patience: Patience,
}

/// Time between two looks at such a thread, and the longest time for which it may stand still.
const LOOK_NS: u64 = 1_000_000_000;
const STILL_NS_MAX: u64 = 10 * LOOK_NS;

impl Behind {
    fn new(thread: u64, now: u64) -> Self {
        Self { thread, pulse: 0, since_ns: now, next_ns: now, patience: Patience::default() }
    }

    /// Checks the thread, if the time has come. Returns true if it will not reach that lock: it has stood still for
    /// long, or has run for longer than the leader's thread without reaching it.
    fn check(&mut self, engine: &mut Engine, now: u64) -> bool {
        if now < self.next_ns {
            return false;
        }
        self.next_ns = now + LOOK_NS;
        let pulse = threads::pulse_of(self.thread);
        if std::mem::replace(&mut self.pulse, pulse) != pulse {
            self.since_ns = now;
        } else {
            // When the order began, the thread may have been about to wait for a signal.
            preload::stir_waiters();
        }
        let (patience, thread) = (&mut self.patience, self.thread);
        now - self.since_ns > STILL_NS_MAX || engine.agree(|sphere| patience.has_outrun(sphere, thread))
    }
}

/// Number of times that a thread yields the processor before it sleeps until another thread has made an operation.
const YIELDS_MAX: u32 = 64;

/// Waits until a thread may make its next operation. Returns the answer for the preloaded library; 0 if threads are no
/// longer ordered. Where the thread `may_cancel` its wait, the answer may be that the leader's has done so.
fn before(thread: u64, may_cancel: bool) -> u64 {
    for _ in 0..YIELDS_MAX {
        match &mut *order() {
            None => break,
            Some(order) => {
                if let Some(answer) = answer(order.next(thread)) {
                    return answer;
                }
                if order.awaited_by(thread).is_none() {
                    break;
                }
            }
        }
        if !rivals::may_yield() || !rivals::yield_now() {
            break;
        }
    }
    NOTES.waiting.fetch_add(1, Ordering::SeqCst);
    let cell = redrt_engine::cell();
    let (mut behind, mut patience, mut parting) = (None::<Behind>, Patience::default(), None);
    let answer = cell.wait_for_many(|engine| {
        if !IS_ON.load(Ordering::Acquire) {
            return Outlook::Done(0);
        }
        let mut order = order();
        let Some(order) = &mut *order else { return Outlook::Done(0) };
        if let Some(answer) = next(engine, order, thread) {
            return Outlook::Done(answer);
        }
        let behind_by = order.awaited_by(thread);
        // Nothing of the leader's thread is left to be repeated: it may have been cancelled in this wait.
        let may_be_over = behind_by.is_none() || may_cancel && !order.has_next(thread);
        let prospects = may_be_over.then(|| engine.agree(|sphere| patience.awaited_operation(sphere, thread)));
        if may_cancel && matches!(prospects, Some(Awaited::Ended)) {
            return Outlook::Done(ENDED);
        }
        parting = match behind_by {
            Some(awaited) => {
                let now = monotonic_ns();
                let behind = match &mut behind {
                    Some(behind) if behind.thread == awaited => behind,
                    other => {
                        if SLEEPERS.load(Ordering::SeqCst) > 0 {
                            cell.wake();
                        }
                        other.insert(Behind::new(awaited, now))
                    }
                };
                let will_not_come = behind.check(engine, now);
                cell.set_alarm(engine, behind.next_ns);
                will_not_come.then_some(Parting::Locks)
            }
            None => matches!(prospects, Some(Awaited::Never | Awaited::Ended)).then_some(Parting::LockAlone),
        };
        if parting.is_some() { Outlook::Done(0) } else { Outlook::Asleep }
    });
    NOTES.waiting.fetch_sub(1, Ordering::SeqCst);
    if let Some(parting) = parting {
        ending::part(parting);
    }
    answer
}

/// Sleeps for so long in a follower, but ends when other threads cannot go on without this one. Returns 0 in a leader,
/// whose thread sleeps by itself.
fn sleep(thread: u64, duration_ns: u64) -> u64 {
    let cell = redrt_engine::cell();
    if !applies() || cell.lock().agree(|sphere| sphere.is_deciding()) {
        return 0;
    }
    let end_ns = monotonic_ns().saturating_add(duration_ns);
    SLEEPERS.fetch_add(1, Ordering::SeqCst);
    cell.wait_for_many(|engine| {
        let is_awaited =
            order().as_ref().is_some_and(|order| order.is_awaited(thread)) || turns::is_next(engine, thread);
        // On another host the clock may show something else.
        let left_ns = end_ns.saturating_sub(monotonic_ns());
        if is_awaited || left_ns == 0 || left_ns > duration_ns {
            return Outlook::Done(());
        }
        cell.set_alarm(engine, end_ns);
        Outlook::Asleep
    });
    SLEEPERS.fetch_sub(1, Ordering::SeqCst);
    1
}

/// Returns true if threads post in the order of the leader's threads.
fn orders_channels() -> bool {
    IS_ON.load(Ordering::Relaxed) && threads::provided() == MPI_THREAD_MULTIPLE
}

/// Takes the calling thread's turn on a communicator, if it has come. Returns true if it has: then the thread has to
/// make its operation (post a send or a receive, find a message) before it unlocks the engine. Siblings get the turn
/// before the operation's message leaves.
pub fn takes_turn(engine: &mut Engine, context: u64) -> bool {
    if !orders_channels() {
        return true;
    }
    let thread = threads::number();
    let mut known = order();
    let Some(order) = &mut *known else { return true };
    match next(engine, order, thread) {
        None => return false,
        Some(0) => {}
        Some(FREE) => {
            let made = order.record_on(context, thread);
            drop(known);
            traces::record_lock_event(thread, made.number);
            NOTES.is_untold.store(true, Ordering::SeqCst);
            announce_in(engine);
        }
        Some(_) => {
            let made = order.follow_on(context, thread);
            drop(known);
            traces::record_lock_event(thread, made.number);
            wake_waiting();
        }
    }
    true
}

/// Locks the engine for a thread that posts something on a communicator, when its turn has come.
#[inline]
pub fn engine_in_turn(context: u64) -> Locked<'static> {
    let cell = redrt_engine::cell();
    let mut engine = cell.lock();
    if orders_channels() {
        while !takes_turn(&mut engine, context) {
            drop(engine);
            before(threads::number(), false);
            engine = cell.lock();
        }
    }
    engine
}

/// Guard of a thread that waits for its turn by other means than [`engine_in_turn`]: other threads wake it.
pub struct Waiting(());

impl Waiting {
    /// Begins to wait; `None` where there are no turns.
    pub fn begin() -> Option<Self> {
        orders_channels().then(|| {
            NOTES.waiting.fetch_add(1, Ordering::SeqCst);
            Self(())
        })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        NOTES.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Copies the findings of the leader's call, which a thread is about to repeat.
fn copy_found(thread: u64, found: &mut Found) {
    found.length = 0;
    if let Some(order) = &*order() {
        // Longer findings were never recorded.
        found.push(order.found(thread));
    }
}

/// Handles an event of `lock_events`. Threads of the program call it, from the preloaded library.
pub(crate) unsafe extern "C" fn hook(event: c_int, operation: *const LockOperation) -> u64 {
    // SAFETY: - null, or valid for reads during the call: the preloaded library passes a local variable's address.
    let Some(operation) = (unsafe { operation.as_ref() }) else { return 0 };
    match event {
        BEGINS => return begin(),
        SLEEPS => return sleep(operation.thread, operation.last_number),
        SHARES => {
            if applies() {
                ending::leave_to_children();
            }
            return 0;
        }
        _ => {}
    }
    if !IS_ON.load(Ordering::Acquire) {
        return 0;
    }
    let thread = operation.thread;
    match event {
        ENTERS => enter(thread),
        BEFORE => {
            let answer = before(thread, operation.flags & MAY_CANCEL != 0);
            // SAFETY: - null, or valid for writes during the call: the address of a local variable of the preloaded
            //           library, which nothing else uses meanwhile.
            if let Some(found) = unsafe { operation.found.as_mut() }.filter(|_| answer & DECIDED != 0) {
                copy_found(thread, found);
            }
            answer
        }
        AHEAD => {
            await_followers(thread);
            0
        }
        LEAVES => {
            if let Some(order) = &mut *order() {
                order.leave(thread);
            }
            0
        }
        ADOPTS => {
            if let Some(order) = &mut *order() {
                order.adopt(thread, Point { made: operation.last_number, waits: operation.flags != 0 });
            }
            0
        }
        BEGUN => {
            if order().as_ref().is_some_and(Order::leads) {
                record_untold();
                announce();
            }
            0
        }
        MATTERS => {
            if order().as_ref().is_some_and(Order::leads) {
                record_untold();
            } else {
                wake_waiting();
            }
            0
        }
        MADE => {
            let mut order = order();
            let Some(order) = order.as_mut().filter(|order| order.leads()) else { return 0 };
            let last = Operation { thread: operation.last_thread, number: operation.last_number };
            let after = if last.number != 0 { vec![last] } else { Vec::new() };
            let made = order.record(thread, after, operation.flags & TAKES != 0, operation.result);
            record_untold();
            traces::record_lock_event(thread, made.number);
            made.number
        }
        FOLLOWED => {
            let made = order().as_mut().map_or(0, |order| order.follow(thread).number);
            traces::record_lock_event(thread, made);
            wake_waiting();
            made
        }
        EXCHANGED => {
            // SAFETY: - null, or valid for reads during the call, as above.
            let found = unsafe { operation.found.as_ref() }.map_or(&[][..], Found::bytes);
            let mut order = order();
            let Some(order) = order.as_mut().filter(|order| order.leads()) else { return 0 };
            let made = order.record_outcome(DESCRIPTORS, thread, operation.result, found);
            record_untold();
            traces::record_lock_event(thread, made.number);
            made.number
        }
        REPEATED => {
            let made = order().as_mut().map_or(0, |order| order.follow_on(DESCRIPTORS, thread).number);
            traces::record_lock_event(thread, made);
            wake_waiting();
            made
        }
        PARTED => {
            ending::part(Parting::Locks);
            0
        }
        _ => 0,
    }
}

fn wake_waiting() {
    if NOTES.waiting.load(Ordering::SeqCst) > 0 {
        redrt_engine::cell().wake();
    }
}
