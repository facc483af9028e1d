//! The conditions of a measurement.

use crate::runner;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The machine and the state of the tree.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Processors that may be used.
    pub core_count: usize,
    /// Memory in GiB.
    pub memory_gib: f64,
    /// Release of the kernel.
    pub kernel: String,
    /// Name of the distribution.
    pub system: String,
    /// Names and versions of the compilers.
    pub compilers: String,
    /// Commit of the tree, with a mark when it has been changed since.
    pub commit: String,
    /// Congestion control of TCP.
    pub congestion_control: String,
    /// Load average of the last minute before the measurement, as a sign of other work.
    pub load_average: String,
    /// Date, UTC.
    pub date: String,
}

impl Machine {
    /// Collects the conditions.
    pub fn inspect(root: &Path) -> Self {
        let file = |path| fs::read_to_string(path).unwrap_or_default();
        let line = |command: &mut Command| {
            runner::text(command).and_then(|text| text.lines().next().map(str::to_owned)).unwrap_or_default()
        };
        let git = |arguments: &[&str]| line(Command::new("git").arg("-C").arg(root).args(arguments));
        let after = |text: &str, key: &str| {
            let found = text.lines().find(|line| line.starts_with(key));
            found.map_or_else(String::new, |line| line[key.len()..].trim_matches([' ', '\t', ':', '=', '"']).to_owned())
        };
        let memory = after(&file("/proc/meminfo"), "MemTotal").trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0);
        let changed = if git(&["status", "--porcelain", "--untracked-files=no"]).is_empty() { "" } else { ", changed" };
        let congestion_control = if runner::has_own_network() {
            "CUBIC, for all, in a network namespace of each job's own".to_owned()
        } else {
            let system = file("/proc/sys/net/ipv4/tcp_congestion_control");
            format!("that of the system, {}; redrt asks for CUBIC for its own sockets", system.trim())
        };
        let first_compiler = line(Command::new("cc").arg("--version"));
        Self {
            processor: after(&file("/proc/cpuinfo"), "model name"),
            core_count: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: memory / f64::from(1 << 20),
            kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
            system: after(&file("/etc/os-release"), "PRETTY_NAME"),
            compilers: format!("{first_compiler}; {}", line(Command::new("rustc").arg("--version"))),
            commit: format!("{}{changed}", git(&["rev-parse", "--short=12", "HEAD"])),
            congestion_control,
            load_average: file("/proc/loadavg").split(' ').next().unwrap_or("").to_owned(),
            date: line(Command::new("date").args(["-u", "+%Y-%m-%d"])),
        }
    }
}
