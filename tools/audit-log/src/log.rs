//! Writing: each record is written whole, at once, to the end of the file, so it can be read while the job runs and
//! holds all that happened before `redrun` was killed.
//!
//! What a verdict follows from is put on the disk as well, by a thread of its own: a host that loses its power loses
//! nothing of that, and a slow disk does not keep the job waiting.

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

/// Looked at from the end of a file to find its last line, more if that is longer.
const TAIL_BYTES: u64 = 64 << 10;
/// Records that go to the disk at once.
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

/// Whether a record goes to the disk at once.
#[must_use]
pub fn is_weighty(event: &str) -> bool {
    SYNCED.contains(&event)
}

/// A log that is being written, or nothing.
#[derive(Debug, Default)]
pub struct Log(Option<Open>);

#[derive(Debug)]
struct Open {
    file: File,
    path: PathBuf,
    number: u64,
    chain: Chain,
    /// What stands at the end of the file and is no whole line.
    torn: Vec<u8>,
    /// Records that could not be written since the last that was.
    lost_count: u64,
    error: Option<io::Error>,
    disk: Option<Disk>,
    /// Of a thread that has ended.
    disk_error: Option<io::Error>,
}

/// The thread that puts the file on the disk.
#[derive(Debug)]
struct Disk {
    wishes: Sender<()>,
    thread: JoinHandle<()>,
    error: Arc<Mutex<Option<io::Error>>>,
}

impl Disk {
    fn new(file: &File) -> io::Result<Self> {
        let file = file.try_clone()?;
        let (wishes, wished) = channel::<()>();
        let error = Arc::new(Mutex::new(None));
        let told = error.clone();
        let serve = move || {
            let mut has_failed = false;
            while wished.recv().is_ok() {
                while wished.try_recv().is_ok() {}
                match file.sync_data() {
                    // A pipe, a terminal: there is no disk.
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
        Ok(Self { wishes, thread, error })
    }
}

/// Where the log of a job goes: the file itself, or one of its own in a directory.
#[must_use]
pub fn path_in(path: &Path, job: u64) -> PathBuf {
    if path.is_dir() { path.join(format!("redrt-{job:016x}.jsonl")) } else { path.to_owned() }
}

impl Log {
    /// Opens a file to go on after its last record. Nobody else can write to it until the log is dropped.
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
            // Of this one the end of the line alone is missing.
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

    /// Appends a record. `fields` is an object.
    pub fn record(&mut self, event: &str, fields: &Value) {
        self.record_at(SystemTime::now(), event, fields);
    }

    /// Records that were to be appended here are lost: the next one says so.
    pub fn lose(&mut self, record_count: u64) {
        if let Some(open) = &mut self.0 {
            open.lost_count += record_count;
        }
    }

    /// Appends a record of something that happened then.
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

    /// Why a record could not be written, once for each time that begins.
    pub fn poll_error(&mut self) -> Option<io::Error> {
        self.0.as_mut()?.error.take()
    }

    /// Why what was written may not be on the disk, once.
    pub fn poll_disk_error(&mut self) -> Option<io::Error> {
        self.0.as_mut()?.disk_error.take().or_else(|| {
            let disk = self.0.as_ref()?.disk.as_ref()?;
            disk.error.lock().unwrap_or_else(PoisonError::into_inner).take()
        })
    }

    /// The file and its last record.
    #[must_use]
    pub fn head(&self) -> Option<(&Path, Head)> {
        let open = self.0.as_ref()?;
        Some((&open.path, Head { number: open.number.checked_sub(1)?, chain: open.chain }))
    }

    /// Waits until all that is to be on the disk is there.
    pub fn close(&mut self) {
        let Some(open) = &mut self.0 else { return };
        let Some(Disk { wishes, thread, error }) = open.disk.take() else { return };
        drop(wishes);
        // It does not panic; if it did, the records are in the file all the same.
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
    /// Whether the record is in the file now. If it is there in part, it is torn.
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
                    // A record about something torn that is torn itself: the line it began is what is torn now.
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
            // The thread is there as long as this is.
            let _ = disk.wishes.send(());
        }
    }
}

/// The line of a record up to where its link stands. By hand, so that what is looked for first stands first.
fn line_of(number: u64, time: SystemTime, event: &str, fields: &Value) -> String {
    let fields = fields.to_string();
    let fields =
        fields.strip_prefix('{').and_then(|fields| fields.strip_suffix('}')).filter(|fields| !fields.is_empty());
    let rest = fields.map_or(String::new(), |fields| format!(",{fields}"));
    let time = time::timestamp(time);
    format!("{{\"v\":{VERSION},\"n\":{number},\"time\":\"{time}\",\"event\":\"{event}\"{rest}")
}

/// The last whole line of a file, and what follows it.
fn last_line(file: &mut File) -> io::Result<(Option<String>, Vec<u8>)> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        // A pipe, a terminal: nothing can be read back.
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
