//! `--checkpoint` and related options: the schedule of checkpoints, their place, and the one that a job resumes from.

pub mod archive;
pub mod on_hosts;
mod resuming;

pub(super) use resuming::resumed;
pub use resuming::{ResumeError, find_store};

use super::arguments::{CompressionChoice, JobArguments};
use super::choices::LevelChoice;
use super::site::{CHECKPOINT_DIRECTORY_USUAL, checkpoint_directory_of_environment};
use super::times::{time, time_or};
use super::{files, protect};
use archive::Archive;
use checkpoint_files::remote::{self, Access};
use checkpoint_store::Level;
use checkpoint_store::{chain, memory_budget};
use command_line::UsageError;
use placement::plan::{HostPlan, PlannedHost};
use redrt_wire::checkpoint::Compression;
use redrt_wire::secret::Secret;
use replication_manager::{ProofMode, Schedule};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    /// The store that gets some of them besides, if any.
    pub archive: Option<Archive>,
    /// Checkpoints that are proven.
    pub proofs: ProofMode,
    /// Maximum length of a chain.
    pub chain_length: u32,
    /// Compression of images.
    pub compression: Compression,
    /// Key that encrypts all files.
    pub key: Option<Secret>,
}

/// Schedule and place of checkpoints. `None` if none are taken.
pub(super) fn checkpoint(arguments: &JobArguments) -> Result<Option<Checkpoint>, UsageError> {
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
    let archive = archive::archive(arguments, level)?;
    let chain_length = arguments.checkpoint_chain.unwrap_or(chain::LENGTH_USUAL);
    if !(1..=CHAIN_LENGTH_MAX).contains(&chain_length) {
        return Err(UsageError(format!(
            "--checkpoint-chain {chain_length}: say a number from 1 to {CHAIN_LENGTH_MAX}"
        )));
    }
    let life = arguments.come_back.is_none().then_some(0);
    let proofs = arguments.checkpoint_proof.into();
    Ok(Some(Checkpoint {
        schedule,
        first,
        directory,
        access,
        life,
        level,
        archive,
        proofs,
        chain_length,
        compression,
        key,
    }))
}

/// Directory or URL that the user has named, or the default.
fn named_place(arguments: &JobArguments) -> PathBuf {
    arguments.checkpoint_directory.clone().unwrap_or_else(|| match arguments.checkpoint_level {
        Some(LevelChoice::Memory) => format!("{DIRECTORY_IN_MEMORY}-{}", nix::unistd::getuid()).into(),
        _ => checkpoint_directory_of_environment().unwrap_or_else(|| CHECKPOINT_DIRECTORY_USUAL.into()),
    })
}

/// Directory of the checkpoints, and the object store if one was named.
fn place(arguments: &JobArguments) -> Result<(PathBuf, Option<Access>), UsageError> {
    let named = named_place(arguments);
    // With an archive, a job may be resumed from there; its checkpoints are on hosts all the same.
    let resumed = arguments.resume.as_deref().filter(|_| arguments.checkpoint_archive.is_none());
    let resumed = resumed.and_then(remote::url).map(remote::without_job);
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

fn scratch(arguments: &JobArguments) -> PathBuf {
    arguments.checkpoint_scratch.clone().unwrap_or_else(|| {
        let parent = std::env::var_os("TMPDIR").filter(|path| !path.is_empty());
        let parent = parent.map_or_else(|| SCRATCH_USUAL.into(), PathBuf::from);
        parent.join(format!("{SCRATCH}-{}", nix::unistd::getuid()))
    })
}

/// Refuses options of checkpoints for a job without any: they would suggest that it takes some.
fn unsaved(arguments: &JobArguments) -> Result<Option<Checkpoint>, UsageError> {
    let of_checkpoints = [
        ("--checkpoint-dir", arguments.checkpoint_directory.is_some()),
        ("--checkpoint-compression", arguments.checkpoint_compression != CompressionChoice::None),
        ("--checkpoint-chain", arguments.checkpoint_chain.is_some()),
        ("--checkpoint-level", arguments.checkpoint_level.is_some()),
        ("--checkpoint-archive", arguments.checkpoint_archive.is_some()),
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
