//! Frames that no sound process sends.
//!
//! The memory of its sender is corrupt, or that of the process that refuses it. Its link is closed, so that nothing
//! more is taken from it, and `redrun` is told, which decides who of the two must go; see `docs/failure-model.md`.
//! Until its view is here, what the other owes is missing, as after a death.

use super::Engine;
use quiesce::{Breach, ProtocolError};
use redrt_transport::frame::{FrameError, Kind};
use redrt_transport::landing::LandingError;
use redrt_transport::network::Rubbish;
use redrt_types::{Incarnation, ProcessIndex, ReplicaId};
use redrt_wire::control::FromAgent;
use tracing::warn;

/// What is wrong with a frame, in words that follow on the name of who sent it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Its bytes are to go where they may not.
    #[error(transparent)]
    Landing(#[from] LandingError),
    /// It contradicts what is known, or what a replica said before does.
    #[error("{breach}")]
    Protocol {
        /// Who has said it.
        by: ReplicaId,
        /// What is wrong with it.
        breach: Breach,
    },
    /// A frame of a kind that this job does not have.
    #[error("sent a {0:?} frame, which has no place in this job")]
    Misplaced(Kind),
    /// A sender's rank that no communicator has.
    #[error("sent a message of rank {source_rank}, and the job has {rank_count} ranks")]
    Source {
        /// What the message says.
        source_rank: u32,
        /// How many there are.
        rank_count: u32,
    },
    /// A protocol frame that is none.
    #[error("sent a protocol frame that cannot be decoded")]
    Undecodable,
    /// A protocol frame that is not what was sent.
    #[error("sent a protocol frame that does not fit its checksum")]
    Checksum,
    /// A protocol frame without end.
    #[error("sent a protocol frame of more than {0} bytes")]
    Endless(usize),
    /// It wants, or has read, a payload that was not offered to it, or twice.
    #[error("speaks of offer {0}, which it was not made")]
    Offer(u64),
    /// It wants more or less than was offered.
    #[error("asks for {wanted} bytes of a payload of {length}")]
    GrantLength {
        /// What it wants.
        wanted: u64,
        /// What there is.
        length: u64,
    },
    /// A message that is too long to be one.
    #[error("offers a message of {0} bytes, for which there is no memory")]
    Memory(u64),
    /// Threads are a matter of their own rank.
    #[error("asks how far a thread of another rank has come")]
    Thread,
    /// The other end of a link says that it is somebody who is not in the job.
    #[error("opened a link as process {0} of a job that has no such process to do that")]
    Stranger(u32),
    /// The consumer's word in shared memory cannot be.
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
            Rubbish::Landing(error) => Self::Landing(error),
        }
    }
}

impl Engine {
    /// Closes the link to the sender of such a frame and tells `redrun`. Nobody uses the frame any more.
    #[cold]
    pub(super) fn refuse(&mut self, from: Option<ProcessIndex>, fault: &Fault) {
        warn!(target: "engine", from = ?from.map(|from| from.0), %fault, "a frame is refused");
        if let Some(from) = from.filter(|from| self.is_foreign(*from)) {
            self.links.close(from, Incarnation(0));
            let what = format!("{} {fault}", self.links.name_of(from));
            return self.runtime.tell(FromAgent::Refused { peer: None, what });
        }
        let peer = match fault {
            Fault::Protocol { by, .. } => Some(*by),
            _ => from.map(|from| self.world.replica(from)),
        };
        if let Some(peer) = peer {
            let member = self.replication.as_ref().and_then(|replication| replication.view().member(peer));
            let incarnation = member.map_or(Incarnation(0), |member| member.incarnation);
            self.links.close(self.world.process(peer), incarnation);
            if !self.is_live(peer) {
                return;
            }
        }
        self.runtime.tell(FromAgent::Refused { peer, what: fault.to_string() });
    }

    /// Whether the view has this replica. Without replication, a view that lacks somebody ends the job.
    pub(super) fn is_live(&self, replica: ReplicaId) -> bool {
        self.replication.as_ref().is_none_or(|replication| replication.view().is_live(replica))
    }
}
