//! Files that options name, looked at before anything is started. Lists that are read may come by a pipe, so reading
//! them waits for what is written there, but not for ever, and not without a bound. What is written when the job is
//! over can be written, or the user hears of it now.

use command_line::UsageError;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Hosts and ranks have a line each; no job has as many.
const TEXT_BYTES_MAX: u64 = 64 << 20;
/// A command that writes into a pipe has begun by then.
const PIPE_TIME_MAX: Duration = Duration::from_secs(10);

/// Why a list cannot be read.
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

/// The text of a file, or of a pipe that a command writes into (`--hostfile <(COMMAND)`).
///
/// # Errors
/// When it cannot be read, is no text, has no end, or nothing is written to it for ten seconds.
pub(super) fn read_text(option: &str, path: &Path) -> Result<String, UsageError> {
    let text = open(path).map_err(ReadError::from).and_then(|file| text_of(&file));
    text.map_err(|why| UsageError(format!("{option} {}: {why}", path.display())))
}

/// The same of one that may have names of files, which need be no text.
pub(super) fn read_bytes(option: &str, path: &Path) -> Result<Vec<u8>, UsageError> {
    let bytes = open(path).map_err(ReadError::from).and_then(|file| bytes_within(&file, PIPE_TIME_MAX));
    bytes.map_err(|why| UsageError(format!("{option} {}: {why}", path.display())))
}

/// Opens a file to be read. A pipe that nobody has opened for writing yet is not waited for.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// What is in such a file, or why it cannot be read.
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
            // What came before this is among the bytes.
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

/// Whether something can be read, or the end of it, before that time.
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

/// Whether what is there already, on this host at least, can have a directory below it.
///
/// # Errors
/// Says what is none.
pub(super) fn check_directory(option: &str, directory: &Path) -> Result<(), UsageError> {
    match directory.ancestors().find(|path| path.symlink_metadata().is_ok()) {
        Some(file) if !file.is_dir() => {
            Err(UsageError(format!("{option} {}: {} is not a directory", directory.display(), file.display())))
        }
        _ => Ok(()),
    }
}

/// Whether a file can be written that is written at the end. What is there is left as it is, and nothing is left that
/// was not there.
///
/// # Errors
/// Says why not.
pub(super) fn check_writable(option: &str, path: &Path) -> Result<(), UsageError> {
    let wrong = |error: io::Error| UsageError(format!("{option} {}: {error}", path.display()));
    let was_there = path.symlink_metadata().is_ok();
    // A pipe that nobody reads is refused, not waited for.
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).custom_flags(libc::O_NONBLOCK);
    options.open(path).map_err(wrong)?;
    if was_there { Ok(()) } else { std::fs::remove_file(path).map_err(wrong) }
}

/// Makes the file of an audit log, if it is not there. A log is read when it goes on, so a pipe cannot be one.
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
    fn a_pipe_into_which_nobody_writes_is_not_waited_for_without_end() {
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
        // Opening waits for the reader.
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
