//! A control group with a memory limit. It needs root; without it there is none, with the reason printed.

use std::fs;
use std::path::PathBuf;

/// A control group, until this value is dropped.
#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
}

/// Directories for new groups, and the name of the limit there: version 1, and 2.
const ROOTS: [(&str, &str); 2] = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

impl MemoryGroup {
    /// A group with this limit in bytes; `None`, with the reason printed, where none can be made.
    #[must_use]
    pub fn limited(byte_count: usize) -> Option<Self> {
        let mut reasons = Vec::new();
        for (root, limit) in ROOTS {
            let group = Self { path: PathBuf::from(root).join(format!("redrt-tests-{}", std::process::id())) };
            let made =
                fs::create_dir(&group.path).and_then(|()| fs::write(group.path.join(limit), byte_count.to_string()));
            match made {
                Ok(()) => return Some(group),
                Err(error) => reasons.push(format!("{root}: {error}")),
            }
        }
        eprintln!("skipped: no control group can be given a limit of memory: {}", reasons.join("; "));
        None
    }

    /// A command that runs its further arguments in this group.
    #[must_use]
    pub fn place(&self) -> Vec<String> {
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.path.display());
        ["sh", "-c", &enter, "sh"].map(str::to_owned).to_vec()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Processes of a job that did not end keep the group.
        let _ = fs::remove_dir(&self.path);
    }
}
