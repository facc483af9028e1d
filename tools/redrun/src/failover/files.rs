//! Standard streams that are files: they outlive the terminal, and the host too where hosts share them.

use anyhow::{Context, Result, ensure};
use coordinator_records::ledger::KeptFile;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

pub(super) fn is_regular(stream: BorrowedFd<'_>) -> bool {
    nix::sys::stat::fstat(stream).is_ok_and(|facts| facts.st_mode & libc::S_IFMT == libc::S_IFREG)
}

/// Path and position of a standard stream that is a regular file, for another process to reopen. `None` otherwise.
pub(super) fn file_of(stream: BorrowedFd<'_>) -> Option<KeptFile> {
    let file = File::from(stream.try_clone_to_owned().ok().filter(|_| is_regular(stream))?);
    let path = std::fs::read_link(format!("/proc/self/fd/{}", stream.as_raw_fd())).ok()?;
    let flags = fcntl(stream, FcntlArg::F_GETFL).map_or(OFlag::empty(), OFlag::from_bits_truncate);
    let appends = flags.contains(OFlag::O_APPEND);
    let metadata = file.metadata().ok()?;
    let position = if appends { metadata.len() } else { { &file }.stream_position().ok()? };
    Some(KeptFile { path, position, appends, inode: metadata.ino() })
}

/// Files of standard output and standard error, reopened.
#[derive(Debug)]
pub(super) struct Found {
    /// Open for writing, at their ends. `None` where the stream was no file, or the file was not found.
    pub files: [Option<File>; 2],
    /// Bytes of the job in the file of standard output. `None` if messages of this program may be in it too.
    pub output_bytes: Option<u64>,
    /// Reasons why files were not found.
    pub untold: Vec<String>,
}

impl Found {
    /// Reopens these files. `is_elsewhere`: the job began on another host, where a path may mean another file.
    ///
    /// # Errors
    /// When no descriptors are left.
    pub fn find(files: &[Option<KeptFile>; 2], is_elsewhere: bool) -> Result<Self> {
        let mut untold = Vec::new();
        let mut find = |kept: &KeptFile, name: &str| match open(kept, is_elsewhere) {
            Ok(file) => Some(file),
            Err(why) => {
                untold.push(format!("{name} does not go on where it was: {why:#}"));
                None
            }
        };
        let [kept_output, kept_error] = files;
        let output = kept_output.as_ref().and_then(|kept| find(kept, "standard output"));
        let identity = |kept: &KeptFile| (kept.path.clone(), kept.inode);
        let is_one = kept_output.as_ref().map(identity) == kept_error.as_ref().map(identity);
        let error = match &output {
            // Two open files of one path would overwrite each other.
            Some(output) if is_one => Some(output.try_clone().context("Failed to use a file twice")?),
            _ => kept_error.as_ref().and_then(|kept| find(kept, "standard error")),
        };
        let length = output.as_ref().and_then(|output| Some(output.metadata().ok()?.len()));
        // A file of both streams also holds lines of this program.
        let begun_bytes = kept_output.as_ref().filter(|_| !is_one).map(|kept| kept.position);
        let output_bytes = length.zip(begun_bytes).and_then(|(length, begun)| length.checked_sub(begun));
        Ok(Self { files: [output, error], output_bytes, untold })
    }

    /// Makes the files this process's standard streams.
    pub fn lead_there(&self) -> Result<()> {
        let [output, error] = &self.files;
        if let Some(output) = output {
            nix::unistd::dup2_stdout(output).context("Failed to lead standard output to a file")?;
        }
        if let Some(error) = error {
            nix::unistd::dup2_stderr(error).context("Failed to lead standard error to a file")?;
        }
        Ok(())
    }
}

/// Reopens standard input behind the part that was read.
///
/// # Errors
/// When the file is missing or another one.
pub(super) fn input(kept: &KeptFile, is_elsewhere: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    reopen(kept, options.read(true), SeekFrom::Start(kept.position), is_elsewhere)
}

fn open(kept: &KeptFile, is_elsewhere: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(if kept.appends { libc::O_APPEND } else { 0 });
    reopen(kept, &options, SeekFrom::End(0), is_elsewhere)
}

fn reopen(kept: &KeptFile, options: &OpenOptions, position: SeekFrom, is_elsewhere: bool) -> Result<File> {
    let failed = || format!("Failed to go on in {}", kept.path.display());
    let mut file = options.open(&kept.path).with_context(failed)?;
    let metadata = file.metadata().with_context(failed)?;
    let is_same = metadata.ino() == kept.inode && metadata.len() >= kept.position;
    ensure!(is_same || !is_elsewhere, "{} is another file on this host", kept.path.display());
    file.seek(position).with_context(failed)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::path::Path;

    fn kept(path: &Path, appends: bool) -> KeptFile {
        let mut file = OpenOptions::new().create(true).append(appends).write(true).open(path).unwrap();
        file.write_all(b"before\n").unwrap();
        file_of(file.as_fd()).unwrap()
    }

    #[test]
    fn what_a_file_has_of_a_job_is_what_it_did_not_have_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("output");
        for appends in [false, true] {
            std::fs::write(&path, "").unwrap();
            let kept = kept(&path, appends);
            assert_eq!((kept.appends, kept.position), (appends, 7));
            std::fs::write(&path, "before\nshown").unwrap();
            let found = Found::find(&[Some(kept), None], true).unwrap();
            assert_eq!((found.output_bytes, found.untold.len()), (Some(5), 0));
            found.files[0].as_ref().unwrap().write_all(b", more").unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"before\nshown, more");
        }
    }

    #[test]
    fn both_streams_into_one_file_overwrite_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("both");
        let both = kept(&path, false);
        let found = Found::find(&[Some(both.clone()), Some(both)], false).unwrap();
        assert_eq!(found.output_bytes, None, "lines of redrun are in it");
        for (file, bytes) in found.files.iter().flatten().zip([b"output\n", b"errors\n"]) {
            { file }.write_all(bytes).unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"before\noutput\nerrors\n");
    }

    #[test]
    fn a_file_that_has_its_path_on_another_host_is_not_written_to() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("output");
        let mut other = kept(&path, false);
        other.inode += 1;
        let found = Found::find(&[Some(other.clone()), None], true).unwrap();
        assert!(found.files[0].is_none() && found.output_bytes.is_none());
        assert!(found.untold[0].starts_with("standard output does not go on where it was: "), "{:?}", found.untold);
        // On the same host, a file that took the place of the old one is used.
        assert!(Found::find(&[Some(other), None], false).unwrap().files[0].is_some());
        let gone = KeptFile { path: directory.path().join("none"), position: 0, appends: false, inode: 1 };
        assert_eq!(Found::find(&[None, Some(gone)], true).unwrap().untold.len(), 1);
    }
}
