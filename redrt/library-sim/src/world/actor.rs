//! Programs of simulated processes: coroutines, of which one runs at a time, all on the thread of their simulation.

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

/// Why the program of a process has handed over.
#[derive(Debug)]
pub enum Pause {
    /// It is asleep, until this time at most.
    Asleep(Option<u64>),
    /// It has ended.
    Ended(End),
}

/// A process that looks more often and does not go to sleep never will.
const LOOKS_MAX: u64 = 1_000_000;
/// Of a program's stack.
const STACK_BYTES: usize = 1 << 20;

/// What a lost process unwinds with.
struct Lost;

/// A program: it hands over with the time until which it sleeps at most.
type Program = Coroutine<(), Option<u64>, End, DefaultStack>;

/// How it does.
type Handing = Yielder<(), Option<u64>>;

/// What a program and its simulation share.
struct Shared {
    /// How the program hands over, while it runs.
    yielder: Cell<Option<NonNull<Handing>>>,
    is_lost: Cell<bool>,
    /// Steps until it is lost; 0 when nothing is planned.
    steps_left: Cell<u64>,
    number: ProcessIndex,
    /// Looks at the network since it last handed over.
    looks: Cell<u64>,
    world: Arc<Mutex<World>>,
}

/// A process and its program.
pub struct Actor {
    shared: Rc<Shared>,
    /// What it has once.
    process: Process,
    /// What its program's thread has.
    thread: Thread,
    /// What other threads of the process have ([`Actor::act`]).
    other_thread: Thread,
    /// `None` when it has ended.
    program: RefCell<Option<Program>>,
}

thread_local! {
    /// The process whose program runs.
    static CURRENT: RefCell<Option<Rc<Shared>>> = const { RefCell::new(None) };
    /// What an ended process had is dropped.
    static IS_OVER: Cell<bool> = const { Cell::new(false) };
    /// Stacks of programs that have ended: to map one and to touch it takes as long as many a program.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
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
    /// When it has ended.
    pub fn run(&self) -> Pause {
        let mut program = self.program.borrow_mut();
        let running = program.as_mut().expect("it has not ended");
        let before = CURRENT.replace(Some(self.shared.clone()));
        self.shared.looks.set(0);
        // SAFETY: - a `Vec` of numbers is all that leaves; what the program has on its stack goes before the process.
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

    /// Does something as another thread of the process would, while its program does not run.
    pub fn act<T>(&self, act: impl FnOnce() -> T) -> T {
        // SAFETY: - callers take nothing out that the process owns.
        unsafe { self.process.enter(|| self.other_thread.enter(act)) }
    }

    /// Loses the process: when it runs next, it unwinds.
    pub fn lose(&self) {
        self.shared.is_lost.set(true);
    }

    /// It is lost after this many further steps, at least one.
    pub fn lose_after(&self, steps: u64) {
        self.shared.steps_left.set(steps);
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The simulation has failed. A program that unwinds now would not see that it does.
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
        // What it has may ask for other things that it has, as it is dropped.
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
        // SAFETY: - set by the program that runs, whose stack holds it until the program ends.
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

/// Lets the calling process sleep until it is woken, at most so long. `false` where it is not simulated.
pub fn sleep(limit_ns: Option<u64>) -> bool {
    let Some(shared) = current() else { return false };
    shared.unwind_if_lost();
    if !std::thread::panicking() {
        let until = limit_ns.map(|limit| locked(&shared.world).now_ns + limit);
        shared.hand_over(until);
    }
    true
}

/// Something that a process does which it may be lost before; at some of them others may run first.
pub fn step(may_pause: bool) {
    let Some(shared) = current() else { return };
    let left = shared.steps_left.get();
    if left > 0 {
        shared.steps_left.set(left - 1);
        if left == 1 {
            // From here on nothing of it is heard. It may hold locks, which those that clean up behind it need.
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

/// A process has looked at the network.
///
/// # Panics
/// When it does so again and again instead of going to sleep.
pub fn look() {
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
