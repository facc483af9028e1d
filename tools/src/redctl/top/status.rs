//! What `redctl status --json` says, as far as it is shown.

use serde::Deserialize;

/// A job.
#[derive(PartialEq, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Status {
    pub job: String,
    pub state: String,
    pub elapsed_s: f64,
    pub view: u64,
    pub ranks: Vec<Rank>,
    pub redundancy: Redundancy,
    pub checkpoint: Checkpoint,
    pub moves: Vec<Move>,
    pub clones: Vec<Clone>,
    pub hosts: Vec<Host>,
}

/// A virtual rank and who stands for it.
#[derive(PartialEq, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Rank {
    pub rank: u32,
    /// How many replicas it is to have.
    pub degree: usize,
    pub live: usize,
    pub replicas: Vec<Replica>,
}

/// A replica.
#[derive(PartialEq, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Replica {
    pub replica: String,
    pub host: String,
    pub state: String,
    pub retention_bytes: u64,
    pub memory_bytes: u64,
    /// The longest time that it has waited for its siblings.
    pub stall_ms_max: f64,
}

/// How long it was missing.
#[derive(PartialEq, Debug, Deserialize)]
pub struct Redundancy {
    /// Which part of all rank hours had all replicas.
    pub protected_share: Option<f64>,
}

/// Generations.
#[derive(PartialEq, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Checkpoint {
    pub newest: Option<u64>,
    pub under_way: Option<u64>,
    pub progress: Option<Progress>,
}

/// A replica that is to be elsewhere.
#[derive(PartialEq, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Move {
    pub replica: String,
    pub to: Option<String>,
}

/// A copy that is being made.
#[derive(PartialEq, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Clone {
    pub replica: String,
    pub source: String,
    pub host: String,
    pub progress: Option<Progress>,
}

/// How far it is.
#[derive(PartialEq, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Progress {
    pub done_bytes: u64,
    pub total_bytes: u64,
    pub bytes_per_second: f64,
}

/// A host.
#[derive(PartialEq, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Host {
    pub host: String,
    pub state: String,
    pub processes: u32,
}
