//! `--metrics-targets`: a file by which Prometheus finds the metrics of a running job (`file_sd_configs`).

use anyhow::{Context, Result};
use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Prefix of the files' names.
const NAME_BEGIN: &str = "redrt-";

/// The file of a job. Dropping it removes the file.
#[derive(Debug)]
pub struct Target(PathBuf);

impl Target {
    /// Writes the file. Removes stale files of jobs that were killed on this host.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn write(directory: &Path, job: &str, host: &str, address: SocketAddr, labels: &Value) -> Result<Self> {
        remove_stale(directory, host);
        let host_name = if address.ip().is_unspecified() { host.to_owned() } else { address.ip().to_string() };
        let mut labels = labels.clone();
        labels["__meta_redrt_host"] = json!(host);
        labels["__meta_redrt_pid"] = json!(std::process::id().to_string());
        let text = json!([{ "targets": [format!("{host_name}:{}", address.port())], "labels": labels }]).to_string();
        let path = directory.join(format!("{NAME_BEGIN}{job}.json"));
        let failed = || format!("Failed to write {}", path.display());
        // Prometheus reads files that end in .json, and must never see a partial one.
        let new = directory.join(format!("{NAME_BEGIN}{job}.new"));
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &path));
        if written.is_err() {
            // On a full disk the file may be partial.
            let _ = fs::remove_file(&new);
        }
        written.with_context(failed)?;
        Ok(Self(path))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Another process may have removed it already.
        let _ = fs::remove_file(&self.0);
    }
}

fn remove_stale(directory: &Path, host: &str) {
    let is_stale = |path: &Path| {
        let text = fs::read_to_string(path).ok()?;
        let value: Value = serde_json::from_str(&text).ok()?;
        let labels = &value[0]["labels"];
        let pid: i32 = labels["__meta_redrt_pid"].as_str()?.parse().ok()?;
        let is_here = labels["__meta_redrt_host"] == host;
        Some(is_here && pid > 0 && kill(Pid::from_raw(pid), None) == Err(nix::Error::ESRCH))
    };
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(NAME_BEGIN) && name.ends_with(".json") && is_stale(&entry.path()) == Some(true) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_jobs_are_found_and_entries_of_killed_ones_removed() {
        let directory = tempfile::tempdir().unwrap();
        let names = || {
            let names = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        };
        let stale = |host: &str| {
            let labels = json!({ "__meta_redrt_host": host, "__meta_redrt_pid": "2147483647" });
            json!([{ "targets": ["127.0.0.1:9"], "labels": labels }]).to_string()
        };
        fs::write(directory.path().join("redrt-1.json"), stale("h1")).unwrap();
        fs::write(directory.path().join("redrt-2.json"), stale("h2")).unwrap();
        fs::write(directory.path().join("other.json"), stale("h1")).unwrap();
        fs::write(directory.path().join("redrt-3.json"), "no json").unwrap();
        let at = "0.0.0.0:9123".parse().unwrap();
        let target = Target::write(directory.path(), "ab", "h1", at, &json!({ "user": "me" })).unwrap();
        assert_eq!(names(), ["other.json", "redrt-2.json", "redrt-3.json", "redrt-ab.json"]);
        let text = fs::read_to_string(directory.path().join("redrt-ab.json")).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value[0]["targets"][0], &value[0]["labels"]["user"]), (&json!("h1:9123"), &json!("me")));
        drop(target);
        assert_eq!(names(), ["other.json", "redrt-2.json", "redrt-3.json"]);
        // The new file is written, but cannot be renamed.
        fs::create_dir_all(directory.path().join("redrt-cd.json/x")).unwrap();
        assert!(Target::write(directory.path(), "cd", "h1", at, &json!({})).is_err());
        assert!(!directory.path().join("redrt-cd.new").exists());
        assert!(Target::write(Path::new("/no/such"), "ab", "h1", at, &json!({})).is_err());
    }
}
