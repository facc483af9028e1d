//! Paths on which replicas agree: those on file systems that all replicas of the rank share.
//!
//! `/proc`, `/sys` and `/dev` belong to the host. For any other file system the replicas find out if it is shared when
//! they first use it. The leader describes the directory that it finds, and each sibling compares and votes. On one
//! host it is the same directory if the device is the same. On several hosts it counts as the same if inode number,
//! type of file system and time of birth are equal, as far as they are known.

use super::agree::{Found, observe};
use super::identity::boot_id;
use super::{directories, is_agreed};
use redrt_comm::objects::host;
use redrt_process::lock;
use redrt_runtime as runtime;
use redrt_runtime::decide;
use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;
use std::time::UNIX_EPOCH;
use std::{env, fs};

const OF_THE_HOST: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The path from the root, without empty and `.` components. `None` if the path is empty, or its directory is unknown.
pub fn absolute(directory: c_int, path: &CStr) -> Option<PathBuf> {
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    if path.as_os_str().is_empty() {
        return None;
    }
    let base = match directory {
        _ if path.is_absolute() => PathBuf::new(),
        libc::AT_FDCWD => env::current_dir().ok()?,
        directory => match directories::path_of(directory) {
            Some(path) => path,
            None => fs::read_link(format!("/proc/self/fd/{directory}")).ok()?,
        },
    };
    let joined = base.join(path);
    let parts = joined.components().filter(|part| !matches!(part, Component::CurDir));
    Some(parts.collect())
}

/// Returns true if the path is in a directory of which each host has its own.
pub fn is_of_host(path: &Path) -> bool {
    OF_THE_HOST.iter().any(|host| path.starts_with(host))
}

/// The path as a C string.
pub fn as_c(path: &Path) -> CString {
    // Without NUL inside: the path was made from a C string.
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

/// The directory of a path; the path itself for the root.
pub fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// Description of a directory by one process, or of its nearest existing ancestor.
#[derive(PartialEq, Eq)]
struct Identity {
    /// Id of the running kernel: each numbers devices in its own way.
    boot: String,
    device: u64,
    inode: u64,
    file_system: i64,
    born_ns: u128,
}

impl Identity {
    fn of(directory: &Path) -> Option<Self> {
        let found = directory.ancestors().find_map(|directory| Some((directory, fs::metadata(directory).ok()?)));
        let (directory, metadata) = found?;
        let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        // SAFETY: - all zeros are a valid statfs: its fields are numbers.
        let mut about: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: - zero-terminated: a CString; about is valid for writes: a local variable.
        unsafe { libc::statfs(as_c(directory).as_ptr(), &raw mut about) };
        Some(Self {
            boot: boot_id(),
            device: metadata.dev(),
            inode: metadata.ino(),
            #[allow(clippy::unnecessary_cast, reason = "its type depends on the machine")]
            file_system: about.f_type as i64,
            born_ns: born.map_or(0, |born| born.as_nanos()),
        })
    }

    fn encode(&self) -> Vec<u8> {
        let Self { boot, device, inode, file_system, born_ns } = self;
        format!("{boot} {device} {inode} {file_system} {born_ns}").into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(bytes).ok()?.split(' ');
        Some(Self {
            boot: words.next()?.to_owned(),
            device: words.next()?.parse().ok()?,
            inode: words.next()?.parse().ok()?,
            file_system: words.next()?.parse().ok()?,
            born_ns: words.next()?.parse().ok()?,
        })
    }

    /// The file system of the directory: kernel and device.
    fn place(&self) -> (String, u64) {
        (self.boot.clone(), self.device)
    }

    fn is_same_as(&self, other: &Self) -> bool {
        let on_one_host = !self.boot.is_empty() && self.place() == other.place();
        let looks_alike =
            (self.inode, self.file_system, self.born_ns) == (other.inode, other.file_system, other.born_ns);
        on_one_host || (self.boot != other.boot && looks_alike)
    }
}

#[derive(Default)]
struct KnownPaths {
    directories: HashMap<PathBuf, bool>,
    file_systems: HashMap<(String, u64), bool>,
}

process_local! {
    static KNOWN: Mutex<Option<KnownPaths>> = Mutex::new(None);
}

/// Returns true if replicas agree on the file of this path.
pub fn is_shared(path: &Path) -> bool {
    !is_of_host(path) && is_shared_directory(parent(path))
}

/// Returns true if replicas agree on files in this directory. The first question for a file system is decided by a
/// vote.
pub fn is_shared_directory(directory: &Path) -> bool {
    if is_of_host(directory) {
        return false;
    }
    if let Some(known) = lock(&KNOWN).get_or_insert_default().directories.get(directory) {
        return *known;
    }
    if !is_agreed() {
        return true;
    }
    let look = || -> Found { Ok((0, Identity::of(directory).map_or_else(Vec::new, |found| found.encode()))) };
    let seen = observe(look).0.ok().and_then(|(_, bytes)| Identity::decode(&bytes));
    let Some(seen) = seen else { return false };
    let known = lock(&KNOWN).get_or_insert_default().file_systems.get(&seen.place()).copied();
    let shared = known
        .unwrap_or_else(|| decide::unanimously(|| Identity::of(directory).is_some_and(|own| own.is_same_as(&seen))));
    if !shared && known.is_none() {
        complain(directory);
    }
    let mut known = lock(&KNOWN);
    let known = known.get_or_insert_default();
    known.file_systems.insert(seen.place(), shared);
    known.directories.insert(directory.to_owned(), shared);
    shared
}

/// Reports a file system that is not shared. Called once for each, in all replicas; one of them reports it.
fn complain(directory: &Path) {
    if runtime::job().is_some_and(|job| job.welcome.me.index.0 == 0) {
        redrt_process::say(format_args!(
            "{}: {} is not the same for all replicas of the rank: each writes files of its own there (see docs/files.md)",
            host::get().identity(),
            directory.display()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_absolute_without_following_anything() {
        let absolute = |path: &CStr| absolute(libc::AT_FDCWD, path).unwrap();
        assert_eq!(absolute(c"/a//b/./c"), Path::new("/a/b/c"));
        assert_eq!(absolute(c"/a/../b"), Path::new("/a/../b"));
        assert_eq!(absolute(c"x"), env::current_dir().unwrap().join("x"));
        assert_eq!(super::absolute(libc::AT_FDCWD, c""), None);
    }

    #[test]
    fn a_directory_is_the_same_on_one_host_if_its_device_is() {
        let own = Identity::of(Path::new("/usr/no such/directory")).unwrap();
        let told = Identity::decode(&own.encode()).unwrap();
        assert!(own.is_same_as(&told));
        assert!(!own.is_same_as(&Identity { device: own.device + 1, ..told }));
        let told = Identity { boot: "another".into(), device: 77, ..Identity::decode(&own.encode()).unwrap() };
        assert!(own.is_same_as(&told));
        assert!(!own.is_same_as(&Identity { inode: own.inode + 1, ..told }));
        assert!(Identity::decode(b"1 2 3").is_none());
    }
}
