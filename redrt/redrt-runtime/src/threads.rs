//! The application's threads: their numbers, which agree between replicas, and their numbers of MPI calls.
//!
//! While a thread is in an MPI call it is *internal*: it gets real clocks and random bytes. The library and its
//! allocator use them below the call, at different times in each replica and not on behalf of the application.
//!
//! A callback of the program counts as the application again: all replicas agree on its place in the thread's order.
//! Callbacks of nonblocking collectives do not count: any thread that makes progress may run them, at any time.

mod signals;

use super::{calls, preload};
use quiesce::{Place, StreamId};
use redrt_abi::{MPI_THREAD_MULTIPLE, MPI_THREAD_SERIALIZED, MPI_THREAD_SINGLE};
use redrt_process::clock::monotonic_ns;
use redrt_process::simulation;
use redrt_wire::control::Options;
use redrt_wire::profile::CallKind;
use rustc_hash::FxHasher;
use std::cell::Cell;
use std::ffi::c_int;
use std::hash::{Hash, Hasher};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The number of the calling thread: 0 for the main thread.
pub fn number() -> u64 {
    if let Some(number) = preload::thread_number() {
        return number;
    }
    // Without the preloaded library, threads are numbered in the order in which they first ask.
    process_local! {
        static NEXT: AtomicU64 = AtomicU64::new(0);
    }
    per_thread! {
        static NUMBER: Cell<Option<u64>> = Cell::new(None);
    }
    NUMBER.get().unwrap_or_else(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(Some(number));
        number
    })
}

/// Stream of the outcomes that are decided for the calling thread.
pub fn stream() -> StreamId {
    StreamId::Thread(number())
}

process_local! {
    /// Flags (below) for work at the begin and end of each call; 0 for none.
    static WATCHED: AtomicU8 = AtomicU8::new(0);
    /// Delivers events to tools of the program.
    static DELIVER: OnceLock<fn()> = OnceLock::new();
    /// Sends siblings the operations of threads that they do not have yet.
    static ANNOUNCE: OnceLock<fn()> = OnceLock::new();
    /// Called for each thread that ends.
    static END_OF_THREAD: OnceLock<fn(StreamId)> = OnceLock::new();
}

/// Calls are marked and counted, since replicas must agree.
const AGREES: u8 = 1;
/// Events are delivered to tools at the ends of calls.
const DELIVERS: u8 = 2;
/// Time in calls is measured by kind of call.
const TIMES: u8 = 4;
/// Operations of threads are sent to siblings before each call.
const ANNOUNCES: u8 = 8;

/// Marks and counts calls from now on. `end_of_thread` is called at the end of each thread that has made a call, by
/// that thread, except for the main thread.
pub fn watch(end_of_thread: fn(StreamId)) {
    END_OF_THREAD.get_or_init(|| end_of_thread);
    WATCHED.fetch_or(AGREES, Ordering::Release);
}

/// Calls `deliver` at the ends of calls from now on, where the program may get events.
pub fn deliver_events(deliver: fn()) {
    DELIVER.get_or_init(|| deliver);
    WATCHED.fetch_or(DELIVERS, Ordering::Release);
}

/// Calls `announce` at the begin of each call from now on.
pub fn announce_before_calls(announce: fn()) {
    ANNOUNCE.get_or_init(|| announce);
    WATCHED.fetch_or(ANNOUNCES, Ordering::Release);
}

/// Returns true if replicas have to agree on an outcome here: the rank has several replicas, the job's options ask for
/// it (`option`), and all replicas come to this place of the calling thread.
pub fn agrees(option: impl FnOnce(&Options) -> bool) -> bool {
    redrt_abi::phase::is_active()
        && !is_aside()
        && super::job().is_some_and(|job| {
            let welcome = &job.welcome;
            option(&welcome.options) && welcome.world.degree(welcome.me.rank) > 1
        })
}

/// Sends siblings the operations of threads that they do not have yet. To be called before anything leaves that may
/// depend on them.
pub fn announce_to_siblings() {
    if let Some(announce) = ANNOUNCE.get() {
        announce();
    }
}

/// Times calls from now on (`calls.rs`).
pub fn time_calls() {
    WATCHED.fetch_or(TIMES, Ordering::Release);
}

fn is_watched() -> bool {
    WATCHED.load(Ordering::Relaxed) & AGREES != 0
}

process_local! {
    /// The level of thread support that the program was given (MPI-5.0 §11.6).
    static PROVIDED: AtomicI32 = AtomicI32::new(MPI_THREAD_SINGLE);
}

/// Records a level of thread support that the program was given. The highest level counts.
pub fn provide(level: c_int) {
    PROVIDED.fetch_max(level, Ordering::AcqRel);
}

/// Level of thread support that the program was given; `MPI_THREAD_SINGLE` before that.
pub fn provided() -> c_int {
    PROVIDED.load(Ordering::Acquire)
}

/// Returns true if other threads than the main one may call MPI.
pub fn are_allowed() -> bool {
    matches!(provided(), MPI_THREAD_SERIALIZED | MPI_THREAD_MULTIPLE)
}

process_local! {
    static ARE_ORDERED: AtomicBool = AtomicBool::new(false);
}

/// Sets if threads are ordered: then threads that do not call MPI may wait in the library, for their turns.
pub fn order_threads(are_ordered: bool) {
    ARE_ORDERED.store(are_ordered, Ordering::Relaxed);
}

/// Number of threads that may be in the library: 1, unless the program asked for more or threads are ordered. `own` is
/// the number of the library's own threads.
pub fn mpi_thread_count(own: u32) -> u32 {
    if !are_allowed() && !ARE_ORDERED.load(Ordering::Relaxed) {
        return 1;
    }
    // If the threads cannot be listed, the number is above any real one: the process is never taken for passive.
    tasks().map_or(u32::MAX, |tasks| (tasks.len() as u32).saturating_sub(own))
}

/// Number of threads that are neither the main one nor the library's; `None` if they cannot be listed.
pub fn strangers() -> Option<usize> {
    // In a simulation the listed threads are those of many processes, which have one thread each.
    if simulation::now_ns().is_some() {
        return Some(0);
    }
    let main: u32 = std::fs::read_link("/proc/self").ok()?.to_str()?.parse().ok()?;
    let is_strange = |task: &u32| {
        // A thread that has ended meanwhile has no name.
        let name = std::fs::read_to_string(format!("/proc/self/task/{task}/comm")).unwrap_or_default();
        *task != main && !name.is_empty() && !name.starts_with("redrt-") && name.trim() != "redclone"
    };
    Some(tasks()?.iter().filter(|task| is_strange(task)).count())
}

/// The ids of all threads; `None` if they cannot be listed. The C library's `opendir` is avoided: its buffer is in the
/// program's heap, which would differ between replicas from then on.
fn tasks() -> Option<Vec<u32>> {
    let directory = std::fs::File::open("/proc/self/task").ok()?;
    let mut entries = [0_u8; 4096];
    let mut tasks = Vec::new();
    loop {
        // SAFETY: - the buffer is valid for writes of its length, which is the third argument.
        let filled =
            unsafe { libc::syscall(libc::SYS_getdents64, directory.as_raw_fd(), entries.as_mut_ptr(), entries.len()) };
        let mut rest = &entries[..usize::try_from(filled).ok()?];
        if rest.is_empty() {
            return Some(tasks);
        }
        // getdents(2): inode, offset, length of the entry, type, name up to a zero.
        while let Some(length) = rest.get(16..18).map(|it| usize::from(u16::from_ne_bytes([it[0], it[1]]))) {
            let name = rest.get(19..length)?.split(|byte| *byte == 0).next()?;
            tasks.extend(std::str::from_utf8(name).ok().and_then(|name| name.parse::<u32>().ok()));
            rest = &rest[length..];
        }
    }
}

struct Thread {
    number: u64,
    /// MPI calls begun; [`Place::ENDED`] if no more will come.
    calls: AtomicU64,
    /// Kind of the last call, plus one; 0 if it was not an MPI call.
    kind: AtomicU16,
    /// MPI calls that have ended.
    ended: AtomicU64,
    /// Id of the thread in the kernel.
    task: u32,
}

impl Thread {
    /// Place of the thread in the program. A call's kind is written before the call is counted, so a reader may get the
    /// kind of a call that the thread is about to begin.
    fn place(&self) -> Place {
        let calls = self.calls.load(Ordering::Acquire);
        Place { thread: self.number, calls, kind: self.kind.load(Ordering::Relaxed) }
    }

    /// A number that changes as long as this thread runs or may act: outside of MPI calls its processor time; within
    /// them, or if the processor time is unknown, the current time.
    fn pulse(&self) -> u64 {
        let is_outside = self.calls.load(Ordering::Acquire) == self.ended.load(Ordering::Acquire);
        is_outside.then(|| self.ran_ns()).flatten().unwrap_or_else(monotonic_ns)
    }

    /// Processor time of the thread in nanoseconds; `None` if it has ended.
    fn ran_ns(&self) -> Option<u64> {
        // proc(5): time on the processor, time waiting for one, and number of time slices.
        let text = std::fs::read_to_string(format!("/proc/self/task/{}/schedstat", self.task)).ok()?;
        text.split_whitespace().next()?.parse().ok()
    }
}

fn known(number: u64) -> Option<&'static Thread> {
    threads().iter().rev().find(|thread| thread.number == number).copied()
}

/// Processor time of the thread with this number, in nanoseconds; 0 if it has ended or is unknown.
pub fn ran_ns_of(number: u64) -> u64 {
    known(number).and_then(Thread::ran_ns).unwrap_or_default()
}

/// Pulse of the thread with this number. Two equal pulses mean that the thread has not run between them, outside of MPI
/// calls. The pulse of an unknown thread is 0.
pub fn pulse_of(number: u64) -> u64 {
    known(number).map_or(0, Thread::pulse)
}

process_local! {
    static THREADS: Mutex<Vec<&'static Thread>> = Mutex::new(Vec::new());
}

fn threads() -> std::sync::MutexGuard<'static, Vec<&'static Thread>> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks the thread's end when it is dropped. Destructors that run later, such as the allocator's, are not the
/// application.
struct End(Cell<Option<&'static Thread>>);

impl Drop for End {
    fn drop(&mut self) {
        if let Some(thread) = self.0.get() {
            thread.calls.store(Place::ENDED, Ordering::Release);
            thread.ended.store(0, Ordering::Release);
            preload::set_internal(true);
            // The main thread ends with the process.
            if thread.number != 0
                && redrt_abi::phase::is_active()
                && let Some(tell) = END_OF_THREAD.get()
            {
                tell(StreamId::Thread(thread.number));
            }
        }
    }
}

per_thread! {
    static THREAD: Cell<Option<&'static Thread>> = Cell::new(None);
    static END: End = End(Cell::new(None));
}

/// Id of the calling thread in the kernel, in the process's namespace.
pub fn task() -> u32 {
    // SAFETY: - touches no memory: gettid takes no arguments.
    unsafe { libc::gettid() }.cast_unsigned()
}

fn register() -> &'static Thread {
    let number = number();
    let mut threads = threads();
    // The record outlives its thread, since a follower that is behind may ask for it. It is small.
    let thread: &'static Thread =
        Box::leak(Box::new(Thread { number, calls: 0.into(), kind: 0.into(), ended: 0.into(), task: task() }));
    threads.push(thread);
    THREAD.set(Some(thread));
    let _ = END.try_with(|end| end.0.set(Some(thread)));
    thread
}

/// Returns true if at most one thread of the program has taken part in decisions so far.
pub fn is_one() -> bool {
    threads().iter().filter(|thread| thread.number != u64::MAX).count() <= 1
}

/// Registers the calling thread as one that takes part in decisions: siblings may ask for its place.
#[inline]
pub fn make_known() {
    if THREAD.get().is_none() {
        register();
    }
}

/// Guard: the calling thread is in an MPI call until it is dropped.
pub struct Inside {
    was_internal: Option<bool>,
    /// Further work at the end of the call; 0 in most programs, without timing and tools. It is one word and not a
    /// richer type, since every call writes and reads it.
    extra: u32,
}

/// In [`Inside::extra`]: events are delivered to tools. The bits below are the kind of a timed call, plus one.
const TELLS: u32 = 1 << 8;

/// Begins an MPI call. The caller holds no lock when it drops the guard.
#[inline]
pub fn enter(kind: CallKind) -> Inside {
    simulation::step(true);
    let watched = WATCHED.load(Ordering::Relaxed);
    if watched == 0 {
        return Inside { was_internal: None, extra: 0 };
    }
    let mut inside = enter_as(kind as u16 + 1);
    if inside.was_internal.is_some() {
        signals::poll();
    }
    if watched & ANNOUNCES != 0 {
        announce_to_siblings();
    }
    if watched & (DELIVERS | TIMES) != 0 {
        inside.extra = begin_extra(watched, kind);
    }
    inside
}

#[cold]
fn begin_extra(watched: u8, kind: CallKind) -> u32 {
    if is_aside() {
        return 0;
    }
    let timed = if watched & TIMES != 0 && calls::begin() { kind as u32 + 1 } else { 0 };
    let tells = watched & DELIVERS != 0 && !is_in_callback();
    timed | if tells { TELLS } else { 0 }
}

#[cold]
fn end_extra(extra: u32) {
    if extra & TELLS != 0
        && let Some(deliver) = DELIVER.get()
    {
        deliver();
    }
    if let Some(kind) = CallKind::ALL.into_iter().find(|kind| *kind as u32 + 1 == extra & !TELLS) {
        calls::end(kind);
    }
}

/// Begins a call that is marked and counted as an MPI call is, but delivers no events and raises no signals.
pub fn enter_quietly() -> Inside {
    enter_as(0)
}

fn enter_as(kind: u16) -> Inside {
    // Calls on the side do not count: other replicas make them at other times.
    if !is_watched() || is_aside() {
        return Inside { was_internal: None, extra: 0 };
    }
    // First, since the following lines may allocate.
    let was_internal = preload::set_internal(true);
    let thread = THREAD.get().unwrap_or_else(register);
    // Load and store in place of an addition: only this thread writes these fields.
    thread.kind.store(kind, Ordering::Relaxed);
    thread.calls.store(thread.calls.load(Ordering::Relaxed).saturating_add(1), Ordering::Release);
    Inside { was_internal: Some(was_internal), extra: 0 }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        if self.extra != 0 {
            end_extra(self.extra);
        }
        if let Some(was_internal) = self.was_internal {
            if let Some(thread) = THREAD.get() {
                thread.ended.store(thread.ended.load(Ordering::Relaxed).saturating_add(1), Ordering::Release);
            }
            preload::set_internal(was_internal);
        }
    }
}

per_thread! {
    /// True while the thread works on the side, at a moment that differs between replicas.
    static ASIDE: Cell<bool> = Cell::new(false);
    /// True while the thread runs a callback of the program below an MPI call. The callback counts as the application.
    static IN_CALLBACK: Cell<bool> = Cell::new(false);
}

/// Runs a closure on the side: at a moment that differs between replicas.
pub fn aside<T>(run: impl FnOnce() -> T) -> T {
    let was_aside = ASIDE.replace(true);
    let value = run();
    ASIDE.set(was_aside);
    value
}

/// Returns true if the calling thread is on the side ([`aside`]).
#[inline]
pub fn is_aside() -> bool {
    ASIDE.get()
}

/// Returns true if the calling thread runs a callback whose place all replicas agree on.
#[inline]
pub fn is_in_callback() -> bool {
    IN_CALLBACK.get()
}

/// Guard: the calling thread runs a callback of the program until it is dropped.
pub struct CallingBack {
    /// The thread was internal, and in a callback; `None` if nothing is to be restored.
    before: Option<(bool, bool)>,
}

/// Begins a callback of the program. Has no effect on the side, and where calls are not watched.
#[inline]
pub fn call_back() -> CallingBack {
    if !is_watched() || is_aside() {
        return CallingBack { before: None };
    }
    if ARE_ORDERED.load(Ordering::Relaxed) {
        // The moment of the callback differs between replicas.
        preload::pause_order(true);
    }
    CallingBack { before: Some((preload::set_internal(false), IN_CALLBACK.replace(true))) }
}

impl Drop for CallingBack {
    #[inline]
    fn drop(&mut self) {
        if let Some((was_internal, was_in_callback)) = self.before {
            IN_CALLBACK.set(was_in_callback);
            if ARE_ORDERED.load(Ordering::Relaxed) {
                preload::pause_order(was_in_callback);
            }
            preload::set_internal(was_internal);
        }
    }
}

/// Number of MPI calls that the calling thread has begun.
pub fn call_count() -> u64 {
    THREAD.get().unwrap_or_else(register).calls.load(Ordering::Relaxed)
}

/// Place of the calling thread in the program; [`Place::NOWHERE`] on the side.
pub fn place() -> Place {
    if is_aside() {
        return Place::NOWHERE;
    }
    THREAD.get().unwrap_or_else(register).place()
}

/// Place in the program of the thread with this number. For an unknown thread, the place before its first call.
pub fn place_of(number: u64) -> Place {
    let threads = threads();
    let thread = threads.iter().rev().find(|thread| thread.number == number);
    thread.map_or(Place { thread: number, calls: 0, kind: 0 }, |thread| thread.place())
}

/// Digest of the places of all threads that have begun a call and not ended.
pub fn places() -> u64 {
    let mut places: Vec<_> = threads().iter().map(|thread| thread.place()).collect();
    places.retain(|place| place.calls > 0 && place.calls < Place::ENDED);
    places.sort_unstable_by_key(|place| place.thread);
    let mut hasher = FxHasher::default();
    places.hash(&mut hasher);
    hasher.finish()
}

/// Number of MPI calls that the thread with this number has begun; 0 for an unknown thread, [`Place::ENDED`] for one
/// that has ended.
pub fn calls_of(number: u64) -> u64 {
    known(number).map_or(0, |thread| thread.calls.load(Ordering::Acquire))
}
