//! What tells a process from all that had, or will have, its number, here or on another host.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;

/// Where numbers of processes mean something: one run of a kernel, and there one set of numbers (pid_namespaces(7)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Machine {
    boot: u128,
    namespace: u64,
}

impl Machine {
    /// Where this process is. What the system does not tell is zero, on all that do not tell it.
    #[must_use]
    pub fn here() -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = u128::from_str_radix(&boot.trim().replace('-', ""), 16).unwrap_or_default();
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino());
        Self { boot, namespace }
    }
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcessIdentity {
    machine: Machine,
    pid: i32,
    /// When it was started, in clock ticks since the host was (proc_pid_stat(5), field 22).
    started_ticks: u64,
}

impl ProcessIdentity {
    /// That of the process that has this number now; none if there is no such process.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(Self { machine: Machine::here(), pid, started_ticks: started_ticks(&text)? })
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
        let elsewhere = Machine { namespace: own.machine.namespace + 1, ..own.machine };
        ProcessIdentity { machine: elsewhere, ..own }.terminate();
        assert_eq!(child.try_wait().expect("it is our child"), None);
        own.terminate();
        assert_eq!(child.wait().expect("it is our child").code(), None);
        own.terminate();
    }
}
