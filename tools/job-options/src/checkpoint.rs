//! `--checkpoint` and related options: the schedule of checkpoints, their place, and the one that a job resumes from.

pub mod on_hosts;

use super::arguments::{Arguments, CompressionChoice};
use super::choices::LevelChoice;
use super::site::{CHECKPOINT_DIRECTORY_USUAL, checkpoint_directory_of_environment};
use super::times::{time, time_or};
use super::{Job, assemble_with, files, hosts, protect};
use checkpoint_files::remote::{self, Access};
use checkpoint_store::{Homeless, Kept, Level, Manifest, Store};
use checkpoint_store::{chain, memory_budget};
use command_line::UsageError;
use coordinator_records::ledger;
use placement::homes;
use placement::plan::{HostPlan, PlannedHost};
use redrt_types::VirtualRank;
use redrt_wire::checkpoint::{Compression, Generation};
use redrt_wire::secret::Secret;
use replication_manager::Schedule;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Directory for checkpoints in memory, without the user's number.
const DIRECTORY_IN_MEMORY: &str = "/dev/shm/redrt-checkpoints";
/// Directory for checkpoints on their way to an object store, if `$TMPDIR` is not set: on a disk that outlives a
/// restart.
const SCRATCH_USUAL: &str = "/var/tmp";
const SCRATCH: &str = "redrt-checkpoints";

/// Bound on chains: loading the last checkpoint of a chain opens all of it.
const CHAIN_LENGTH_MAX: u32 = 100;

/// Schedule and place of checkpoints.
#[derive(Clone, PartialEq, Debug)]
pub struct Checkpoint {
    /// Time of each checkpoint.
    pub schedule: Schedule,
    /// Job time before which none is taken.
    pub first: Option<Duration>,
    /// Directory for the checkpoints of all jobs; with an object store the scratch directory of each host.
    pub directory: PathBuf,
    /// The object store, if one is used.
    pub access: Option<Access>,
    /// Number of the job's life in the object store. `None` where the job's coordinator comes back.
    pub life: Option<u64>,
    /// Level of the storage.
    pub level: Level,
    /// Maximum length of a chain.
    pub chain_length: u32,
    /// Compression of images.
    pub compression: Compression,
    /// Key that encrypts all files.
    pub key: Option<Secret>,
}

/// Schedule and place of checkpoints. `None` if none are taken.
pub(super) fn checkpoint(arguments: &Arguments) -> Result<Option<Checkpoint>, UsageError> {
    let mtbf = arguments.mtbf.as_deref().map(|text| time("--mtbf", text)).transpose()?;
    let schedule = match arguments.checkpoint.as_deref() {
        None if arguments.resume.is_none() => return unsaved(arguments),
        None | Some("asked") => Schedule::Asked,
        Some("auto") => Schedule::Auto { mtbf: mtbf.unwrap_or(protect::MTBF_USUAL) },
        Some(text) => {
            Schedule::Every(time_or("--checkpoint", text, "say a time such as 90s, 10min or 2h, auto, or asked")?)
        }
    };
    if mtbf.is_some() && !matches!(schedule, Schedule::Auto { .. }) {
        return Err(UsageError("--mtbf is for --checkpoint auto, which computes its interval from it".into()));
    }
    let first = match arguments.first_checkpoint.as_deref() {
        // `auto` was replaced by a time before, if the program is known.
        None | Some(protect::AUTOMATIC) => None,
        Some(text) => Some(time("--first-checkpoint", text)?),
    };
    if arguments.resume.is_some() && (first.is_some() || protect::is_automatic(arguments)) {
        return Err(UsageError("--first-checkpoint: a job that is resumed has its first already; leave it out".into()));
    }
    if arguments.resume.is_some() && arguments.host_wait.is_some() {
        return Err(UsageError(
            "--host-wait: a job that is resumed goes on with the hosts it gets; leave it out".into(),
        ));
    }
    let (directory, access) = place(arguments)?;
    let directory = std::path::absolute(&directory)
        .map_err(|error| UsageError(format!("--checkpoint-dir {}: {error}", directory.display())))?;
    files::check_directory(if access.is_some() { "--checkpoint-scratch" } else { "--checkpoint-dir" }, &directory)?;
    let compression = match arguments.checkpoint_compression {
        CompressionChoice::None => Compression::None,
        CompressionChoice::Lz4 => Compression::Lz4,
        CompressionChoice::Zstd => Compression::Zstd,
    };
    let key = arguments.checkpoint_key.as_deref().map(secret_file::read).transpose();
    let key = key.map_err(|error| UsageError(format!("--checkpoint-encrypt: {error:#}")))?;
    let usual = if access.is_some() { Level::Object } else { Level::Shared };
    let level = arguments.checkpoint_level.map_or(usual, |choice| match choice {
        LevelChoice::Local => Level::Local,
        LevelChoice::Partner => Level::Partner,
        LevelChoice::Erasure(code) => Level::Erasure(code),
        LevelChoice::Memory => Level::Memory,
        LevelChoice::Shared => Level::Shared,
        LevelChoice::Object => Level::Object,
    });
    let chain_length = arguments.checkpoint_chain.unwrap_or(chain::LENGTH_USUAL);
    if !(1..=CHAIN_LENGTH_MAX).contains(&chain_length) {
        return Err(UsageError(format!(
            "--checkpoint-chain {chain_length}: say a number from 1 to {CHAIN_LENGTH_MAX}"
        )));
    }
    let life = arguments.come_back.is_none().then_some(0);
    Ok(Some(Checkpoint { schedule, first, directory, access, life, level, chain_length, compression, key }))
}

/// Directory or URL that the user has named, or the default.
fn named_place(arguments: &Arguments) -> PathBuf {
    arguments.checkpoint_directory.clone().unwrap_or_else(|| match arguments.checkpoint_level {
        Some(LevelChoice::Memory) => format!("{DIRECTORY_IN_MEMORY}-{}", nix::unistd::getuid()).into(),
        _ => checkpoint_directory_of_environment().unwrap_or_else(|| CHECKPOINT_DIRECTORY_USUAL.into()),
    })
}

/// Directory of the checkpoints, and the object store if one was named.
fn place(arguments: &Arguments) -> Result<(PathBuf, Option<Access>), UsageError> {
    let named = named_place(arguments);
    let resumed = arguments.resume.as_deref().and_then(remote::url).map(remote::without_job);
    let is_of_store = matches!(arguments.checkpoint_level, None | Some(LevelChoice::Object));
    let named_url = remote::url(&named).filter(|_| arguments.resume.as_deref().is_none_or(|text| !text.is_dir()));
    match resumed.or(named_url) {
        Some(url) if is_of_store => {
            remote::check_url(url).map_err(|why| UsageError(format!("--checkpoint-dir: {why}")))?;
            Ok((scratch(arguments), Some(Access::of_environment(url))))
        }
        Some(url) => {
            Err(UsageError(format!("--checkpoint-level: {url} is an object store; say object, or leave it out")))
        }
        None if arguments.checkpoint_level == Some(LevelChoice::Object) => Err(UsageError(
            "--checkpoint-level object: say where with --checkpoint-dir s3://BUCKET/PREFIX (or gs:, az:, file:///DIRECTORY)"
                .into(),
        )),
        None if arguments.checkpoint_scratch.is_some() => {
            Err(UsageError("--checkpoint-scratch is for an object store: name that with --checkpoint-dir URL".into()))
        }
        None => Ok((named, None)),
    }
}

fn scratch(arguments: &Arguments) -> PathBuf {
    arguments.checkpoint_scratch.clone().unwrap_or_else(|| {
        let parent = std::env::var_os("TMPDIR").filter(|path| !path.is_empty());
        let parent = parent.map_or_else(|| SCRATCH_USUAL.into(), PathBuf::from);
        parent.join(format!("{SCRATCH}-{}", nix::unistd::getuid()))
    })
}

/// Refuses options of checkpoints for a job without any: they would suggest that it takes some.
fn unsaved(arguments: &Arguments) -> Result<Option<Checkpoint>, UsageError> {
    let of_checkpoints = [
        ("--checkpoint-dir", arguments.checkpoint_directory.is_some()),
        ("--checkpoint-compression", arguments.checkpoint_compression != CompressionChoice::None),
        ("--checkpoint-chain", arguments.checkpoint_chain.is_some()),
        ("--checkpoint-level", arguments.checkpoint_level.is_some()),
        ("--checkpoint-scratch", arguments.checkpoint_scratch.is_some()),
        ("--checkpoint-encrypt", arguments.checkpoint_key.is_some()),
        ("--mtbf", arguments.mtbf.is_some()),
        ("--first-checkpoint", arguments.first_checkpoint.is_some()),
        ("--host-wait", arguments.host_wait.is_some() && arguments.protect.is_none()),
    ];
    match of_checkpoints.into_iter().find(|(_, is_given)| *is_given) {
        None => Ok(None),
        Some((option, _)) => Err(UsageError(format!(
            "{option} saves nothing by itself: say when with --checkpoint (10min, auto, asked), or leave it out"
        ))),
    }
}

/// Reason why a job cannot be resumed as requested.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// The job's processes run, and wait for a coordinator.
    #[error("{}", ledger::no_coordinator(.0))]
    Rootless(String),
    /// The object store does not answer, or another host's disk refuses.
    #[error("{0}")]
    Remote(String),
    /// The job's checkpoints are in an object store whose URL was not named.
    #[error("its checkpoints are in an object store: name it by its URL, or by its number with --checkpoint-dir URL")]
    NoUrl,
    /// The name is neither a directory nor a job's number.
    #[error("there is no such directory")]
    NoDirectory,
    /// No job with this number has a checkpoint.
    #[error("no job like this has a checkpoint in {0}")]
    NoJob(PathBuf),
    /// The job's coordinator runs on another host.
    #[error("the job {job:016x} runs already, on {host}: end it first, or wait until it has ended")]
    RunsThere {
        /// Number of the job.
        job: u64,
        /// Name of the host.
        host: String,
    },
    /// Other hosts have checkpoints of several jobs there.
    #[error(
        "the hosts have checkpoints of several jobs: name one of them: {}",
        .0.iter().map(|job| format!("{job:016x}")).collect::<Vec<_>>().join(", ")
    )]
    SeveralThere(Vec<u64>),
    /// This host has no checkpoint, and some others could not be asked.
    #[error("{why}; {}", notes.join("; "))]
    Unasked {
        /// The problem on this host.
        why: Box<Self>,
        /// Which hosts could not be asked, and why.
        notes: Vec<String>,
    },
    /// The number fits several jobs.
    #[error("several jobs begin like this")]
    Several,
    /// The job's store of checkpoints cannot be read.
    #[error(transparent)]
    Store(#[from] checkpoint_store::Error),
    /// The checkpoint is on hosts that were not named.
    #[error("checkpoint {generation}: {missing}; name it among the hosts (-hosts)")]
    Missing {
        /// The checkpoint.
        generation: Generation,
        /// Hosts that have parts of it.
        missing: Homeless,
    },
    /// A program was named as well.
    #[error("the job goes on with its own program; leave out {0}")]
    Program(String),
    /// A number of ranks or degrees was given as well.
    #[error("the job has its shape; leave out {0}")]
    Shape(&'static str),
    /// Another version has written it.
    #[error("it was written by redrt {written}, this is {own}: resume it with that version")]
    Version {
        /// The version that has written it.
        written: String,
        /// The present version.
        own: &'static str,
    },
    /// The value of `-r` is no degree.
    #[error("-r {0}: no degree")]
    Degree(String),
    /// The degree exceeds the job's places.
    #[error(
        "-r {degree}: the job was started with places for {place_count} replicas of rank {rank} (redrun --max-degree)"
    )]
    NoPlaces {
        /// The requested degree.
        degree: u16,
        /// Number of places of the rank.
        place_count: u16,
        /// The rank with too few places.
        rank: VirtualRank,
    },
}

/// The store that `text` names: a directory, or a job whose checkpoints are below `directory`.
///
/// # Errors
/// When there is no such store.
pub fn find_store(text: &Path, directory: &Path) -> Result<Store, ResumeError> {
    if text.is_dir() {
        return Ok(Store::find(text)?);
    }
    let name = text.to_str().filter(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let Some(name) = name else { return Err(ResumeError::NoDirectory) };
    let jobs = Store::below(directory)?;
    let is_meant = |store: &Store| {
        store.directory().file_name().and_then(|own| own.to_str()).is_some_and(|own| own.starts_with(name))
    };
    let mut fitting: Vec<_> = jobs.into_iter().filter(is_meant).collect();
    match (fitting.pop(), fitting.is_empty()) {
        (Some(store), true) => Ok(store),
        (Some(_), false) => Err(ResumeError::Several),
        (None, _) => Err(ResumeError::NoJob(directory.to_owned())),
    }
}

/// A job that resumes from its newest checkpoint.
pub(super) fn resumed(arguments: &Arguments, text: &Path) -> Result<Job, UsageError> {
    let wrong = |why: ResumeError| UsageError(format!("--resume {}: {why}", text.display()));
    if !arguments.local.program.is_empty() {
        let program = arguments.local.program[0].to_string_lossy().into_owned();
        return Err(wrong(ResumeError::Program(program)));
    }
    let given = [("-n", arguments.local.rank_count.is_some()), ("--replicate", arguments.replicate.is_some())];
    if let Some((name, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
        return Err(wrong(ResumeError::Shape(name)));
    }
    // Refuses a rankfile.
    hosts::rankfile(arguments)?;
    let mut checkpoint = checkpoint(arguments)?.expect("a job that is resumed takes lines");
    let mut notes = Vec::new();
    let (kept, unfit, lock) = match arguments.come_back {
        // The job has gone on since it was resumed, and so have its checkpoints.
        Some(job) => {
            let kept = ledger::resumed(job).map_err(|error| UsageError(format!("{error:#}")))?;
            let store = Store::of_job(&parent_of(&kept), kept.manifest.job);
            // The directory may be lost with the previous coordinator's host.
            let lock =
                if store.directory().exists() { store.lock().map_err(|error| wrong(error.into()))? } else { None };
            (kept, None, lock)
        }
        None => {
            let remote = checkpoint.access.is_some().then(|| remote::jobs(Some(text), &named_place(arguments)));
            let remote =
                remote.transpose().map_err(|error| wrong(ResumeError::Remote(format!("{error:#}"))))?.flatten();
            let store = match &remote {
                Some(jobs) => remote_store(jobs, &checkpoint.directory).map_err(wrong)?,
                None => {
                    let found = found_on_hosts(arguments, text, &checkpoint)?;
                    let (store, unasked) = found.map_err(wrong)?;
                    notes = unasked;
                    store
                }
            };
            let store = store.with_key(checkpoint.key.clone());
            // Before the search: a running job would commit a newer checkpoint.
            let lock = lock_when_over(&store, &running_jobs::lives).map_err(|error| wrong(error.into()))?;
            if let Some(jobs) = remote {
                let resumed = jobs.resume(&store);
                checkpoint.life = Some(resumed.map_err(|error| wrong(ResumeError::Remote(format!("{error:#}"))))?);
            }
            let (kept, unfit) = newest_at(&store, &hosts::plan(arguments, None)?).map_err(wrong)?;
            let job = format!("{:016x}", kept.manifest.job);
            if ledger::rootless().contains(&job) {
                return Err(wrong(ResumeError::Rootless(job)));
            }
            (kept, unfit, lock)
        }
    };
    let own = env!("CARGO_PKG_VERSION");
    if kept.manifest.program_version != own {
        return Err(wrong(ResumeError::Version { written: kept.manifest.program_version, own }));
    }
    notes.extend(unfit.map(|why| format!("an older checkpoint is used, since {why}")));
    let passed_over = (!notes.is_empty()).then(|| notes.join("; "));
    // Checkpoints of one job stay together.
    let parent = parent_of(&kept);
    let level = if arguments.checkpoint_level.is_some() { checkpoint.level } else { kept.manifest.level };
    if level == Level::Object && checkpoint.access.is_none() {
        return Err(wrong(ResumeError::NoUrl));
    }
    let checkpoint = Checkpoint { directory: parent, level, ..checkpoint };
    let degrees = degrees_of(arguments, &kept.manifest).map_err(wrong)?;
    let view = kept.manifest.view_of_images(&degrees);
    let mut job = assemble_with(arguments, &[], Some((&kept.manifest, view)))?;
    check_level(level, &checkpoint.directory, &job.hosts)?;
    job.ignored = job.ignored.or(passed_over);
    job.checkpoint = Some(checkpoint);
    job.resume = Some(kept);
    job.lock = lock;
    Ok(job)
}

/// The store that is meant, with the checkpoints that other hosts of the job have: perhaps this host has none of them,
/// or not the newest. Also returns notes for the user.
fn found_on_hosts(
    arguments: &Arguments,
    text: &Path,
    checkpoint: &Checkpoint,
) -> Result<Result<(Store, Vec<String>), ResumeError>, UsageError> {
    let here = find_store(text, &checkpoint.directory);
    if let Ok(store) = &here {
        // A job that runs here goes on committing.
        let is_busy = matches!(store.lock(), Err(checkpoint_store::Error::Busy(_)));
        let newest = store.clone().with_key(checkpoint.key.clone()).newest(None);
        if is_busy || newest.is_ok_and(|(kept, _)| !kept.manifest.level.is_on_hosts()) {
            return Ok(here.map(|store| (store, Vec::new())));
        }
    }
    let plan = hosts::plan(arguments, None)?;
    if !plan.is_remote() {
        return Ok(here.map(|store| (store, Vec::new())));
    }
    let notes = match on_hosts::take_in(text, &checkpoint.directory, &plan, checkpoint.key.as_ref()) {
        Ok(notes) => notes,
        Err(why) => return Ok(Err(why)),
    };
    Ok(match find_store(text, &checkpoint.directory) {
        Ok(store) => Ok((store, notes)),
        Err(why) if notes.is_empty() => Err(why),
        Err(why) => Err(ResumeError::Unasked { why: Box::new(why), notes }),
    })
}

/// Lock of a job to be resumed. A job that has ended may still be cleaning up, so the lock is awaited; not for a job
/// that `lives`, by its name.
fn lock_when_over(store: &Store, lives: &dyn Fn(&str) -> bool) -> Result<Option<File>, checkpoint_store::Error> {
    const END_TIME_MAX: Duration = Duration::from_secs(10);
    const LOOK_INTERVAL: Duration = Duration::from_millis(20);
    let job = store.directory().file_name().unwrap_or_default().display().to_string();
    let since = Instant::now();
    loop {
        match store.lock() {
            Err(checkpoint_store::Error::Busy(_)) if !lives(&job) && since.elapsed() < END_TIME_MAX => {
                std::thread::sleep(LOOK_INTERVAL);
            }
            outcome => return outcome,
        }
    }
}

/// Local store of the single job among these.
fn remote_store(jobs: &remote::Jobs, directory: &Path) -> Result<Store, ResumeError> {
    let store = match &jobs.names[..] {
        [] => Err(ResumeError::NoJob(jobs.access.url().into())),
        [name] => u64::from_str_radix(name, 16)
            .map(|job| Store::of_job(directory, job))
            .map_err(|_| ResumeError::NoJob(jobs.access.url().into())),
        _ => Err(ResumeError::Remote(format!("there are several jobs: name one of them: {}", jobs.names.join(", ")))),
    }?;
    store.make()?;
    Ok(store)
}

/// Directory that holds the checkpoints of all jobs, this one's included.
fn parent_of(kept: &Kept) -> PathBuf {
    kept.directory.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_owned()
}

/// Checks that checkpoints can be kept at this level.
///
/// # Errors
/// When there is no other host, there are fewer than pieces, or a directory for memory is on a disk.
pub(super) fn check_level(level: Level, directory: &Path, plan: &HostPlan) -> Result<(), UsageError> {
    if level.has_copies() && plan.hosts.len() < 2 {
        return Err(UsageError(format!(
            "--checkpoint-level {level}: the job has one host; name others (-hosts), or say local"
        )));
    }
    if let Some(code) = level.code() {
        let name = |host: &PlannedHost| host.name.as_ref().map(|name| name.name.clone());
        let count = plan.hosts.iter().map(name).collect::<BTreeSet<_>>().len();
        if count < usize::from(code.piece_count()) {
            let (hosts, needed) = (if count == 1 { "one host" } else { &format!("{count} hosts") }, code.piece_count());
            return Err(UsageError(format!(
                "--checkpoint-level {level}: that needs {needed} hosts, one for each piece, and the job has {hosts}; name \
                 others (-hosts), or fewer pieces"
            )));
        }
    }
    if level == Level::Memory && !memory_budget::is_in_memory(directory) {
        return Err(UsageError(format!(
            "--checkpoint-level memory: {} is not in memory; say --checkpoint-dir with a directory below /dev/shm",
            directory.display()
        )));
    }
    Ok(())
}

/// The newest checkpoint that a job can resume from on these hosts, and the reason why a newer one cannot be used.
fn newest_at(store: &Store, plan: &HostPlan) -> Result<(Kept, Option<String>), ResumeError> {
    let (mut bound, mut why) = (None, None);
    loop {
        let (kept, unfit) = match store.newest(bound) {
            Ok(found) => found,
            // The user meant the newest one, so its error is reported.
            Err(error) => return Err(why.unwrap_or(ResumeError::Store(error))),
        };
        let unfit = unfit.into_iter().next().map(ResumeError::Store);
        why = why.or(unfit);
        match homes::check(&kept.manifest, plan) {
            Ok(()) => return Ok((kept, why.map(|why| why.to_string()))),
            Err(missing) => {
                let generation = kept.manifest.generation;
                bound = Some(generation);
                why = why.or(Some(ResumeError::Missing { generation, missing }));
            }
        }
    }
}

/// Number of replicas of each rank to load: as many as the job was to have, or as `-r` says.
fn degrees_of(arguments: &Arguments, manifest: &Manifest) -> Result<Vec<u16>, ResumeError> {
    let Some(text) = arguments.degree.as_deref() else { return Ok(manifest.degrees.clone()) };
    let degree = text.parse().ok().filter(|degree| *degree > 0);
    let degree: u16 = degree.ok_or_else(|| ResumeError::Degree(text.to_owned()))?;
    let world = &manifest.world;
    let narrow = (0..world.rank_count()).map(VirtualRank).find(|rank| world.degree(*rank) < degree);
    match narrow {
        Some(rank) => Err(ResumeError::NoPlaces { degree, place_count: world.degree(rank), rank }),
        None => Ok(vec![degree; world.rank_count() as usize]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_job_is_waited_for_until_its_files_are_put_away() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::of_job(directory.path(), 0xab);
        store.make().unwrap();
        let held = std::cell::RefCell::new(store.lock().unwrap());
        let lives = |job: &str| {
            assert_eq!(job, "00000000000000ab");
            true
        };
        assert!(matches!(lock_when_over(&store, &lives), Err(checkpoint_store::Error::Busy(_))));
        let ends = |_: &str| {
            held.take();
            false
        };
        assert!(lock_when_over(&store, &ends).unwrap().is_some());
    }
}
