//! Actions on a running job, and the job's answers about itself.

use crate::job::Running;
use crate::prefix;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

impl Running {
    /// Number of records of this kind in the audit log.
    #[must_use]
    pub fn count(&self, event: &str) -> usize {
        self.audit().iter().filter(|record| record["event"] == event).count()
    }

    /// Number of replicas that were lost and are not replaced yet.
    #[must_use]
    pub fn missing_count(&self) -> usize {
        let mut missing = BTreeSet::new();
        for record in self.audit() {
            let replica = record["replica"].as_str().unwrap_or_default().to_owned();
            match record["event"].as_str() {
                Some("replica-lost") => drop(missing.insert(replica)),
                Some("recovered") => drop(missing.remove(&replica)),
                _ => {}
            }
        }
        missing.len()
    }

    /// Waits until the audit log has `count` records of this kind.
    pub fn wait_for(&self, event: &str, count: usize) {
        self.wait_until(event, |job| job.count(event) >= count);
    }

    /// Process id of the latest process of a replica.
    #[must_use]
    pub fn pid_of(&self, replica: &str) -> i32 {
        let audit = self.audit();
        let is_its = |record: &&Value| {
            record["replica"] == replica && (record["event"] == "started" || record["event"] == "copy-runs")
        };
        let record = audit.iter().rfind(is_its).expect("it was started");
        i32::try_from(record["pid"].as_i64().expect("a process id")).expect("a process id")
    }

    /// Helpers of the daemon on this machine: parents of replicas, and processes that send or receive images.
    #[must_use]
    pub fn helpers(&self) -> Vec<i32> {
        let guards = children(&[self.redrun()]);
        let daemons = children(&guards);
        let is_helper = |id: &i32| {
            let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains("--helper")
        };
        children(&daemons).into_iter().filter(is_helper).collect()
    }

    /// Sends a replica SIGKILL.
    pub fn kill_replica(&self, replica: &str) {
        self.signal_replica(replica, libc::SIGKILL);
    }

    /// Sends a replica a signal.
    pub fn signal_replica(&self, replica: &str, signal: i32) {
        // SAFETY: - a signal to another process touches no memory of this one.
        assert_eq!(unsafe { libc::kill(self.pid_of(replica), signal) }, 0, "{replica} is there");
    }

    /// Runs `redctl` on this job and returns its output.
    ///
    /// # Errors
    /// When it fails: with its standard error.
    pub fn redctl(&self, words: &[&str]) -> Result<String, String> {
        let audit = self.audit();
        let start = audit.iter().find(|record| record["event"] == "job-start").ok_or("the job has not started")?;
        let job = start["job"].as_str().unwrap_or_default();
        let redctl = prefix().join("bin/redctl").display().to_string();
        let mut line = self.place.iter().cloned().chain([redctl, "--job".into(), job.to_owned()]);
        let mut command = Command::new(line.next().expect("redctl, at least"));
        command.args(line).args(words).envs(self.records.iter().cloned()).stdin(Stdio::null());
        let output = command.output().expect("redctl can be run");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Replicas that run, with their hosts: `1.0 on h2`.
    #[must_use]
    pub fn replicas(&self) -> Vec<String> {
        let status = self.redctl(&["status", "--json"]).unwrap_or_default();
        let status: Value = serde_json::from_str(&status).unwrap_or_default();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let replicas = list(&status["ranks"]).into_iter().flat_map(|rank| list(&rank["replicas"]));
        let running = replicas.filter(|replica| replica["state"] == "running");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        running.map(|replica| format!("{} on {}", text(&replica["replica"]), text(&replica["host"]))).collect()
    }
}

/// Process ids of all children of these processes.
fn children(parents: &[i32]) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|id| crate::parent(*id).is_some_and(|parent| parents.contains(&parent))).collect()
}
