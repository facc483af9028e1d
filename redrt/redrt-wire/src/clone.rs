//! Messages of `redrun` and the daemons on a clone: a living replica is copied, and the copy takes a free place.
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
//!   │                                 │ ◀═════════ the rest ══════════ │                         │
//!   │ ◀── Running, Agent{Ready} ───── │                                │                         │
//!   │ ── Meet ──────────────────────▶ │                                                          │
//!   │ ── Cards, View, Pins ─────────────────────────────────────────────────────────────────────▶│
//!   │ ◀── Agent{InStep} ───────────── │                                                          │
//!   │ ── Pins ──────────────────────────────────────────────────────────────────────────────────▶│
//! ```
//! A copy that has to judge (`redrun --arbitrate`) waits where it runs: `Pins` say that it stands ready, and the steps
//! from `Meet` on follow only if two siblings differ. `Failed` may take the place of any answer, and `Abandon` may
//! follow any message.

use crate::card::Card;
use crate::no_image::NoImage;
use redrt_types::{Incarnation, ReplicaId};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Number of an attempt to clone, unique within a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct CloneId(pub u64);

/// A copy to be made: its source, its place and its incarnation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Newcomer {
    /// The place that the copy takes.
    pub replica: ReplicaId,
    /// Its incarnation there.
    pub incarnation: Incarnation,
    /// The sibling that is copied.
    pub source: ReplicaId,
}

/// Newcomers for which all processes keep messages beyond the view's demands.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Pins {
    /// Places that copies will take, or have taken without being in step yet.
    pub awaited: Vec<ReplicaId>,
    /// Places whose copies stand ready, to be let in when their siblings differ.
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
    /// Prepare to receive an image, if there is memory for it.
    Receive {
        /// The newcomer.
        newcomer: Newcomer,
        /// Memory that the copy needs, as far as known, in bytes.
        memory_bytes: u64,
    },
    /// Send the image of a replica to the other daemon.
    Send {
        /// The newcomer.
        newcomer: Newcomer,
        /// Address at which that daemon listens.
        address: SocketAddr,
    },
    /// Make the image: all messages that the copy may need are kept.
    Cut,
    /// The copy will be in the next view.
    Meet {
        /// For the copy alone: the cards of all live processes.
        cards: Vec<Card>,
        /// Position of its standard streams.
        position: Position,
    },
    /// End all processes of this clone, which was given up.
    Abandon,
}

/// Progress of a clone, from a daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CloneStep {
    /// The image can be sent here.
    Listening(SocketAddr),
    /// Memory is being sent.
    Progress(Progress),
    /// Little memory is left: the source can be stopped.
    Ready,
    /// The source is stopped; with the position of its output.
    Stopped(Position),
    /// The image has been sent, and its copy runs.
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
    /// Number of the round, from 1.
    pub round: u32,
    /// Bytes of the round that are done.
    pub done_bytes: u64,
    /// Bytes of the round in all.
    pub total_bytes: u64,
    /// Bytes a second.
    pub bytes_per_second: u64,
}

/// Position of the source's standard streams when it was stopped.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Position {
    /// Bytes printed to standard output, all of which `redrun` has got before this message.
    pub output_bytes: u64,
    /// Standard input sent to the source's host that the source had not read.
    #[serde(with = "serde_bytes")]
    pub input: Vec<u8>,
    /// True if that is the end of the input.
    pub input_has_ended: bool,
    /// True if the source was started by a script. The copy has no script, so the script's later commands are not run
    /// for it.
    pub lacks_script: bool,
}

/// Cost of a clone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Rounds before the cut.
    pub round_count: u32,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes of memory left out, since an older image has them.
    pub kept_bytes: u64,
    /// Bytes of memory left for the cut.
    pub cut_bytes: u64,
    /// Time that the source was stopped, in nanoseconds.
    pub stopped_ns: u64,
    /// Time from the begin to the running copy, in nanoseconds.
    pub total_ns: u64,
}
