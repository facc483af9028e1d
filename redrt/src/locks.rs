//! Locks of the program are taken in the same order in all replicas of a rank.
//!
//! With that, a program without data races behaves the same in all replicas: what its threads do between two locks does
//! not depend on others. The preloaded library counts each operation, and tells of those that matter to others
//! (`redrt/redrt-preload/src/ordered`); the machine is `thread-order`; its batches are outcomes of a stream of their
//! own, so what leaves a process waits until its siblings hold the order that it depends on.
//!
//! Threads that may call MPI at once (`MPI_THREAD_MULTIPLE`) post what they send and receive in one order as well: a
//! communicator is a channel of that machine.
//!
//! A leader tells what its threads have done before each MPI call and each change of a file, and every millisecond
//! while they do something: until a follower hears of an operation it waits with its own.

use crate::abi::MPI_THREAD_MULTIPLE;
use crate::runtime::lock_events::{
    AHEAD, BEFORE, BEGINS, DECIDED, ENTERS, FOLLOWED, FREE, LEAVES, LockOperation, MADE, MATTERS, PARTED, TAKES,
};
use crate::runtime::{preload, threads, workers};
use quiesce::{Call, Outcome, Place, Question, StreamId};
use redrt_engine::reading::{Awaited, Patience};
use redrt_engine::{Engine, Locked, Outlook};
use redrt_process::clock::monotonic_ns;
use redrt_wire::control::Threads;
use redrt_wire::event::Parting;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thread_order::{Batch, Notes, Operation, Order, Step};

/// The stream of the order. No thread has this number: they are hashes.
const STREAM: StreamId = StreamId::Thread(u64::from_be_bytes(*b"locks   "));
const QUESTION: Question = Question { call: Call::Turn, arguments: 0, data: 0, place: Place::NOWHERE };

/// How long a follower waits at most for what its leader has done without calling MPI.
const TELL_INTERVAL: Duration = Duration::from_millis(1);

process_local! {
    /// `None` until threads are ordered.
    static ORDER: Mutex<Option<Order>> = const { Mutex::new(None) };
    /// Threads are ordered, and this is not over.
    static IS_ON: AtomicBool = AtomicBool::new(false);
    /// Of threads that wait for their turn, and of what is not told.
    static NOTES: Notes = const { Notes::new() };
    /// Who tells them sleeps.
    static IS_IDLE: Mutex<bool> = const { Mutex::new(false) };
    static HAS_BEGUN: Condvar = const { Condvar::new() };
}

/// Asked for with the engine in hand, or alone.
fn order() -> MutexGuard<'static, Option<Order>> {
    ORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads go on as they come from now on. Called in `MPI_Finalize`, and where replicas have parted.
pub fn finish() {
    if IS_ON.swap(false, Ordering::AcqRel) {
        let cell = redrt_engine::cell();
        let mut engine = cell.lock();
        tell_in(&mut engine);
        if let Some(order) = &mut *order() {
            order.end();
        }
        // An empty batch says that this process orders its threads no more.
        if engine.is_deciding()
            && let Some(outcome) = outcome(&Batch::default())
        {
            engine.answer(STREAM, QUESTION, outcome);
            engine.flush();
        }
        // What the leader tells from now on puts this process behind no more.
        engine.end_thread(STREAM);
        drop(engine);
        cell.wake();
    }
}

/// This process is a copy of another: it follows.
pub fn become_copy() {
    if let Some(order) = &mut *order() {
        order.join();
    }
    preload::stir_waiters();
}

/// Tells siblings what threads have done, if they have. To be called before something leaves that may depend on it.
#[inline]
pub fn tell() {
    if NOTES.is_untold.load(Ordering::SeqCst) {
        tell_in(&mut redrt_engine::cell().lock());
    }
}

/// The same with the engine in hand.
pub fn tell_in(engine: &mut Engine) {
    // Nothing is noted in a process that has no siblings.
    if NOTES.is_untold.load(Ordering::SeqCst)
        && engine.is_deciding()
        && let Some((stream, question, outcome)) = untold()
    {
        engine.answer(stream, question, outcome);
        engine.flush();
        NOTES.is_far_ahead.store(engine.is_far_ahead(STREAM), Ordering::Relaxed);
    }
}

/// Waits while followers have yet to come to much of what they were told.
fn await_followers(thread: u64) {
    let cell = redrt_engine::cell();
    let mut patience = Patience::default();
    cell.wait_for_many(|engine| {
        let is_ahead = IS_ON.load(Ordering::Acquire) && engine.is_deciding() && engine.is_far_ahead(STREAM);
        if is_ahead && !patience.is_order_vain(engine, STREAM, thread) {
            return Outlook::Asleep;
        }
        NOTES.is_far_ahead.store(false, Ordering::Relaxed);
        Outlook::Done(())
    });
}

/// What siblings are to be told of what threads have done.
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

/// Tells what threads of a leader have done while none of them calls MPI.
fn tell_now_and_then() {
    while IS_ON.load(Ordering::Acquire) {
        if NOTES.is_untold.load(Ordering::SeqCst) {
            redrt_engine::cell().tell(tell_in);
            std::thread::sleep(TELL_INTERVAL);
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

fn note_untold() {
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

/// The address of what threads leave for each other, if they are ordered.
fn begin() -> u64 {
    if !applies() {
        return 0;
    }
    let leads = redrt_engine::cell().lock().is_deciding();
    // Threads keep the addresses of their counts.
    let mut known = order();
    if known.is_none() {
        *known = Some(Order::new(leads));
        drop(known);
        IS_ON.store(true, Ordering::Release);
        threads::order_threads(true);
        threads::tell_before_calls(tell);
        // A thread of the library's own.
        let was_internal = preload::set_internal(true);
        let spawned = workers::spawn("redrt-order", Box::new(tell_now_and_then));
        preload::set_internal(was_internal);
        if spawned.is_err() {
            return 0;
        }
    }
    std::ptr::from_ref::<Notes>(&NOTES) as u64
}

/// The address of a thread's counts, which stay as long as the process.
fn enter(thread: u64) -> u64 {
    // Siblings may ask where it is.
    threads::make_known();
    order().as_mut().map_or(0, |order| Arc::as_ptr(&order.counts(thread)) as u64)
}

/// Takes the next batch of the leader, if one is known.
fn held(engine: &mut Engine) -> Option<Batch> {
    loop {
        let outcome = engine.peek_outcome(STREAM)?;
        engine.pass_outcome(STREAM);
        // No leader decides anything else.
        if let Outcome::Bytes(bytes) = outcome
            && let Ok(batch) = postcard::from_bytes(&bytes)
        {
            return Some(batch);
        }
    }
}

/// What a thread may do next, by what this process knows.
fn next(engine: &mut Engine, order: &mut Order, thread: u64) -> Option<u64> {
    if engine.is_deciding() {
        while let Some(batch) = held(engine) {
            order.learn(batch);
        }
        order.lead();
    }
    answer(order.next_by(thread, || held(engine)))
}

fn answer(step: Step) -> Option<u64> {
    match step {
        Step::Wait => None,
        Step::Free => Some(FREE),
        Step::Decided { takes, result } => {
            Some(DECIDED | if takes { TAKES } else { 0 } | u64::from(result.cast_unsigned()) << 32)
        }
    }
}

/// A thread of this process that has yet to take a lock which it took in the leader.
struct Behind {
    thread: u64,
    pulse: u64,
    since_ns: u64,
    next_ns: u64,
    patience: Patience,
}

/// How often it is looked whether such a thread comes to that lock, and for how long it may stand still.
const LOOK_NS: u64 = 1_000_000_000;
const STILL_NS_MAX: u64 = 10 * LOOK_NS;

impl Behind {
    fn new(thread: u64, now: u64) -> Self {
        Self { thread, pulse: 0, since_ns: now, next_ns: now, patience: Patience::default() }
    }

    /// Looks, if it is time: whether it will not come to that lock. It has stood still for long, or has run for longer
    /// than the leader's thread in vain.
    fn look(&mut self, engine: &mut Engine, now: u64) -> bool {
        if now < self.next_ns {
            return false;
        }
        self.next_ns = now + LOOK_NS;
        let pulse = threads::pulse_of(self.thread);
        if std::mem::replace(&mut self.pulse, pulse) != pulse {
            self.since_ns = now;
        }
        now - self.since_ns > STILL_NS_MAX || self.patience.has_outrun(engine, self.thread)
    }
}

/// How often a thread lets others run before it sleeps until another one has made an operation.
const YIELDS_MAX: u32 = 64;

/// Waits until a thread may make its next operation.
fn before(thread: u64) -> u64 {
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
        std::thread::yield_now();
    }
    NOTES.waiting.fetch_add(1, Ordering::SeqCst);
    let cell = redrt_engine::cell();
    let (mut behind, mut patience, mut has_parted) = (None::<Behind>, Patience::default(), false);
    let answer = cell.wait_for_many(|engine| {
        if !IS_ON.load(Ordering::Acquire) {
            return Outlook::Done(0);
        }
        let mut order = order();
        let Some(order) = &mut *order else { return Outlook::Done(0) };
        if let Some(answer) = next(engine, order, thread) {
            return Outlook::Done(answer);
        }
        has_parted = match order.awaited_by(thread) {
            Some(awaited) => {
                let now = monotonic_ns();
                let behind = match &mut behind {
                    Some(behind) if behind.thread == awaited => behind,
                    other => other.insert(Behind::new(awaited, now)),
                };
                let will_not_come = behind.look(engine, now);
                cell.set_alarm(engine, behind.next_ns);
                will_not_come
            }
            None => matches!(patience.awaited_operation(engine, thread), Awaited::Never),
        };
        if has_parted { Outlook::Done(0) } else { Outlook::Asleep }
    });
    NOTES.waiting.fetch_sub(1, Ordering::SeqCst);
    if has_parted {
        part();
    }
    answer
}

/// Whether threads post in the order of their leader's.
fn orders_channels() -> bool {
    IS_ON.load(Ordering::Relaxed) && threads::provided() == MPI_THREAD_MULTIPLE
}

/// Whether the calling thread may do now, with the engine in hand, what others see on a communicator: post a send or a
/// receive, find a message. Then it has to. Siblings are told before it leaves.
pub fn takes_turn(engine: &mut Engine, context: u64) -> bool {
    if !orders_channels() {
        return true;
    }
    let thread = threads::number();
    let mut known = order();
    let Some(order) = &mut *known else { return true };
    match next(engine, order, thread) {
        None => return false,
        Some(FREE) => {
            let _ = order.record_on(context, thread);
            drop(known);
            NOTES.is_untold.store(true, Ordering::SeqCst);
            tell_in(engine);
        }
        Some(_) => {
            let _ = order.follow_on(context, thread);
            drop(known);
            wake_waiting();
        }
    }
    true
}

/// The engine, for a thread that posts something on a communicator, when it is its turn.
#[inline]
pub fn engine_in_turn(context: u64) -> Locked<'static> {
    let cell = redrt_engine::cell();
    let mut engine = cell.lock();
    if orders_channels() {
        while !takes_turn(&mut engine, context) {
            drop(engine);
            before(threads::number());
            engine = cell.lock();
        }
    }
    engine
}

/// Threads wait for their turns in another way than [`engine_in_turn`].
pub struct Waiting(());

impl Waiting {
    /// Until this is dropped; `None` where there are no turns.
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

/// Threads have gone different ways in this process and in its leader: they go on as they come.
fn part() {
    finish();
    redrt_engine::cell().lock().report_divergence(Parting::Locks);
}

/// Called by the preloaded library, by threads of the program.
pub unsafe extern "C" fn hook(event: c_int, operation: *const LockOperation) -> u64 {
    // SAFETY: - the preloaded library passes one that lives as long as the call.
    let Some(operation) = (unsafe { operation.as_ref() }) else { return 0 };
    if event == BEGINS {
        return begin();
    }
    if !IS_ON.load(Ordering::Acquire) {
        return 0;
    }
    let thread = operation.thread;
    match event {
        ENTERS => enter(thread),
        BEFORE => before(thread),
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
        MATTERS => {
            if order().as_ref().is_some_and(Order::leads) {
                note_untold();
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
            note_untold();
            made.number
        }
        FOLLOWED => {
            let made = order().as_mut().map_or(0, |order| order.follow(thread).number);
            wake_waiting();
            made
        }
        PARTED => {
            part();
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
