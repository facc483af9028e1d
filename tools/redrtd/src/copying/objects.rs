//! Puts the files of a part of a line into an object store, or gets those that a host lacks.

use super::{Daemon, Reply};
use anyhow::Result;
use line_files::remote::{Access, check_scratch};
use redrt_wire::object::{Entry, Stored};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// That something moves is told this often: `redrun` counts on hearing of it within minutes.
const TELL_INTERVAL: Duration = Duration::from_secs(5);

/// Tells the daemon now and then how much has moved.
fn teller(daemon: &mut Daemon) -> impl FnMut(u64) -> Result<()> {
    let mut told = Instant::now();
    move |bytes| {
        if told.elapsed() < TELL_INTERVAL {
            return Ok(());
        }
        told = Instant::now();
        daemon.say(&Reply::Moved(bytes))
    }
}

/// Puts these files, each below the prefix.
pub fn store(access: &Access, directory: &Path, files: &[String], prefix: &str, daemon: &mut Daemon) -> Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    // Of all jobs: the line is in the place of the host, and that in the place of the job.
    directory.ancestors().nth(3).map(check_scratch).transpose()?;
    let entry = |name: &String| Entry { key: format!("{prefix}/{name}"), path: directory.join(name), facts: None };
    let entries: Vec<_> = files.iter().map(entry).collect();
    let stored = access.put(&entries, &mut teller(daemon))?;
    let named = files.iter().zip(stored).map(|(name, stored)| Stored { key: name.clone(), ..stored }).collect();
    daemon.say(&Reply::Stored(named))
}

/// Gets these, unless they are here as they were.
pub fn fetch(access: &Access, wanted: &[Entry], daemon: &mut Daemon) -> Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    if let Some(place) = wanted.first().and_then(|entry| entry.path.ancestors().nth(4)) {
        DirBuilder::new().recursive(true).mode(0o700).create(place)?;
        check_scratch(place)?;
    }
    access.get(wanted, &mut teller(daemon))?;
    daemon.say(&Reply::Fetched)
}
