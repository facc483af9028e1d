//! Ends of processes, and their description.

use serde::{Deserialize, Serialize};
use std::fmt;

/// End of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Exit {
    /// Exit with this status.
    Status(i32),
    /// Death by this signal.
    Signal(i32),
    /// SIGKILL by the kernel, because memory had run out on the host or in a control group of the process.
    OutOfMemory,
}

const SIGKILL: i32 = 9;

impl Exit {
    /// The exit code a shell would report.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::Status(status) => status,
            Self::Signal(signal) => 128 + signal,
            Self::OutOfMemory => 128 + SIGKILL,
        }
    }

    /// Returns true if it was killed by SIGKILL, from any sender.
    #[must_use]
    pub fn is_killed(self) -> bool {
        matches!(self, Self::Signal(SIGKILL) | Self::OutOfMemory)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "status {status}"),
            Self::Signal(signal) => match usize::try_from(*signal).ok().and_then(|number| SIGNALS.get(number)) {
                Some(name) if !name.is_empty() => write!(f, "signal {signal} (SIG{name})"),
                _ => write!(f, "signal {signal}"),
            },
            Self::OutOfMemory => write!(f, "{} of the kernel, which had no memory left", Self::Signal(SIGKILL)),
        }
    }
}

/// Names of signals by number, as on Linux on x86-64 and most others (signal(7)).
const SIGNALS: [&str; 32] = [
    "", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
    "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH",
    "IO", "PWR", "SYS",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_with_the_names_of_signals() {
        let told = [Exit::Status(3), Exit::Signal(9), Exit::Signal(31), Exit::Signal(40), Exit::Signal(-1)];
        let told = told.map(|exit| exit.to_string());
        assert_eq!(told, ["status 3", "signal 9 (SIGKILL)", "signal 31 (SIGSYS)", "signal 40", "signal -1"]);
        let killed = Exit::OutOfMemory;
        assert_eq!(killed.to_string(), "signal 9 (SIGKILL) of the kernel, which had no memory left");
        assert_eq!((killed.code(), killed.is_killed(), Exit::Signal(9).is_killed()), (137, true, true));
        assert!(!Exit::Signal(11).is_killed() && !Exit::Status(9).is_killed());
    }
}
