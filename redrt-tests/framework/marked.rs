//! Processes of a job, found by a mark in their environment.

use std::fs;

/// The variable that holds the mark.
pub const MARK: &str = "REDRT_TEST_JOB";

/// Processes that have not ended and whose environment holds this mark, with their names.
#[must_use]
pub fn marked(mark: &str) -> Vec<(i32, String)> {
    let wanted = format!("{MARK}={mark}").into_bytes();
    let processes = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|id| {
        // A process that has ended has no environment.
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
    })
    .map(|id| (id, fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default().trim().to_owned()))
    .collect()
}

/// Kills all processes whose environment holds this mark.
pub fn kill_marked(mark: &str) {
    for (id, _) in marked(mark) {
        // SAFETY: - the signal is for another process: this one's environment does not hold the mark of a job.
        unsafe { libc::kill(id, libc::SIGKILL) };
    }
}
