//! Writing: each record is appended whole, by one call. So it can be read while the job runs, and survives a kill of
//! `redrun`.
//!
//! Records that verdicts rest on are also synchronized with the disk, by a thread of its own: they survive a power
//! loss, and a slow disk does not delay the job.

use super::chain::{Chain, Head};
use super::{RESUMED, VERSION, lock, read, time};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::SystemTime;

/// Bytes read from the end of a file to find its last line; more if that is longer.
const TAIL_BYTES: u64 = 64 << 10;
/// Events whose records are synchronized at once.
const SYNCED: [&str; 11] = [
    "mismatch",
    "path",
    "evidence",
    "divergence",
    "output-mismatch",
    "retired",
    "replica-lost",
    "rank-lost",
    "daemon-lost",
    "host-bad",
    super::JOB_END,
];

/// True if the event's records are synchronized at once.
#[must_use]
pub fn is_weighty(event: &str) -> bool {
    SYNCED.contains(&event)
}

/// A log that is being written. The default discards records.
#[derive(Debug, Default)]
pub struct Log(Option<Open>);

#[derive(Debug)]
struct Open {
    file: File,
    path: PathBuf,
    number: u64,
    chain: Chain,
    /// Incomplete line at the end of the file.
    torn: Vec<u8>,
    /// Records that could not be written since the last successful one.
    lost_count: u64,
    error: Option<io::Error>,
    disk: Option<Disk>,
    /// Error of the disk's thread, after its end.
    disk_error: Option<io::Error>,
}

/// The thread that synchronizes the file with the disk.
#[derive(Debug)]
struct Disk {
    requests: Sender<()>,
    thread: JoinHandle<()>,
    error: Arc<Mutex<Option<io::Error>>>,
}

impl Disk {
    fn new(file: &File) -> io::Result<Self> {
        let file = file.try_clone()?;
        let (requests, requested) = channel::<()>();
        let error = Arc::new(Mutex::new(None));
        let told = error.clone();
        let serve = move || {
            let mut has_failed = false;
            while requested.recv().is_ok() {
                while requested.try_recv().is_ok() {}
                match file.sync_data() {
                    // A pipe or terminal has no disk.
                    Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {}
                    Err(error) if !has_failed => {
                        has_failed = true;
                        told.lock().unwrap_or_else(PoisonError::into_inner).replace(error);
                    }
                    _ => {}
                }
            }
        };
        let thread = std::thread::Builder::new().name("redrun-audit".into()).spawn(serve)?;
        Ok(Self { requests, thread, error })
    }
}

/// Path of a job's log: `path` itself, or a file of the job's own if it is a directory.
#[must_use]
pub fn path_in(path: &Path, job: u64) -> PathBuf {
    if path.is_dir() { path.join(format!("redrt-{job:016x}.jsonl")) } else { path.to_owned() }
}

impl Log {
    /// Opens a file, to continue after its last record. No other process can write to it until the log is dropped.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = || format!("Failed to open the audit log {}", path.display());
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(path).with_context(failed)?;
        if !lock::take(&file) {
            bail!("another job writes to the audit log {}; name another file, or a directory", path.display());
        }
        let (line, mut torn) = last_line(&mut file).with_context(failed)?;
        let mut head = line.as_deref().map(read::head_of);
        if let Ok(whole) = std::str::from_utf8(&torn)
            && let Some(only_unended) = read::head_of(whole).filter(|_| read::follows(whole, head.flatten()))
        {
            // Only the line end of this record is missing.
            file.write_all(b"\n").with_context(failed)?;
            (head, torn) = (Some(Some(only_unended)), Vec::new());
        }
        let (number, chain) = match head {
            None => (0, Chain::START),
            Some(Some(head)) => (head.number + 1, head.chain),
            Some(None) => bail!("{} ends in a line that is no audit record; name another file", path.display()),
        };
        let path = path.to_owned();
        Ok(Self(Some(Open {
            file,
            path,
            number,
            chain,
            torn,
            lost_count: 0,
            error: None,
            disk: None,
            disk_error: None,
        })))
    }

    /// Appends a record. `fields` must be an object.
    pub fn record(&mut self, event: &str, fields: &Value) {
        self.record_at(SystemTime::now(), event, fields);
    }

    /// Counts lost records: the next record reports them.
    pub fn lose(&mut self, record_count: u64) {
        if let Some(open) = &mut self.0 {
            open.lost_count += record_count;
        }
    }

    /// Appends a record with an earlier time.
    pub fn record_at(&mut self, time: SystemTime, event: &str, fields: &Value) {
        let Some(open) = &mut self.0 else { return };
        if !open.torn.is_empty() || open.lost_count > 0 {
            let fields = json!({
                "torn_bytes": open.torn.len(), "torn": blake3::hash(&open.torn).to_hex().as_str(),
                "lost_records": open.lost_count,
            });
            let before = if open.torn.is_empty() { "" } else { "\n" };
            if !open.append(before, time, RESUMED, &fields) {
                open.lost_count += 1;
                return;
            }
            open.lost_count = 0;
        }
        if !open.append("", time, event, fields) {
            open.lost_count += 1;
        } else if is_weighty(event) {
            open.sync();
        }
    }

    /// Reason why records could not be written, once for each series of failures.
    pub fn poll_error(&mut self) -> Option<io::Error> {
        self.0.as_mut()?.error.take()
    }

    /// Reason why records may not be on the disk, once.
    pub fn poll_disk_error(&mut self) -> Option<io::Error> {
        self.0.as_mut()?.disk_error.take().or_else(|| {
            let disk = self.0.as_ref()?.disk.as_ref()?;
            disk.error.lock().unwrap_or_else(PoisonError::into_inner).take()
        })
    }

    /// The file and its head. `None` without a record.
    #[must_use]
    pub fn head(&self) -> Option<(&Path, Head)> {
        let open = self.0.as_ref()?;
        Some((&open.path, Head { number: open.number.checked_sub(1)?, chain: open.chain }))
    }

    /// Waits until the disk has all records that it must have.
    pub fn close(&mut self) {
        let Some(open) = &mut self.0 else { return };
        let Some(Disk { requests, thread, error }) = open.disk.take() else { return };
        drop(requests);
        // The thread does not panic; if it did, the file would have the records nevertheless.
        let _ = thread.join();
        open.disk_error = error.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.close();
        if let Some(open) = &self.0 {
            lock::release(&open.file);
        }
    }
}

impl Open {
    /// Appends a record. True if it is in the file completely; otherwise its written part is in `torn`.
    fn append(&mut self, before: &str, time: SystemTime, event: &str, fields: &Value) -> bool {
        let record = line_of(self.number, time, event, fields);
        let chain = self.chain.next(&record);
        let line = format!("{before}{}", chain.close(&record));
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let written = &line.as_bytes()[..line.len() - rest.len()];
                    // If the record about an incomplete line is incomplete itself, only its own line is torn from now
                    // on.
                    match written.strip_prefix(b"\n") {
                        Some(line) => self.torn = line.to_vec(),
                        None => self.torn.extend_from_slice(written),
                    }
                    // A full disk must not end the job.
                    if self.lost_count == 0 {
                        self.error = Some(error);
                    }
                    return false;
                }
            }
        }
        self.torn.clear();
        (self.number, self.chain) = (self.number + 1, chain);
        true
    }

    fn sync(&mut self) {
        if self.disk.is_none() {
            self.disk = Disk::new(&self.file).ok();
        }
        if let Some(disk) = &self.disk {
            // The thread lives as long as `disk`.
            let _ = disk.requests.send(());
        }
    }
}

/// Line of a record up to its digest. Made by hand, so that the fields one looks for come first.
fn line_of(number: u64, time: SystemTime, event: &str, fields: &Value) -> String {
    let fields = fields.to_string();
    let fields =
        fields.strip_prefix('{').and_then(|fields| fields.strip_suffix('}')).filter(|fields| !fields.is_empty());
    let rest = fields.map_or(String::new(), |fields| format!(",{fields}"));
    let time = time::timestamp(time);
    format!("{{\"v\":{VERSION},\"n\":{number},\"time\":\"{time}\",\"event\":\"{event}\"{rest}")
}

/// The last complete line of a file, and the bytes after it.
fn last_line(file: &mut File) -> io::Result<(Option<String>, Vec<u8>)> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        // A pipe or terminal cannot be read back.
        return Ok((None, Vec::new()));
    }
    let length = metadata.len();
    let mut wanted = TAIL_BYTES;
    loop {
        let from = length.saturating_sub(wanted);
        file.seek(SeekFrom::Start(from))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        let end = tail.iter().rposition(|byte| *byte == b'\n');
        let Some(end) = end.or(if from == 0 { None } else { Some(0) }) else { return Ok((None, tail)) };
        let begin = tail[..end].iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        if let Some(begin) = begin.or(if from == 0 { Some(0) } else { None }) {
            return Ok((Some(String::from_utf8_lossy(&tail[begin..end]).into_owned()), tail[end + 1..].to_vec()));
        }
        wanted *= 4;
    }
}

#[cfg(test)]
mod tests;
