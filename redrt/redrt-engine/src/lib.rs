//! The engine: one process's messages, requests and links, behind one lock.
//!
//! ```text
//!   MPI call ──▶ send / post ──▶ matching ──▶ request completes ──▶ wait returns
//!                   │                ▲
//!                   ▼                │
//!                 links ──────▶ progress (frames in)          replication: sequence numbers, digests, retention
//! ```
//! A waiting thread makes progress: it polls, and when nothing comes, sleeps. If several threads wait, one of them
//! polls or sleeps on the transports, and the others wait for it on a condition variable. User callbacks are never
//! called with the lock held; collectives run outside of it.
//!
//! # A message to oneself
//!
//! `Alone` implements [`Runtime`], the process around the engine: it has one thread, and panics on an abort.
//!
//! ```
//! use redrt_engine::link::{Identity, Links};
//! use redrt_engine::payload::{Payload, Target};
//! use redrt_engine::send::{SendArguments, Sent};
//! use redrt_engine::{Engine, Runtime, Setup};
//! use redrt_types::{Incarnation, ReplicaId, VirtualRank, World};
//! use redrt_wire::secret::Secret;
//! use sdc_detect::Element;
//! use std::sync::Arc;
//! # use quiesce::{Outcome, Place, Question, StreamId};
//! # use redrt_types::{ProcessIndex, View};
//! # use redrt_wire::control::FromAgent;
//! # struct Alone;
//! # impl Runtime for Alone {
//! #     fn report(&self, _: FromAgent) {}
//! #     fn view_changed(&self, _: &World, _: &View, _: &View) {}
//! #     fn abort(&self, _: i32, message: String) -> ! {
//! #         panic!("{message}")
//! #     }
//! #     fn loss_of(&self, _: ProcessIndex, _: &str) -> Option<String> {
//! #         None
//! #     }
//! #     fn label_of_context(&self, context: u64) -> String {
//! #         format!("context {context}")
//! #     }
//! #     fn told_in_context(&self, _: u64) -> Option<String> {
//! #         None
//! #     }
//! #     fn serves(&self, _: u64) -> bool {
//! #         false
//! #     }
//! #     fn call_count(&self) -> u64 {
//! #         0
//! #     }
//! #     fn has_one_thread(&self) -> bool {
//! #         true
//! #     }
//! #     fn place(&self) -> Place {
//! #         Place::NOWHERE
//! #     }
//! #     fn place_of(&self, thread: u64) -> Place {
//! #         Place { thread, ..Place::NOWHERE }
//! #     }
//! #     fn places(&self) -> u64 {
//! #         0
//! #     }
//! #     fn calls_of(&self, _: u64) -> u64 {
//! #         0
//! #     }
//! #     fn untold_order(&self) -> Option<(StreamId, Question, Outcome)> {
//! #         None
//! #     }
//! #     fn ran_ns_of(&self, _: u64) -> u64 {
//! #         0
//! #     }
//! #     fn pulse_of(&self, _: u64) -> u64 {
//! #         0
//! #     }
//! # }
//!
//! // One rank without replicas, and no network: nobody else is there.
//! let (world, me) = (World::uniform(1, 1), ReplicaId::new(0, 0));
//! let identity = Identity {
//!     job: 1,
//!     me: world.process(me),
//!     incarnation: Incarnation(0),
//!     host_number: 0,
//!     secret: Secret::new([0; 32]),
//!     segment: None,
//!     networks: Arc::new([]),
//! };
//! let links = Links::new(identity, world.process_count());
//! let (shares_core, replication, injection, traces, traffic) = (false, None, None, None, None);
//! let runtime = &Alone;
//! let setup = Setup { runtime, me, world, links, shares_core, replication, injection, traces, traffic };
//! let mut engine = Engine::new(setup);
//!
//! // A receive from any source, in context 7, and the message that it matches.
//! let mut buffer = [0_u8; 5];
//! let target = Target { start: buffer.as_mut_ptr(), capacity: 5, scatter: None };
//! let receive = engine.post(7, None, Some(3), target);
//! assert!(!engine.requests.is_complete(receive));
//! let sent = engine.send(SendArguments {
//!     context: 7,
//!     source: 0,
//!     to: VirtualRank(0),
//!     tag: 3,
//!     payload: Payload::Owned(b"hello".to_vec().into()),
//!     element: Element::U8,
//!     synchronous: false,
//! });
//! assert_eq!(sent, Sent::Complete);
//! while !engine.requests.is_complete(receive) {
//!     engine.progress(1);
//! }
//! assert_eq!((engine.requests.take(receive).bytes, &buffer), (5, b"hello"));
//! ```

#[macro_use]
extern crate redrt_process;

pub mod arrivals;
pub mod asked;
pub mod cancel;
pub mod cloning;
pub mod contact;
pub mod doorbell;
mod evidence;
#[cfg(test)]
mod fuzz;
pub mod injection;
pub mod link;
pub mod matching;
pub mod meeting;
pub mod message;
mod offers;
pub mod outgoing;
mod parting;
mod passive;
pub mod payload;
pub mod receive;
mod refusal;
pub mod rendezvous;
pub mod replication;
pub mod request;
mod reset;
pub mod rivals;
mod runtime;
pub mod send;
pub mod signals;
pub mod sleep;
mod stalls;
pub mod tasks;
#[cfg(test)]
mod tests;
pub mod traces;
pub mod traffic;
mod verdict;
mod waiters;
mod waiting;

use arrivals::Arrivals;
use cloning::Joining;
use evidence::Excerpts;
use injection::Injection;
use link::Links;
use meeting::Meetings;
use outgoing::Outgoings;
use parting::Parting;
use passive::Awaited;
use redrt_transport::memory;
use redrt_types::{ProcessIndex, ReplicaId, View, ViewNumber, World};
use redrt_wire::control::{FromAgent, Passive};
use redrt_wire::event::Statistics;
use refusal::Fault;
use rendezvous::Fetches;
use replication::Replication;
use request::Requests;
use signals::{Raise, Signals};
use sleep::Sleeper;
use stalls::Stalls;
use traces::Traces;
use traffic::Traffic;
use waiters::{Happened, Waiters};

/// `MPI_ANY_SOURCE` of the standard ABI.
pub const ANY_SOURCE: i32 = -1;
/// `MPI_ANY_TAG` of the standard ABI.
pub const ANY_TAG: i32 = -2;
/// `MPI_PROC_NULL` of the standard ABI.
pub const PROC_NULL: i32 = -3;

pub use replication::reading;
pub use runtime::Runtime;
pub use waiting::{Cell, Locked, Outlook, cell, get, install};

/// One process's communication state.
pub struct Engine {
    runtime: &'static dyn Runtime,
    /// This process's place in the job.
    pub me: ReplicaId,
    /// Shape of the job.
    pub world: World,
    /// Links to the other processes.
    pub links: Links,
    /// Operations under way.
    pub requests: Requests,
    /// Messages that wait, and receives that do.
    pub arrivals: Arrivals,
    outgoing: Outgoings,
    fetches: Fetches,
    /// Excerpts of payloads that `redrun` got.
    excerpts: Excerpts,
    /// Traffic by receiver; `Some` if it was asked for.
    pub traffic: Option<Box<Traffic>>,
    shares_core: bool,
    parting: Parting,
    waiters: Waiters,
    replication: Option<Box<Replication>>,
    signals: Signals,
    /// Waits of threads and tasks for events in memory that processes share.
    pub meetings: Meetings,
    stalls: Stalls,
    /// Faults found where the frame in question was not at hand.
    faults: Vec<(ProcessIndex, Fault)>,
    /// Progress of this process as a copy; [`Joining::Done`] in all others.
    joining: Joining,
}

/// Parts that an engine is made of.
pub struct Setup {
    /// The process around it.
    pub runtime: &'static dyn Runtime,
    /// This process's place in the job.
    pub me: ReplicaId,
    /// Shape of the job.
    pub world: World,
    /// Links to the other processes.
    pub links: Links,
    /// True with more processes than cores on this host.
    pub shares_core: bool,
    /// The replication protocol; `None` in a world that is not replicated.
    pub replication: Option<Box<Replication>>,
    /// Given if faults are injected.
    pub injection: Option<Box<Injection>>,
    /// Given if the program is being checked.
    pub traces: Option<Traces>,
    /// Given if `redrun --profile` asks for traffic.
    pub traffic: Option<Box<Traffic>>,
}

impl Engine {
    /// Makes an engine with nothing under way.
    pub fn new(mut setup: Setup) -> Self {
        let mut arrivals = Arrivals::default();
        if let Some(replication) = &mut setup.replication {
            replication.trace(setup.traces);
            arrivals.set_order(replication.order());
        }
        Self {
            runtime: setup.runtime,
            me: setup.me,
            world: setup.world,
            links: setup.links,
            requests: Requests::default(),
            arrivals,
            outgoing: Outgoings::new(setup.injection),
            fetches: Fetches::default(),
            excerpts: Excerpts::default(),
            traffic: setup.traffic,
            shares_core: setup.shares_core,
            parting: Parting::default(),
            waiters: Waiters::default(),
            replication: setup.replication,
            signals: Signals::default(),
            meetings: Meetings::default(),
            stalls: Stalls::default(),
            faults: Vec::new(),
            joining: Joining::Done,
        }
    }

    /// Returns true if any virtual rank of the world has more than one replica.
    #[inline]
    pub fn is_replicated(&self) -> bool {
        self.replication.is_some()
    }

    /// Returns true if outcomes have to be agreed with siblings. `polling`: for calls that do not wait.
    pub fn needs_decisions(&self, polling: bool) -> bool {
        self.replication.as_ref().is_some_and(|replication| replication.needs_decisions(polling))
    }

    /// Positions in the program at which messages were sent; `None` unless the program is being checked.
    pub fn traces(&self) -> Option<&Traces> {
        self.replication.as_ref()?.traces()
    }

    /// Returns true if all messages of this process have arrived, or at least left.
    pub fn is_settled(&self) -> bool {
        !self.links.is_busy() && self.replication.as_ref().is_none_or(|replication| replication.is_settled())
    }

    /// The view that this process acts on; `None` in a world that is not replicated.
    pub fn view(&self) -> Option<&View> {
        self.replication.as_ref().map(|replication| replication.view())
    }

    /// Counters for the summary.
    pub fn statistics(&self) -> Statistics {
        let replicated = self.replication.as_ref().map(|replication| replication.statistics());
        let [sent_sum, received_sum] = self.outgoing.sums();
        Statistics {
            stall_ns_max: self.stalls.longest_ns(),
            resident_bytes: memory::resident_bytes(),
            sent_sum,
            received_sum,
            ..replicated.unwrap_or_default()
        }
    }

    /// The protocol of replicas. In a world that is replicated only.
    #[inline]
    pub(crate) fn replication(&mut self) -> &mut Replication {
        self.replication.as_mut().expect("the world is replicated")
    }

    /// Returns true with more processes than cores on this host.
    pub fn shares_core(&self) -> bool {
        self.shares_core
    }

    /// Takes in arrived frames and sends waiting ones, until `wanted` more operations are complete, at least one.
    /// Returns true if anything moved.
    #[inline]
    pub fn progress(&mut self, wanted: u64) -> bool {
        let mut progressed = false;
        let enough = self.requests.completions.saturating_add(wanted);
        for _ in 0..ROUNDS_IN_A_ROW {
            if self.requests.completions >= enough || !self.receive_from_rings(enough) {
                break;
            }
            progressed = true;
        }
        progressed |= self.receive_from_networks(enough);
        if self.links.is_busy() {
            progressed |= self.links.pump();
        }
        while let Some(outgoing) = self.links.next_finished() {
            self.outgoing.gone(&mut self.requests, outgoing);
        }
        self.links.wake_relieved();
        self.follow_broken();
        while let Some(process) = self.links.next_scribbled() {
            self.refuse(Some(process), &Fault::Ring);
        }
        while let Some((process, fault)) = self.faults.pop() {
            self.refuse(Some(process), &fault);
        }
        if self.joining == Joining::InView
            && let Some(replication) = &self.replication
            && self.joining.advance(replication.is_in_step())
        {
            self.runtime.report(FromAgent::InStep);
        }
        if !self.signals.are_agreed() {
            self.agree_on_signals();
        }
        self.requests.completions += self.meetings.poll();
        self.stalls.update(self.requests.completions);
        progressed
    }
}

impl Engine {
    /// This process's statement when it is passive; `None` otherwise. `thread_count`: its threads that may call MPI.
    /// See the module `passive`.
    fn passive(&mut self, thread_count: u32, view: ViewNumber) -> Option<Passive> {
        let replication = self.replication.as_deref();
        let is_resuming = || replication.is_some_and(Replication::is_resuming);
        let all_wait = self.waiters.are_all_asleep(thread_count);
        if !all_wait || self.links.is_busy() || is_resuming() || self.meetings.has_any_come() {
            return None;
        }
        let (sent_bytes, received_bytes) = self.links.traffic();
        // Board events are there at once and count as sent and received: progress of the program must show.
        let (sent_bytes, received_bytes) = (sent_bytes + self.meetings.count(), received_bytes + self.meetings.count());
        let mut awaited = Awaited::default();
        awaited.add_receives(self.runtime, self.arrivals.posted());
        awaited.add(self.meetings.missing(&|context| self.runtime.label_of_context(context)));
        awaited.add(self.arrivals.incomplete());
        awaited.add_sends(&self.requests);
        replication.into_iter().for_each(|replication| awaited.add_replicas(replication));
        let (waits_for, awaits_leader) = awaited.in_words();
        let places = if replication.is_some_and(Replication::counts_calls) { self.runtime.places() } else { 0 };
        Some(Passive { view, sent_bytes, received_bytes, places, waits_for, awaits_leader })
    }

    /// The main thread's step before it begins this call; `None` if it has to wait.
    pub fn next_signal(&mut self, call: u64) -> Option<Raise> {
        if self.joining == Joining::Done { self.signals.next(call) } else { None }
    }

    /// Wakes the thread that sleeps on the transports if the state has changed since it fell asleep. To be called
    /// before the lock is released.
    #[inline]
    fn notify_sleeper(&self, sleeper: &Sleeper) {
        let has_changed = |before| before != Happened::now(&self.requests, &self.links);
        if self.waiters.asleep_since().is_some_and(has_changed) {
            sleeper.wake();
        }
    }

    /// Has the replicas of this rank agree on signals, as far as possible now.
    fn agree_on_signals(&mut self) {
        if !self.needs_decisions(false) {
            return;
        }
        let (program, signals) = (self.runtime, &mut self.signals);
        let Some(replication) = &mut self.replication else { return };
        let has_moved = signals.agree(&mut replication.sphere(program));
        self.carry_out_agreed();
        if has_moved {
            self.requests.completions += 1;
            self.flush();
        }
    }
}

/// Rounds over the rings before anything else has its turn.
const ROUNDS_IN_A_ROW: u32 = 8;
