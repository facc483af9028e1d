//! Uploads files of a checkpoint's part to an object store, or downloads those that a host lacks.

use super::{HelperConnection, Reply};
use anyhow::Result;
use checkpoint_files::remote::{Access, check_scratch};
use redrt_wire::object::{ObjectEntry, Stored};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Interval between reports of progress: `redrun` expects one within minutes.
const TELL_INTERVAL: Duration = Duration::from_secs(5);

/// Reports at intervals how much has moved.
fn teller(daemon: &mut HelperConnection) -> impl FnMut(u64) -> Result<()> {
    let mut told = Instant::now();
    move |bytes| {
        if told.elapsed() < TELL_INTERVAL {
            return Ok(());
        }
        told = Instant::now();
        daemon.say(&Reply::Moved(bytes))
    }
}

/// Uploads these files with keys below the prefix.
pub fn store(
    access: &Access,
    directory: &Path,
    files: &[String],
    prefix: &str,
    daemon: &mut HelperConnection,
) -> Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    // The scratch directory of all jobs is three levels up: checkpoint, host, job.
    directory.ancestors().nth(3).map(check_scratch).transpose()?;
    let entry =
        |name: &String| ObjectEntry { key: format!("{prefix}/{name}"), path: directory.join(name), facts: None };
    let entries: Vec<_> = files.iter().map(entry).collect();
    let stored = access.put(&entries, &mut teller(daemon))?;
    let named = files.iter().zip(stored).map(|(name, stored)| Stored { key: name.clone(), ..stored }).collect();
    daemon.say(&Reply::Stored(named))
}

/// Downloads these files, except those that are here unchanged.
pub fn fetch(access: &Access, wanted: &[ObjectEntry], daemon: &mut HelperConnection) -> Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    if let Some(place) = wanted.first().and_then(|entry| entry.path.ancestors().nth(4)) {
        DirBuilder::new().recursive(true).mode(0o700).create(place)?;
        check_scratch(place)?;
    }
    access.get(wanted, &mut teller(daemon))?;
    daemon.say(&Reply::Fetched)
}
