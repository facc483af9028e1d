//! What can go wrong, and in which phase of a clone.

use crate::image::state::Reply;
use crate::refusal::{NoAgent, Refusal};
use redrt_wire::no_image::Told;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The phases of a clone, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// The two sides meet and compare what they are; nothing of the program has been touched.
    Prepare,
    /// Memory goes over while the program runs.
    PreCopy,
    /// The program's threads are stopped and what is left is noted.
    Cut,
    /// What was noted goes over; the source runs again.
    Transfer,
    /// The destination makes the copy out of it.
    Restore,
    /// The copy runs; a source that moves ends.
    Finish,
}

impl Phase {
    /// The exit code of `redclone` for a failure in this phase.
    #[must_use]
    pub fn exit_code(self) -> i32 {
        10 + self as i32
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prepare => "prepare",
            Self::PreCopy => "pre-copy",
            Self::Cut => "cut",
            Self::Transfer => "transfer",
            Self::Restore => "restore",
            Self::Finish => "finish",
        })
    }
}

/// What could not be done, in words that follow on "cannot".
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Operation {
    /// The directory of control sockets is missing, or not this user's alone.
    #[error("use the directory of control sockets")]
    FindAgents,
    /// A question to the agent in the process.
    #[error("ask the agent in the process")]
    AskAgent,
    /// What the agent keeps of the process.
    #[error("read the agent's memory")]
    ReadAgent,
    /// `/proc` of the process.
    #[error("read /proc of the process")]
    ReadProcess,
    /// Its mappings.
    #[error("read the maps of the process")]
    ReadMaps,
    /// The code that the kernel lends.
    #[error("read the vdso")]
    ReadVdso,
    /// Files, sockets and pipes.
    #[error("look at the descriptors of the process")]
    ReadDescriptors,
    /// Threads, timers, limits.
    #[error("take the state of the process")]
    ReadState,
    /// What the processor and the kernel are.
    #[error("look at this host")]
    ReadHost,
    /// Which pages were written, by the method that was asked for.
    #[error("track dirty pages as asked for")]
    TrackDirtyPages,
    /// Which pages were written.
    #[error("find dirty pages")]
    FindDirtyPages,
    /// Which shared memory the process has.
    #[error("look at shared memory")]
    FindShared,
    /// Its pages.
    #[error("read shared memory")]
    ReadShared,
    /// To the destination.
    #[error("send shared memory")]
    SendShared,
    /// The agent has room for a number of them.
    #[error("carry more POSIX timers than the agent has room for")]
    NoteTimers,
    /// A copy of what is left, so that the process can go on.
    #[error("have memory for what is left at the cut")]
    HoldPages,
    /// To stop one of the threads.
    #[error("stop thread {0}")]
    StopThread(u32),
    /// The embedder does not allow it, or the agent is not ready.
    #[error("stop the process: it does not allow a cut now")]
    Stop,
    /// After it was stopped.
    #[error("let the process go on")]
    Resume,
    /// To the destination.
    #[error("connect to {0}")]
    Connect(String),
    /// To the destination.
    #[error("send to the destination")]
    Send,
    /// A round of memory.
    #[error("send round {0} to the destination")]
    SendRound(u32),
    /// From the destination.
    #[error("read what the destination answers")]
    Hear,
    /// An image to a file.
    #[error("write {0}")]
    Write(PathBuf),
}

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process, or this pair of hosts, does not allow it. Each reason names what it is about.
    #[error("{phase}: refused: {}", reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Refused {
        /// Where it was noticed.
        phase: Phase,
        /// All reasons that are known.
        reasons: Vec<Refusal>,
    },
    /// The system, or the process that was asked, has failed.
    #[error("{phase}: cannot {operation}")]
    System {
        /// Where.
        phase: Phase,
        /// What was being done.
        operation: Operation,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// The process has ended meanwhile.
    #[error("the process has ended")]
    Ended {
        /// Where it was noticed.
        phase: Phase,
    },
    /// A thread that is stopped still uses a processor.
    #[error("{phase}: thread {tid} does not come to rest within {} s", limit.as_secs())]
    Restless {
        /// Where.
        phase: Phase,
        /// The thread.
        tid: i32,
        /// How long it was waited for.
        limit: Duration,
    },
    /// Rounds of memory do not become smaller, and the caller wants no long cut.
    #[error(
        "{phase}: memory changes faster than it can be sent: {} MiB are left after {round_count} rounds",
        left_bytes >> 20
    )]
    Diverges {
        /// Where.
        phase: Phase,
        /// Bytes that were written during the last round.
        left_bytes: u64,
        /// Rounds until then.
        round_count: u32,
    },
    /// The destination has failed, and says why.
    #[error("{phase}: {told}")]
    Destination {
        /// What it was doing.
        phase: Phase,
        /// What it says.
        told: Told,
    },
    /// The destination says what nobody says at this point.
    #[error("{phase}: the destination answers out of turn: {reply:?}")]
    OutOfTurn {
        /// Where.
        phase: Phase,
        /// What it says.
        reply: Box<Reply>,
    },
}

impl Error {
    /// The phase that failed.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self {
            Self::Refused { phase, .. }
            | Self::System { phase, .. }
            | Self::Ended { phase }
            | Self::Restless { phase, .. }
            | Self::Diverges { phase, .. }
            | Self::Destination { phase, .. }
            | Self::OutOfTurn { phase, .. } => *phase,
        }
    }

    /// A refusal with one reason.
    pub fn refused(phase: Phase, reason: Refusal) -> Self {
        Self::Refused { phase, reasons: vec![reason] }
    }

    /// Whether another copy of the same process would fail too, as long as it lives.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Refused { reasons, .. } => reasons.iter().any(Refusal::is_lasting),
            Self::Destination { told, .. } => told.is_lasting,
            Self::System { .. }
            | Self::Ended { .. }
            | Self::Restless { .. }
            | Self::Diverges { .. }
            | Self::OutOfTurn { .. } => false,
        }
    }

    /// Whether there is no copy because the process has ended.
    #[must_use]
    pub fn is_of_end(&self) -> bool {
        match self {
            Self::Ended { .. } => true,
            Self::System { cause, .. } => has_ended(cause),
            Self::Refused { reasons, .. } => {
                reasons.iter().any(|reason| matches!(reason, Refusal::NoAgent { why: NoAgent::NoProcess, .. }))
            }
            Self::Restless { .. } | Self::Diverges { .. } | Self::Destination { .. } | Self::OutOfTurn { .. } => false,
        }
    }

    /// Message and causes in one line.
    #[must_use]
    pub fn line(&self) -> String {
        match self {
            Self::System { cause, .. } => format!("{self}: {cause}"),
            _ => self.to_string(),
        }
    }

    /// What another process is told of it.
    #[must_use]
    pub fn told(&self) -> Told {
        Told { sentence: self.line(), is_lasting: self.is_lasting() }
    }
}

/// The process that was asked is not there any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the process has ended")]
pub struct ProcessEnded;

/// True when the process that was asked is not there any more.
#[must_use]
pub fn has_ended(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<ProcessEnded>())
}

/// What a process is told of an error of the system: what another has told this one, if it comes from there.
#[must_use]
pub fn told_of(error: &io::Error) -> Told {
    let heard = error.get_ref().and_then(|inner| inner.downcast_ref::<Told>());
    heard.cloned().unwrap_or_else(|| Told::passing(error))
}

/// Adds phase and purpose to an error of the system.
pub trait During<T> {
    /// On `Err`: `operation` failed in `phase`.
    fn during(self, phase: Phase, operation: Operation) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, phase: Phase, operation: Operation) -> Result<T, Error> {
        self.map_err(|cause| Error::System { phase, operation, cause: cause.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_another_attempt_is_worth_while_is_known_on_both_sides() {
        let reasons = [
            (Refusal::Seccomp, true),
            (Refusal::NoFirstThread, true),
            (Refusal::NoAgent { pid: 7, why: NoAgent::Closed }, true),
            (Refusal::NoAgent { pid: 7, why: NoAgent::NoProcess }, false),
            (Refusal::Traced { by: "2".into() }, false),
        ];
        for (reason, is_lasting) in reasons {
            let told = Error::refused(Phase::Prepare, reason).told();
            assert_eq!(told.is_lasting, is_lasting);
            let heard = io::Error::other(told.heard_from("the source"));
            assert_eq!(told_of(&heard).is_lasting, is_lasting);
            assert!(told_of(&heard).sentence.starts_with("the source says: prepare: refused: "));
            let error = Error::Destination { phase: Phase::Prepare, told: told_of(&heard) };
            assert_eq!(error.is_lasting(), is_lasting);
        }
        let full = || io::Error::from_raw_os_error(28);
        assert!(!Err::<(), _>(full()).during(Phase::Transfer, Operation::Send).unwrap_err().is_lasting());
        assert_eq!(told_of(&full()), Told::passing(full()));
    }
}
