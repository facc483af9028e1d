//! The frames between `redrun` and the daemons, which form a tree with `redrun` at its coordinator.
//!
//! ```text
//!              redrun
//!            ╱   │    ╲            Down: from the coordinator to one host, or to all
//!          h0    h1    h2          Up:   from a host to the coordinator
//!         ╱ ╲
//!       h3   h4 ═══ h5             neighbours in a ring only tell each other that they are there
//! ```
//! Messages between `redrun` and one host are a stream in each direction that survives the loss of its connection. Both
//! ends count the messages received, and keep those that the other has not confirmed. A daemon whose connection broke
//! connects to the coordinator itself, states its count in [`Attach`], and is answered [`Down::Attached`] with the
//! coordinator's count; then missing messages are sent again. Messages to all hosts are one frame, so those that go
//! down have no numbers: until that answer a daemon drops all arriving messages, since it cannot know which were lost
//! before them. [`Down::Resync`] makes its children do the same. Messages that go up are numbered, and one out of turn
//! is dropped.
//!
//! A coordinator that was killed may come back in another process, which continues the same streams. It has a higher
//! *term*, and calls each daemon:
//! ```text
//! coordinator, term 2                       daemon, has followed term 1
//!   │ ── Call{2, address} ────────────────▶ │   on a connection of its own
//!   │ ◀── Attach{term 2} ─────────────────  │   as by any other way; to the old coordinator: Replaced{2}
//!   │ ── Attached{term 2} ────────────────▶ │
//! ```
//! *The trap.* By that, a daemon below another may attach to the coordinator before it is called, without knowing the
//! coordinator's address. If the daemon above were lost, it would try the address of the previous coordinator. So a
//! coordinator calls all daemons that have not connected to it themselves.
//!
//! A daemon follows no term lower than one it has followed ([`Allegiance`]). So a coordinator that was only stopped,
//! and goes on after it was replaced, has no followers, and is told that it has been replaced.

use crate::daemon::HostName;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Number of times that the coordinator has come back: the first coordinator has term 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Term(pub u64);

impl Term {
    /// Term of the coordinator after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The highest term of a coordinator that a daemon has heard of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Allegiance(Term);

impl Allegiance {
    /// The highest term so far.
    #[must_use]
    pub fn term(self) -> Term {
        self.0
    }

    /// Takes in a coordinator's term. Returns true if the daemon follows this coordinator from now on.
    pub fn follows(&mut self, term: Term) -> bool {
        let is_followed = term >= self.0;
        self.0 = self.0.max(term);
        is_followed
    }
}

/// Request of a daemon to take its place, or to take it again by another connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attach {
    /// Number of the host within the job.
    pub host: u32,
    /// Number of earlier attachments of this daemon. Messages with an older number are dropped.
    pub attachment: u32,
    /// Highest term that it has heard of. A coordinator with a lower term has been replaced.
    pub term: Term,
    /// Number of messages it has received from the coordinator.
    pub received: u64,
    /// Version of the daemon.
    pub version: String,
    /// Name of the host, as it calls itself.
    pub name: String,
    /// CPUs the daemon may use.
    pub cpu_count: u32,
    /// Address at which other daemons can connect to it.
    pub listen: SocketAddr,
}

/// Frames towards the coordinator and between neighbours, and the first frame on any connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Up {
    /// A daemon takes its place.
    Attach(Box<Attach>),
    /// The next message of a host's stream to the coordinator.
    Message {
        /// Number of the host.
        host: u32,
        /// Number of earlier messages in the stream.
        number: u64,
        /// A [`crate::daemon::FromDaemon`].
        #[serde(with = "serde_bytes")]
        body: Vec<u8>,
    },
    /// Confirms messages that a host has received from the coordinator.
    Taken {
        /// Number of the host.
        host: u32,
        /// Number of messages since the start of the job.
        count: u64,
    },
    /// First frame between neighbours in the ring.
    Neighbour {
        /// Number of the host that connects.
        host: u32,
    },
    /// Sign of life of the process at the other end.
    Beat,
    /// First frame of `redctl`: its question.
    Ask(Question),
    /// First frame of a coordinator that takes another's place: connect to me.
    Call {
        /// Its term.
        term: Term,
        /// Address at which it listens.
        address: SocketAddr,
    },
    /// To a coordinator that the daemon no longer follows.
    Replaced {
        /// Term of the one that it follows.
        by: Term,
    },
}

/// Frames away from the coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Down {
    /// The next message of a host's stream from the coordinator.
    Message {
        /// Number of the host; `None` for all.
        to: Option<u32>,
        /// A [`crate::daemon::ToDaemon`].
        #[serde(with = "serde_bytes")]
        body: Vec<u8>,
    },
    /// The answer to [`Attach`].
    Attached {
        /// Number of the host.
        host: u32,
        /// Number of this attachment.
        attachment: u32,
        /// The coordinator's term.
        term: Term,
        /// Number of the host's messages that the coordinator has received.
        received: u64,
    },
    /// Confirms messages that the coordinator has received from a host.
    Taken {
        /// Number of the host.
        host: u32,
        /// Number of messages since the start of the job.
        count: u64,
    },
    /// The connection to the coordinator has changed: attach again.
    Resync,
    /// Sign of life of the coordinator, passed on to all.
    Beat {
        /// Number of the beat, growing.
        round: u64,
    },
    /// The host is no longer part of the job.
    Stop {
        /// Number of the host.
        host: u32,
        /// Reason, in one line.
        reason: String,
    },
    /// The answer to [`Up::Ask`].
    Answer(String),
}

/// Questions and orders of `redctl`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Question {
    /// The state of the job, as JSON.
    Status,
    /// Kill one replica.
    Kill(redrt_types::ReplicaId),
    /// End the job as Ctrl-C would.
    Stop,
    /// Save the whole job. Answered when it is saved.
    Checkpoint {
        /// True to end the job then, to be resumed later.
        stop: bool,
    },
    /// Move one replica to another host.
    Migrate {
        /// The replica.
        replica: redrt_types::ReplicaId,
        /// Name of the host; `None` for the most suitable one.
        to: Option<String>,
    },
    /// Move all replicas away from a host.
    Drain(String),
    /// Change the degree of ranks.
    Degree {
        /// The degree.
        degree: u16,
        /// First and last rank of each range; empty for all ranks.
        ranks: Vec<(u32, u32)>,
    },
    /// Let copies be put on a host.
    AddSpare {
        /// Its name.
        host: HostName,
        /// Number of places; `None` for as many as suit the host.
        place_count: Option<u32>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coordinator_that_was_replaced_is_not_followed_again() {
        let mut allegiance = Allegiance::default();
        let followed = [0, 0, 2, 1, 2, 0, 3].map(|term| allegiance.follows(Term(term)));
        assert_eq!(followed, [true, true, true, false, true, false, true]);
        assert_eq!(allegiance.term(), Term(2).next());
    }
}
