//! What can go wrong, and in which phase of a clone.

use crate::refusal::Refusal;
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
    pub fn refused(phase: Phase, reason: Refusal) -> Self {
        Self::Refused { phase, reasons: vec![reason] }
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
    use crate::refusal::NoAgent;

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
            assert_eq!(reason.is_lasting(), is_lasting);
            let line = Error::refused(Phase::Prepare, reason).line();
            assert_eq!(Refusal::is_lasting_in(&line), is_lasting);
            assert_eq!(Refusal::is_lasting_in(&format!("the source says: {line}")), is_lasting);
        }
    }
}
