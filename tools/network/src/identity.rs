//! What tells a process from all that had, or will have, its number.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pid: i32,
    /// When it was started, in clock ticks since the host was (proc_pid_stat(5), field 22).
    started_ticks: u64,
}

impl ProcessIdentity {
    /// That of the process that has this number now; none if there is no such process.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(Self { pid, started_ticks: started_ticks(&text)? })
    }

    /// Asks it to end, if it is still there.
    pub fn terminate(self) {
        // Numbers are given out in turn: this one is not another's between the look and the signal.
        if Self::of(self.pid) == Some(self) {
            // It may end in that moment.
            let _ = kill(Pid::from_raw(self.pid), Signal::SIGTERM);
        }
    }
}

/// The name, which may hold anything, ends with the last bracket; the third field follows.
fn started_ticks(stat: &str) -> Option<u64> {
    stat.rsplit_once(") ")?.1.split(' ').nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_time_of_the_start_is_found_whatever_the_name_is() {
        let fields: Vec<_> = (3..=52).map(|number| number.to_string()).collect();
        assert_eq!(started_ticks(&format!("7 (a) (b) {}", fields.join(" "))), Some(22));
        assert_eq!(started_ticks("7 (a) S 1"), None);
    }

    #[test]
    fn only_the_process_itself_is_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("it is there");
        let own = ProcessIdentity::of(child.id() as i32).expect("it runs");
        ProcessIdentity { started_ticks: own.started_ticks + 1, ..own }.terminate();
        assert_eq!(child.try_wait().expect("it is our child"), None);
        own.terminate();
        assert_eq!(child.wait().expect("it is our child").code(), None);
        own.terminate();
    }
}
