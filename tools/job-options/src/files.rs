//! Files that options name, checked before anything is started. Lists may come through a pipe, so reading waits for
//! their writer, with limits on time and length. Files for the end of the job are checked for being writable now, while
//! the user can react.

use command_line::UsageError;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum length of a list. Hosts and ranks have a line each; no job has as many.
const TEXT_BYTES_MAX: u64 = 64 << 20;
/// Time for the next bytes of a pipe: a command that writes into it has begun by then.
const PIPE_TIME_MAX: Duration = Duration::from_secs(10);

/// Reason why a list cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it has more than {} MiB", TEXT_BYTES_MAX >> 20)]
    TooLong,
    #[error("nothing was written to it within {} s", .0.as_secs())]
    Silent(Duration),
    #[error("it is not text (UTF-8)")]
    NotText,
}

/// Text of a file, or of a pipe that a command writes into (`--hostfile <(COMMAND)`).
///
/// # Errors
/// When it cannot be read, is not text, is too long, or nothing is written to it for ten seconds.
pub(super) fn read_text(option: &str, path: &Path) -> Result<String, UsageError> {
    let text = open(path).map_err(ReadError::from).and_then(|file| text_of(&file));
    text.map_err(|why| UsageError(format!("{option} {}: {why}", path.display())))
}

/// Like [`read_text`], for files with names of files, which need not be text.
pub(super) fn read_bytes(option: &str, path: &Path) -> Result<Vec<u8>, UsageError> {
    let bytes = open(path).map_err(ReadError::from).and_then(|file| bytes_within(&file, PIPE_TIME_MAX));
    bytes.map_err(|why| UsageError(format!("{option} {}: {why}", path.display())))
}

/// Opens a file for reading, without waiting for a pipe's writer.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Text of such a file.
pub(super) fn text_of(file: &File) -> Result<String, ReadError> {
    text_within(file, PIPE_TIME_MAX)
}

fn text_within(file: &File, time_max: Duration) -> Result<String, ReadError> {
    String::from_utf8(bytes_within(file, time_max)?).map_err(|_| ReadError::NotText)
}

fn bytes_within(file: &File, time_max: Duration) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let mut until = Instant::now() + time_max;
    loop {
        if !is_readable(file, until)? {
            return Err(ReadError::Silent(time_max));
        }
        let before = bytes.len();
        match file.take(TEXT_BYTES_MAX + 1 - before as u64).read_to_end(&mut bytes) {
            Ok(_) if bytes.len() as u64 > TEXT_BYTES_MAX => return Err(ReadError::TooLong),
            Ok(_) => break,
            // Bytes that came before this are kept.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if bytes.len() > before {
                    until = Instant::now() + time_max;
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}

/// True if the file becomes readable, or ends, before `until`.
fn is_readable(file: &File, until: Instant) -> io::Result<bool> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let wait = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(file.as_fd(), PollFlags::POLLIN)], wait) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Checks that the existing part of the path is a directory, on this host at least.
///
/// # Errors
/// When part of the path is a file.
pub(super) fn check_directory(option: &str, directory: &Path) -> Result<(), UsageError> {
    match directory.ancestors().find(|path| path.symlink_metadata().is_ok()) {
        Some(file) if !file.is_dir() => {
            Err(UsageError(format!("{option} {}: {} is not a directory", directory.display(), file.display())))
        }
        _ => Ok(()),
    }
}

/// Checks that a file for the end of the job can be written. An existing file is left unchanged, and no new one is left
/// behind.
///
/// # Errors
/// When it cannot be written.
pub(super) fn check_writable(option: &str, path: &Path) -> Result<(), UsageError> {
    let wrong = |error: io::Error| UsageError(format!("{option} {}: {error}", path.display()));
    let was_there = path.symlink_metadata().is_ok();
    // A pipe without a reader is refused instead of waited for.
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).custom_flags(libc::O_NONBLOCK);
    options.open(path).map_err(wrong)?;
    if was_there { Ok(()) } else { std::fs::remove_file(path).map_err(wrong) }
}

/// Creates an audit log if it does not exist. A log is read when it is continued, so it cannot be a pipe.
///
/// # Errors
/// When it cannot be written, or is a pipe or a socket.
pub(super) fn make_log(option: &str, path: &Path) -> Result<(), UsageError> {
    let wrong = |why: String| UsageError(format!("{option} {}: {why}", path.display()));
    let kind = path.metadata().map(|metadata| metadata.file_type());
    if kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket()) {
        return Err(wrong("a pipe or socket keeps nothing, and an audit log is read again; name a file".into()));
    }
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map(drop).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;

    fn pipe(directory: &Path) -> std::path::PathBuf {
        let path = directory.join("pipe");
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
        path
    }

    #[test]
    fn a_list_that_has_no_end_is_refused() {
        let error = read_text("--rankfile", Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error.to_string(), "--rankfile /dev/zero: it has more than 64 MiB");
    }

    #[test]
    fn a_pipe_without_a_writer_is_not_waited_for_without_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = pipe(directory.path());
        let error = text_within(&open(&path).unwrap(), Duration::ZERO).unwrap_err();
        assert_eq!(error.to_string(), "nothing was written to it within 0 s");
    }

    #[test]
    fn a_list_comes_by_a_pipe_in_pieces() {
        let directory = tempfile::tempdir().unwrap();
        let path = pipe(directory.path());
        let reader = std::thread::spawn({
            let path = path.clone();
            move || read_text("--hostfile", &path)
        });
        // Opening blocks until the reader opens.
        let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
        for host in ["h1\n", "h2\n"] {
            io::Write::write_all(&mut writer, host.as_bytes()).unwrap();
        }
        drop(writer);
        assert_eq!(reader.join().unwrap().unwrap(), "h1\nh2\n");
    }

    #[test]
    fn what_is_written_at_the_end_is_tried_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("summary");
        check_writable("--json-summary", &path).unwrap();
        assert!(!path.exists());
        std::fs::write(&path, "before").unwrap();
        check_writable("--json-summary", &path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");
        let below = directory.path().join("missing/summary");
        let error = check_writable("--json-summary", &below).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("--json-summary {}: No such file or directory (os error 2)", below.display())
        );
        let unread = pipe(directory.path());
        assert!(check_writable("--json-summary", &unread).is_err(), "a pipe that nobody reads");
    }

    #[test]
    fn an_audit_log_is_no_pipe() {
        let directory = tempfile::tempdir().unwrap();
        let error = make_log("--audit", &pipe(directory.path())).unwrap_err();
        assert!(error.to_string().contains("name a file"), "{error}");
        make_log("--audit", &directory.path().join("log")).unwrap();
        assert!(directory.path().join("log").is_file());
    }
}
