//! Files of `/proc` and `/sys` with counts of the system: memory, load, energy.
//!
//! Each replica opens its own file. Its bytes are agreed on like other counts of the system (`clock::counts`), so that
//! replicas do not part over a runtime that reads them at moments of its own. All other files of `/proc` and `/sys` are
//! the process's or the host's own: descriptors, mappings, devices.

use super::open::open_here;
use super::table::{self, Description};
use super::{Done, Outcome, is_agreed, paths};
use redrt_runtime as runtime;
use redrt_runtime::clock::counts;
use redrt_wire::control::Determinism;
use std::ffi::c_int;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Files of the host, below `/proc`.
const OF_HOST: [&[u8]; 16] = [
    b"buddyinfo",
    b"diskstats",
    b"interrupts",
    b"loadavg",
    b"meminfo",
    b"net/dev",
    b"pressure/cpu",
    b"pressure/io",
    b"pressure/memory",
    b"schedstat",
    b"slabinfo",
    b"softirqs",
    b"stat",
    b"uptime",
    b"vmstat",
    b"zoneinfo",
];

/// Names of files of a process or a thread, below `/proc`.
const OF_PROCESS: [&[u8]; 11] = [
    b"io",
    b"numa_maps",
    b"oom_score",
    b"sched",
    b"schedstat",
    b"smaps",
    b"smaps_rollup",
    b"stat",
    b"statm",
    b"status",
    b"wchan",
];

/// Names of files below `/sys`: memory of nodes and control groups, values of processors and sensors.
const OF_SYSTEM: [&[u8]; 14] = [
    b"cpu.stat",
    b"cpuacct.usage",
    b"energy_uj",
    b"io.stat",
    b"meminfo",
    b"memory.current",
    b"memory.peak",
    b"memory.stat",
    b"memory.usage_in_bytes",
    b"numastat",
    b"scaling_cur_freq",
    b"temp",
    b"time_in_state",
    b"vmstat",
];

/// Returns true if the file has counts of the system. Among files of processes, only this process's own.
fn is_counting(path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    if let Some(below) = path.strip_prefix(b"/sys/") {
        return below.rsplit(|byte| *byte == b'/').next().is_some_and(|name| OF_SYSTEM.contains(&name));
    }
    let Some(below) = path.strip_prefix(b"/proc/") else { return false };
    if OF_HOST.contains(&below) {
        return true;
    }
    let own = std::process::id().to_string();
    let parts: Vec<&[u8]> = below.split(|byte| *byte == b'/').collect();
    let ([process, name] | [process, b"task", _, name]) = parts.as_slice() else { return false };
    let is_own = [b"self", &b"thread-self"[..], own.as_bytes()].contains(process);
    is_own && OF_PROCESS.contains(name)
}

/// Opens a file with counts for reading; leaves calls on other files.
pub fn open(path: &Path, flags: c_int) -> Outcome {
    let agrees = || runtime::job().is_some_and(|job| job.welcome.options.determinism == Determinism::Full);
    if flags & libc::O_ACCMODE != libc::O_RDONLY || !is_agreed() || !is_counting(path) || !agrees() {
        return Ok(Done::Left);
    }
    let fd = open_here(&paths::as_c(path), flags, 0)?;
    let description = Description::of_system(path.to_owned(), flags);
    table::insert(fd, Arc::new(Mutex::new(description)));
    Ok(Done::Answered(fd.into()))
}

/// Agrees on the bytes of a file with counts. `read` reads this process's own.
pub fn read<E>(read: impl Fn() -> Result<Vec<u8>, E>) -> Result<Vec<u8>, E> {
    if is_agreed() { counts::in_file(read) } else { read() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_told_apart_from_what_a_process_has() {
        let own = std::process::id();
        for path in ["/proc/self/status", "/proc/thread-self/stat", "/proc/self/task/7/schedstat", "/proc/meminfo"] {
            assert!(is_counting(Path::new(path)), "{path}");
        }
        assert!(is_counting(Path::new(&format!("/proc/{own}/statm"))));
        for path in ["/sys/class/powercap/intel-rapl:0/energy_uj", "/sys/devices/system/node/node0/meminfo"] {
            assert!(is_counting(Path::new(path)), "{path}");
        }
        for path in ["/proc/self/maps", "/proc/self/fd/3", "/proc/self/fd/stat", "/proc/1/stat", "/proc/cpuinfo"] {
            assert!(!is_counting(Path::new(path)), "{path}");
        }
        for path in ["/proc", "/proc/self", "/proc/self/task", "/sys/class/net/lo/mtu", "/tmp/stat", "/sys"] {
            assert!(!is_counting(Path::new(path)), "{path}");
        }
    }
}
