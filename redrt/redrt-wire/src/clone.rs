//! What `redrun` and the daemons say to each other about a clone: a living replica is copied, and the copy takes a
//! place that is free.
//!
//! ```text
//! redrun                        redrtd of the spare host        redrtd of the source        every process
//!   │ ── Receive ───────────────────▶ │                                │                         │
//!   │ ◀── Listening ───────────────── │                                │                         │
//!   │ ── Send ─────────────────────────────────────────────────────▶   │                         │
//!   │                                 │ ◀═════════ rounds of memory ══ │                         │
//!   │ ◀── Progress … Ready ─────────────────────────────────────────   │                         │
//!   │ ── Pins ──────────────────────────────────────────────────────────────────────────────────▶│
//!   │ ◀── Pinned ────────────────────────────────────────────────────────────────────────────────│
//!   │ ── Cut ──────────────────────────────────────────────────────▶   │                         │
//!   │ ◀── Stopped ──────────────────────────────────────────────────   │                         │
//!   │                                 │ ◀═════════ what is left ══════ │                         │
//!   │ ◀── Running, Agent{Ready} ───── │                                │                         │
//!   │ ── Meet ──────────────────────▶ │                                                          │
//!   │ ── Cards, View, Pins ─────────────────────────────────────────────────────────────────────▶│
//!   │ ◀── Agent{InStep} ───────────── │                                                          │
//!   │ ── Pins ──────────────────────────────────────────────────────────────────────────────────▶│
//! ```
//! A copy that is to judge (`redrun --arbitrate`) stays where it runs: `Pins` say that it stands ready, and from `Meet`
//! on all follows when two siblings differ, if they do. `Failed` may take the place of any answer, `Abandon` follows
//! whatever went before.

use crate::card::Card;
use crate::no_image::NoImage;
use redrt_types::{Incarnation, ReplicaId};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Number of an attempt to clone, unique within a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct CloneId(pub u64);

/// Who is to be copied, and what the copy is to be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Newcomer {
    /// The place that the copy takes.
    pub replica: ReplicaId,
    /// Its incarnation there.
    pub incarnation: Incarnation,
    /// Who is copied: a sibling.
    pub source: ReplicaId,
}

/// For whom all are to keep more than the view says.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Pins {
    /// Copies will take these places, or have and are not in step yet.
    pub awaited: Vec<ReplicaId>,
    /// Copies for these places stand ready, to be let in when their siblings differ.
    pub ready: Vec<ReplicaId>,
}

impl Pins {
    /// All places.
    pub fn places(&self) -> impl Iterator<Item = ReplicaId> + '_ {
        self.awaited.iter().chain(&self.ready).copied()
    }
}

/// From `redrun` to the daemon of one host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CloneOrder {
    /// Make ready to receive an image, if there is memory for it.
    Receive {
        /// The newcomer.
        newcomer: Newcomer,
        /// What the copy needs as far as that is known.
        memory_bytes: u64,
    },
    /// Send the image of a replica to where the other daemon listens.
    Send {
        /// The newcomer.
        newcomer: Newcomer,
        /// Where to.
        address: SocketAddr,
    },
    /// Everybody keeps what the copy may need: make it.
    Cut,
    /// The copy will be in the next view.
    Meet {
        /// For it alone: the cards of all live processes.
        cards: Vec<Card>,
        /// Where its standard streams go on.
        position: Position,
    },
    /// Nothing comes of it: end what belongs to it.
    Abandon,
}

/// How far a clone has come, from a daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CloneStep {
    /// The image can be sent here.
    Listening(SocketAddr),
    /// Memory is going over.
    Progress(Progress),
    /// What is left is small: the source can be stopped.
    Ready,
    /// The source is stopped. What it has printed is known here.
    Stopped(Position),
    /// The image has gone, and its copy runs.
    Sent(Cost),
    /// The copy runs.
    Running {
        /// Its process id on its host.
        pid: i32,
    },
    /// There is no copy.
    Failed(NoImage),
}

/// A round of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// Counts from 1.
    pub round: u32,
    /// Bytes done of it.
    pub done_bytes: u64,
    /// Total number of them.
    pub total_bytes: u64,
    /// Bytes a second.
    pub bytes_per_second: u64,
}

/// Where the source's standard streams were when it was stopped.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Position {
    /// Bytes that it had printed to standard output, all of which are at `redrun` before this.
    pub output_bytes: u64,
    /// Standard input that it had not read, of what was sent to its host.
    #[serde(with = "serde_bytes")]
    pub input: Vec<u8>,
    /// Whether that is all.
    pub input_has_ended: bool,
    /// It was started by a script, which a copy does not have: what the script does after it, its copy does not.
    pub lacks_script: bool,
}

/// What a clone cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Rounds before the cut.
    pub round_count: u32,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes of memory that were left out, since an older image has them.
    pub kept_bytes: u64,
    /// Bytes of memory that were left for the cut.
    pub cut_bytes: u64,
    /// How long the source was stopped, in nanoseconds.
    pub stopped_ns: u64,
    /// From the begin to the running copy, in nanoseconds.
    pub total_ns: u64,
}
