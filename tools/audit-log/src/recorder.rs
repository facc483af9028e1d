//! Threads that write a running job's log: one for the log, one for its heads. The caller never waits for a file
//! system. A full queue loses records, and the log reports their number.

use super::chain::Head;
use super::heads::{HeadStore, Note};
use super::log::{Log, is_weighty};
use super::{JOB_END, JOB_START, RECORDS_LOST};
use background_worker::{Bell, Inbox, Worker};
use nix::sys::signal::{SigSet, Signal};
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Bytes that may wait in the queue; further records are lost. A job without trouble fills it in hours, if at all.
const QUEUE_BYTES_MAX: usize = 32 << 20;
/// Minimum interval between noted heads within a job.
const NOTE_INTERVAL: Duration = Duration::from_secs(1);
/// Time without progress after which a stuck log is reported.
const STILL_TIME_MAX: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct PendingRecord {
    time: SystemTime,
    event: String,
    fields: Value,
    /// Records lost before this one for want of room.
    lost_count: u64,
}

#[derive(Debug)]
enum News {
    Trouble(String),
    Head(Head),
}

/// Writer of a job's log: see the module.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    worker: Worker<PendingRecord, News>,
    lost_count: u64,
    lost_in_all: u64,
    head: Option<Head>,
    told_of_still: bool,
}

impl Recorder {
    /// Starts the threads, which write to this log and note its heads.
    pub fn start(mut log: Log, path: PathBuf, job: String, place: HeadStore, bell: Bell) -> io::Result<Self> {
        let notes = Worker::start("redrun-heads", bell.clone(), 0, {
            let path = path.clone();
            move |inbox: &Inbox<Head, io::Error>| {
                while let Some(head) = inbox.next() {
                    if let Err(error) = Note::new(&path, &job, head).write(&place) {
                        inbox.report(error);
                    }
                }
            }
        })?;
        let serve = move |inbox: &Inbox<PendingRecord, News>| {
            let mut set = SigSet::empty();
            set.add(Signal::SIGXFSZ);
            // A file size limit (`ulimit -f`) must fail writes, not kill the process.
            let _ = set.thread_block();
            let (mut noted_at, mut told_of_notes) = (None::<Instant>, false);
            let tell = |log: &mut Log| {
                let gaps = log.poll_error().map(|error| format!("the audit log has gaps from here on: {error}"));
                let disk = log.poll_disk_error();
                let disk = disk.map(|error| format!("what the audit log holds may not be on the disk: {error}"));
                [gaps, disk].into_iter().flatten().for_each(|what| inbox.report(News::Trouble(what)));
            };
            while let Some(entry) = inbox.next() {
                log.lose(entry.lost_count);
                log.record_at(entry.time, &entry.event, &entry.fields);
                tell(&mut log);
                let is_edge = entry.event == JOB_START || entry.event == JOB_END;
                let is_due = noted_at.is_none_or(|at| at.elapsed() >= NOTE_INTERVAL);
                if let Some((_, head)) = log.head().filter(|_| is_edge || is_due && is_weighty(&entry.event)) {
                    noted_at = Some(Instant::now());
                    notes.give(head, 1);
                }
                if let Some(error) = notes.poll_event().filter(|_| !std::mem::replace(&mut told_of_notes, true)) {
                    inbox.report(News::Trouble(format!(
                        "heads of the audit log cannot be noted (--audit-heads): {error}"
                    )));
                }
            }
            log.close();
            tell(&mut log);
            // The last head is returned here. Failure to note it elsewhere shows by now, unless that file system is
            // stuck.
            notes.close();
            notes.wait_for_end(STILL_TIME_MAX);
            if let Some(error) = notes.poll_event().filter(|_| !told_of_notes) {
                inbox.report(News::Trouble(format!("heads of the audit log cannot be noted (--audit-heads): {error}")));
            }
            if let Some((_, head)) = log.head() {
                inbox.report(News::Head(head));
            }
        };
        let worker = Worker::start("redrun-audit", bell, 0, serve)?;
        Ok(Self { path, worker, lost_count: 0, lost_in_all: 0, head: None, told_of_still: false })
    }

    /// Records an event with the present time. Never blocks.
    pub fn record(&mut self, event: &str, fields: &Value) {
        let byte_count = 64 + fields.to_string().len();
        if self.worker.waiting_bytes() + byte_count > QUEUE_BYTES_MAX {
            self.lost_count += 1;
            self.lost_in_all += 1;
            return;
        }
        self.give(event, fields, byte_count);
    }

    fn give(&mut self, event: &str, fields: &Value, byte_count: usize) {
        let lost_count = std::mem::take(&mut self.lost_count);
        let entry =
            PendingRecord { time: SystemTime::now(), event: event.to_owned(), fields: fields.clone(), lost_count };
        self.worker.give(entry, byte_count);
    }

    /// Next warning for the user.
    pub fn poll_trouble(&mut self) -> Option<String> {
        while let Some(news) = self.worker.poll_event() {
            match news {
                News::Trouble(what) => return Some(what),
                News::Head(head) => self.head = Some(head),
            }
        }
        let is_still = self.worker.still_since().is_some_and(|since| since.elapsed() >= STILL_TIME_MAX);
        let is_told = std::mem::replace(&mut self.told_of_still, is_still);
        (is_still && !is_told).then(|| {
            let path = self.path.display();
            format!(
                "the audit log {path} takes nothing: its file system stands still; the job goes on, and records wait"
            )
        })
    }

    /// Time until [`Recorder::poll_trouble`] may have a warning without an event.
    #[must_use]
    pub fn next_wait(&self) -> Option<Duration> {
        let since = self.worker.still_since().filter(|_| !self.told_of_still)?;
        Some(STILL_TIME_MAX.saturating_sub(since.elapsed()))
    }

    /// Closes the log. True if everything was written within the time.
    pub fn close(&mut self, time_max: Duration) -> bool {
        if self.lost_count > 0 {
            // The end of the log reports the number of lost records.
            self.give(RECORDS_LOST, &Value::Object(serde_json::Map::new()), 0);
        }
        self.worker.close();
        self.worker.wait_for_end(time_max)
    }

    /// The file and its head, once all is written.
    #[must_use]
    pub fn head(&self) -> Option<(&Path, Head)> {
        Some((&self.path, self.head?))
    }

    /// Total number of lost records.
    #[must_use]
    pub fn lost_in_all(&self) -> u64 {
        self.lost_in_all
    }
}

#[cfg(test)]
mod tests {
    use super::super::heads;
    use super::super::read::{End, read};
    use super::*;
    use background_worker::bell;
    use serde_json::json;

    const LONG: Duration = Duration::from_secs(60);

    fn start(path: &Path, heads: &Path) -> Recorder {
        let place = HeadStore::File(heads.to_owned());
        Recorder::start(Log::open(path).unwrap(), path.to_owned(), "7".into(), place, bell().unwrap()).unwrap()
    }

    #[test]
    fn records_are_in_the_log_and_its_head_elsewhere() {
        let directory = tempfile::tempdir().unwrap();
        let (path, noted) = (directory.path().join("log"), directory.path().join("heads"));
        let mut recorder = start(&path, &noted);
        recorder.record(JOB_START, &json!({ "job": "7" }));
        recorder.record("mismatch", &json!({}));
        recorder.record(JOB_END, &json!({}));
        assert!(recorder.close(LONG) && recorder.poll_trouble().is_none());
        let reading = read(&path).unwrap();
        assert_eq!((reading.end, reading.head), (End::Complete, recorder.head().map(|(_, head)| head)));
        let notes = heads::read(&noted).unwrap();
        assert_eq!(notes.last().map(|note| note.head), reading.head);
        assert_eq!(notes[0].head.number, 0);
        // Cut before the mismatch, the log does not have the noted head.
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.lines().next().unwrap().to_owned() + "\n").unwrap();
        assert!(!read(&path).unwrap().holds(notes.last().unwrap().head));
    }

    #[test]
    fn a_full_disk_is_told_and_keeps_nobody_waiting() {
        let mut recorder = start(Path::new("/dev/full"), Path::new("/dev/full"));
        recorder.record(JOB_START, &json!({}));
        assert!(recorder.close(LONG));
        let told: Vec<_> = std::iter::from_fn(|| recorder.poll_trouble()).collect();
        assert!(told.iter().any(|what| what.contains("gaps")), "{told:?}");
        assert!(recorder.head().is_none());
    }

    #[test]
    fn records_without_room_in_a_stopped_log_are_counted() {
        // An unread pipe takes some records, and then none.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let reader = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let mut recorder = start(&path, &directory.path().join("heads"));
        let long = json!({ "text": "x".repeat(1 << 20) });
        (0..40).for_each(|_| recorder.record("long", &long));
        assert!(recorder.lost_in_all() > 0 && !recorder.close(Duration::ZERO));
        drop(reader);
    }
}
