//! Time, random numbers, and planned events.

pub mod actor;
pub mod network;

use network::{Link, LinkId};
use redrt_types::{Incarnation, ProcessIndex};
use redrt_wire::control::{FromAgent, ToAgent};
use simulation_kit::schedule::Agenda;
use simulation_kit::{Random, Trace};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

/// An event, which has a time.
#[derive(Debug)]
pub enum Event {
    /// A process runs, unless it has run since this was planned: the number is that of its sleep.
    Run(ProcessIndex, u64),
    /// The other end of a link learns that it was opened.
    Opened(LinkId),
    /// The next frame of a link leaves its sender.
    Leaves(LinkId),
    /// The next frame of a link arrives at its receiver.
    Arrives(LinkId),
    /// Both ends of a link learn that it is lost.
    Closes(LinkId),
    /// A message of a daemon reaches its process.
    Told(ProcessIndex, Incarnation, Box<ToAgent>),
    /// `redrun` learns that a process is lost.
    Missed(ProcessIndex),
    /// A process is lost, at whatever place it is.
    Lost(ProcessIndex),
    /// The connection between two processes breaks.
    Breaks(ProcessIndex, ProcessIndex),
    /// The hosts of two processes are cut off from each other.
    Parts(Parted),
    /// A connection that a process wanted to open gets no answer.
    Unanswered(ProcessIndex, ProcessIndex, Arc<AtomicBool>),
    /// `redrun` asks all processes if they wait.
    Asks,
    /// A checkpoint is taken; with `true` the job goes back to it.
    Checkpoint(bool),
    /// A checkpoint is taken, if a process waits for one that it has asked for.
    Asked,
    /// The user sends a signal to the job.
    Signal,
}

impl Event {
    fn is_of_network(&self) -> bool {
        matches!(self, Self::Opened(_) | Self::Leaves(_) | Self::Arrives(_) | Self::Closes(_))
    }
}

/// Two processes whose hosts are cut off from each other, though others reach both.
#[derive(Clone, Copy, Debug)]
pub struct Parted {
    /// The process that is lost when one of the two reports the other's host as silent.
    pub victim: ProcessIndex,
    /// The other one of the two.
    pub other: ProcessIndex,
}

impl Parted {
    /// True if these are the two processes.
    pub fn are(&self, one: ProcessIndex, other: ProcessIndex) -> bool {
        [[one, other], [other, one]].contains(&[self.victim, self.other])
    }
}

/// State that all simulated processes share.
pub struct World {
    /// Time of the job in nanoseconds.
    pub now_ns: u64,
    pub random: Random,
    /// Events to come.
    pub events: Agenda<Event>,
    /// Connections.
    pub links: Vec<Link>,
    /// Output lines of processes.
    pub lines: Vec<String>,
    /// Messages of processes to their daemons.
    pub told: Vec<(ProcessIndex, FromAgent)>,
    /// Longest delay of a frame, in nanoseconds.
    pub delay_ns_max: u64,
    /// Percentage of steps at which another process may run.
    pause_percent: usize,
    /// Processes that are lost, or are being lost.
    muted: BTreeSet<ProcessIndex>,
    /// Processes whose programs have left the path of their siblings.
    pub left: BTreeSet<ProcessIndex>,
    /// Pairs of processes that are cut off from each other.
    pub parted: Vec<Parted>,
    /// Number of signals that programs got.
    pub raised_count: u64,
    /// Number of checkpoints that were taken: changes of files since the latest one must be recorded.
    pub line_count: u64,
    /// Content of each rank's file.
    pub files: BTreeMap<u32, u64>,
    /// The reader of each event.
    pub trace: Trace,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Mutex<World>>>> = const { RefCell::new(None) };
}

/// Makes this the world of the calling thread.
pub fn enter(world: Arc<Mutex<World>>) {
    CURRENT.set(Some(world));
}

/// Ends the calling thread's part in its world.
pub fn leave() {
    CURRENT.set(None);
}

/// Calls a closure with the calling thread's world; `None` if it has none.
pub fn with_current<T>(act: impl FnOnce(&mut World) -> T) -> Option<T> {
    let world = CURRENT.with_borrow(Clone::clone)?;
    let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
    Some(act(&mut world))
}

impl World {
    /// A world in which nothing is to happen yet.
    pub fn new(mut random: Random, trace: Trace) -> Self {
        let delay_ns_max = random.pick(&[1_000, 20_000, 1_000_000]);
        let pause_percent = random.pick(&[0, 2, 20]);
        let (events, links, told) = (Agenda::default(), Vec::new(), Vec::new());
        // Not 0, which is no time for some.
        Self {
            now_ns: 1_000_000,
            random,
            events,
            links,
            told,
            lines: Vec::new(),
            delay_ns_max,
            pause_percent,
            muted: BTreeSet::new(),
            left: BTreeSet::new(),
            parted: Vec::new(),
            raised_count: 0,
            line_count: 0,
            files: BTreeMap::new(),
            trace,
        }
    }

    /// Reads the time. Each reading advances it, so that no loop waits for it in vain.
    pub fn tick(&mut self) -> u64 {
        self.now_ns += 50;
        self.now_ns
    }

    /// Plans an event, not before the present time and after events planned earlier for the same time.
    pub fn plan(&mut self, at_ns: u64, event: Event) {
        self.events.plan(at_ns.max(self.now_ns), event);
    }

    /// Takes the next event, and advances the time to it.
    pub fn next(&mut self) -> Option<Event> {
        let (at_ns, event) = self.events.pop()?;
        self.now_ns = self.now_ns.max(at_ns);
        Some(event)
    }

    /// Takes the next event of the network, before any other that is planned, and advances the time to it.
    pub fn next_of_network(&mut self) -> Option<Event> {
        let (at_ns, event) = self.events.take(Event::is_of_network)?;
        self.now_ns = self.now_ns.max(at_ns);
        Some(event)
    }

    /// True if a connection was opened and its other end has not learned of it yet.
    pub fn is_anybody_knocking(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Opened(_)))
    }

    /// Takes the planned messages of a daemon to its process, in order.
    pub fn take_told(&mut self, process: ProcessIndex) -> Vec<ToAgent> {
        let is_its = |event: &Event| matches!(event, Event::Told(to, ..) if *to == process);
        let mut told = Vec::new();
        while let Some((_, event)) = self.events.take(is_its) {
            if let Event::Told(_, _, message) = event {
                told.push(*message);
            }
        }
        told
    }

    /// Goes back to a checkpoint: drops connections with all that is in flight, messages of daemons, and planned
    /// losses, each of which might hit the last replica of a rank.
    pub fn forget(&mut self) {
        let is_told = |event: &Event| matches!(event, Event::Told(..) | Event::Missed(_) | Event::Lost(_));
        self.events.retain(|event| !event.is_of_network() && !is_told(event));
        self.links.iter_mut().for_each(Link::end);
    }

    /// A random time from now, within the longest delay.
    pub fn soon(&mut self) -> u64 {
        self.now_ns + 1 + self.random.number() % self.delay_ns_max
    }

    /// Reports an event to the trace, if there is one.
    pub fn say(&self, what: impl FnOnce() -> String) {
        self.trace.say(|| format!("{:>12} {}", self.now_ns, what()));
    }

    /// True if two processes are cut off from each other.
    pub fn are_parted(&self, [one, other]: [ProcessIndex; 2]) -> bool {
        self.parted.iter().any(|parted| parted.are(one, other))
    }

    /// From now on no message of a process is sent.
    pub fn mute(&mut self, process: ProcessIndex) {
        self.muted.insert(process);
    }

    /// True if messages of a process are sent.
    pub fn hears(&self, process: ProcessIndex) -> bool {
        !self.muted.contains(&process)
    }

    /// Sends a message of a process to its daemon.
    pub fn send(&mut self, process: ProcessIndex, message: &FromAgent) {
        if self.hears(process) {
            self.told.push((process, message.clone()));
        }
    }

    /// Time for which others run before the next step of a process; `None` for no pause.
    pub fn pause_at_step(&mut self) -> Option<u64> {
        let pauses = self.random.chance(self.pause_percent);
        pauses.then(|| self.random.number() % self.delay_ns_max)
    }
}
