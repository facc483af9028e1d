//! The replication manager's knowledge of one process.

use redrt_types::{Incarnation, ViewNumber, VirtualRank};
use redrt_wire::card::Card;
use redrt_wire::event::{Coverage, Statistics};
use redrt_wire::exit::Exit;
use redrt_wire::profile::ProcessProfile;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Phase {
    Started,
    Greeted,
    Ready,
    /// In `MPI_Finalize`, which was complete as of this view.
    Finalizing(ViewNumber),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Process {
    pub phase: Phase,
    /// Its process id on its host. None before it was started.
    pub pid: Option<i32>,
    pub card: Option<Card>,
    pub statistics: Option<Statistics>,
    /// Its comparisons, by communicator. Empty before `MPI_Finalize`.
    pub coverage: Vec<Coverage>,
    /// Its profile, as of `MPI_Finalize`.
    pub profile: Option<Box<ProcessProfile>>,
    /// Its counters, as of its latest answer to a wave.
    pub latest: Statistics,
    pub exit: Option<Exit>,
    pub drained: bool,
    pub lost: bool,
    /// A kill was ordered, because the replica is wrong or not needed any more.
    pub retired: bool,
    /// The replica is not needed any more, so its exit is no loss.
    pub leaves: bool,
    /// The process is a copy of a program that a script had started. It ends where its siblings' scripts go on.
    pub lacks_script: bool,
    /// It is a copy that has not caught up with its leader.
    pub joins: bool,
    /// The place has no process.
    pub is_vacant: bool,
    /// Ranks that share memory with it.
    pub shares: Vec<VirtualRank>,
    /// True if it was killed after the replication manager had ordered so. Its exit then says nothing.
    pub killed_at_end: bool,
    /// True once an injected fault is to kill it.
    pub is_doomed: bool,
    /// Counts the lives of this place. Grows with each attempt to make a copy.
    pub incarnation: Incarnation,
}

impl Process {
    pub fn new() -> Self {
        Self {
            phase: Phase::Started,
            pid: None,
            card: None,
            statistics: None,
            coverage: Vec::new(),
            profile: None,
            latest: Statistics::default(),
            exit: None,
            drained: false,
            lost: false,
            retired: false,
            leaves: false,
            lacks_script: false,
            joins: false,
            is_vacant: false,
            shares: Vec::new(),
            killed_at_end: false,
            is_doomed: false,
            incarnation: Incarnation(0),
        }
    }

    /// A place without a process. `incarnation` is that of the last one.
    pub fn vacant(incarnation: Incarnation) -> Self {
        Self { is_vacant: true, incarnation, ..Self::new() }
    }

    /// Returns true if its messages and votes count: it lives, and is not being ended.
    pub fn counts(&self) -> bool {
        !self.is_vacant && !self.lost && !self.retired && self.exit.is_none()
    }

    pub fn is_gone(&self) -> bool {
        self.is_vacant || self.exit.is_some() && self.drained
    }
    /// Its state in one or two words.
    pub fn state(&self) -> &'static str {
        match (self.phase, self.exit) {
            _ if self.is_vacant => "free",
            _ if self.lost => "lost",
            _ if self.leaves => "leaving",
            _ if self.retired => "retired",
            (_, Some(_)) => "exited",
            (Phase::Started, None) => "started",
            (Phase::Greeted, None) => "in MPI_Init",
            (Phase::Ready, None) => "running",
            (Phase::Finalizing(_), None) => "finalizing",
        }
    }
}

/// Changes by inputs.
impl Process {
    /// It has called `MPI_Init`. Returns false if it had called it before.
    pub fn greeted(&mut self) -> bool {
        std::mem::replace(&mut self.phase, Phase::Greeted) == Phase::Started
    }

    /// It can be reached by its card.
    pub fn ready(&mut self, card: Card) {
        (self.card, self.phase) = (Some(card), Phase::Ready);
    }

    /// It is in `MPI_Finalize`, as of a view, and sends its final counters.
    pub fn finalizing(
        &mut self,
        view: ViewNumber,
        statistics: Statistics,
        coverage: Vec<Coverage>,
        profile: Option<Box<ProcessProfile>>,
    ) {
        (self.phase, self.statistics) = (Phase::Finalizing(view), Some(statistics));
        (self.coverage, self.profile) = (coverage, profile);
    }

    /// It is being killed because it is not needed any more, so that its exit is no loss.
    pub fn leave(&mut self) {
        (self.retired, self.leaves) = (true, true);
    }
}
