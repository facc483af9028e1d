//! Time, chance, and what happens when.

pub mod actor;
pub mod network;

use network::{Link, LinkId};
use quiesce::sim::random::Random;
use redrt_types::{Incarnation, ProcessIndex};
use redrt_wire::control::{FromAgent, ToAgent};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

/// Something that happens at a time.
#[derive(Debug)]
pub enum Event {
    /// A process runs, if it has not since it was to.
    Run(ProcessIndex, u64),
    /// Another process sees that a link was opened.
    Opened(LinkId),
    /// What was given to a link leaves its sender.
    Leaves(LinkId),
    /// A frame arrives.
    Arrives(LinkId),
    /// The other end of a link sees that it is gone.
    Closes(LinkId),
    /// A daemon tells a process something.
    Told(ProcessIndex, Incarnation, Box<ToAgent>),
    /// `redrun` learns that a process is lost.
    Missed(ProcessIndex),
    /// A process is lost, wherever it is.
    Lost(ProcessIndex),
    /// The connection between two processes breaks.
    Breaks(ProcessIndex, ProcessIndex),
    /// The hosts of two processes do not hear each other any more.
    Parts(Parted),
    /// A connection that a process wished for was not answered.
    Unanswered(ProcessIndex, ProcessIndex, Arc<AtomicBool>),
    /// `redrun` asks all processes whether they wait.
    Asks,
    /// A line is taken; `true` if the job goes back to it.
    Line(bool),
    /// A line is taken, if somebody who has asked for one waits for it.
    Asked,
    /// The user sends the job a signal.
    Signal,
}

impl Event {
    fn is_of_network(&self) -> bool {
        matches!(self, Self::Opened(_) | Self::Leaves(_) | Self::Arrives(_) | Self::Closes(_))
    }
}

/// Two processes whose hosts do not hear each other, though others hear both.
#[derive(Clone, Copy, Debug)]
pub struct Parted {
    /// The one that is given up when somebody says so.
    pub victim: ProcessIndex,
    /// The other.
    pub other: ProcessIndex,
}

impl Parted {
    /// Whether these are the two.
    pub fn are(&self, one: ProcessIndex, other: ProcessIndex) -> bool {
        [[one, other], [other, one]].contains(&[self.victim, self.other])
    }
}

/// What threads of all processes share.
pub struct World {
    /// The time.
    pub now_ns: u64,
    /// Chance.
    pub random: Random,
    /// What will happen, by time and then in the order in which it was planned.
    pub events: BTreeMap<(u64, u64), Event>,
    count: u64,
    /// Connections.
    pub links: Vec<Link>,
    /// Lines for the user.
    pub lines: Vec<String>,
    /// What processes told their daemons.
    pub told: Vec<(ProcessIndex, FromAgent)>,
    /// Longest delay of a frame.
    pub delay_ns_max: u64,
    /// In how many of 100 steps another process may run.
    pause_percent: usize,
    /// Those that have been lost, or are being.
    muted: BTreeSet<ProcessIndex>,
    /// Those whose programs have left the path of their siblings.
    pub left: BTreeSet<ProcessIndex>,
    /// Those that do not hear each other.
    pub parted: Vec<Parted>,
    /// Signals that programs got.
    pub raised_count: u64,
    /// How many lines were taken: what is changed since the last one has to be written down.
    pub line_count: u64,
    /// What is in the file of each rank.
    pub files: BTreeMap<u32, u64>,
    /// Is called with each thing that happens.
    pub trace: Option<fn(&str)>,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Mutex<World>>>> = const { RefCell::new(None) };
}

/// The calling thread belongs to this world.
pub fn enter(world: Arc<Mutex<World>>) {
    CURRENT.set(Some(world));
}

/// The calling thread belongs to none any more.
pub fn leave() {
    CURRENT.set(None);
}

/// Does something with the world of the calling thread, if it belongs to one.
pub fn with_current<T>(act: impl FnOnce(&mut World) -> T) -> Option<T> {
    let world = CURRENT.with_borrow(Clone::clone)?;
    let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
    Some(act(&mut world))
}

impl World {
    /// A world in which nothing is to happen yet.
    pub fn new(mut random: Random, trace: Option<fn(&str)>) -> Self {
        let delay_ns_max = random.pick(&[1_000, 20_000, 1_000_000]);
        let pause_percent = random.pick(&[0, 2, 20]);
        let (events, links, told) = (BTreeMap::new(), Vec::new(), Vec::new());
        // Not 0, which is no time for some.
        Self {
            now_ns: 1_000_000,
            random,
            events,
            count: 0,
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

    /// The time; it goes on as it is looked at, so that nobody waits for it in vain.
    pub fn tick(&mut self) -> u64 {
        self.now_ns += 50;
        self.now_ns
    }

    /// Plans an event.
    pub fn plan(&mut self, at_ns: u64, event: Event) {
        self.count += 1;
        self.events.insert((at_ns.max(self.now_ns), self.count), event);
    }

    /// The next event, at whose time it is now.
    pub fn next(&mut self) -> Option<Event> {
        let ((at_ns, _), event) = self.events.pop_first()?;
        self.now_ns = self.now_ns.max(at_ns);
        Some(event)
    }

    /// The next event of the network, whatever is planned before it. Time goes on to it.
    pub fn next_of_network(&mut self) -> Option<Event> {
        let mut events = self.events.iter();
        let key = *events.find(|(_, event)| event.is_of_network())?.0;
        self.now_ns = self.now_ns.max(key.0);
        self.events.remove(&key)
    }

    /// Whether a connection was opened that its other end has not seen.
    pub fn is_anybody_knocking(&self) -> bool {
        self.events.values().any(|event| matches!(event, Event::Opened(_)))
    }

    /// What the daemon of a process was to tell it later, in order: it does so now.
    pub fn take_told(&mut self, process: ProcessIndex) -> Vec<ToAgent> {
        let is_its = |event: &Event| matches!(event, Event::Told(to, ..) if *to == process);
        let keys: Vec<_> = self.events.iter().filter(|(_, event)| is_its(event)).map(|(key, _)| *key).collect();
        let message = |key: &(u64, u64)| match self.events.remove(key) {
            Some(Event::Told(_, _, message)) => Some(*message),
            _ => None,
        };
        keys.iter().filter_map(message).collect()
    }

    /// The job goes back to a line: connections are gone, nothing is on its way on one or to be told, and nobody is
    /// lost who might be the last one.
    pub fn forget(&mut self) {
        let is_told = |event: &Event| matches!(event, Event::Told(..) | Event::Missed(_) | Event::Lost(_));
        self.events.retain(|_, event| !event.is_of_network() && !is_told(event));
        self.links.iter_mut().for_each(Link::end);
    }

    /// Some time from now, within the longest delay.
    pub fn soon(&mut self) -> u64 {
        self.now_ns + 1 + self.random.number() % self.delay_ns_max
    }

    /// Says what happens, if somebody wants to know.
    pub fn say(&self, what: impl FnOnce() -> String) {
        if let Some(trace) = self.trace {
            trace(&format!("{:>12} {}", self.now_ns, what()));
        }
    }

    /// Whether two processes hear each other, if both are there.
    pub fn are_parted(&self, [one, other]: [ProcessIndex; 2]) -> bool {
        self.parted.iter().any(|parted| parted.are(one, other))
    }

    /// Nothing more is heard of a process.
    pub fn mute(&mut self, process: ProcessIndex) {
        self.muted.insert(process);
    }

    /// Whether anything is heard of it.
    pub fn hears(&self, process: ProcessIndex) -> bool {
        !self.muted.contains(&process)
    }

    /// A process tells its daemon something.
    pub fn tell(&mut self, process: ProcessIndex, message: &FromAgent) {
        if self.hears(process) {
            self.told.push((process, message.clone()));
        }
    }

    /// For how long others run before the next step of a process, if they do.
    pub fn pause_at_step(&mut self) -> Option<u64> {
        let pauses = self.random.chance(self.pause_percent);
        pauses.then(|| self.random.number() % self.delay_ns_max)
    }
}
