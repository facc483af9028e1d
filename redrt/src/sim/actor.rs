//! Threads of simulated processes, of which one runs at a time.

use super::world::{self, World};
use redrt_process::Process;
use redrt_types::ProcessIndex;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};

/// How a process ended.
#[derive(Debug)]
pub enum End {
    /// Its program returned this.
    Done(Vec<u64>),
    /// It was lost.
    Lost,
    /// The library or the program panicked.
    Panicked(String),
}

/// Why the thread of a process has handed over.
#[derive(Debug)]
pub enum Pause {
    /// It is asleep, until this time at most.
    Asleep(Option<u64>),
    /// It has ended.
    Ended(End),
}

struct Shared {
    /// Whether the process may run. Who waits for the other parks: who is woken from a condition variable would wait
    /// once more, for its mutex.
    runs: AtomicBool,
    pause: Mutex<Option<Pause>>,
    /// Who let it run, and waits until it hands over.
    waits: Mutex<Option<Thread>>,
    is_lost: AtomicBool,
    /// Steps until it is lost; 0 when nothing is planned.
    steps_left: AtomicU64,
    number: ProcessIndex,
    /// Looks at the network since it last handed over.
    looks: AtomicU64,
    world: Arc<Mutex<World>>,
}

/// The calling thread, and those that it starts, stay on the core where it is. One of them runs at a time, and to hand
/// over to a thread of another core takes four times as long.
pub struct Pinned(libc::cpu_set_t);

impl Pinned {
    /// Until this is dropped.
    pub fn here() -> Option<Self> {
        // SAFETY: - all zeros are a set, an empty one.
        let (mut before, mut here): (libc::cpu_set_t, libc::cpu_set_t) = unsafe { std::mem::zeroed() };
        let bytes = size_of::<libc::cpu_set_t>();
        // SAFETY: - before is valid for writes of its size.
        let has_failed = unsafe { libc::sched_getaffinity(0, bytes, &raw mut before) } != 0;
        // SAFETY: - asks for a number.
        let core = usize::try_from(unsafe { libc::sched_getcpu() }).ok().filter(|_| !has_failed)?;
        // SAFETY: - a set of its own.
        unsafe { libc::CPU_SET(core, &mut here) };
        // SAFETY: - here is valid for its size.
        let is_pinned = unsafe { libc::sched_setaffinity(0, bytes, &raw const here) } == 0;
        is_pinned.then_some(Self(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Where it may not run any more, it stays where it is.
        // SAFETY: - the set is valid for its size.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const self.0) };
    }
}

/// A process that looks more often and does not go to sleep never will.
const LOOKS_MAX: u64 = 1_000_000;

/// What a lost process unwinds with.
struct Lost;

/// A process and its thread.
pub struct Actor {
    shared: Arc<Shared>,
    /// What it has once. Dropped after its thread.
    process: Arc<Process>,
    thread: Option<JoinHandle<()>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

thread_local! {
    /// What an ended process had is dropped.
    static IS_OVER: Cell<bool> = const { Cell::new(false) };
}

/// Whether what an ended process had is dropped.
pub fn is_over() -> bool {
    IS_OVER.get()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}

impl Actor {
    /// A process that runs `program`, once it is told to.
    pub fn new(
        world: &Arc<Mutex<World>>,
        number: ProcessIndex,
        program: impl FnOnce() -> Vec<u64> + Send + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            runs: AtomicBool::new(false),
            pause: Mutex::default(),
            waits: Mutex::default(),
            is_lost: AtomicBool::new(false),
            steps_left: AtomicU64::new(0),
            number,
            looks: AtomicU64::new(0),
            world: world.clone(),
        });
        let process = Arc::new(Process::default());
        let (theirs, of) = (shared.clone(), process.clone());
        let main = move || {
            world::enter(theirs.world.clone());
            CURRENT.set(Some(theirs.clone()));
            let run = || {
                theirs.wait_for_turn();
                program()
            };
            // SAFETY: - a `Vec` of numbers is all that leaves; the actor keeps the process until this thread has ended.
            let ended = catch_unwind(AssertUnwindSafe(|| unsafe { of.enter(run) }));
            let end = match ended {
                Ok(output) => End::Done(output),
                Err(payload) if payload.is::<Lost>() => End::Lost,
                Err(payload) => End::Panicked(text(&*payload)),
            };
            CURRENT.set(None);
            theirs.hand_over(Pause::Ended(end));
        };
        let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(main).expect("a thread can be started");
        Self { shared, process, thread: Some(thread) }
    }

    /// Lets the process run until it hands over.
    pub fn run(&self) -> Pause {
        *locked(&self.shared.waits) = Some(std::thread::current());
        self.let_run();
        while self.shared.runs.load(Ordering::Acquire) {
            std::thread::park();
        }
        locked(&self.shared.pause).take().expect("who hands over says why")
    }

    fn let_run(&self) {
        self.shared.runs.store(true, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Does something as another thread of the process would, while its program does not run.
    pub fn act<T>(&self, act: impl FnOnce() -> T) -> T {
        // SAFETY: - callers take nothing out that the process owns.
        unsafe { self.process.enter(act) }
    }

    /// Loses the process: when it runs next, it unwinds.
    pub fn lose(&self) {
        self.shared.is_lost.store(true, Ordering::Relaxed);
    }

    /// It is lost after this many further steps, at least one.
    pub fn lose_after(&self, steps: u64) {
        self.shared.steps_left.store(steps, Ordering::Relaxed);
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.lose();
        self.let_run();
        let Some(thread) = self.thread.take() else { return };
        // It has unwound, however it ended.
        let _ = thread.join();
        // What it has may ask for other things that it has, as it is dropped.
        IS_OVER.set(true);
        self.act(|| self.process.clear());
        IS_OVER.set(false);
    }
}

impl Shared {
    fn wait_for_turn(&self) {
        while !self.runs.load(Ordering::Acquire) {
            std::thread::park();
        }
        self.unwind_if_lost();
    }

    fn hand_over(&self, pause: Pause) {
        self.looks.store(0, Ordering::Relaxed);
        *locked(&self.pause) = Some(pause);
        let waits = locked(&self.waits).take();
        self.runs.store(false, Ordering::Release);
        if let Some(waits) = waits {
            waits.unpark();
        }
    }

    fn unwind_if_lost(&self) {
        if self.is_lost.load(Ordering::Relaxed) && !std::thread::panicking() {
            resume_unwind(Box::new(Lost));
        }
    }
}

fn current() -> Option<Arc<Shared>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Lets the calling process sleep until it is woken, at most so long. `false` where it is not simulated.
pub fn sleep(limit_ns: Option<u64>) -> bool {
    let Some(shared) = current() else { return false };
    shared.unwind_if_lost();
    if !std::thread::panicking() {
        let until = limit_ns.map(|limit| locked(&shared.world).now_ns + limit);
        shared.hand_over(Pause::Asleep(until));
        shared.wait_for_turn();
    }
    true
}

/// Something that a process does which it may be lost before; at some of them others may run first.
pub fn step(may_pause: bool) {
    let Some(shared) = current() else { return };
    let left = shared.steps_left.load(Ordering::Relaxed);
    if left > 0 {
        shared.steps_left.store(left - 1, Ordering::Relaxed);
        if left == 1 {
            // From here on nothing of it is heard. It may hold locks, which those that clean up behind it need.
            locked(&shared.world).mute(shared.number);
            shared.is_lost.store(true, Ordering::Relaxed);
        }
    }
    if !may_pause {
        return;
    }
    shared.unwind_if_lost();
    if !std::thread::panicking() {
        let pause_ns = locked(&shared.world).pause_at_step();
        if let Some(pause_ns) = pause_ns {
            sleep(Some(pause_ns));
        }
    }
}

/// A process has looked at the network.
///
/// # Panics
/// When it does so again and again instead of going to sleep.
pub fn look() {
    CURRENT.with_borrow(|current| {
        if let Some(shared) = current {
            let looks = shared.looks.fetch_add(1, Ordering::Relaxed);
            assert!(looks < LOOKS_MAX || std::thread::panicking(), "it polls and does not go to sleep");
        }
    });
}

/// Ends the calling process, if it is simulated.
pub fn end() {
    if current().is_some() {
        resume_unwind(Box::new("the process ended itself"));
    }
}
