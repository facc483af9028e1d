//! The application's threads: their numbers, which agree between replicas, and how many MPI calls each has begun.
//!
//! While a thread is in an MPI call it is shown real clocks and random bytes: what the library and its allocator ask
//! for below the call is not the application's doing, and happens in every replica at another time.
//!
//! A callback of the program is the application again, at a place of its thread's order that all replicas agree on,
//! unless a nonblocking collective makes it: any thread that makes progress moves that on, at any time.

use super::{calls, preload, signals};
use crate::abi::{MPI_THREAD_MULTIPLE, MPI_THREAD_SERIALIZED, MPI_THREAD_SINGLE};
use quiesce::{Place, StreamId};
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
    // Without the preloaded library, threads are numbered as they first ask.
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

/// The stream of the calling thread's outcomes.
pub fn stream() -> StreamId {
    StreamId::Thread(number())
}

process_local! {
    /// What is done at the begin and end of calls.
    static WATCHED: AtomicU8 = AtomicU8::new(0);
    /// Tells the program of events.
    static DELIVER: OnceLock<fn()> = OnceLock::new();
    /// Tells siblings what threads have done.
    static TELL: OnceLock<fn()> = OnceLock::new();
    /// Is told of threads that end.
    static END_OF_THREAD: OnceLock<fn(StreamId)> = OnceLock::new();
}

/// Replicas must agree, so calls are marked and counted.
const AGREES: u8 = 1;
/// A tool wants to be told of events, as calls end.
const DELIVERS: u8 = 2;
/// Calls are timed.
const TIMES: u8 = 4;
/// Siblings are told before calls what threads have done.
const TELLS_SIBLINGS: u8 = 8;

/// From now on calls are marked and counted. `end_of_thread` is called at the end of each thread that has made a call,
/// by that thread, but for the main one's.
pub fn watch(end_of_thread: fn(StreamId)) {
    END_OF_THREAD.get_or_init(|| end_of_thread);
    WATCHED.fetch_or(AGREES, Ordering::Release);
}

/// From now on `deliver` is called at the ends of calls, where the program may be told of events.
pub fn deliver_events(deliver: fn()) {
    DELIVER.get_or_init(|| deliver);
    WATCHED.fetch_or(DELIVERS, Ordering::Release);
}

/// From now on `tell` is called at the begins of calls.
pub fn tell_before_calls(tell: fn()) {
    TELL.get_or_init(|| tell);
    WATCHED.fetch_or(TELLS_SIBLINGS, Ordering::Release);
}

/// Whether the calling thread is at a place that all replicas of its rank come to, in a job in which they agree on what
/// `option` says.
pub fn agrees(option: impl FnOnce(&Options) -> bool) -> bool {
    crate::phase::is_active()
        && !is_aside()
        && super::job().is_some_and(|job| {
            let welcome = &job.welcome;
            option(&welcome.options) && welcome.world.degree(welcome.me.rank) > 1
        })
}

/// Something is about to leave that may depend on what threads have done: siblings are told of that.
pub fn tell_siblings() {
    if let Some(tell) = TELL.get() {
        tell();
    }
}

/// From now on calls are timed.
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

/// The program was given this level. The highest of several counts.
pub fn provide(level: c_int) {
    PROVIDED.fetch_max(level, Ordering::AcqRel);
}

/// The level of thread support.
pub fn provided() -> c_int {
    PROVIDED.load(Ordering::Acquire)
}

/// Whether other threads than the main one may call MPI.
pub fn are_allowed() -> bool {
    matches!(provided(), MPI_THREAD_SERIALIZED | MPI_THREAD_MULTIPLE)
}

process_local! {
    static ARE_ORDERED: AtomicBool = AtomicBool::new(false);
}

/// Threads may wait in the library that call no MPI: for their turns, or no more.
pub fn order_threads(are_ordered: bool) {
    ARE_ORDERED.store(are_ordered, Ordering::Relaxed);
}

/// How many threads may call MPI: one, unless the program asked for more. `own` of the process's are the library's.
pub fn mpi_thread_count(own: u32) -> u32 {
    if !are_allowed() && !ARE_ORDERED.load(Ordering::Relaxed) {
        return 1;
    }
    // Where it cannot be known, more than there are: the process is never taken for passive.
    tasks().map_or(u32::MAX, |tasks| (tasks.len() as u32).saturating_sub(own))
}

/// Threads that are neither the main one nor the library's, if that can be known.
pub fn strangers() -> Option<usize> {
    // The threads of this system are those of many simulated processes, which have one each.
    if simulation::now_ns().is_some() {
        return Some(0);
    }
    let main: u32 = std::fs::read_link("/proc/self").ok()?.to_str()?.parse().ok()?;
    let is_strange = |task: &u32| {
        // One that has ended meanwhile has no name.
        let name = std::fs::read_to_string(format!("/proc/self/task/{task}/comm")).unwrap_or_default();
        *task != main && !name.is_empty() && !name.starts_with("redrt-") && name.trim() != "redclone"
    };
    Some(tasks()?.iter().filter(|task| is_strange(task)).count())
}

/// The ids of all threads. Not by the C library's `opendir`, whose buffer is memory of the program's heap, which would
/// differ between replicas from then on.
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
    /// MPI calls begun; [`Place::ENDED`] when there will be no more.
    calls: AtomicU64,
    /// The kind of the last one, and one more; 0 for what is no MPI call.
    kind: AtomicU16,
    /// Of these, those that are over.
    ended: AtomicU64,
    /// The kernel's number for it.
    task: u32,
}

impl Thread {
    /// Where it is. The kind of a call is written before the call is counted: seen the other way round it is that of
    /// the next call, which the thread is about to begin.
    fn place(&self) -> Place {
        let calls = self.calls.load(Ordering::Acquire);
        Place { thread: self.number, calls, kind: self.kind.load(Ordering::Relaxed) }
    }

    /// A number that changes as long as this thread does anything, or may: for how long it has run outside of MPI
    /// calls.
    fn pulse(&self) -> u64 {
        let is_outside = self.calls.load(Ordering::Acquire) == self.ended.load(Ordering::Acquire);
        is_outside.then(|| self.ran_ns()).flatten().unwrap_or_else(monotonic_ns)
    }

    /// For how long it has had a processor, in nanoseconds.
    fn ran_ns(&self) -> Option<u64> {
        // proc(5): time spent on the processor, time spent waiting for one, and how often it was there.
        let text = std::fs::read_to_string(format!("/proc/self/task/{}/schedstat", self.task)).ok()?;
        text.split_whitespace().next()?.parse().ok()
    }
}

fn known(number: u64) -> Option<&'static Thread> {
    threads().iter().rev().find(|thread| thread.number == number).copied()
}

/// For how long the thread of this number has had a processor, in nanoseconds; 0 when none is known, or it has ended.
pub fn ran_ns_of(number: u64) -> u64 {
    known(number).and_then(Thread::ran_ns).unwrap_or_default()
}

/// The pulse of a thread with this number: two that are equal say that it has stood still between them, outside of MPI
/// calls. One that is not known does nothing.
pub fn pulse_of(number: u64) -> u64 {
    known(number).map_or(0, Thread::pulse)
}

process_local! {
    static THREADS: Mutex<Vec<&'static Thread>> = Mutex::new(Vec::new());
}

fn threads() -> std::sync::MutexGuard<'static, Vec<&'static Thread>> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks the thread's end: what runs after it, the allocator's destructor, is not the application.
struct End(Cell<Option<&'static Thread>>);

impl Drop for End {
    fn drop(&mut self) {
        if let Some(thread) = self.0.get() {
            thread.calls.store(Place::ENDED, Ordering::Release);
            thread.ended.store(0, Ordering::Release);
            preload::set_internal(true);
            // The main one's end is that of the process.
            if thread.number != 0
                && crate::phase::is_active()
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

/// The id of the calling thread, as the kernel knows it in the process's namespace.
pub fn task() -> u32 {
    // SAFETY: - asks the kernel for a number, and changes nothing.
    unsafe { libc::gettid() }.cast_unsigned()
}

fn register() -> &'static Thread {
    let number = number();
    let mut threads = threads();
    // A record stays when its thread ends: a follower may be behind and ask for it. It is small.
    let thread: &'static Thread =
        Box::leak(Box::new(Thread { number, calls: 0.into(), kind: 0.into(), ended: 0.into(), task: task() }));
    threads.push(thread);
    THREAD.set(Some(thread));
    let _ = END.try_with(|end| end.0.set(Some(thread)));
    thread
}

/// Whether no more than one thread of the program has taken part in decisions so far.
pub fn is_one() -> bool {
    threads().iter().filter(|thread| thread.number != u64::MAX).count() <= 1
}

/// The calling thread takes part in decisions: siblings may ask how far it has come.
#[inline]
pub fn make_known() {
    if THREAD.get().is_none() {
        register();
    }
}

/// The calling thread is in an MPI call until this is dropped.
pub struct Inside {
    was_internal: Option<bool>,
    /// What else is done at the end of the call: 0 in all calls but those of programs that are timed or have tools. One
    /// word, and no type with more to it, since every call writes and reads it.
    extra: u32,
}

/// In [`Inside::extra`]: a tool is told of events. Below it is the kind of a call that is timed, and one more.
const TELLS: u32 = 1 << 8;

/// Begins an MPI call, at the end of which no lock is held.
#[inline]
pub fn enter(kind: CallKind) -> Inside {
    simulation::step(true);
    let watched = WATCHED.load(Ordering::Relaxed);
    if watched == 0 {
        return Inside { was_internal: None, extra: 0 };
    }
    let mut inside = enter_as(kind as u16 + 1);
    if inside.was_internal.is_some() {
        signals::look();
    }
    if watched & TELLS_SIBLINGS != 0 {
        tell_siblings();
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

/// Begins something that is as an MPI call is, but no place to tell the program of anything.
pub fn enter_quietly() -> Inside {
    enter_as(0)
}

fn enter_as(kind: u16) -> Inside {
    // A callback that is made now in this replica and at another time in others: its calls do not count.
    if !is_watched() || is_aside() {
        return Inside { was_internal: None, extra: 0 };
    }
    // First of all: what follows may allocate.
    let was_internal = preload::set_internal(true);
    let thread = THREAD.get().unwrap_or_else(register);
    // Only this thread writes them.
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
    /// What runs is done on the side, when it happens to be possible.
    static ASIDE: Cell<bool> = Cell::new(false);
    /// A callback of the program runs, below an MPI call, and is watched as the application is.
    static IN_CALLBACK: Cell<bool> = Cell::new(false);
}

/// Does something at a moment that differs between replicas.
pub fn aside<T>(run: impl FnOnce() -> T) -> T {
    let was_aside = ASIDE.replace(true);
    let value = run();
    ASIDE.set(was_aside);
    value
}

/// Whether the calling thread does something at a moment that differs between replicas.
#[inline]
pub fn is_aside() -> bool {
    ASIDE.get()
}

/// Whether the calling thread runs a callback whose place all replicas agree on.
#[inline]
pub fn is_in_callback() -> bool {
    IN_CALLBACK.get()
}

/// The calling thread runs a callback of the program until this is dropped.
pub struct CallingBack {
    /// Whether the thread was internal, and in a callback.
    before: Option<(bool, bool)>,
}

/// Begins a callback.
#[inline]
pub fn call_back() -> CallingBack {
    if !is_watched() || is_aside() {
        return CallingBack { before: None };
    }
    if ARE_ORDERED.load(Ordering::Relaxed) {
        // When it is called is not the same in all replicas.
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

/// How many MPI calls the calling thread has begun.
pub fn call_count() -> u64 {
    THREAD.get().unwrap_or_else(register).calls.load(Ordering::Relaxed)
}

/// Where in the program the calling thread is.
pub fn place() -> Place {
    if is_aside() {
        return Place::NOWHERE;
    }
    THREAD.get().unwrap_or_else(register).place()
}

/// Where in the program the thread of this number is: before all others when none is known.
pub fn place_of(number: u64) -> Place {
    let threads = threads();
    let thread = threads.iter().rev().find(|thread| thread.number == number);
    thread.map_or(Place { thread: number, calls: 0, kind: 0 }, |thread| thread.place())
}

/// A digest of where all threads are that have not ended.
pub fn places() -> u64 {
    let mut places: Vec<_> = threads().iter().map(|thread| thread.place()).collect();
    places.retain(|place| place.calls > 0 && place.calls < Place::ENDED);
    places.sort_unstable_by_key(|place| place.thread);
    let mut hasher = FxHasher::default();
    places.hash(&mut hasher);
    hasher.finish()
}

/// How many MPI calls the thread of this number has begun; 0 when none is known, [`Place::ENDED`] when it has ended.
pub fn calls_of(number: u64) -> u64 {
    known(number).map_or(0, |thread| thread.calls.load(Ordering::Acquire))
}
