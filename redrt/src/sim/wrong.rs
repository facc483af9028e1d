//! What can go wrong in a simulated job.

use super::actor::End;
use redrt_types::{ProcessIndex, ReplicaId};
use redrt_wire::control::FromAgent;

/// What no run of a sound library shows.
#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    /// A process ended before its first call.
    #[error("{replica} cannot begin: {end:?}")]
    Begin {
        /// Which.
        replica: ReplicaId,
        /// How it ended.
        end: End,
    },
    /// All wait, and nothing is planned.
    #[error("nobody goes on:{state}")]
    Stalled {
        /// What each waits for.
        state: String,
    },
    /// More happens, or for longer, than in any run that ends.
    #[error("it does not end:{state}")]
    Endless {
        /// Where each stands.
        state: String,
    },
    /// A check of the program or of the library has failed.
    #[error("{replica}: {why} {}", .said.join("; "))]
    Panicked {
        /// In which process.
        replica: ReplicaId,
        /// Its message.
        why: String,
        /// What the processes said last.
        said: Vec<String>,
    },
    /// A process reports what did not happen.
    #[error("{replica} says {message:?}")]
    Said {
        /// Which.
        replica: ReplicaId,
        /// What.
        message: Box<FromAgent>,
    },
    /// Replicas of a rank end with different results.
    #[error("replicas of rank {rank} have different results")]
    Results {
        /// Which rank.
        rank: u32,
    },
    /// A process that is to be part of a line is within a call.
    #[error("{replica} cannot be held for a line")]
    NotHeld {
        /// Which.
        replica: ReplicaId,
    },
    /// All are held and the network does not become quiet.
    #[error("what is on its way does not arrive, and a line waits for it")]
    NotQuiet,
    /// An image is not accepted.
    #[error("process {} cannot be restored: {error}", .process.0)]
    NotRestored {
        /// Whose.
        process: ProcessIndex,
        /// Why.
        error: std::io::Error,
    },
}
