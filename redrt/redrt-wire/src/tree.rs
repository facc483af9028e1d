//! The frames between `redrun` and the daemons, which form a tree with `redrun` at its root.
//!
//! ```text
//!              redrun
//!            ╱   │    ╲            Down: from the root to one host, or to all
//!          h0    h1    h2          Up:   from a host to the root
//!         ╱ ╲
//!       h3   h4 ═══ h5             neighbours in a ring only tell each other that they are there
//! ```
//! Messages between `redrun` and one host are a stream in each direction that survives the loss of the way they take.
//! Both ends count what they have received and keep what the other has not said it has. A daemon whose way is broken
//! connects to the root itself, says in [`Attach`] how much it has, and is answered [`Down::Attached`] with the same;
//! what is missing is then sent again. Messages to all hosts are one frame, so those that go down have no numbers:
//! until that answer a daemon drops what arrives, since it cannot know what was lost before it. Its children are told
//! to do the same by [`Down::Resync`]. Messages that go up are numbered, and one that is out of turn is dropped.
//!
//! A root that was killed may come back in another process, which goes on with the same streams. It has a higher *term*
//! and calls each daemon:
//! ```text
//! root, term 2                              daemon, has followed term 1
//!   │ ── Call{2, address} ────────────────▶ │   on a connection of its own
//!   │ ◀── Attach{term 2} ─────────────────  │   as by any other way; to the old root: Replaced{2}
//!   │ ── Attached{term 2} ────────────────▶ │
//! ```
//! *The trap.* A daemon below another may attach to the root by that before it is called, and does not know where the
//! root listens: it would look where the one before was when the daemon above is lost. So a root calls all that have
//! not connected to it themselves.
//!
//! A daemon follows no term that is lower than one it has followed ([`Allegiance`]), so a root that was only stopped,
//! and goes on after it was replaced, has nobody to tell anything, and is told that it has been replaced.

use crate::daemon::HostName;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// How often a root has come back: the first has term 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Term(pub u64);

impl Term {
    /// That of the root which comes after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The newest root that a daemon has heard of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Allegiance(Term);

impl Allegiance {
    /// Its term.
    #[must_use]
    pub fn term(self) -> Term {
        self.0
    }

    /// A root says that it has this term: whether it is followed from now on.
    pub fn follows(&mut self, term: Term) -> bool {
        let is_followed = term >= self.0;
        self.0 = self.0.max(term);
        is_followed
    }
}

/// A daemon takes its place, or takes it again by another way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attach {
    /// Number of the host within the job.
    pub host: u32,
    /// How often this daemon has attached before. What comes with an older number is not taken any more.
    pub attachment: u32,
    /// The newest root that it has heard of. One with a lower term has been replaced.
    pub term: Term,
    /// How many messages from the root it has.
    pub received: u64,
    /// Version of the daemon.
    pub version: String,
    /// Name of the host, as it calls itself.
    pub name: String,
    /// CPUs the daemon may use.
    pub cpu_count: u32,
    /// Where other daemons can connect to it.
    pub listen: SocketAddr,
}

/// Towards the root, between neighbours, and the first frame on any connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Up {
    /// A daemon takes its place.
    Attach(Box<Attach>),
    /// The next message of a host's stream to the root.
    Message {
        /// From which host.
        host: u32,
        /// How many came before it.
        number: u64,
        /// A [`crate::daemon::FromDaemon`].
        #[serde(with = "serde_bytes")]
        body: Vec<u8>,
    },
    /// How many messages of its stream from the root a host has received.
    Taken {
        /// Which host.
        host: u32,
        /// How many, since the start of the job.
        count: u64,
    },
    /// First frame between neighbours in the ring.
    Neighbour {
        /// Number of the host that connects.
        host: u32,
    },
    /// The process at the other end of this connection is there.
    Beat,
    /// First frame of `redctl`: what it wants.
    Ask(Question),
    /// First frame of a root that goes on where another was: connect to me.
    Call {
        /// Its term.
        term: Term,
        /// Where it listens.
        address: SocketAddr,
    },
    /// To a root that a daemon follows no more.
    Replaced {
        /// Term of the one that it follows.
        by: Term,
    },
}

/// Away from the root.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Down {
    /// The next message of a host's stream from the root.
    Message {
        /// To which host; to all when absent.
        to: Option<u32>,
        /// A [`crate::daemon::ToDaemon`].
        #[serde(with = "serde_bytes")]
        body: Vec<u8>,
    },
    /// The answer to [`Attach`].
    Attached {
        /// Which host.
        host: u32,
        /// Which of its attachments.
        attachment: u32,
        /// The root's term.
        term: Term,
        /// How many of its messages the root has.
        received: u64,
    },
    /// How many messages of its stream the root has received from a host.
    Taken {
        /// Which host.
        host: u32,
        /// How many, since the start of the job.
        count: u64,
    },
    /// The way to the root has changed: attach again.
    Resync,
    /// The root is there. Passed on to all.
    Beat {
        /// Counts up.
        round: u64,
    },
    /// This host is not part of the job any more.
    Stop {
        /// Which host.
        host: u32,
        /// Why, in one line.
        reason: String,
    },
    /// The answer to [`Up::Ask`].
    Answer(String),
}

/// What `redctl` can ask.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Question {
    /// The state of the job, as JSON.
    Status,
    /// Kill one replica.
    Kill(redrt_types::ReplicaId),
    /// End the job as Ctrl-C would.
    Stop,
    /// Save the whole job. Answered when that is done.
    Checkpoint {
        /// End it then, to be resumed.
        stop: bool,
    },
    /// Move one replica to another host.
    Migrate {
        /// The replica.
        replica: redrt_types::ReplicaId,
        /// Name of the host; where it suits best if absent.
        to: Option<String>,
    },
    /// Move all replicas away from a host.
    Drain(String),
    /// Change how many replicas ranks have.
    Degree {
        /// The degree.
        degree: u16,
        /// First and last rank of each range; all ranks if there is none.
        ranks: Vec<(u32, u32)>,
    },
    /// Copies may be put on a host.
    AddSpare {
        /// Its name.
        host: HostName,
        /// Number of places; as many as suit the host if absent.
        place_count: Option<u32>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_that_was_replaced_is_not_followed_again() {
        let mut allegiance = Allegiance::default();
        let followed = [0, 0, 2, 1, 2, 0, 3].map(|term| allegiance.follows(Term(term)));
        assert_eq!(followed, [true, true, true, false, true, false, true]);
        assert_eq!(allegiance.term(), Term(2).next());
    }
}
