//! Checkpoints that other hosts have: a job is resumed on any of them, and goes on from the newest that one has.
//!
//! ```text
//!  redrun --resume /scratch/ckpt -hosts h2,h3 ── ssh h3 ── redctl checkpoint manifests /scratch/ckpt
//!     takes what is newer into its own directory             prints a line for each job: its manifests
//! ```

use super::ResumeError;
use super::resuming::lock_when_over;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use checkpoint_store::Store;
use control_network::asking::{self, Way};
use placement::plan::{HostPlan, Launcher};
use redrt_wire::checkpoint::Generation;
use redrt_wire::secret::Secret;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Limit for a host's answer. A job that is ending there is waited for.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// Checkpoints of one job that a host has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OnHost {
    /// Directory of the checkpoints of all jobs.
    #[serde(with = "redrt_types::path_bytes")]
    directory: PathBuf,
    /// Number of the job.
    job: u64,
    /// True if the job runs, with its coordinator on that host.
    runs: bool,
    /// Numbers of checkpoints, and their manifests as they are on the disk, in base64.
    manifests: Vec<(u64, String)>,
}

/// The jobs that `text` may mean on this host, a directory or the beginning of a job's number. `directory`: where the
/// jobs are that are meant by their numbers.
///
/// # Errors
/// If a directory cannot be read.
pub fn here(text: &Path, directory: &Path) -> Result<Vec<OnHost>, ResumeError> {
    let (stores, prefix) = match text.is_dir() {
        false => (Store::below(directory)?, text.as_os_str().as_encoded_bytes()),
        true => match Store::below(text)? {
            none if none.is_empty() => (Store::find(text).into_iter().collect(), &b""[..]),
            below => (below, &b""[..]),
        },
    };
    let mut found = Vec::new();
    for store in stores {
        let name = store.directory().file_name().unwrap_or_default().as_encoded_bytes();
        let job = std::str::from_utf8(name).ok().and_then(|name| u64::from_str_radix(name, 16).ok());
        let (Some(job), Some(parent), true) = (job, store.directory().parent(), name.starts_with(prefix)) else {
            continue;
        };
        let runs = matches!(lock_when_over(&store, &running_jobs::lives), Err(checkpoint_store::Error::Busy(_)));
        let encode = |(generation, bytes): (Generation, Vec<u8>)| (generation.0, BASE64_STANDARD.encode(bytes));
        let manifests = store.manifests()?.into_iter().map(encode).collect();
        found.push(OnHost { directory: parent.to_owned(), job, runs, manifests });
    }
    Ok(found)
}

/// Takes the manifests that the other hosts of a plan have into this host's directory. Returns notes for the user:
/// hosts that could not be asked.
///
/// # Errors
/// If the job runs on one of them, if they have several jobs, or if this host's disk refuses.
pub(super) fn take_in(
    text: &Path,
    directory: &Path,
    plan: &HostPlan,
    key: Option<&Secret>,
) -> Result<Vec<String>, ResumeError> {
    // A host may be named several times.
    let named = plan.hosts.iter().filter_map(|host| host.name.as_ref()).map(|host| (&host.name, host));
    let named: BTreeMap<_, _> = named.collect();
    let others = named.into_values().filter(|host| !host_addresses::is_here(&host.name)).cloned();
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // The directory of all jobs, or the one above that of the job.
    let places = [absolute(text), absolute(text).parent().unwrap_or(text).to_owned(), absolute(directory)];
    let is_number = text.as_os_str().as_encoded_bytes().iter().all(u8::is_ascii_hexdigit);
    let meant = if is_number && !text.is_dir() { text.to_owned() } else { absolute(text) };
    let words = ["redctl".into(), "checkpoint".into(), "manifests".into(), meant.into_os_string()].into_iter();
    let words: Vec<OsString> = words.chain(["--checkpoint-dir".into(), absolute(directory).into_os_string()]).collect();
    let asked: Vec<_> = others.map(|host| (host, words.clone())).collect();
    let way = match &plan.launcher {
        Launcher::Remote(command) => Way::Shell(command),
        Launcher::Slurm { command, .. } => Way::Slurm(command),
    };
    let answers = asking::ask(way, &asked, None, Some(ANSWER_TIME_MAX));
    let mut notes = Vec::new();
    let mut jobs = BTreeMap::<u64, (PathBuf, Vec<(Generation, Vec<u8>)>)>::new();
    for ((host, _), answer) in asked.iter().zip(answers) {
        let said = match answer {
            Ok(said) => said,
            Err(why) => {
                notes.push(format!("the checkpoints on {} are not known: {why:#}", host.name));
                continue;
            }
        };
        for one in parsed(&said) {
            if one.runs {
                return Err(ResumeError::RunsThere { job: one.job, host: host.name.clone() });
            }
            // Nothing is written elsewhere than where the user looks.
            if !places.contains(&one.directory) {
                continue;
            }
            let decode = |(number, text): (u64, String)| Some((Generation(number), BASE64_STANDARD.decode(text).ok()?));
            let (_, found) = jobs.entry(one.job).or_insert_with(|| (one.directory, Vec::new()));
            found.extend(one.manifests.into_iter().filter_map(decode));
        }
    }
    if jobs.len() > 1 {
        return Err(ResumeError::SeveralThere(jobs.into_keys().collect()));
    }
    if let Some((job, (directory, found))) = jobs.pop_first() {
        Store::of_job(&directory, job).with_key(key.cloned()).take_in(found)?;
    }
    Ok(notes)
}

/// A host's answer. Lines of another kind are what its shell prints.
fn parsed(said: &[u8]) -> Vec<OnHost> {
    said.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_prints_is_no_answer() {
        let one = OnHost { directory: "/ckpt".into(), job: 7, runs: false, manifests: vec![(3, "e30=".into())] };
        let said = format!("Welcome to h2\n{}\n", serde_json::to_string(&one).unwrap());
        assert_eq!(parsed(said.as_bytes()), [one]);
    }

    #[test]
    fn a_host_without_checkpoints_has_nothing_to_tell() {
        let parent = tempfile::tempdir().unwrap();
        assert_eq!(here(parent.path(), parent.path()).unwrap(), []);
        assert_eq!(here(Path::new("8f3a"), &parent.path().join("none")).unwrap(), []);
    }
}
