//! The directory in which a host keeps its part of a checkpoint, or a partner's copy, below the directory of the job.
//!
//! No rename marks such a directory as complete: the manifest does, which is written when all parts are.

use crate::names::{self, Name};
use redrt_wire::checkpoint::Generation;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Checkpoints contain memory of programs, so only their owner may read them.
pub(crate) const DIRECTORY_MODE: u32 = 0o700;
const PREFIX: &str = "at-";

/// Directory of a checkpoint at the daemon of `host`, below the directory of the job.
#[must_use]
pub fn of_host(job: &Path, host: u32, generation: Generation) -> PathBuf {
    job.join(format!("{PREFIX}{host}")).join(Name::whole(generation).to_string())
}

/// Creates the directory `place`, and deletes all checkpoints beside it that are not `kept`.
///
/// # Errors
/// If `place` cannot be created, or its parent cannot be listed.
pub fn make(place: &Path, kept: &[Generation]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(place)?;
    let of_host = place.parent().expect("it was made from two names");
    for entry in fs::read_dir(of_host)?.flatten() {
        let name = entry.file_name().to_str().and_then(Name::parse);
        let is_kept = |name: Name| kept.contains(&name.generation) || entry.path() == place;
        if name.is_some_and(|name| !is_kept(name)) {
            // Another helper of this host may be deleting the same, and a failure must not prevent a new checkpoint.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

/// Makes the entries of a place durable, and its own name in the directories above.
///
/// # Errors
/// If a directory cannot be opened or synchronized.
pub fn settle(place: &Path) -> io::Result<()> {
    // The directory itself, that of the host, of the job, and of all jobs.
    place.ancestors().take(4).try_for_each(|directory| File::open(directory)?.sync_all())
}

/// Lists the directories of a checkpoint that this host can see.
///
/// # Errors
/// If the directory of the job exists and cannot be listed.
pub fn seen(job: &Path, generation: Generation) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(job) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let is_of_host = |name: &str| name.strip_prefix(PREFIX).is_some_and(|host| host.parse::<u32>().is_ok());
    let of_hosts = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_of_host));
    let places = of_hosts.map(|entry| entry.path().join(names::Name::whole(generation).to_string()));
    let mut places: Vec<_> = places.filter(|place| place.is_dir()).collect();
    places.sort();
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_the_checkpoints_that_are_kept_and_no_others() {
        let parent = tempfile::tempdir().unwrap();
        let place = |host, generation| of_host(parent.path(), host, Generation(generation));
        for generation in 1..5 {
            make(&place(3, generation), &[]).unwrap();
            make(&place(4, generation), &[1, 2, 3].map(Generation)).unwrap();
            fs::write(place(3, generation).join("0.image"), "x").unwrap();
            settle(&place(3, generation)).unwrap();
        }
        fs::create_dir(parent.path().join("at-x")).unwrap();
        let seen = |generation| seen(parent.path(), Generation(generation)).unwrap();
        assert_eq!([1, 2, 3].map(seen), [1, 2, 3].map(|generation| vec![place(4, generation)]));
        assert_eq!(seen(4), [place(3, 4), place(4, 4)]);
        make(&place(3, 4), &[]).unwrap();
        assert!(place(3, 4).join("0.image").exists());
    }
}
