//! Kills every descendant, whatever its process group. Peers of the quorum of coordinators and their children are
//! excepted: they outlive daemons and killed coordinators ([`coordinator_records::quorum`]), and end by themselves. So
//! does the pipe holder of a coordinator's output ([`coordinator_records::pipe_holder`]).

use coordinator_records::pipe_holder::PIPE_HOLDER_FLAG;
use coordinator_records::quorum::PEER_FLAG;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::time::{Duration, Instant};

const SWEEP_TIME_MAX: Duration = Duration::from_secs(2);

/// Becomes the parent of all orphaned descendants, so that the sweep finds them.
pub fn become_subreaper() -> nix::Result<()> {
    nix::sys::prctl::set_child_subreaper(true)
}

/// Kills all descendants and waits for their end. Returns early if one cannot die. With `keeps_sessions`, descendants
/// in sessions of their own, such as a service started by a program, are spared with everything below them.
pub fn kill_descendants(keeps_sessions: bool) {
    let give_up_at = Instant::now() + SWEEP_TIME_MAX;
    loop {
        // Parents come last: if this process is killed meanwhile, a guard among them ends the rest.
        let found = descendants(keeps_sessions);
        for pid in found.iter().rev() {
            let _ = kill(*pid, Signal::SIGKILL);
        }
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => break,
                Ok(_) => {}
                Err(_) => return,
            }
        }
        if found.is_empty() || Instant::now() > give_up_at {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Descendants, each after its parent.
fn descendants(keeps_sessions: bool) -> Vec<Pid> {
    let own_session = nix::unistd::getsid(None).map_or(0, Pid::as_raw);
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name in parentheses may contain anything. The second field after it is the parent, the fourth the
        // session.
        let Some((_, fields)) = stat.rsplit_once(')') else { continue };
        let number =
            |field: usize| fields.split_whitespace().nth(field).and_then(|text| text.parse().ok()).unwrap_or(0);
        let (parent, session) = (number(1), number(3));
        if !keeps_sessions || session == own_session {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![std::process::id() as i32];
    while let Some(parent) = open.pop() {
        for child in children.remove(&parent).unwrap_or_default().into_iter().filter(|pid| !outlives_coordinators(*pid))
        {
            found.push(Pid::from_raw(child));
            open.push(child);
        }
    }
    found
}

fn outlives_coordinators(pid: i32) -> bool {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = words.split(|byte| *byte == 0);
    let is_ours = words.next().is_some_and(|program| program.ends_with(b"redrtd"));
    is_ours && words.next().is_some_and(|flag| flag == PEER_FLAG.as_bytes() || flag == PIPE_HOLDER_FLAG.as_bytes())
}
