//! `redctl checkpoints` and `redctl checkpoint verify|delete`: checkpoint lines of jobs that run, ended or were lost.

mod objects;
mod parts;

use anyhow::{Context, Result, bail};
use checkpoint_files::{remote, undo};
use checkpoint_store::pieces::{check_piece, parse_piece};
use checkpoint_store::{Level, Manifest, Store, StoredCheckpoint, names, place};
use clap::{Args, Subcommand};
use cloner::image::check::check;
use cloner::image::digests::{Base, Contents};
use cloner::shared::SharedMemory;
use command_line::UsageError;
use job_options::checkpoint::find_store;
use job_options::checkpoint_directory;
use job_report::time_text;
use objects::Remote;
use parts::{OnHosts, Part, PartWork, ask};
use redrt_wire::checkpoint::{Generation, pages_path};
use redrt_wire::secret::Secret;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Endings of a line's files.
const IMAGE: &str = "image";
const PAGES: &str = "pages";
const MEMORY: &str = "memory";
/// The length that the log of changed files had at the line.
const CUT: &str = "undo";

/// Which lines.
#[derive(Args, Clone, Debug)]
pub struct Which {
    /// A job, or the directory or URL of its checkpoints; those of all jobs if it is left out
    #[arg(value_name = "DIR|URL|JOB")]
    which: Option<PathBuf>,

    /// Where checkpoints are kept [default: $REDRT_CHECKPOINT_DIR, or redrt-checkpoints]
    #[arg(long = "checkpoint-dir", value_name = "DIR|URL")]
    directory: Option<PathBuf>,

    /// The file with the key of those that are encrypted (redrun --checkpoint-encrypt)
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

/// `redctl checkpoints`.
#[derive(Args, Clone, Debug)]
pub struct List {
    #[command(flatten)]
    which: Which,

    /// As JSON
    #[arg(long)]
    json: bool,
}

/// What is done with lines that are there.
#[derive(Subcommand, Clone, Debug)]
pub enum Work {
    /// Read checkpoints through, and tell whether all of them is as it was written
    Verify {
        /// Of which job
        #[command(flatten)]
        which: Which,
        /// Whether other hosts are asked
        #[command(flatten)]
        on_hosts: OnHosts,
    },
    /// Remove checkpoints; all of a job, or one of them
    Delete {
        /// Of which job
        #[command(flatten)]
        which: Which,
        /// The number of the checkpoint
        #[arg(long, value_name = "N")]
        number: Option<u64>,
        /// Whether other hosts are asked
        #[command(flatten)]
        on_hosts: OnHosts,
    },
    /// What this host keeps of a job whose manifests are on another
    #[command(hide = true)]
    Part(Part),
    /// Manifests that this host has, for `redrun --resume` on another
    #[command(hide = true)]
    Manifests(Manifests),
}

/// `redctl checkpoint manifests`, which `redrun` starts on other hosts.
#[derive(Args, Clone, Debug)]
pub struct Manifests {
    /// A directory, or the number of a job.
    which: PathBuf,
    /// Where checkpoints are kept.
    #[arg(long = "checkpoint-dir")]
    directory: PathBuf,
}

impl Which {
    fn directory(&self) -> PathBuf {
        self.directory.clone().unwrap_or_else(checkpoint_directory)
    }

    /// Name of the place that is searched, for messages.
    fn place(&self) -> PathBuf {
        let named = self.which.clone().filter(|which| remote::url(which).is_some());
        named.unwrap_or_else(|| self.directory())
    }

    fn stores(&self) -> Result<Found> {
        let key = self.key()?;
        let remote = Remote::find(self.which.as_deref(), &self.directory())?;
        let stores = match (&remote, &self.which) {
            (Some(remote), _) => remote.stores()?,
            (None, Some(which)) => self.one(which).map(|store| vec![store])?,
            (None, None) => Store::below(&self.directory())?,
        };
        let stores = stores.into_iter().map(|store| store.with_key(key.clone())).collect();
        Ok(Found { stores, remote })
    }

    /// The store of the only job that matches. Fails if there is none, or more than one.
    fn only(&self) -> Result<(Store, Option<Remote>)> {
        let Found { mut stores, remote } = self.stores()?;
        match (stores.pop(), stores.is_empty()) {
            (Some(store), true) => Ok((store, remote)),
            (Some(_), false) => bail!("there are several jobs: name one of them"),
            (None, _) => bail!("there are no checkpoints in {}", self.place().display()),
        }
    }

    fn key(&self) -> Result<Option<Secret>> {
        self.key.as_deref().map(secret_file::read).transpose()
    }

    fn one(&self, which: &Path) -> Result<Store> {
        find_store(which, &self.directory()).map_err(|why| anyhow::anyhow!("{}: {why}", which.display()))
    }
}

/// Lines that were found.
struct Found {
    stores: Vec<Store>,
    /// Present if the lines are in an object store; their manifests were got from there.
    remote: Option<Remote>,
}

fn age(kept: &StoredCheckpoint) -> Duration {
    let taken_at = UNIX_EPOCH + Duration::from_nanos(kept.manifest.taken_at_ns);
    SystemTime::now().duration_since(taken_at).unwrap_or_default()
}

/// Number of replicas that lived. One of each rank was saved.
fn process_count(kept: &StoredCheckpoint) -> usize {
    kept.manifest.placement.iter().flatten().count()
}

fn bytes(kept: &StoredCheckpoint) -> u64 {
    kept.manifest.image_bytes
}

/// Name of a store's place, for messages.
fn place_of(store: &Store, remote: Option<&Remote>) -> String {
    remote.map_or_else(|| store.directory().display().to_string(), |remote| remote.of_job(store).url().to_owned())
}

fn as_json(
    place: &str,
    store: &Store,
    generation: Generation,
    opened: &Result<StoredCheckpoint, checkpoint_store::Error>,
) -> Value {
    let directory = place;
    match opened {
        Err(error) => json!({ "directory": directory, "number": generation.0, "error": error.to_string() }),
        Ok(kept) => json!({
            "directory": directory, "number": generation.0, "job": format!("{:016x}", kept.manifest.job),
            "age_s": age(kept).as_secs_f64(), "job_time_s": kept.manifest.job_time_ns as f64 / 1e9,
            "bytes": bytes(kept), "built_on": kept.manifest.chain.first().map(|link| link.0),
            "ranks": kept.manifest.world.rank_count(),
            "processes": process_count(kept), "hosts": kept.manifest.hosts,
            "level": kept.manifest.level.to_string(), "archived": store.is_archived(generation),
            "proven": kept.manifest.proof.is_some(),
            "program": program(kept), "version": kept.manifest.program_version,
        }),
    }
}

fn program(kept: &StoredCheckpoint) -> String {
    let words = kept.manifest.applications.first().map(|application| &application.arguments);
    let words = words.into_iter().flatten().map(|word| word.to_string_lossy().into_owned());
    words.collect::<Vec<_>>().join(" ")
}

/// Lists lines.
///
/// # Errors
/// When a directory cannot be read, or standard output cannot be written.
pub fn list(list: &List) -> Result<()> {
    let mut rows = Vec::new();
    let found = list.which.stores()?;
    for store in &found.stores {
        for generation in store.generations()? {
            let opened = store.open(generation);
            if list.json {
                rows.push(as_json(&place_of(store, found.remote.as_ref()), store, generation, &opened).to_string());
                continue;
            }
            let name = store.directory().file_name().unwrap_or_default().to_string_lossy().into_owned();
            rows.push(match opened {
                Ok(kept) => format!(
                    "{name}  {:>4}  {:>9} ago  {:>8.1} MiB  {:<9}  {} ranks, {} processes{}{}  {}",
                    generation.0,
                    time_text(age(&kept)),
                    bytes(&kept) as f64 / f64::from(1 << 20),
                    kept.manifest.chain.first().map_or_else(|| "full".into(), |link| format!("on {link}")),
                    kept.manifest.world.rank_count(),
                    process_count(&kept),
                    if kept.manifest.proof.is_some() { ", proven" } else { "" },
                    if store.is_archived(generation) { ", in the archive" } else { "" },
                    program(&kept)
                ),
                Err(error) => format!("{name}  {:>4}  unusable: {error}", generation.0),
            });
        }
    }
    if rows.is_empty() && !list.json {
        say::error(format_args!("redctl: there are no checkpoints in {}", list.which.place().display()));
    }
    for row in rows {
        say::text(format!("{}\n", say::shown(&row)).as_bytes())?;
    }
    Ok(())
}

/// Verifies or removes lines.
///
/// # Errors
/// When a line is damaged, or cannot be removed.
pub fn work(work: &Work) -> Result<()> {
    match work {
        Work::Part(part) => parts::work(part),
        Work::Manifests(Manifests { which, directory }) => {
            let found = job_options::checkpoint::on_hosts::here(which, directory)?;
            found.iter().try_for_each(|one| Ok(say::line(format_args!("{}", serde_json::to_string(one)?))?))
        }
        Work::Verify { which, on_hosts } => {
            let Found { stores, remote } = which.stores()?;
            anyhow::ensure!(!stores.is_empty(), "there are no checkpoints in {}", which.place().display());
            let (mut bad, key) = (0, which.key()?);
            for store in stores {
                let (mut damaged, mut lines) = (BTreeSet::new(), Vec::new());
                let manifests = manifests(&store, &store.generations()?);
                let on_hosts = on_hosts
                    .is_wanted
                    .then(|| ask(on_hosts, PartWork::Verify, store.directory(), &manifests, key.as_ref()));
                let mut on_hosts = on_hosts.transpose()?;
                // Oldest first: a line that others are built on is judged before them.
                for generation in store.generations()?.into_iter().rev() {
                    let got = remote.as_ref().map_or(Ok(()), |remote| remote.get(&store, generation));
                    let elsewhere = on_hosts.as_mut().map(|wrong| wrong.remove(&generation.0).unwrap_or_default());
                    let told = got.and_then(|()| verify(&store, generation, key.as_ref(), (&damaged, elsewhere)));
                    let told = told.unwrap_or_else(|error| {
                        damaged.insert(generation);
                        format!("damaged: {error:#}")
                    });
                    lines.push(format!("{} checkpoint {generation}: {told}", place_of(&store, remote.as_ref())));
                }
                bad += damaged.len();
                lines.iter().rev().try_for_each(|line| say::line(format_args!("{line}")))?;
            }
            if bad > 0 { bail!("{bad} checkpoints are damaged") } else { Ok(()) }
        }
        Work::Delete { which, number, on_hosts } => {
            if which.which.is_none() {
                return Err(UsageError("name the job whose checkpoints are to be removed".into()).into());
            }
            let (store, remote) = which.only()?;
            let all = store.generations()?;
            let meant: Vec<_> = all.into_iter().filter(|one| number.is_none_or(|number| one.0 == number)).collect();
            anyhow::ensure!(!meant.is_empty(), "{} has no such checkpoint", place_of(&store, remote.as_ref()));
            let shared_log = manifests(&store, &meant).into_iter().find_map(|manifest| manifest.shared_log());
            for generation in meant.iter().copied() {
                store.check_unneeded(generation)?;
                if on_hosts.is_wanted {
                    let manifests = manifests(&store, &[generation]);
                    let wrong = ask(on_hosts, PartWork::Delete, store.directory(), &manifests, None)?;
                    if let Some(wrong) = wrong.get(&generation.0) {
                        bail!("checkpoint {generation} stays: {}", wrong.join("; "));
                    }
                }
                // Hosts that were asked may have removed a manifest that this one sees too.
                if store.generations()?.contains(&generation) {
                    store.delete(generation)?;
                }
            }
            if let Some(log) = shared_log.filter(|_| store.generations().is_ok_and(|left| left.is_empty())) {
                file_undo::Directory::at(log).remove()?;
            }
            if let Some(remote) = remote {
                let of_job = remote.of_job(&store);
                return if number.is_some() { of_job.remove(&meant) } else { of_job.sweep(&[]) };
            }
            store.collect(None)?;
            if store.generations()?.is_empty() {
                undo::remove_all(store.directory())?;
            }
            // The directory is empty now, unless a job is writing there.
            let _ = std::fs::remove_dir(store.directory());
            Ok(())
        }
    }
}

/// The files of a line that this host can see.
fn files(store: &Store, kept: &StoredCheckpoint) -> Result<Vec<PathBuf>> {
    if kept.manifest.level == Level::Object {
        return Ok(kept.manifest.objects.iter().map(|stored| kept.directory.join(&stored.key)).collect());
    }
    if !kept.manifest.level.is_of_hosts() {
        return Ok(kept.manifest.files.iter().map(|(name, _)| kept.directory.join(name)).collect());
    }
    let mut files = Vec::new();
    for place in place::seen(store.directory(), kept.manifest.generation)? {
        let entries = std::fs::read_dir(&place).with_context(|| place.display().to_string())?;
        let is_whole = |path: &PathBuf| {
            let is_kind = |kind| [IMAGE, PAGES, MEMORY, CUT].iter().any(|whole| kind == *whole);
            path.extension().is_some_and(is_kind) || is_piece(path)
        };
        files.extend(entries.flatten().map(|entry| entry.path()).filter(is_whole));
    }
    files.sort();
    Ok(files)
}

fn is_kind(path: &Path, kind: &str) -> bool {
    path.extension().is_some_and(|extension| extension == kind)
}

fn is_piece(path: &Path) -> bool {
    path.file_name().and_then(|name| parse_piece(name.to_str()?)).is_some()
}

fn opened(path: &Path, key: Option<&Secret>) -> io::Result<Box<dyn Read + Send>> {
    checkpoint_store::reader(path, key).map_err(io::Error::other)
}

/// The contents of an image, including the images that it is built on. They come from the files beside the images where
/// these are readable, otherwise from the images.
fn base(image: &Path, number: u64, key: Option<&Secret>) -> io::Result<Base> {
    let lower = names::of_checkpoint(image, Generation(number));
    let beside = opened(&pages_path(&lower), key).and_then(Contents::read);
    let contents = match beside {
        Ok(contents) => contents,
        Err(_) => check(opened(&lower, key)?, |number| base(&lower, number, key))?.contents,
    };
    let below = contents.beside.below.map(|below| base(&lower, below.number, key)).transpose()?;
    contents.on(number, below.as_ref())
}

/// Checks an image, and the list of pages beside it if there is one.
fn check_image(path: &Path, key: Option<&Secret>) -> io::Result<()> {
    let facts = check(opened(path, key)?, |number| base(path, number, key))?;
    let beside = pages_path(path);
    if beside.exists() && Contents::read(opened(&beside, key)?)? != facts.contents {
        return Err(io::Error::other(format!("{} is that of another image", beside.display())));
    }
    Ok(())
}

/// Checks a file of a line; `None` when it belongs to no line.
pub(super) fn check_file(path: &Path, key: Option<&Secret>) -> Option<io::Result<()>> {
    Some(if is_kind(path, IMAGE) {
        check_image(path, key)
    } else if is_kind(path, PAGES) {
        opened(path, key).and_then(Contents::read).map(drop)
    } else if is_kind(path, CUT) {
        undo::verify(path)
    } else if is_kind(path, MEMORY) {
        opened(path, key).and_then(SharedMemory::check)
    } else if is_piece(path) {
        opened(path, key).and_then(|mut piece| check_piece(&mut piece))
    } else {
        return None;
    })
}

/// The readable manifests of these lines.
fn manifests(store: &Store, generations: &[Generation]) -> Vec<Manifest> {
    generations.iter().filter_map(|generation| store.open(*generation).ok()).map(|kept| kept.manifest).collect()
}

/// Checks a line by reading it, and returns the report. `elsewhere` has the problems on other hosts, if they were
/// asked.
fn verify(
    store: &Store,
    generation: Generation,
    key: Option<&Secret>,
    (damaged, elsewhere): (&BTreeSet<Generation>, Option<Vec<String>>),
) -> Result<String> {
    let kept = store.open(generation)?;
    // Each host that was asked has read its own part.
    let here = if elsewhere.is_some() && kept.manifest.level.is_of_hosts() { Vec::new() } else { files(store, &kept)? };
    for path in here {
        if let Some(checked) = check_file(&path, key) {
            checked.with_context(|| path.display().to_string())?;
        }
    }
    if let Some(wrong) = elsewhere.as_ref().filter(|wrong| !wrong.is_empty()) {
        bail!("{}", wrong.join("; "));
    }
    undo::verify_shared(&kept.manifest)?;
    if let Some(link) = kept.manifest.chain.iter().find(|link| damaged.contains(link)) {
        bail!("it is built on checkpoint {link}, which is damaged");
    }
    Ok(match kept.manifest.level.is_on_hosts() {
        false => "as it was written".to_owned(),
        true if elsewhere.is_some() => "as it was written, on all hosts that keep it".to_owned(),
        true => {
            let hosts: Vec<_> =
                kept.manifest.hosts.iter().collect::<std::collections::BTreeSet<_>>().into_iter().collect();
            let hosts = hosts.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            format!("what can be seen from here is as it was written; the hosts that keep it: {hosts}")
        }
    })
}
