//! One process, as far as the coordinator knows it.

use redrt_types::{Incarnation, ReplicaId, ViewNumber, VirtualRank};
use redrt_wire::card::Card;
use redrt_wire::event::{Coverage, Statistics};
use redrt_wire::exit::Exit;
use redrt_wire::profile::ProcessProfile;
use serde::{Deserialize, Serialize};

/// How far a process has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Phase {
    Started,
    Greeted,
    Ready,
    /// In `MPI_Finalize`, complete as of this view.
    Finalizing(ViewNumber),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Process {
    pub phase: Phase,
    /// Its id on its host, once it runs.
    pub pid: Option<i32>,
    pub card: Option<Card>,
    pub statistics: Option<Statistics>,
    /// What it has compared, by communicator.
    pub coverage: Vec<Coverage>,
    /// What it was seen to do, as it told at the end.
    pub profile: Option<Box<ProcessProfile>>,
    /// What it has last told of its counters while it runs.
    pub latest: Statistics,
    pub exit: Option<Exit>,
    pub drained: bool,
    pub lost: bool,
    /// It is being killed, because it was found to be wrong or is not needed any more.
    pub retired: bool,
    /// It is not needed any more: its end is no loss.
    pub leaves: bool,
    /// It is the copy of a program that a script had started: it ends where its siblings' scripts go on.
    pub lacks_script: bool,
    /// There is no process in this place.
    pub is_vacant: bool,
    /// With which ranks it shares memory.
    pub shares: Vec<VirtualRank>,
    /// Whose frame it refused first.
    pub refuses: Option<ReplicaId>,
    /// The coordinator's order to kill it went out before it exited, so its exit says nothing.
    pub killed_at_end: bool,
    /// A fault has been ordered that kills it.
    pub is_doomed: bool,
    /// Which life of its place this is; grows with each attempt to make a copy.
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
            is_vacant: false,
            shares: Vec::new(),
            refuses: None,
            killed_at_end: false,
            is_doomed: false,
            incarnation: Incarnation(0),
        }
    }

    /// A place without a process; `incarnation` is that of the last one.
    pub fn vacant(incarnation: Incarnation) -> Self {
        Self { is_vacant: true, incarnation, ..Self::new() }
    }

    /// Whether its word counts.
    pub fn counts(&self) -> bool {
        !self.is_vacant && !self.lost && !self.retired && self.exit.is_none()
    }

    pub fn is_gone(&self) -> bool {
        self.is_vacant || self.exit.is_some() && self.drained
    }
}
