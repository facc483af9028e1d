//! What can go wrong, and in which phase of a clone.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;

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

/// Reasons that hold as long as the process lives.
pub const SECCOMP: &str = "it runs under a seccomp filter";
/// As above.
pub const NO_FIRST_THREAD: &str = "its first thread has ended";
/// As above.
pub const AGENT_CLOSED: &str = "the program has closed all descriptors, the agent's socket with them";

/// Whether what is said of a failure, by either side, means that another attempt to copy the same process fails too.
#[must_use]
pub fn is_lasting(said: &str) -> bool {
    [SECCOMP, NO_FIRST_THREAD, AGENT_CLOSED].iter().any(|reason| said.contains(reason))
}

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process, or this pair of hosts, does not allow it. Each reason names what it is about.
    #[error("{phase}: refused: {}", reasons.join("; "))]
    Refused {
        /// Where it was noticed.
        phase: Phase,
        /// All reasons that are known.
        reasons: Vec<String>,
    },
    /// Something broke.
    #[error("{phase}: {what}")]
    Failed {
        /// Where.
        phase: Phase,
        /// What was being done.
        what: String,
        /// What the system said.
        #[source]
        cause: Option<io::Error>,
    },
}

impl Error {
    /// The phase that failed.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self {
            Self::Refused { phase, .. } | Self::Failed { phase, .. } => *phase,
        }
    }

    /// A refusal with one reason.
    pub fn refused(phase: Phase, reason: impl Into<String>) -> Self {
        Self::Refused { phase, reasons: vec![reason.into()] }
    }

    /// A failure that no system call explains.
    pub fn failed(phase: Phase, what: impl Into<String>) -> Self {
        Self::Failed { phase, what: what.into(), cause: None }
    }

    /// Message and causes in one line.
    #[must_use]
    pub fn line(&self) -> String {
        match self {
            Self::Failed { cause: Some(cause), .. } => format!("{self}: {cause}"),
            _ => self.to_string(),
        }
    }
}

/// Adds phase and purpose to an error of the system.
pub trait During<T> {
    /// On `Err`: `what` failed in `phase`.
    fn during(self, phase: Phase, what: impl Into<String>) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, phase: Phase, what: impl Into<String>) -> Result<T, Error> {
        self.map_err(|error| Error::Failed { phase, what: what.into(), cause: Some(error.into()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_another_attempt_is_worth_while_is_known_on_both_sides() {
        let refused = |reason: &str| Error::refused(Phase::Prepare, reason).line();
        for reason in [SECCOMP, NO_FIRST_THREAD, &format!("process 7 has no agent: {AGENT_CLOSED}")] {
            assert!(is_lasting(&refused(reason)) && is_lasting(&format!("the source says: {}", refused(reason))));
        }
        assert!(!is_lasting(&refused("process 2 traces it")));
    }
}
