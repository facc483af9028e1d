//! `--resume`: the checkpoint from which a job goes on, found in its directory, on its hosts, in an object store, or in
//! the archive.

use super::super::arguments::JobArguments;
use super::super::{Job, assemble_with, hosts};
use super::{Checkpoint, check_level, checkpoint, named_place, on_hosts};
use checkpoint_files::remote;
use checkpoint_store::{Homeless, Level, Manifest, Store, StoredCheckpoint};
use command_line::UsageError;
use coordinator_records::ledger;
use placement::homes;
use placement::plan::HostPlan;
use redrt_types::VirtualRank;
use redrt_wire::checkpoint::Generation;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A checkpoint to resume from; why a newer one cannot be used; the lock of the job.
type Found = (StoredCheckpoint, Option<String>, Option<File>);

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

impl ResumeError {
    /// True if no checkpoint can be had on hosts. Otherwise the job runs, or the user has to say more.
    fn is_without_checkpoint(&self) -> bool {
        use checkpoint_store::Error;
        match self {
            Self::NoDirectory | Self::NoJob(_) | Self::Missing { .. } | Self::Unasked { .. } => true,
            Self::Store(error) => {
                !matches!(error, Error::Busy(_) | Error::Several { .. } | Error::Sealed(_) | Error::OtherKey(_))
            }
            _ => false,
        }
    }
}

/// The newest checkpoint of the named job. Adds notes for the user.
fn newest_of_job(
    arguments: &JobArguments,
    text: &Path,
    checkpoint: &mut Checkpoint,
    notes: &mut Vec<String>,
) -> Result<Result<Found, ResumeError>, UsageError> {
    let place = match &checkpoint.archive {
        Some(archive) => archive.access.url().into(),
        None => named_place(arguments),
    };
    if checkpoint.access.is_some() || checkpoint.archive.is_some() && remote::url(text).is_some() {
        match remote::jobs(Some(text), &place) {
            Ok(Some(jobs)) => return from_remote(arguments, &jobs, checkpoint),
            Ok(None) => {}
            Err(error) => return Ok(Err(ResumeError::Remote(format!("{error:#}")))),
        }
    }
    let (store, unasked) = match found_on_hosts(arguments, text, checkpoint)? {
        Ok(found) => found,
        Err(why) => return Ok(Err(why)),
    };
    notes.extend(unasked);
    from_store(arguments, store, None, checkpoint)
}

/// The newest checkpoint of the single job among these in an object store.
fn from_remote(
    arguments: &JobArguments,
    jobs: &remote::Jobs,
    checkpoint: &mut Checkpoint,
) -> Result<Result<Found, ResumeError>, UsageError> {
    match remote_store(jobs, &checkpoint.directory) {
        Ok(store) => from_store(arguments, store, Some(jobs), checkpoint),
        Err(why) => Ok(Err(why)),
    }
}

/// The newest checkpoint of a store, which gets its manifests from an object store if these `jobs` are given.
fn from_store(
    arguments: &JobArguments,
    store: Store,
    jobs: Option<&remote::Jobs>,
    checkpoint: &mut Checkpoint,
) -> Result<Result<Found, ResumeError>, UsageError> {
    let plan = hosts::plan(arguments, None)?;
    let store = store.with_key(checkpoint.key.clone());
    let find = || {
        // Before the search: a running job would commit a newer checkpoint.
        let lock = lock_when_over(&store, &running_jobs::lives)?;
        // A job that has an archive, and does not go on from there, asks it for the number of its life later.
        let mut life = checkpoint.life.filter(|_| checkpoint.archive.is_none());
        if let Some(jobs) = jobs {
            life = Some(jobs.resume(&store).map_err(|error| ResumeError::Remote(format!("{error:#}")))?);
        }
        let (kept, unfit) = newest_at(&store, &plan)?;
        let job = format!("{:016x}", kept.manifest.job);
        if ledger::rootless().contains(&job) {
            return Err(ResumeError::Rootless(job));
        }
        if checkpoint.archive.is_some() && kept.manifest.level == Level::Object {
            store.mark_archived(kept.manifest.generation)?;
        }
        Ok((life, (kept, unfit, lock)))
    };
    Ok(find().map(|(life, found)| {
        checkpoint.life = life;
        found
    }))
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
pub fn resumed(arguments: &JobArguments, text: &Path) -> Result<Job, UsageError> {
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
        None => match (newest_of_job(arguments, text, &mut checkpoint, &mut notes)?, checkpoint.archive.clone()) {
            (Err(why), Some(archive)) if remote::url(text).is_none() && why.is_without_checkpoint() => {
                notes.push(format!("the archive's newest checkpoint is used, since the hosts have none: {why}"));
                let jobs = archive.jobs(text).map_err(|error| wrong(ResumeError::Remote(format!("{error:#}"))))?;
                from_remote(arguments, &jobs, &mut checkpoint)?.map_err(wrong)?
            }
            (found, _) => found.map_err(wrong)?,
        },
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
    arguments: &JobArguments,
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
pub(super) fn lock_when_over(
    store: &Store,
    lives: &dyn Fn(&str) -> bool,
) -> Result<Option<File>, checkpoint_store::Error> {
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
fn parent_of(kept: &StoredCheckpoint) -> PathBuf {
    kept.directory.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_owned()
}

/// The newest checkpoint that a job can resume from on these hosts, and the reason why a newer one cannot be used.
fn newest_at(store: &Store, plan: &HostPlan) -> Result<(StoredCheckpoint, Option<String>), ResumeError> {
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
fn degrees_of(arguments: &JobArguments, manifest: &Manifest) -> Result<Vec<u16>, ResumeError> {
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

    /// A job that runs, or waits for its coordinator, is not resumed from its archive.
    #[test]
    fn only_a_job_without_checkpoints_is_resumed_from_its_archive() {
        assert!(ResumeError::NoDirectory.is_without_checkpoint());
        assert!(ResumeError::Store(checkpoint_store::Error::Empty("x".into())).is_without_checkpoint());
        let busy = ResumeError::Store(checkpoint_store::Error::Busy("x".into()));
        let there = ResumeError::RunsThere { job: 1, host: "h1".into() };
        for why in [busy, there, ResumeError::Rootless("1".into()), ResumeError::SeveralThere(vec![1, 2])] {
            assert!(!why.is_without_checkpoint(), "{why}");
        }
    }

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
