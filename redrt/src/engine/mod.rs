//! The engine: one process's messages, requests and links, behind one lock.
//!
//! ```text
//!   MPI call ──▶ send / post ──▶ matching ──▶ request completes ──▶ wait returns
//!                   │                ▲
//!                   ▼                │
//!                 links ──────▶ progress (frames in)          replication: sequence numbers, digests, retention
//! ```
//! Whoever waits makes progress: it polls, and when nothing comes, sleeps. If several threads wait, one of them polls or
//! sleeps on the transports and the others wait for it on a condition variable. User callbacks are never called with the
//! lock held; collectives run outside of it.

pub mod cancel;
mod cell;
pub mod cloning;
mod evidence;
mod foreign;
#[cfg(test)]
mod fuzz;
pub mod link;
pub mod matching;
pub mod meeting;
pub mod opening;
pub mod outgoing;
mod passive;
pub mod payload;
pub mod reading;
pub mod receive;
mod refusal;
pub mod rendezvous;
pub mod replication;
pub mod request;
mod reset;
pub mod send;
pub mod sleep;
mod stalls;
pub mod traces;
mod verdict;
mod waiting;

pub use cell::{Cell, cell, get, install};
pub use waiting::Outlook;

use crate::transport::Landings;
use cell::Happened;
use cloning::Joining;
use link::Links;
use matching::Contexts;
use meeting::Meetings;
use outgoing::Outgoings;
use passive::Waiters;
use receive::Message;
use redrt_types::{ProcessIndex, ReplicaId, VirtualRank, World};
use refusal::Fault;
use replication::Replication;
use request::Requests;
use slab::Slab;
use stalls::Stalls;
use traces::Traces;

/// `MPI_ANY_SOURCE` of the standard ABI.
pub const ANY_SOURCE: i32 = crate::abi::MPI_ANY_SOURCE;
/// `MPI_ANY_TAG` of the standard ABI.
pub const ANY_TAG: i32 = crate::abi::MPI_ANY_TAG;
/// `MPI_PROC_NULL` of the standard ABI.
pub const PROC_NULL: i32 = crate::abi::MPI_PROC_NULL;

/// So often frames are taken out of rings before anything else has its turn.
const ROUNDS_IN_A_ROW: u32 = 8;

/// One process's communication state.
pub struct Engine {
    /// The place this process has.
    pub me: ReplicaId,
    /// Shape of the job.
    pub world: World,
    /// Links to the others.
    pub links: Links,
    /// Operations under way.
    pub requests: Requests,
    contexts: Contexts,
    messages: Slab<Message>,
    outgoing: Outgoings,
    landings: Landings,
    direct_refused: bool,
    /// Payloads that `redrun` was told of.
    excerpt_count: u32,
    /// Where messages were sent, if the program is being checked.
    pub traces: Option<Traces>,
    shares_core: bool,
    /// Whether a thread is polling or sleeping on the transports now.
    polling: bool,
    waiters: Waiters,
    /// The thread that polls is asleep, and what had happened by then.
    asleep: Option<Happened>,
    /// Completions that the threads which wait have been told of.
    told_completions: u64,
    replication: Option<Box<Replication>>,
    meetings: Meetings,
    /// When a thread that waits wants to look again though nothing has come, by this machine's monotonic clock.
    alarm_ns: Option<u64>,
    stalls: Stalls,
    /// Faults found where the frame in question was not in hand.
    faults: Vec<(ProcessIndex, Fault)>,
    /// How far this process is as a copy; [`Joining::Done`] in all others.
    joining: Joining,
}

/// What the engine is made from.
pub struct Setup {
    /// The place of this process.
    pub me: ReplicaId,
    /// Shape of the job.
    pub world: World,
    /// Links to the others.
    pub links: Links,
    /// More processes than cores on this host.
    pub shares_core: bool,
    /// The replication protocol, in a replicated world.
    pub replication: Option<Box<Replication>>,
    /// Where messages are sent, if the program is being checked.
    pub traces: Option<Traces>,
}

impl Engine {
    /// An engine with nothing under way.
    pub fn new(setup: Setup) -> Self {
        let mut contexts = Contexts::default();
        if let Some(replication) = &setup.replication {
            contexts.set_order(replication.order(), &mut Vec::new());
        }
        Self {
            me: setup.me,
            world: setup.world,
            links: setup.links,
            requests: Requests::default(),
            contexts,
            messages: Slab::new(),
            outgoing: Outgoings::default(),
            landings: Landings::default(),
            direct_refused: false,
            excerpt_count: 0,
            traces: setup.traces,
            shares_core: setup.shares_core,
            polling: false,
            waiters: Waiters::default(),
            asleep: None,
            told_completions: 0,
            replication: setup.replication,
            meetings: Meetings::default(),
            alarm_ns: None,
            stalls: Stalls::default(),
            faults: Vec::new(),
            joining: Joining::Done,
        }
    }

    /// The process that plays `rank` on the plane of this process, at r = 1 the only one.
    pub fn process_of(&self, rank: VirtualRank) -> ProcessIndex {
        if self.is_replicated() {
            self.world.process(ReplicaId { rank, index: redrt_types::ReplicaIndex(0) })
        } else {
            ProcessIndex(rank.0)
        }
    }

    /// The rank that a process plays, or the number that one of another job has here.
    pub fn rank_of(&self, process: ProcessIndex) -> VirtualRank {
        if self.is_replicated() { self.world.replica(process).rank } else { VirtualRank(process.0) }
    }

    /// The hosts of a rank's replicas, each once; none of a rank of another job.
    pub fn hosts_of(&self, rank: VirtualRank) -> Vec<String> {
        let sphere = (rank.0 < self.world.rank_count()).then(|| self.world.sphere(rank)).into_iter().flatten();
        let hosts = sphere.filter_map(|replica| self.links.host_of(self.world.process(replica)));
        let mut hosts: Vec<_> = hosts.map(str::to_owned).collect();
        hosts.dedup();
        hosts
    }

    /// Takes in what has arrived and sends out what can go, until `wanted` more operations are complete, at least one; `true` when anything moved.
    pub fn progress(&mut self, wanted: u64) -> bool {
        let mut progressed = false;
        let enough = self.requests.completions.saturating_add(wanted);
        for _ in 0..ROUNDS_IN_A_ROW {
            if self.requests.completions >= enough || !self.receive_shm(enough) {
                break;
            }
            progressed = true;
        }
        progressed |= self.receive_tcp(enough);
        if self.links.is_busy() {
            progressed |= self.links.pump();
        }
        while let Some(outgoing) = self.links.next_finished() {
            self.outgoing_gone(outgoing);
        }
        self.links.wake_relieved();
        while let Some(broken) = self.links.next_broken() {
            self.link_broke(broken);
        }
        while let Some(process) = self.links.next_scribbled() {
            self.refuse(Some(process), &Fault::Ring);
        }
        while let Some((process, fault)) = self.faults.pop() {
            self.refuse(Some(process), &fault);
        }
        if self.joining == Joining::InView {
            self.tell_in_step();
        }
        self.requests.completions += self.meetings.look();
        self.stalls.look(self.requests.completions);
        progressed
    }
}
