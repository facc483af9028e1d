//! Errors of a clone, each with the phase in which it occurred.

use crate::image::state::Reply;
use crate::refusal::{NoAgent, Refusal};
use redrt_wire::no_image::ReportedFailure;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Phases of a clone, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// The two sides meet and compare facts. The program has not been touched.
    Prepare,
    /// Memory is sent while the program runs.
    PreCopy,
    /// The program's threads are stopped, and the remaining state is recorded.
    Cut,
    /// The recorded state is sent. The source runs again, unless it moves.
    Transfer,
    /// The destination turns the image into the copy.
    Restore,
    /// The copy runs. A source that moves ends.
    Finish,
}

impl Phase {
    /// Exit code of `redclone` for a failure in this phase.
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

/// The operation that failed, worded to follow "cannot".
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Operation {
    /// The directory of control sockets is missing, or open to other users.
    #[error("use the directory of control sockets")]
    FindAgents,
    /// Exchanging a request and a reply on the agent's socket.
    #[error("ask the agent in the process")]
    AskAgent,
    /// Reading the agent's block and slots from `/proc/PID/mem`.
    #[error("read the agent's memory")]
    ReadAgent,
    /// Reading status, children or threads of the process.
    #[error("read /proc of the process")]
    ReadProcess,
    /// Reading mappings, or advice and policies of areas.
    #[error("read the maps of the process")]
    ReadMaps,
    /// Reading the code that the kernel maps, for its digest.
    #[error("read the vdso")]
    ReadVdso,
    /// Examining files, sockets and pipes of the process.
    #[error("look at the descriptors of the process")]
    ReadDescriptors,
    /// Recording threads, timers, limits and more at the cut.
    #[error("take the state of the process")]
    ReadState,
    /// Facts of the processor and the kernel.
    #[error("look at this host")]
    ReadHost,
    /// Setting up the tracking method that the caller asked for.
    #[error("track dirty pages as asked for")]
    TrackDirtyPages,
    /// Reading which pages were written.
    #[error("find dirty pages")]
    FindDirtyPages,
    /// Finding the parts of shared objects that hold data.
    #[error("look at shared memory")]
    FindShared,
    /// Reading pages of shared objects at the cut.
    #[error("read shared memory")]
    ReadShared,
    /// Reading pages of shared objects and sending them.
    #[error("send shared memory")]
    SendShared,
    /// The process has more POSIX timers than the agent can record.
    #[error("carry more POSIX timers than the agent has room for")]
    NoteTimers,
    /// Allocating the buffer into which dirty pages are copied at the cut.
    #[error("have memory for what is left at the cut")]
    HoldPages,
    /// Stopping one thread, by its id.
    #[error("stop thread {0}")]
    StopThread(u32),
    /// The embedder forbids a cut, or the agent is not ready.
    #[error("stop the process: it does not allow a cut now")]
    Stop,
    /// Letting the threads go on after the cut.
    #[error("let the process go on")]
    Resume,
    /// Connecting to the destination with this address.
    #[error("connect to {0}")]
    Connect(String),
    /// Sending frames outside of pre-copy rounds.
    #[error("send to the destination")]
    Send,
    /// Sending a pre-copy round, by its number.
    #[error("send round {0} to the destination")]
    SendRound(u32),
    /// Reading a reply of the destination.
    #[error("read what the destination answers")]
    Hear,
    /// Writing an image to a file.
    #[error("write {0}")]
    Write(PathBuf),
}

/// Reason why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process, or this pair of hosts, does not allow a copy. Each reason names its subject.
    #[error("{phase}: refused: {}", reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Refused {
        /// Phase in which it was noticed.
        phase: Phase,
        /// All known reasons; at least one.
        reasons: Vec<Refusal>,
    },
    /// A system call failed, or the agent could not do its part.
    #[error("{phase}: cannot {operation}")]
    System {
        /// Phase in which it failed.
        phase: Phase,
        /// Operation that failed, for the message.
        operation: Operation,
        /// Error of the system or of the agent.
        #[source]
        cause: io::Error,
    },
    /// The process ended during the clone.
    #[error("the process has ended")]
    Ended {
        /// Phase in which it was noticed.
        phase: Phase,
    },
    /// A thread that was told to stop still uses a processor.
    #[error("{phase}: thread {tid} does not come to rest within {} s", limit.as_secs())]
    Restless {
        /// Phase in which it was noticed.
        phase: Phase,
        /// Id of the thread.
        tid: i32,
        /// Time that was allowed.
        limit: Duration,
    },
    /// Pre-copy does not converge, and the caller does not accept a long cut.
    #[error(
        "{phase}: memory changes faster than it can be sent: {} MiB are left after {round_count} rounds",
        left_bytes >> 20
    )]
    Diverges {
        /// Phase in which it was noticed.
        phase: Phase,
        /// Bytes written during the last round.
        left_bytes: u64,
        /// Number of rounds sent.
        round_count: u32,
    },
    /// The destination failed and told why.
    #[error("{phase}: {told}")]
    Destination {
        /// Phase that the destination was in.
        phase: Phase,
        /// Explanation that the destination sent.
        told: ReportedFailure,
    },
    /// The destination sent a reply that does not belong at this point.
    #[error("{phase}: the destination answers out of turn: {reply:?}")]
    OutOfTurn {
        /// Phase in which it arrived.
        phase: Phase,
        /// Reply that was received.
        reply: Box<Reply>,
    },
}

impl Error {
    /// Phase in which the error occurred.
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

    /// Makes a refusal with one reason.
    pub fn refused(phase: Phase, reason: Refusal) -> Self {
        Self::Refused { phase, reasons: vec![reason] }
    }

    /// Returns true if another copy of the same process would fail too, as long as the process lives.
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

    /// Returns true if the copy failed because the process has ended.
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

    /// The failure in the form that is sent to another process.
    #[must_use]
    pub fn told(&self) -> ReportedFailure {
        ReportedFailure { sentence: self.line(), is_lasting: self.is_lasting() }
    }
}

/// The process behind the agent's socket has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the process has ended")]
pub struct ProcessEnded;

/// Returns true if `error` means that the process behind the agent's socket has ended.
#[must_use]
pub fn has_ended(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<ProcessEnded>())
}

/// Explanation of `error` for another process: the one received from elsewhere if `error` wraps it, else its text.
#[must_use]
pub fn told_of(error: &io::Error) -> ReportedFailure {
    let heard = error.get_ref().and_then(|inner| inner.downcast_ref::<ReportedFailure>());
    heard.cloned().unwrap_or_else(|| ReportedFailure::passing(error))
}

/// Adds phase and operation to a system error.
pub trait During<T> {
    /// On `Err`, wraps the cause: `operation` failed in `phase`.
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
    fn both_sides_know_if_another_attempt_is_worth_while() {
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
        assert_eq!(told_of(&full()), ReportedFailure::passing(full()));
    }
}
