//! Heads of logs, noted elsewhere while jobs run: a log that was cut, emptied or rewritten does not match them.
//!
//! One file for all jobs of a user, a JSON object a line, each appended by one call:
//!
//! ```text
//! {"time":"2026-03-01T12:00:00.000123Z","log":"/data/log.jsonl","job":"00c0ffee00c0ffee","head":"17:8d0f…"}
//! ```
//! Or the system's log, which only the administrator can change.

use super::chain::Head;
use super::time;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The socket of the system's log.
const SYSLOG: &str = "/dev/log";
/// Facility authpriv, severity notice.
const PRIORITY: u8 = 10 * 8 + 5;

/// Place where heads are noted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HeadStore {
    /// The file at this path.
    File(PathBuf),
    /// The system's log.
    Syslog,
    /// Heads are not noted.
    Nowhere,
}

impl From<OsString> for HeadStore {
    fn from(text: OsString) -> Self {
        match text.to_str() {
            Some("syslog") => Self::Syslog,
            Some("none") => Self::Nowhere,
            _ => Self::File(text.into()),
        }
    }
}

/// This user's file: below `$XDG_STATE_HOME`, or `~/.local/state`. `None` without a home directory.
#[must_use]
pub fn default_file() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("redrt/audit-heads"))
}

/// One line of the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Note {
    /// Time of the note.
    pub time: String,
    /// Absolute path of the log.
    #[serde(with = "redrt_types::path_bytes")]
    pub log: PathBuf,
    /// Job that wrote to it.
    pub job: String,
    #[serde(with = "as_text")]
    /// Last record at that time.
    pub head: Head,
}

mod as_text {
    use super::Head;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(head: &Head, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(head)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Head, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Note {
    /// A note about a log's present head.
    #[must_use]
    pub fn new(log: &Path, job: &str, head: Head) -> Self {
        let log = fs::canonicalize(log).unwrap_or_else(|_| log.to_owned());
        Self { time: time::timestamp(SystemTime::now()), log, job: job.to_owned(), head }
    }

    /// Sends it to the system's log at this socket. Never blocks.
    fn send(&self, log_socket: &Path) -> io::Result<()> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        let Self { log, job, head, .. } = self;
        let text = format!("<{PRIORITY}>redrun: job {job}: head {head} of audit log {}", log.display());
        socket.send_to(text.as_bytes(), log_socket).map(drop)
    }

    /// Writes it to a store.
    pub fn write(&self, place: &HeadStore) -> io::Result<()> {
        match place {
            HeadStore::Nowhere => Ok(()),
            HeadStore::Syslog => self.send(Path::new(SYSLOG)),
            HeadStore::File(path) => {
                if let Some(directory) = path.parent() {
                    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
                }
                let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
                let mut line = serde_json::to_string(self)?;
                line.push('\n');
                // By one call, so that lines of several jobs do not mix.
                file.write_all(line.as_bytes())
            }
        }
    }
}

/// All notes in a file; other lines are left out. Empty if there is no file.
pub fn read(path: &Path) -> io::Result<Vec<Note>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::Chain;

    #[test]
    fn what_is_noted_is_read_and_a_torn_line_hides_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("below/heads");
        assert_eq!(read(&path).unwrap(), []);
        let note = |number| Note::new(Path::new("/no/log"), "7", Head { number, chain: Chain::START.next("x") });
        let place = HeadStore::File(path.clone());
        note(1).write(&place).unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"time\":\n").unwrap();
        note(2).write(&place).unwrap();
        assert_eq!(read(&path).unwrap().iter().map(|note| note.head.number).collect::<Vec<_>>(), [1, 2]);
        let of = |text: &str| HeadStore::from(OsString::from(text));
        assert_eq!((of("none"), of("syslog")), (HeadStore::Nowhere, HeadStore::Syslog));
    }

    /// Each is one message.
    #[test]
    fn the_systems_log_gets_each_head_without_a_wait() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let note = Note::new(Path::new("/no/log"), "7", Head { number: 3, chain: Chain::START.next("x") });
        // No system log, as in a container.
        assert_eq!(note.send(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let daemon = UnixDatagram::bind(&path).unwrap();
        note.send(&path).unwrap();
        let mut message = [0; 1000];
        let length = daemon.recv(&mut message).unwrap();
        let text = std::str::from_utf8(&message[..length]).unwrap();
        assert_eq!(text, format!("<85>redrun: job 7: head {} of audit log /no/log", note.head));
        // A system log that reads nothing.
        let refused = (0..10_000).find_map(|_| note.send(&path).err());
        assert_eq!(refused.map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
    }
}
