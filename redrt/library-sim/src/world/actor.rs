//! Programs of simulated processes: coroutines on the simulation's thread. One of them runs at a time.

use super::World;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use redrt_process::{Process, Thread};
use redrt_types::ProcessIndex;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// End of a process.
#[derive(Debug)]
pub enum End {
    /// The program has ended with these results.
    Done(Vec<u64>),
    /// The process was lost.
    Lost,
    /// The library or the program panicked.
    Panicked(String),
}

/// Reason for which a process has handed over.
#[derive(Debug)]
pub enum Pause {
    /// It sleeps, until this time at the latest.
    Asleep(Option<u64>),
    /// The process has ended.
    Ended(End),
}

/// Limit on looks without a sleep: a process that exceeds it would never sleep.
const LOOKS_MAX: u64 = 1_000_000;
const STACK_BYTES: usize = 1 << 20;

/// Payload with which a lost process unwinds.
struct Lost;

/// A program. It hands over with the time until which it sleeps at most.
type Program = Coroutine<(), Option<u64>, End, DefaultStack>;

/// Handle by which a program hands over.
type Handing = Yielder<(), Option<u64>>;

/// State that a program and its simulation share.
struct Shared {
    /// Set while the program runs.
    yielder: Cell<Option<NonNull<Handing>>>,
    is_lost: Cell<bool>,
    /// Number of steps until the process is lost; 0 if no loss is planned.
    steps_left: Cell<u64>,
    number: ProcessIndex,
    /// Number of looks at the network since the process handed over last.
    looks: Cell<u64>,
    world: Arc<Mutex<World>>,
}

/// A process and its program.
pub struct Actor {
    shared: Rc<Shared>,
    /// State that a process has once.
    process: Process,
    /// State of the program's thread.
    thread: Thread,
    /// State of the process's other threads ([`Actor::act`]).
    other_thread: Thread,
    /// `None` after the end.
    program: RefCell<Option<Program>>,
}

thread_local! {
    /// The process whose program runs now.
    static CURRENT: RefCell<Option<Rc<Shared>>> = const { RefCell::new(None) };
    /// True while the state of an ended process is dropped.
    static IS_OVER: Cell<bool> = const { Cell::new(false) };
    /// Stacks of ended programs: mapping a stack and touching its pages takes as long as many programs run.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// Returns true while the state of an ended process is dropped.
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
    /// A process that will run `program`.
    pub fn new(world: &Arc<Mutex<World>>, number: ProcessIndex, program: impl FnOnce() -> Vec<u64> + 'static) -> Self {
        let shared = Rc::new(Shared {
            yielder: Cell::new(None),
            is_lost: Cell::new(false),
            steps_left: Cell::new(0),
            number,
            looks: Cell::new(0),
            world: world.clone(),
        });
        let theirs = shared.clone();
        let main = move |yielder: &Handing, ()| {
            theirs.yielder.set(Some(NonNull::from(yielder)));
            let ended = catch_unwind(AssertUnwindSafe(|| {
                theirs.unwind_if_lost();
                program()
            }));
            theirs.yielder.set(None);
            match ended {
                Ok(output) => End::Done(output),
                Err(payload) if payload.is::<Lost>() => End::Lost,
                Err(payload) => End::Panicked(text(&*payload)),
            }
        };
        let stack = STACKS.with_borrow_mut(Vec::pop);
        let stack = stack.unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("there is memory for a stack"));
        let program = RefCell::new(Some(Coroutine::with_stack(stack, main)));
        Self {
            shared,
            process: Process::default(),
            thread: Thread::default(),
            other_thread: Thread::default(),
            program,
        }
    }

    /// Lets the program run until it hands over.
    ///
    /// # Panics
    /// If the program has ended.
    pub fn run(&self) -> Pause {
        let mut program = self.program.borrow_mut();
        let running = program.as_mut().expect("it has not ended");
        let before = CURRENT.replace(Some(self.shared.clone()));
        self.shared.looks.set(0);
        // SAFETY: - no reference to process-local state leaves: the result is numbers, and the program's stack is
        //           dropped before the process.
        let result = unsafe { self.process.enter(|| self.thread.enter(|| running.resume(()))) };
        CURRENT.set(before);
        match result {
            CoroutineResult::Yield(until_ns) => Pause::Asleep(until_ns),
            CoroutineResult::Return(end) => {
                let stack = program.take().map(Coroutine::into_stack);
                STACKS.with_borrow_mut(|stacks| stacks.extend(stack));
                Pause::Ended(end)
            }
        }
    }

    /// Calls a closure as another thread of the process, while its program does not run.
    pub fn act<T>(&self, act: impl FnOnce() -> T) -> T {
        // SAFETY: - no reference to process-local state leaves: a rule for callers, which return values of their own.
        unsafe { self.process.enter(|| self.other_thread.enter(act)) }
    }

    /// Loses the process: when it runs next, it unwinds.
    pub fn lose(&self) {
        self.shared.is_lost.set(true);
    }

    /// Loses the process after this many further steps; 0 cancels a planned loss.
    pub fn lose_after(&self, steps: u64) {
        self.shared.steps_left.set(steps);
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The simulation has failed. A lost program does not unwind during a panic (`unwind_if_lost`), so it is
            // leaked.
            std::mem::forget(self.program.take());
            std::mem::forget((std::mem::take(&mut self.process), std::mem::take(&mut self.thread)));
            return;
        }
        self.lose();
        let is_running = |actor: &Self| actor.program.borrow().as_ref().is_some_and(Coroutine::started);
        while is_running(self) {
            self.run();
        }
        self.program.take();
        // Drops of process-local state may access other such state.
        IS_OVER.set(true);
        let threads = [std::mem::take(&mut self.thread), std::mem::take(&mut self.other_thread)];
        self.act(|| {
            drop(threads);
            self.process.clear();
        });
        IS_OVER.set(false);
    }
}

impl Shared {
    fn hand_over(&self, until_ns: Option<u64>) {
        // SAFETY: - valid: on the stack of the running program, which clears it before it ends.
        let yielder = self.yielder.get().map(|yielder| unsafe { yielder.as_ref() });
        yielder.expect("it runs").suspend(until_ns);
        self.unwind_if_lost();
    }

    fn unwind_if_lost(&self) {
        if self.is_lost.get() && !std::thread::panicking() {
            resume_unwind(Box::new(Lost));
        }
    }
}

fn current() -> Option<Rc<Shared>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Lets the calling process sleep until it is woken, for `limit_ns` at most. Returns false outside of the simulation.
pub fn sleep(limit_ns: Option<u64>) -> bool {
    let Some(shared) = current() else { return false };
    shared.unwind_if_lost();
    if !std::thread::panicking() {
        let until = limit_ns.map(|limit| locked(&shared.world).now_ns + limit);
        shared.hand_over(until);
    }
    true
}

/// A step of the calling process, before which it may be lost. With `may_pause`, others may run first.
pub fn step(may_pause: bool) {
    let Some(shared) = current() else { return };
    let left = shared.steps_left.get();
    if left > 0 {
        shared.steps_left.set(left - 1);
        if left == 1 {
            // From here on none of its messages is sent. Without `may_pause` it unwinds later: it may hold locks that
            // the clean-up needs.
            locked(&shared.world).mute(shared.number);
            shared.is_lost.set(true);
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

/// Counts a poll by the calling process at the network.
///
/// # Panics
/// If it polls again and again and never sleeps.
pub fn count_poll() {
    CURRENT.with_borrow(|current| {
        if let Some(shared) = current {
            let looks = shared.looks.replace(shared.looks.get() + 1);
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
