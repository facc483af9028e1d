//! Failures of a simulated job.

use super::world::actor::End;
use redrt_types::{ProcessIndex, ReplicaId};
use redrt_wire::control::FromAgent;

/// A failure that no run of a sound library shows.
#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    /// A process ended before its first call.
    #[error("{replica} cannot begin: {end:?}")]
    Begin {
        /// Process that could not begin.
        replica: ReplicaId,
        /// Its end before the first call.
        end: End,
    },
    /// All processes wait, and no event is planned.
    #[error("nobody goes on:{state}")]
    Stalled {
        /// Description of each process's wait.
        state: String,
    },
    /// The run exceeds the limit on events or on time.
    #[error("it does not end:{state}")]
    Endless {
        /// Description of each process's place.
        state: String,
    },
    /// A check of the program or of the library has failed.
    #[error("{replica}: {why} {}", .said.join("; "))]
    Panicked {
        /// Process in which the check failed.
        replica: ReplicaId,
        /// Message of the panic.
        why: String,
        /// Last lines of output of the processes.
        said: Vec<String>,
    },
    /// A process reports an event that did not happen.
    #[error("{replica} says {message:?}")]
    Said {
        /// Process with the report.
        replica: ReplicaId,
        /// Report that is not true.
        message: Box<FromAgent>,
    },
    /// Replicas of a rank end with different results.
    #[error("replicas of rank {rank} have different results")]
    Results {
        /// Rank of the replicas.
        rank: u32,
    },
    /// A process that is to be part of a checkpoint is within a call.
    #[error("{replica} cannot be held for a checkpoint")]
    NotHeld {
        /// Process that is within a call.
        replica: ReplicaId,
    },
    /// All are held and the network does not become quiet.
    #[error("what is on its way does not arrive, and a checkpoint waits for it")]
    NotQuiet,
    /// An image is not accepted.
    #[error("process {} cannot be restored: {error}", .process.0)]
    NotRestored {
        /// Process that the image is of.
        process: ProcessIndex,
        /// Reason for the refusal.
        error: std::io::Error,
    },
}
