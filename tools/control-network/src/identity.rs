//! Identity of a process, unique among all that ever have its number, on any host.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;

/// Scope of process numbers: one boot of a kernel, and there one PID namespace (pid_namespaces(7)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Machine {
    boot: u128,
    namespace: u64,
}

impl Machine {
    /// The scope of this process. Parts that the system does not show are zero.
    #[must_use]
    pub fn here() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = u128::from_str_radix(&boot.trim().replace('-', ""), 16).unwrap_or_default();
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino());
        Self { boot, namespace }
    }
}

/// A process: see the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcessIdentity {
    machine: Machine,
    pid: i32,
    /// Start time, in clock ticks since the host's boot (proc_pid_stat(5), field 22).
    started_ticks: u64,
}

impl ProcessIdentity {
    /// Identity of the process with this number. `None` if none exists.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(Self { machine: Machine::here(), pid, started_ticks: started_ticks(&text)? })
    }

    /// Sends SIGTERM if the process still exists.
    pub fn terminate(self) {
        // The kernel assigns numbers in turn, so this one is not reused between check and signal.
        if Self::of(self.pid) == Some(self) {
            // The process may end in between.
            let _ = kill(Pid::from_raw(self.pid), Signal::SIGTERM);
        }
    }
}

/// The name may contain anything; it ends with the last bracket. The third field follows.
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
        let elsewhere = Machine { namespace: own.machine.namespace + 1, ..own.machine };
        ProcessIdentity { machine: elsewhere, ..own }.terminate();
        assert_eq!(child.try_wait().expect("it is our child"), None);
        own.terminate();
        assert_eq!(child.wait().expect("it is our child").code(), None);
        own.terminate();
    }
}
