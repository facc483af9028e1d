//! `--checkpoint-archive`: a second place for some checkpoints, which survives the loss of all hosts.

use super::super::arguments::JobArguments;
use super::super::times::time;
use anyhow::Result;
use checkpoint_files::remote::{self, Access};
use checkpoint_store::{Level, objects};
use command_line::UsageError;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// The archive of the jobs' checkpoints.
#[derive(Clone, PartialEq, Debug)]
pub struct Archive {
    /// Interval between checkpoints that it gets.
    pub interval: Duration,
    /// Access to it, for all jobs.
    pub access: Access,
}

impl Archive {
    /// The job in the archive that `text` means: a number, or the directory of a job's checkpoints.
    pub(super) fn jobs(&self, text: &Path) -> Result<remote::Jobs> {
        let is_name = |name: &&Path| name.to_str().is_some_and(objects::is_job);
        let of_directory = text.file_name().map(Path::new).filter(is_name);
        let name = if text.is_dir() { of_directory } else { Some(text).filter(|text| text.components().count() == 1) };
        let jobs = remote::jobs(name, Path::new(self.access.url()))?;
        Ok(jobs.unwrap_or_else(|| remote::Jobs { access: self.access.clone(), names: Vec::new() }))
    }
}

/// The archive, if one is used with checkpoints of this level.
pub(super) fn archive(arguments: &JobArguments, level: Level) -> Result<Option<Archive>, UsageError> {
    const OPTION: &str = "--checkpoint-archive";
    let Some(text) = arguments.checkpoint_archive.as_deref() else { return Ok(None) };
    let usage = |why: &str| UsageError(format!("{OPTION} {}: {why}", text.display()));
    if !level.is_on_hosts() {
        return Err(UsageError(format!(
            "{OPTION} is for checkpoints on hosts: say --checkpoint-level local, partner, erasure:K+M or memory, since \
             {level} survives the loss of all hosts by itself"
        )));
    }
    let bytes = text.as_bytes();
    let Some(comma) = bytes.iter().position(|byte| *byte == b',') else {
        return Err(usage("say a time and a place, such as 1h,/shared/checkpoints or 1h,s3://bucket/prefix"));
    };
    let interval = std::str::from_utf8(&bytes[..comma]).map_err(|_| usage("its time is no text"))?;
    let interval = time(OPTION, interval)?;
    let place = Path::new(std::ffi::OsStr::from_bytes(&bytes[comma + 1..]));
    let url = match remote::url(place) {
        Some(url) => url.to_owned(),
        None if place.as_os_str().is_empty() => return Err(usage("it names no place")),
        None => {
            let absolute = std::path::absolute(place).map_err(|error| usage(&error.to_string()))?;
            // A coordinator that comes back where the directory is not seen goes on without it.
            if arguments.come_back.is_none() {
                let made = std::fs::create_dir_all(&absolute);
                made.map_err(|error| usage(&format!("the directory cannot be made: {error}")))?;
            }
            let name = absolute.to_str().ok_or_else(|| usage("the name of the directory is no text"))?;
            format!("file://{name}")
        }
    };
    remote::check_url(&url).map_err(|why| usage(&why.to_string()))?;
    Ok(Some(Archive { interval, access: Access::of_environment(&url) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn read(level: Level, text: &str) -> Result<Option<Archive>, String> {
        let arguments = JobArguments::parse_from(["redrun", "--checkpoint-archive", text, "./app"]);
        archive(&arguments, level).map_err(|error| error.0)
    }

    #[test]
    fn an_archive_has_an_interval_and_a_place() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("a,b");
        let found = read(Level::Partner, &format!("90s,{}", directory.display())).unwrap().unwrap();
        assert_eq!(found.interval, Duration::from_secs(90));
        assert_eq!(found.access.url(), format!("file://{}", directory.display()));
        assert!(directory.is_dir());
        assert_eq!(read(Level::Local, "1h,s3://b/p").unwrap().unwrap().access.url(), "s3://b/p");
    }

    #[test]
    fn what_is_no_archive_is_refused_in_one_line() {
        for (level, text, why) in [
            (Level::Shared, "1h,/x", "shared survives the loss of all hosts by itself"),
            (Level::Object, "1h,/x", "object survives"),
            (Level::Local, "1h", "say a time and a place"),
            (Level::Local, "1h,", "names no place"),
            (Level::Local, "60,/x", "--checkpoint-archive"),
            (Level::Local, "1h,ftp://x/y", "say s3://"),
            (Level::Local, "1h,/dev/null/x", "cannot be made"),
        ] {
            let said = read(level, text).unwrap_err();
            assert!(said.contains(why) && !said.contains('\n'), "{said}");
        }
    }
}
