//! `--checkpoint` and its like: when lines are taken, where they are kept, and from which one a job goes on.

use super::arguments::{Arguments, CompressionChoice, LevelChoice};
use super::site::{CHECKPOINT_DIRECTORY_USUAL, checkpoint_directory_of_environment};
use super::times::{time, time_or};
use super::{Job, assemble_with, files, hosts, protect};
use command_line::UsageError;
use coordinator::Schedule;
use line_files::remote::{self, Access};
use line_store::{Homeless, Kept, Level, Manifest, Store};
use line_store::{chain, room};
use placement::homes;
use placement::plan::HostPlan;
use redrt_types::VirtualRank;
use redrt_wire::line::{Compression, Generation};
use redrt_wire::secret::Secret;
use root_records::ledger;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where they are in memory, before the user's number.
const DIRECTORY_IN_MEMORY: &str = "/dev/shm/redrt-checkpoints";
/// Where they are written on their way to an object store, where `$TMPDIR` does not say: on a disk that outlives a
/// restart.
const SCRATCH_USUAL: &str = "/var/tmp";
const SCRATCH: &str = "redrt-checkpoints";

/// Who loads the last of a chain opens all of it.
const CHAIN_LENGTH_MAX: u32 = 100;

/// When and where lines are taken.
#[derive(Clone, PartialEq, Debug)]
pub struct Checkpoint {
    /// When.
    pub schedule: Schedule,
    /// Not before this time of the job.
    pub first: Option<Duration>,
    /// The directory that has those of all jobs; that of each host, with an object store.
    pub directory: PathBuf,
    /// The object store that has them all.
    pub access: Option<Access>,
    /// The number of the job's life there; absent where its root comes back to it.
    pub life: Option<u64>,
    /// How far away.
    pub level: Level,
    /// How many are built on each other at most.
    pub chain_length: u32,
    /// How images are compressed.
    pub compression: Compression,
    /// The key with which all of it is encrypted.
    pub key: Option<Secret>,
}

/// When and where lines are taken, if they are.
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
        // By now it is a time, if anything is known of the program.
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

/// What the user has named, a directory or a URL.
fn named_place(arguments: &Arguments) -> PathBuf {
    arguments.checkpoint_directory.clone().unwrap_or_else(|| match arguments.checkpoint_level {
        Some(LevelChoice::Memory) => format!("{DIRECTORY_IN_MEMORY}-{}", nix::unistd::getuid()).into(),
        _ => checkpoint_directory_of_environment().unwrap_or_else(|| CHECKPOINT_DIRECTORY_USUAL.into()),
    })
}

/// The directory where lines are, and the object store that has them, if one was named.
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

/// A job that takes no lines: options that are of them would look as if it did.
fn unsaved(arguments: &Arguments) -> Result<Option<Checkpoint>, UsageError> {
    let of_lines = [
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
    match of_lines.into_iter().find(|(_, is_given)| *is_given) {
        None => Ok(None),
        Some((option, _)) => Err(UsageError(format!(
            "{option} saves nothing by itself: say when with --checkpoint (10min, auto, asked), or leave it out"
        ))),
    }
}

/// Why a job cannot be resumed as it was said.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// Its processes run, and wait for a root.
    #[error("{}", ledger::no_root(.0))]
    Rootless(String),
    /// The object store does not say what it has, or another host's disk refuses.
    #[error("{0}")]
    Remote(String),
    /// The URL of its store was not named.
    #[error("its checkpoints are in an object store: name it by its URL, or by its number with --checkpoint-dir URL")]
    NoUrl,
    /// Not named by its directory.
    #[error("there is no such directory")]
    NoDirectory,
    /// Nor by its number.
    #[error("no job like this has a checkpoint in {0}")]
    NoJob(PathBuf),
    /// A number that is not long enough.
    #[error("several jobs begin like this")]
    Several,
    /// What is there cannot be read.
    #[error(transparent)]
    Store(#[from] line_store::Error),
    /// It is on hosts that were not named.
    #[error("checkpoint {generation}: {missing}; name it among the hosts (-hosts)")]
    Missing {
        /// Which.
        generation: Generation,
        /// Where it is.
        missing: Homeless,
    },
    /// A program was named beside it.
    #[error("the job goes on with its own program; leave out {0}")]
    Program(String),
    /// So was a shape.
    #[error("the job has its shape; leave out {0}")]
    Shape(&'static str),
    /// Another version has written it.
    #[error("it was written by redrt {written}, this is {own}: resume it with that version")]
    Version {
        /// That version.
        written: String,
        /// This one.
        own: &'static str,
    },
    /// Not a degree.
    #[error("-r {0}: no degree")]
    Degree(String),
    /// More replicas than the job has places for.
    #[error(
        "-r {degree}: the job was started with places for {place_count} replicas of rank {rank} (redrun --max-degree)"
    )]
    NoPlaces {
        /// What was asked for.
        degree: u16,
        /// How many there can be.
        place_count: u16,
        /// Of this rank.
        rank: VirtualRank,
    },
}

/// The store that `text` names: a directory, or a job whose lines are below `directory`.
///
/// # Errors
/// When there is none.
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

/// A job that goes on from its newest line.
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
    // A rankfile is refused here.
    hosts::rankfile(arguments)?;
    let mut checkpoint = checkpoint(arguments)?.expect("a job that is resumed takes lines");
    let (kept, unfit, lock) = match arguments.come_back {
        // It has gone on since, and its lines with it.
        Some(job) => {
            let kept = ledger::resumed(job).map_err(|error| UsageError(format!("{error:#}")))?;
            let store = Store::of_job(&parent_of(&kept), kept.manifest.job);
            // It may be gone with the host of the root before.
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
                None => find_store(text, &checkpoint.directory).map_err(wrong)?,
            };
            let store = store.with_key(checkpoint.key.clone());
            // Before it is looked for: a job that runs would go on to a newer one.
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
    let passed_over = unfit.map(|why| format!("an older checkpoint is used, since {why}"));
    // Lines of one job stay together.
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

/// The lock of a job that is resumed. One that has ended and told so may still be putting things away: it is waited
/// for. One that `lives`, by its name, is not.
fn lock_when_over(store: &Store, lives: &dyn Fn(&str) -> bool) -> Result<Option<File>, line_store::Error> {
    const END_TIME_MAX: Duration = Duration::from_secs(10);
    const LOOK_INTERVAL: Duration = Duration::from_millis(20);
    let job = store.directory().file_name().unwrap_or_default().display().to_string();
    let since = Instant::now();
    loop {
        match store.lock() {
            Err(line_store::Error::Busy(_)) if !lives(&job) && since.elapsed() < END_TIME_MAX => {
                std::thread::sleep(LOOK_INTERVAL);
            }
            outcome => return outcome,
        }
    }
}

/// Where the only one of these jobs has its lines, on this host.
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

/// Where the lines of all jobs are, of which this is one.
fn parent_of(kept: &Kept) -> PathBuf {
    kept.directory.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_owned()
}

/// Whether lines can be kept so far away.
///
/// # Errors
/// When there is no other host, or what is to be in memory would be on a disk.
pub(super) fn check_level(level: Level, directory: &Path, plan: &HostPlan) -> Result<(), UsageError> {
    if level.has_copies() && plan.hosts.len() < 2 {
        return Err(UsageError(format!(
            "--checkpoint-level {level}: the job has one host; name others (-hosts), or say local"
        )));
    }
    if level == Level::Memory && !room::is_in_memory(directory) {
        return Err(UsageError(format!(
            "--checkpoint-level memory: {} is not in memory; say --checkpoint-dir with a directory below /dev/shm",
            directory.display()
        )));
    }
    Ok(())
}

/// The newest line from which a job can go on with these hosts, and why the newest one is not.
fn newest_at(store: &Store, plan: &HostPlan) -> Result<(Kept, Option<String>), ResumeError> {
    let (mut bound, mut why) = (None, None);
    loop {
        let (kept, unfit) = match store.newest(bound) {
            Ok(found) => found,
            // The newest one is what the user has named.
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

/// How many replicas of each rank go on: as many as the job was to have, or as `-r` says.
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
    fn a_job_that_has_ended_is_waited_for_until_it_has_put_its_things_away() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::of_job(directory.path(), 0xab);
        store.make().unwrap();
        let held = std::cell::RefCell::new(store.lock().unwrap());
        let lives = |job: &str| {
            assert_eq!(job, "00000000000000ab");
            true
        };
        assert!(matches!(lock_when_over(&store, &lives), Err(line_store::Error::Busy(_))));
        let ends = |_: &str| {
            held.take();
            false
        };
        assert!(lock_when_over(&store, &ends).unwrap().is_some());
    }
}
