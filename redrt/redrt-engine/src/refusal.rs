//! Refusals: handling of frames that no sound process sends.
//!
//! Either the memory of the sender is corrupt, or that of the process that refuses. The link is closed, so that nothing
//! more is taken from it. `redrun` is told, and decides which of the two must go; see `docs/failure-model.md`. Until
//! its view is here, messages that the other owes are missing, as after a death.

use quiesce::{Breach, ProtocolError};
use redrt_transport::frame::{FrameError, FrameKind};
use redrt_transport::network::Rubbish;
use redrt_transport::rendezvous_buffer::RendezvousBufferError;
use redrt_types::ReplicaId;

/// The fault of a frame, in words that follow on the sender's name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Bytes that are no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Fragments for a place that they may not go to.
    #[error(transparent)]
    RendezvousBuffer(#[from] RendezvousBufferError),
    /// A contradiction to known facts, or to an earlier statement of a replica.
    #[error("{breach}")]
    Protocol {
        /// Author of the contradicting statement.
        by: ReplicaId,
        /// The contradiction.
        breach: Breach,
    },
    /// A frame of a kind that this job does not have.
    #[error("sent a {0:?} frame, which has no place in this job")]
    Misplaced(FrameKind),
    /// A rank that no communicator has.
    #[error("sent a message of rank {source_rank}, and the job has {rank_count} ranks")]
    Source {
        /// Rank stated by the message.
        source_rank: u32,
        /// Number of ranks of the job.
        rank_count: u32,
    },
    /// Protocol bytes that do not decode.
    #[error("sent a protocol frame that cannot be decoded")]
    Undecodable,
    /// Protocol bytes changed under way.
    #[error("sent a protocol frame that does not fit its checksum")]
    Checksum,
    /// Protocol parts beyond the bound on a frame.
    #[error("sent a protocol frame of more than {0} bytes")]
    Endless(usize),
    /// A request for an offer that was not made to the sender, or a second one.
    #[error("speaks of offer {0}, which it was not made")]
    Offer(u64),
    /// A request for more or fewer bytes than offered.
    #[error("asks for {wanted} bytes of a payload of {length}")]
    ClearToSendLength {
        /// Bytes requested.
        wanted: u64,
        /// Bytes offered.
        length: u64,
    },
    /// A length for which there is no memory.
    #[error("offers a message of {0} bytes, for which there is no memory")]
    Memory(u64),
    /// A question that only replicas of one rank may ask each other.
    #[error("asks how far a thread of another rank has come")]
    Thread,
    /// A link of a process that is not in the job.
    #[error("opened a link as process {0} of a job that has no such process to do that")]
    Stranger(u32),
    /// An impossible word of the consumer in shared memory.
    #[error("says that it has taken frames which were not sent")]
    Ring,
}

impl From<ProtocolError> for Fault {
    fn from(error: ProtocolError) -> Self {
        Self::Protocol { by: error.by, breach: error.breach }
    }
}

impl From<Rubbish> for Fault {
    fn from(rubbish: Rubbish) -> Self {
        match rubbish {
            Rubbish::Frame(error) => Self::Frame(error),
            Rubbish::RendezvousBuffer(error) => Self::RendezvousBuffer(error),
        }
    }
}
