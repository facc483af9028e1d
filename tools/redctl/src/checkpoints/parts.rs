//! Parts of lines on other hosts. `redctl` checks and removes them there: it starts itself on those hosts as daemons
//! are started.
//!
//! ```text
//!  redctl checkpoint verify --on-hosts ── ssh h3 ── redctl checkpoint part verify /scratch/ckpt/8f3a… 2 7
//!     knows from the manifest what has to be there        says of each file of its part what is wrong with it
//! ```

use super::check_file;
use anyhow::{Context, Result, ensure};
use checkpoint_store::names::Name;
use checkpoint_store::pieces::piece_path;
use checkpoint_store::{Manifest, place};
use clap::{Args, ValueEnum};
use control_network::asking::{self, Way};
use control_network::launchers;
use redrt_wire::checkpoint::{Generation, image_path};
use redrt_wire::daemon::HostName;
use redrt_wire::secret::Secret;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::BufRead;
use std::path::{Path, PathBuf};

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
    let numbers = part.numbers.iter().filter(|_| part.what == PartWork::Delete);
    for number in numbers {
        // Each host has the manifest.
        let _ = std::fs::remove_dir_all(part.directory.join(Name::whole(Generation(*number)).to_string()));
    }
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
    let is_line = |name: std::ffi::OsString| name.to_str().is_some_and(|name| Name::parse(name).is_some());
    if !names.map(|entry| entry.file_name()).any(is_line) {
        file_undo::Directory::of_job(of_host).remove()?;
        // The host's directory is empty now. The job's is, too, unless it holds more.
        let _ = std::fs::remove_dir(of_host).and_then(|()| std::fs::remove_dir(&part.directory));
    }
    Ok(())
}

/// Lines that hosts keep.
fn on_hosts(manifests: &[Manifest]) -> impl Iterator<Item = &Manifest> {
    manifests.iter().filter(|manifest| manifest.level.is_on_hosts())
}

/// The images and pieces that each host must have, of lines that hosts keep: by host, number of the line and name.
/// Hosts that have the manifest alone are there too.
fn expected(manifests: &[Manifest]) -> BTreeMap<u32, BTreeSet<(u64, String)>> {
    let mut all = BTreeMap::<_, BTreeSet<_>>::new();
    for manifest in on_hosts(manifests) {
        for source in 0..manifest.hosts.len() as u32 {
            all.entry(source).or_default();
            for (index, holder) in manifest.pieces_of(source) {
                let name = piece_path(Path::new(""), source, index).display().to_string();
                all.entry(holder).or_default().insert((manifest.generation.0, name));
            }
        }
        for member in manifest.members.iter().filter(|_| manifest.level.code().is_none()) {
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
    let numbers: Vec<_> = on_hosts(manifests).map(|manifest| manifest.generation.0).collect();
    let directory = std::path::absolute(directory).with_context(|| directory.display().to_string())?;
    let name_of = |host: u32| manifests.iter().find_map(|manifest| manifest.hosts.get(host as usize)).cloned();
    let mut wrong = BTreeMap::<u64, Vec<String>>::new();
    let expected = expected(manifests);
    let part = |host: u32| Part {
        what,
        directory: directory.clone(),
        host,
        numbers: numbers.clone(),
        key_follows: key.is_some(),
    };
    let named = |(host, _): (&u32, &BTreeSet<_>)| (name_of(*host).unwrap_or_default(), part(*host));
    let hosts: Vec<_> = expected.iter().map(named).collect();
    let (here, away): (Vec<_>, Vec<_>) = hosts.into_iter().partition(|(name, _)| host_addresses::is_here(name));
    let words = |(name, part): &(String, Part)| (HostName { user: None, name: name.clone() }, words(part));
    let asked: Vec<_> = away.iter().map(words).collect();
    let input = key.map(|key| format!("{}\n", key.to_text()));
    let find_here = |(name, part): (String, Part)| {
        let found = find(&part, key);
        (name, part, found)
    };
    // Each host reads its own disk meanwhile, this one too.
    let (answers, here) = std::thread::scope(|scope| {
        let here = scope.spawn(|| here.into_iter().map(find_here).collect::<Vec<_>>());
        let answers = asking::ask(Way::Shell(&launcher), &asked, input.as_deref(), None);
        (answers, here.join().expect("asking does not panic"))
    });
    let answers = answers.into_iter().map(|answer| answer.and_then(|said| parsed(&said)));
    let answered = away.into_iter().zip(answers).map(|((name, part), answer)| (name, part, answer)).chain(here);
    for (name, part, answer) in answered {
        for (number, why) in judged(what, &expected[&part.host], answer) {
            wrong.entry(number).or_default().push(format!("{name}: {why}"));
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

/// The command that does this work on another host.
fn words(part: &Part) -> Vec<OsString> {
    let what = if part.what == PartWork::Verify { "verify" } else { "delete" };
    let words = ["redctl", "checkpoint", "part", what].into_iter().map(OsString::from);
    let words = words.chain(part.key_follows.then(|| "--key-follows".into()));
    let words = words.chain([part.directory.clone().into(), part.host.to_string().into()]);
    words.chain(part.numbers.iter().map(|number| number.to_string().into())).collect()
}

fn parsed(said: &[u8]) -> Result<Vec<Found>> {
    said.lines().map(|line| serde_json::from_str(&line?).context("it has said what cannot be read")).collect()
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
