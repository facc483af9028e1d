//! Entries of a user's running jobs on each of their hosts, by which `redctl` finds them.
//!
//! There is one file for each job, host and writer, in a directory that only the user can read. It holds the address at
//! which `redrun` listens, and the job's secret. The writer holds a lock on it as long as it lives: an entry without a
//! lock was left by a writer that was killed.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

use anyhow::{Context, Result, bail, ensure};
use redrt_wire::secret::Secret;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The entry of a job; removed when this is dropped.
#[derive(Debug)]
pub struct JobEntry {
    path: PathBuf,
    _locked: File,
}

/// A job as its entry describes it.
#[derive(Debug)]
pub struct Found {
    /// Identity of the job, 16 hexadecimal digits.
    pub job: String,
    /// Address at which `redrun` listens.
    pub address: SocketAddr,
    /// The job's secret, which opens a connection to `redrun`.
    pub secret: Secret,
    path: PathBuf,
}

/// A file system in memory, which has room when disks are full.
const SHARED_MEMORY: &str = "/dev/shm";

/// Directories for entries: the first that has room is used.
fn directories() -> [PathBuf; 2] {
    directories_by(|name| std::env::var_os(name))
}

/// The same for a process with these variables.
fn directories_by(variable: impl Fn(&str) -> Option<OsString>) -> [PathBuf; 2] {
    let name = format!("redrt-{}", nix::unistd::geteuid());
    let first = match variable("XDG_RUNTIME_DIR") {
        Some(own) if Path::new(&own).is_dir() => Path::new(&own).join("redrt"),
        _ => variable("TMPDIR").map_or_else(|| "/tmp".into(), PathBuf::from).join(&name),
    };
    [first, Path::new(SHARED_MEMORY).join(name)]
}

/// Writes the entry of a job.
pub fn write_down(job: u64, host: &str, address: SocketAddr, secret: &Secret) -> Result<JobEntry> {
    let [first, second] = directories();
    write_into(&first, job, host, address, secret)
        .or_else(|error| write_into(&second, job, host, address, secret).map_err(|_| error))
}

fn write_into(directory: &Path, job: u64, host: &str, address: SocketAddr, secret: &Secret) -> Result<JobEntry> {
    make(directory)?;
    // Both `redrun` and the daemon of its host write an entry.
    let path = directory.join(format!("{job:016x}@{host}.{}", std::process::id()));
    let failed = || format!("Failed to write {}", path.display());
    // The file has another name until it is locked.
    let new = directory.join(format!("{job:016x}-{host}.{}", std::process::id()));
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new).with_context(failed)?;
    if let Err(error) = writeln!(file, "{address} {}", secret.to_text()) {
        let _ = fs::remove_file(&new);
        return Err(error).with_context(failed);
    }
    // Without locks, every entry counts as that of a living job.
    let _ = file.lock();
    fs::rename(&new, &path).with_context(failed)?;
    // A resumed job has no end: an earlier note of one is removed.
    let _ = fs::remove_file(end_path(directory, job, host));
    Ok(JobEntry { path, _locked: file })
}

/// Makes a directory, but not those above it: a `$TMPDIR` that is gone is not ours to make again.
fn make(directory: &Path) -> Result<&Path> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("Failed to make {}", directory.display()));
        }
        _ => {}
    }
    check(directory)?;
    Ok(directory)
}

/// Fails unless the directory is this user's: where everybody can write, somebody else may have been first.
fn check(directory: &Path) -> Result<()> {
    let metadata =
        fs::symlink_metadata(directory).with_context(|| format!("Failed to look at {}", directory.display()))?;
    let is_own = metadata.is_dir() && secret_file::is_own(&metadata);
    ensure!(is_own, "{} is not a directory that only you can read", directory.display());
    Ok(())
}

impl Drop for JobEntry {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        give_back(&self.path);
    }
}

/// Called after a file in the directory was removed. A directory in shared memory is removed too, unless another job
/// uses it.
fn give_back(path: &Path) {
    if let Some(directory) = path.parent().filter(|directory| directory.starts_with(SHARED_MEMORY)) {
        let _ = fs::remove_dir(directory);
    }
}

/// Removes the directory of a job's coordinator.
pub fn remove_coordinator_directory(path: &Path) -> io::Result<()> {
    fs::remove_dir_all(path).inspect(|()| give_back(path))
}

/// Removes the socket of a coordinator that ends.
pub fn remove_console_socket(path: &Path) {
    let _ = fs::remove_file(path);
    give_back(path);
}

/// Removes the job's entries of all hosts that share this directory: a host that died did not do so.
pub fn cross_out(job: u64) {
    directories().iter().for_each(|directory| cross_out_in(directory, job));
}

fn cross_out_in(directory: &Path, job: u64) {
    let begin = format!("{job:016x}@");
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&begin) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The user's jobs that have entries on this host, or on any of the hosts that share the directory.
pub fn find_all() -> Result<Vec<Found>> {
    find_in_either(&directories())
}

/// An error of the first directory is returned only if the second has no jobs.
fn find_in_either([first, second]: &[PathBuf; 2]) -> Result<Vec<Found>> {
    let mut found = find_in(second).unwrap_or_default();
    match find_in(first) {
        Ok(others) => found.extend(others),
        Err(error) if found.is_empty() => return Err(error),
        Err(_) => {}
    }
    found.sort_by(|one, other| one.job.cmp(&other.job));
    found.dedup_by(|one, other| one.job == other.job);
    Ok(found)
}

fn find_in(directory: &Path) -> Result<Vec<Found>> {
    if !directory.exists() {
        return Ok(Vec::new());
    }
    check(directory)?;
    let mut found: Vec<Found> = Vec::new();
    for entry in fs::read_dir(directory)?.flatten() {
        let Some(job) = entry.file_name().to_str().and_then(|name| Some(name.split_once('@')?.0.to_owned())) else {
            continue;
        };
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(entry.path());
        let Ok(file) = opened else { continue };
        // The file decides to whom `redctl` tells the secret in it: nobody else may have written it.
        if !file.metadata().is_ok_and(|metadata| metadata.is_file() && secret_file::is_own(&metadata)) {
            continue;
        }
        // The lock is free: the writer is dead.
        if file.try_lock_shared().is_ok() {
            let _ = fs::remove_file(entry.path());
            continue;
        }
        let Ok(text) = io::read_to_string(file) else { continue };
        let parsed = text.trim_end().split_once(' ');
        let parsed = parsed.and_then(|(address, secret)| Some((address.parse().ok()?, Secret::from_text(secret)?)));
        let Some((address, secret)) = parsed else { continue };
        if found.iter().all(|other| other.job != job) {
            found.push(Found { job, address, secret, path: entry.path() });
        }
    }
    found.sort_by(|one, other| one.job.cmp(&other.job));
    Ok(found)
}

/// True while a process that runs the job, or starts its processes, has an entry here.
#[must_use]
pub fn lives(job: &str) -> bool {
    directories().iter().any(|directory| lives_in(directory, job))
}

/// The only job, or the only one whose identity begins with `wanted`.
pub fn find(wanted: Option<&str>) -> Result<Found> {
    choose(find_all()?, wanted)
}

fn choose(all: Vec<Found>, wanted: Option<&str>) -> Result<Found> {
    let mut fitting: Vec<_> =
        all.into_iter().filter(|found| wanted.is_none_or(|wanted| found.job.starts_with(wanted))).collect();
    match (fitting.pop(), fitting.is_empty(), wanted) {
        (Some(found), true, _) => Ok(found),
        (Some(_), false, _) => bail!("several jobs are running here: choose one by --job (redctl list shows them)"),
        (None, _, Some(wanted)) => bail!("no job {wanted} is running here"),
        (None, _, None) => bail!("no job of yours is running here"),
    }
}

/// Ending of the files that say why a job ended. Its daemons write them when nobody is left to be told.
const END: &str = ".end";

fn end_path(directory: &Path, job: u64, host: &str) -> PathBuf {
    directory.join(format!("{job:016x}-{host}{END}"))
}

/// Notes why this host's part of a job has ended, where a process with these variables looks for it.
pub fn record_end(job: u64, host: &str, why: &str, variable: impl Fn(&str) -> Option<OsString>) {
    let write = |directory: &PathBuf| {
        let path = end_path(make(directory)?, job, host);
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        anyhow::Ok(writeln!(file, "{why}")?)
    };
    // Without room the reason is lost.
    let _ = directories_by(variable).iter().any(|directory| write(directory).is_ok());
}

/// The end of a job whose identity begins with `wanted`, if a daemon or a member of its quorum has noted it on this
/// host.
pub fn noted_end(wanted: &str) -> Option<String> {
    let is_wanted = |name: &str| name.starts_with(wanted) && name.ends_with(END);
    let found = entries().find(|entry| entry.file_name().to_str().is_some_and(is_wanted))?;
    Some(fs::read_to_string(found.path()).ok()?.lines().collect::<Vec<_>>().join("; "))
}

/// The socket at which a job's coordinator listens: there the console can be taken over.
#[derive(Debug)]
pub struct ConsoleSocket {
    /// Identity of the job, 16 hexadecimal digits.
    pub job: String,
    /// Path of the socket, which may be left from a coordinator that was killed.
    pub path: PathBuf,
}

const CONSOLE: &str = ".console";
const COORDINATOR: &str = ".root";

/// The directory in which a job's coordinator keeps its state for a successor; created if missing.
pub fn coordinator_directory(job: u64) -> Result<PathBuf> {
    fill_coordinator_directory(job, |name| std::env::var_os(name), |_| Ok(())).map(|(directory, ())| directory)
}

/// The coordinator's directory, for a process with these variables: the first one in which `fill` succeeds. A reader
/// looks in all of them.
///
/// # Errors
/// The error of the first directory.
pub fn fill_coordinator_directory<T>(
    job: u64,
    variable: impl Fn(&str) -> Option<OsString>,
    fill: impl Fn(&Path) -> Result<T>,
) -> Result<(PathBuf, T)> {
    let inside = |directory: &PathBuf| {
        let own = make(directory)?.join(format!("{job:016x}{COORDINATOR}"));
        // An empty directory that could not be filled is removed again.
        let filled = fill(make(&own)?).inspect_err(|_| drop(fs::remove_dir(&own)))?;
        anyhow::Ok((own, filled))
    };
    let [first, second] = directories_by(variable);
    inside(&first).or_else(|error| inside(&second).map_err(|_| error))
}

/// Identities and directories of this user's jobs whose coordinator runs here, or has left its state behind.
pub fn find_coordinators() -> Vec<(String, PathBuf)> {
    let mut found: Vec<_> = entries()
        .filter_map(|entry| {
            let job = entry.file_name().to_str()?.strip_suffix(COORDINATOR)?.to_owned();
            check(&entry.path()).ok().map(|()| (job, entry.path()))
        })
        .collect();
    // Directories in memory come first: they are certainly this host's.
    found.sort_by_cached_key(|(job, path)| (job.clone(), !path.starts_with(SHARED_MEMORY), path.clone()));
    found
}

/// The coordinator's directory of this job, if there is one.
pub fn find_coordinator(job: u64) -> Option<PathBuf> {
    let name = format!("{job:016x}");
    find_coordinators().into_iter().find(|(found, _)| *found == name).map(|(_, directory)| directory)
}

/// Everything in the directories of entries, as far as those are this user's alone.
fn entries() -> impl Iterator<Item = fs::DirEntry> {
    let sound = directories().into_iter().filter(|directory| directory.exists() && check(directory).is_ok());
    sound.flat_map(|directory| fs::read_dir(directory).into_iter().flatten().flatten())
}

/// The socket for consoles of a job's coordinator, in a directory that only the user can enter.
pub fn console_socket_path(job: u64) -> Result<PathBuf> {
    let [first, second] = directories();
    let directory = make(&first).or_else(|error| make(&second).map_err(|_| error))?;
    Ok(directory.join(format!("{job:016x}{CONSOLE}")))
}

/// Sockets of this user's coordinators on this host, including those of coordinators that were killed.
pub fn find_console_sockets() -> Vec<ConsoleSocket> {
    let mut console_sockets: Vec<_> = entries()
        .filter_map(|entry| {
            let job = entry.file_name().to_str()?.strip_suffix(CONSOLE)?.to_owned();
            Some(ConsoleSocket { job, path: entry.path() })
        })
        .collect();
    console_sockets.sort_by(|one, other| one.job.cmp(&other.job));
    console_sockets
}

/// Maximum wait for a process that looks at the same sockets. It holds the lock for a few system calls, or is stopped.
const LOCK_TIME_MAX: Duration = Duration::from_secs(1);
/// Interval between attempts: a lock of `flock` has no time limit of its own.
const LOCK_INTERVAL: Duration = Duration::from_millis(1);

/// Excludes that another process removes a socket as dead while this one replaces it. Held until dropped.
#[derive(Debug)]
pub struct ConsoleSocketsLock {
    _directory: Option<File>,
}

/// Locks the sockets in the directory of `path`. Goes on without a lock where the file system has none.
#[must_use]
pub fn lock_console_sockets(path: &Path) -> ConsoleSocketsLock {
    let since = Instant::now();
    let directory = path.parent().and_then(|directory| File::open(directory).ok());
    let is_held = |directory: &File| matches!(directory.try_lock(), Err(TryLockError::WouldBlock));
    while directory.as_ref().is_some_and(is_held) && since.elapsed() < LOCK_TIME_MAX {
        std::thread::sleep(LOCK_INTERVAL);
    }
    ConsoleSocketsLock { _directory: directory }
}

impl ConsoleSocket {
    /// Removes the socket if `is_dead` still holds with the sockets locked, as a coordinator that comes back may have
    /// replaced it. It stays while anything of the job lives: a coordinator on another host may listen if hosts share
    /// the directory.
    pub fn cross_out(&self, is_dead: impl FnOnce() -> bool) {
        let Some(directory) = self.path.parent().filter(|directory| !lives_in(directory, &self.job)) else { return };
        // If another process has the lock, the socket is left to a later look.
        let is_locked = File::open(directory).and_then(|lock| Ok(lock.try_lock().map(|()| lock)?));
        if let Ok(_lock) = is_locked
            && is_dead()
        {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// True if a living process on any host that shares this directory has an entry of the job there.
fn lives_in(directory: &Path, job: &str) -> bool {
    find_in(directory).is_ok_and(|found| found.iter().any(|found| found.job == job))
}

impl Found {
    /// The words before a program's name that start it where this job can be reached. `None` unless the job has a
    /// network of its own on this host, as where the host has none (`tools/redrun/src/own_network.rs`).
    #[must_use]
    pub fn way_there(&self) -> Option<String> {
        let name = self.path.file_name()?.as_bytes();
        let (_, process) = std::str::from_utf8(&name[name.iter().rposition(|byte| *byte == b'.')?..]).ok()?.split_at(1);
        let process: u32 = process.parse().ok()?;
        let differs = |kind: &str| {
            let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/{kind}")).ok();
            let theirs = of(&process.to_string());
            theirs.is_some() && theirs != of("self")
        };
        let privileges = if differs("user") { " -U --preserve-credentials" } else { "" };
        differs("net").then(|| format!("nsenter -t {process}{privileges} -n"))
    }

    /// Removes the entry of a job that is over, whose writer was killed before it could do so.
    pub fn cross_out(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn what_is_written_down_is_found_until_it_is_crossed_out() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("jobs");
        let address: SocketAddr = ([10, 0, 0, 1], 4000).into();
        assert!(find_in(&directory).unwrap().is_empty());
        let one = write_into(&directory, 0xabc, "h1", address, &Secret::new([1; 32])).unwrap();
        let same = write_into(&directory, 0xabc, "h2", address, &Secret::new([1; 32])).unwrap();
        let found = find_in(&directory).unwrap();
        assert_eq!((found.len(), found[0].address, found[0].secret.key()), (1, address, &[1; 32]));
        assert_eq!(fs::metadata(&one.path).unwrap().mode() & 0o777, 0o600);
        let _other = write_into(&directory, 0xdef, "h1", address, &Secret::new([2; 32])).unwrap();
        let all = || find_in(&directory).unwrap();
        assert!(choose(all(), None).unwrap_err().to_string().contains("several"));
        assert_eq!(choose(all(), Some("0000000000000d")).unwrap().job, "0000000000000def");
        assert!(choose(all(), Some("f")).is_err());
        std::mem::forget(same);
        drop(one);
        cross_out_in(&directory, 0xabc);
        assert_eq!(choose(all(), None).unwrap().job, "0000000000000def");
    }

    #[test]
    fn a_job_is_found_where_there_was_room_to_write_it_down() {
        let parent = tempfile::tempdir().unwrap();
        let both = [parent.path().join("one"), parent.path().join("other")];
        let address: SocketAddr = ([10, 0, 0, 1], 4000).into();
        let write = |directory: &Path, job| write_into(directory, job, "h", address, &Secret::new([1; 32])).unwrap();
        let _second = write(&both[1], 2);
        let jobs = || find_in_either(&both).unwrap().into_iter().map(|found| found.job).collect::<Vec<_>>();
        assert_eq!(jobs(), ["0000000000000002"]);
        // `redrun` had no room in the first directory, and its daemon a moment later had.
        let _first = (write(&both[0], 1), write(&both[0], 2));
        assert_eq!(jobs(), ["0000000000000001", "0000000000000002"]);
        // A directory of somebody else hides no jobs of the other.
        fs::set_permissions(&both[1], fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(jobs(), ["0000000000000001", "0000000000000002"]);
        fs::set_permissions(&both[0], fs::Permissions::from_mode(0o755)).unwrap();
        assert!(find_in_either(&both).is_err());
    }

    #[test]
    fn a_lost_temporary_directory_is_not_made_again() {
        let parent = tempfile::tempdir().unwrap();
        let gone = parent.path().join("gone");
        assert!(write_into(&gone.join("jobs"), 1, "h", ([1, 2, 3, 4], 5).into(), &Secret::new([0; 32])).is_err());
        assert!(!gone.exists());
    }

    #[test]
    fn what_somebody_left_behind_who_was_killed_is_crossed_out() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("jobs");
        let entry = write_into(&directory, 1, "h", ([1, 2, 3, 4], 5).into(), &Secret::new([0; 32])).unwrap();
        let copy = directory.join("0000000000000002@h");
        fs::copy(&entry.path, &copy).unwrap();
        assert_eq!(find_in(&directory).unwrap().len(), 1);
        assert!(entry.path.exists() && !copy.exists());
    }

    #[test]
    fn a_silent_coordinators_socket_stays_while_its_job_lives() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("jobs");
        let entry = write_into(&directory, 1, "h2", ([1, 2, 3, 4], 5).into(), &Secret::new([0; 32])).unwrap();
        let job = format!("{:016x}", 1);
        let console_socket = ConsoleSocket { path: directory.join(format!("{job}{CONSOLE}")), job };
        fs::write(&console_socket.path, "").unwrap();
        console_socket.cross_out(|| true);
        assert!(console_socket.path.exists());
        drop(entry);
        // A coordinator that comes back has replaced it between two looks, or is about to.
        console_socket.cross_out(|| false);
        let replacing = lock_console_sockets(&console_socket.path);
        console_socket.cross_out(|| true);
        assert!(console_socket.path.exists());
        drop(replacing);
        console_socket.cross_out(|| true);
        assert!(!console_socket.path.exists());
    }

    #[test]
    fn an_entry_readable_by_others_or_elsewhere_is_rejected() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("jobs");
        let entry = write_into(&directory, 1, "h", ([1, 2, 3, 4], 5).into(), &Secret::new([0; 32])).unwrap();
        std::os::unix::fs::symlink(&entry.path, directory.join("0000000000000002@h")).unwrap();
        assert_eq!(find_in(&directory).unwrap().len(), 1);
        fs::set_permissions(&entry.path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(find_in(&directory).unwrap().is_empty());
    }

    #[test]
    fn a_directory_that_others_can_read_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(write_into(directory.path(), 1, "h", ([1, 2, 3, 4], 5).into(), &Secret::new([0; 32])).is_err());
        assert!(find_in(directory.path()).is_err());
    }
}
