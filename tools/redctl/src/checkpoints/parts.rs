//! Parts of lines on other hosts. `redctl` checks and removes them there: it starts itself on those hosts as daemons
//! are started.
//!
//! ```text
//!  redctl checkpoint verify --on-hosts ── ssh h3 ── redctl checkpoint part verify /scratch/ckpt/8f3a… 2 7
//!     knows from the manifest what has to be there        says of each file of its part what is wrong with it
//! ```

use super::check_file;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use control_network::launcher::shell_on;
use control_network::launchers;
use line_store::{Manifest, place};
use redrt_wire::daemon::HostName;
use redrt_wire::line::{Generation, image_path};
use redrt_wire::secret::Secret;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Limit for the hosts that are asked at a time.
const ASKED_COUNT_MAX: usize = 32;

/// Whether other hosts are asked, and how they are reached.
#[derive(Args, Clone, Debug)]
pub struct OnHosts {
    /// Also what other hosts keep, on their own disks or in their memory
    #[arg(long = "on-hosts")]
    pub is_wanted: bool,

    /// The command by which they are reached, used as ssh is
    #[arg(long = "launcher-exec", value_name = "COMMAND", default_value = "ssh", requires = "is_wanted")]
    launcher: OsString,
}

/// What is done with a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PartWork {
    /// It is read.
    Verify,
    /// It is removed.
    Delete,
}

/// `redctl checkpoint part`, which redctl starts on other hosts.
#[derive(Args, Clone, Debug)]
pub struct Part {
    #[arg(value_enum)]
    what: PartWork,
    /// The directory of the job.
    directory: PathBuf,
    /// The number of the host in the job.
    host: u32,
    /// The lines.
    numbers: Vec<u64>,
    /// The key comes on standard input.
    #[arg(long)]
    key_follows: bool,
}

/// A file of a part, as a host reports it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Found {
    number: u64,
    file: String,
    /// The problem with the file; `None` if it is sound.
    why: Option<String>,
}

/// Does the work that `redctl` on another host asks for.
///
/// # Errors
/// When the part cannot be listed or removed, or the answer cannot be written.
pub fn work(part: &Part) -> Result<()> {
    let key = match part.key_follows {
        false => None,
        true => {
            let mut text = String::new();
            std::io::stdin().lock().read_line(&mut text).context("Failed to read the key")?;
            Some(Secret::from_text(text.trim()).context("what came is no key")?)
        }
    };
    for found in find(part, key.as_ref())? {
        say::line(format_args!("{}", serde_json::to_string(&found)?))?;
    }
    Ok(())
}

fn find(part: &Part, key: Option<&Secret>) -> Result<Vec<Found>> {
    let mut all = Vec::new();
    for number in &part.numbers {
        let place = place::of_host(&part.directory, part.host, Generation(*number));
        match part.what {
            PartWork::Verify if place.is_dir() => all.extend(read(&place, *number, key)?),
            PartWork::Delete if place.is_dir() => remove(part, &place)?,
            _ => {}
        }
    }
    Ok(all)
}

fn read(place: &Path, number: u64, key: Option<&Secret>) -> Result<Vec<Found>> {
    let entries = std::fs::read_dir(place).with_context(|| place.display().to_string())?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let found = |path: &PathBuf| {
        let why = check_file(path, key)?.err().map(|error| format!("{error:#}"));
        Some(Found { number, file: path.file_name()?.to_str()?.to_owned(), why })
    };
    Ok(paths.iter().filter_map(found).collect())
}

/// Removes a place. After the last line of a host, its log of changed files goes too.
fn remove(part: &Part, place: &Path) -> Result<()> {
    std::fs::remove_dir_all(place).with_context(|| format!("Failed to remove {}", place.display()))?;
    let of_host = place.parent().context("a place is below that of its host")?;
    let names = std::fs::read_dir(of_host).with_context(|| of_host.display().to_string())?.flatten();
    let is_line =
        |name: std::ffi::OsString| name.to_str().is_some_and(|name| line_store::names::Name::parse(name).is_some());
    if !names.map(|entry| entry.file_name()).any(is_line) {
        file_undo::Directory::of_job(of_host).remove()?;
        // The host's directory is empty now. The job's is, too, unless it holds more.
        let _ = std::fs::remove_dir(of_host).and_then(|()| std::fs::remove_dir(&part.directory));
    }
    Ok(())
}

/// The images that each host must have, of lines that hosts keep: by host, number of the line and name.
fn expected(manifests: &[Manifest]) -> BTreeMap<u32, BTreeSet<(u64, String)>> {
    let mut all = BTreeMap::<_, BTreeSet<_>>::new();
    for manifest in manifests.iter().filter(|manifest| manifest.level.is_of_hosts() && !manifest.level.is_fetched()) {
        for member in &manifest.members {
            let name = image_path(Path::new(""), member.replica.rank).display().to_string();
            for holder in manifest.holders(member.host) {
                all.entry(holder).or_default().insert((manifest.generation.0, name.clone()));
            }
        }
    }
    all
}

/// Problems on the hosts that keep these lines, by the number of the line. To verify: damaged and missing files, and
/// hosts that cannot be asked. To delete: everything that was not deleted.
pub fn ask(
    on: &OnHosts,
    what: PartWork,
    directory: &Path,
    manifests: &[Manifest],
    key: Option<&Secret>,
) -> Result<BTreeMap<u64, Vec<String>>> {
    let launcher = launchers::words(&on.launcher);
    ensure!(!launcher.is_empty(), "--launcher-exec is empty");
    let directory = std::path::absolute(directory).with_context(|| directory.display().to_string())?;
    let name_of = |host: u32| manifests.iter().find_map(|manifest| manifest.hosts.get(host as usize)).cloned();
    let mut wrong = BTreeMap::<u64, Vec<String>>::new();
    let expected: Vec<_> = expected(manifests).into_iter().collect();
    for some in expected.chunks(ASKED_COUNT_MAX) {
        let answers: Vec<_> = std::thread::scope(|scope| {
            let ask = |(host, files): &(u32, BTreeSet<(u64, String)>)| {
                let name = name_of(*host).unwrap_or_default();
                let numbers: BTreeSet<_> = files.iter().map(|(number, _)| *number).collect();
                let part = Part {
                    what,
                    directory: directory.clone(),
                    host: *host,
                    numbers: numbers.into_iter().collect(),
                    key_follows: key.is_some(),
                };
                let launcher = &launcher;
                scope.spawn(move || (name.clone(), answer(launcher, &name, &part, key)))
            };
            let asked: Vec<_> = some.iter().map(ask).collect();
            asked.into_iter().map(|one| one.join().expect("asking does not panic")).collect()
        });
        for ((_, files), (name, answer)) in some.iter().zip(answers) {
            for (number, why) in judged(what, files, answer) {
                wrong.entry(number).or_default().push(format!("{name}: {why}"));
            }
        }
    }
    Ok(wrong)
}

/// The problems of a host, from its answer and the files that it must have.
fn judged(what: PartWork, files: &BTreeSet<(u64, String)>, answer: Result<Vec<Found>>) -> BTreeSet<(u64, String)> {
    let found = match answer {
        Ok(found) => found,
        Err(error) => return files.iter().map(|(number, _)| (*number, format!("{error:#}"))).collect(),
    };
    let damaged = found.iter().filter_map(|one| Some((one.number, format!("{}: {}", one.file, one.why.as_ref()?))));
    let is_found = |(number, file): &(u64, String)| found.iter().any(|one| one.number == *number && one.file == *file);
    let missing = files.iter().filter(|file| what == PartWork::Verify && !is_found(file));
    damaged.chain(missing.map(|(number, file)| (*number, format!("{file} is missing")))).collect()
}

fn answer(launcher: &[OsString], name: &str, part: &Part, key: Option<&Secret>) -> Result<Vec<Found>> {
    if host_addresses::is_here(name) {
        return find(part, key);
    }
    let own = std::env::current_exe().context("Failed to find where redrt is installed")?;
    let redctl = own.with_file_name("redctl");
    let what = if part.what == PartWork::Verify { "verify" } else { "delete" };
    let words = [redctl.into(), "checkpoint".into(), "part".into(), what.into()].into_iter();
    let words = words.chain(part.key_follows.then(|| "--key-follows".into()));
    let words = words.chain([part.directory.clone().into(), part.host.to_string().into()]);
    let words = words.chain(part.numbers.iter().map(|number| number.to_string().into()));
    let mut command = shell_on(launcher, &HostName { user: None, name: name.to_owned() }, words)?;
    run(&mut command, key)
}

fn run(command: &mut Command, key: Option<&Secret>) -> Result<Vec<Found>> {
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.with_context(|| format!("Failed to run {}", command.get_program().display()))?;
    if let (Some(mut input), Some(key)) = (child.stdin.take(), key) {
        // A process that has failed already reports its reason.
        let _ = writeln!(input, "{}", key.to_text());
    }
    let output = child.wait_with_output().context("Failed to hear of a host")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("it cannot be asked: {}", say::shown(said.trim().lines().last().unwrap_or("it has said nothing")));
    }
    let lines = output.stdout.lines();
    lines.map(|line| serde_json::from_str(&line?).context("it has said what cannot be read")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(number: u64, file: &str, why: Option<&str>) -> Found {
        Found { number, file: file.into(), why: why.map(str::to_owned) }
    }

    #[test]
    fn what_is_damaged_missing_or_cannot_be_asked_is_told_by_line() {
        let files = BTreeSet::from([(2, "0.image".to_owned()), (3, "0.image".to_owned())]);
        let said = vec![found(2, "0.image", None), found(2, "host-1.memory", Some("it is torn"))];
        let told = judged(PartWork::Verify, &files, Ok(said.clone()));
        let expected = [(2, "host-1.memory: it is torn".to_owned()), (3, "0.image is missing".to_owned())];
        assert_eq!(told.into_iter().collect::<Vec<_>>(), expected);
        assert!(judged(PartWork::Delete, &files, Ok(Vec::new())).is_empty());
        let silent = judged(PartWork::Delete, &files, Err(anyhow::anyhow!("it cannot be asked: no route")));
        assert_eq!(silent.len(), 2);
    }

    #[test]
    fn a_host_says_what_it_has_and_removes_it() {
        let parent = tempfile::tempdir().unwrap();
        let job = parent.path().join("job");
        for number in [2, 3] {
            let place = place::of_host(&job, 1, Generation(number));
            place::make(&place, &[2, 3].map(Generation)).unwrap();
            std::fs::write(place.join("0.image"), "no image").unwrap();
        }
        let part = |what, numbers: &[u64]| Part {
            what,
            directory: job.clone(),
            host: 1,
            numbers: numbers.to_vec(),
            key_follows: false,
        };
        let all = find(&part(PartWork::Verify, &[1, 2, 3]), None).unwrap();
        assert_eq!(all.iter().map(|one| (one.number, one.why.is_some())).collect::<Vec<_>>(), [(2, true), (3, true)]);
        find(&part(PartWork::Delete, &[2]), None).unwrap();
        assert!(job.join("at-1/line-3").exists() && !job.join("at-1/line-2").exists());
        find(&part(PartWork::Delete, &[2, 3]), None).unwrap();
        assert!(!job.exists());
    }
}
