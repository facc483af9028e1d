//! `--on-event`: runs a command for each notable event, one after another, in a thread of its own. The job does not
//! wait for it.

use anyhow::{Context, Result, bail};
use background_worker::{Bell, Inbox, Worker};
use host_processes::open_pidfd;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Events that are no warnings, but that a monitor of losses needs as well.
const ALWAYS_TOLD: [&str; 4] = ["job-start", "recovered", "went-back", "job-end"];
/// Number of waiting events above which further ones are only counted.
const QUEUE_LENGTH_MAX: usize = 100;
/// Time after which a command is ended.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(60);
/// Maximum wait for remaining commands once the job has ended.
pub const END_TIME_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Notice {
    event: String,
    message: String,
    record: Value,
    /// Number of events lost before this one.
    lost_count: u64,
}

/// The running command, shared with the thread that may end it.
#[derive(Debug, Default)]
struct Running {
    /// Leader of the command's process group. While it is set the process is not reaped, so its number cannot be
    /// reused.
    pid: Option<Pid>,
    /// True: no further command is started.
    is_abandoned: bool,
}

/// Client of the thread that runs the commands.
#[derive(Debug)]
pub struct Notices {
    job: String,
    running: Arc<Mutex<Running>>,
    worker: Worker<Notice, String>,
    lost_count: u64,
}

impl Notices {
    /// Runs this shell command for each event from now on.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(command: &OsStr, job: &str, bell: Bell) -> Result<Self> {
        let (command, of_job) = (command.to_owned(), job.to_owned());
        let running = Arc::new(Mutex::new(Running::default()));
        let of_thread = running.clone();
        let serve = move |inbox: &Inbox<Notice, String>| {
            let mut has_failed = false;
            while let Some(notice) = inbox.next() {
                let Err(error) = run(&command, &of_job, &notice, &of_thread) else { continue };
                // Only the first failure is reported; the command's own log has the others.
                if !std::mem::replace(&mut has_failed, true) {
                    inbox.report(format!("--on-event, for {}: {error:#}", notice.event));
                }
            }
        };
        let worker = Worker::start("redrun-events", bell, 0, serve).context("Failed to start a thread")?;
        Ok(Self { job: job.to_owned(), running, worker, lost_count: 0 })
    }

    /// True if the command runs for this event: all that are shown as warning or error, and [`ALWAYS_TOLD`].
    #[must_use]
    pub fn is_told(event: &str, is_shown: bool) -> bool {
        is_shown || ALWAYS_TOLD.contains(&event)
    }

    /// Queues an event with the fields of its audit record and the line that the user sees. Never blocks.
    pub fn notify(&mut self, event: &str, fields: &Value, message: &str) {
        if self.worker.waiting_bytes() >= QUEUE_LENGTH_MAX {
            self.lost_count += 1;
            return;
        }
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let mut record = json!({ "event": event, "job": self.job, "time": seconds, "message": message });
        if let (Value::Object(record), Value::Object(fields)) = (&mut record, fields) {
            record.extend(fields.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        let lost_count = std::mem::take(&mut self.lost_count);
        let notice = Notice { event: event.to_owned(), message: message.to_owned(), record, lost_count };
        self.worker.give(notice, 1);
    }

    /// Ends the running command with its process group, and starts no other: nothing may outlive the job.
    pub fn abandon(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.is_abandoned = true;
        if let Some(pid) = running.pid {
            let _ = killpg(pid, Signal::SIGKILL);
        }
    }

    /// Number of events that wait or are being handled.
    pub fn waiting_count(&self) -> usize {
        self.worker.waiting_bytes()
    }

    /// A failure of the command, once.
    pub fn poll_trouble(&self) -> Option<String> {
        self.worker.poll_event()
    }

    /// Closes the queue. True if the last command has ended within this time.
    pub fn close(&self, time_max: Duration) -> bool {
        self.worker.close();
        self.worker.wait_for_end(time_max)
    }
}

fn in_memory(name: &str) -> Result<File> {
    Ok(memfd_create(name, MFdFlags::MFD_CLOEXEC).context("Failed to make a file in memory")?.into())
}

/// Runs the command. Standard input is the record, a line of JSON. Its output is kept for the message of a failure.
fn run(command: &OsStr, job: &str, notice: &Notice, running: &Mutex<Running>) -> Result<()> {
    let mut input = in_memory("redrun-event")?;
    writeln!(input, "{}", notice.record).context("Failed to write to memory")?;
    input.seek(SeekFrom::Start(0)).context("Failed to go back in a file in memory")?;
    let mut printed = in_memory("redrun-event-output")?;
    let output = printed.try_clone().context("Failed to double a descriptor")?;
    let error_output = printed.try_clone().context("Failed to double a descriptor")?;
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).stdin(input).stdout(output).stderr(error_output).process_group(0);
    shell.env("REDRT_EVENT", &notice.event).env("REDRT_JOB", job).env("REDRT_MESSAGE", &notice.message);
    shell.env("REDRT_EVENTS_LOST", notice.lost_count.to_string());
    let running = || running.lock().unwrap_or_else(PoisonError::into_inner);
    let mut child = {
        let mut running = running();
        if running.is_abandoned {
            return Ok(());
        }
        let child = shell.spawn().context("Failed to run /bin/sh")?;
        running.pid = Some(Pid::from_raw(child.id() as i32));
        child
    };
    let pid = Pid::from_raw(child.id() as i32);
    let is_over = wait(pid, COMMAND_TIME_MAX);
    if !is_over.as_ref().is_ok_and(|is_over| *is_over) {
        // Not reaped yet, so the process number is still the command's.
        let _ = killpg(pid, Signal::SIGKILL);
    }
    running().pid = None;
    let status = child.wait().context("Failed to wait for the command")?;
    if !is_over? {
        bail!("the command took more than {} s and was ended", COMMAND_TIME_MAX.as_secs());
    }
    match status.success() {
        true => Ok(()),
        false => bail!("{}{}", ending(status), first_line(&mut printed)),
    }
}

/// True if the process has ended within this time.
fn wait(pid: Pid, time_max: Duration) -> Result<bool> {
    let pidfd = open_pidfd(pid).context("Failed to watch the command")?;
    let until = Instant::now() + time_max;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(1..) => return Ok(true),
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error).context("Failed to wait for the command"),
        }
    }
}

fn ending(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("the command ended with exit code {code}"),
        (None, signal) => format!("the command was killed by signal {}", signal.unwrap_or(0)),
    }
}

/// The first line of the command's output, for a message. Empty if none exists.
fn first_line(printed: &mut File) -> String {
    const BYTES_MAX: u64 = 400;
    let mut line = Vec::new();
    let is_read = printed
        .seek(SeekFrom::Start(0))
        .and_then(|_| BufReader::new(std::io::Read::take(&mut *printed, BYTES_MAX)).read_until(b'\n', &mut line));
    let line = String::from_utf8_lossy(&line);
    match (is_read, line.trim()) {
        (Ok(_), line) if !line.is_empty() => format!(": {line}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notices(command: &str) -> Notices {
        Notices::start(OsStr::new(command), "00000000000000ab", background_worker::bell().unwrap()).unwrap()
    }

    fn end(notices: &Notices) -> Option<String> {
        assert!(notices.close(Duration::from_secs(60)));
        notices.poll_trouble()
    }

    #[test]
    fn a_command_gets_each_event_and_its_record() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let command = "printf '%s %s %s ' \"$REDRT_EVENT\" \"$REDRT_JOB\" \"$REDRT_MESSAGE\" >> FILE; cat >> FILE";
        let mut notices = notices(&command.replace("FILE", file.path().to_str().unwrap()));
        notices.notify("replica-lost", &json!({ "replica": "1.0" }), "lost replica 1.0");
        notices.notify("job-end", &json!({ "exit_code": 0 }), "");
        assert_eq!(end(&notices), None);
        let text = std::fs::read_to_string(file.path()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        let (words, record) = lines[0].split_once(" {").unwrap();
        assert_eq!(words, "replica-lost 00000000000000ab lost replica 1.0");
        let record: Value = serde_json::from_str(&format!("{{{record}")).unwrap();
        assert_eq!((&record["replica"], &record["event"]), (&json!("1.0"), &json!("replica-lost")));
        assert!(lines[1].starts_with("job-end 00000000000000ab  {") && lines.len() == 2, "{text}");
    }

    #[test]
    fn a_command_that_fails_is_told_once() {
        let mut notices = notices("echo no such mailbox >&2; exit 3");
        notices.notify("job-start", &json!({}), "");
        notices.notify("job-end", &json!({}), "");
        let said = end(&notices).unwrap();
        assert_eq!(said, "--on-event, for job-start: the command ended with exit code 3: no such mailbox");
        assert_eq!(notices.poll_trouble(), None);
    }

    #[test]
    fn a_command_without_an_end_is_ended_with_the_job() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut notices = notices(&format!("echo $REDRT_EVENT >> {}; sleep 1000", file.path().display()));
        notices.notify("job-start", &json!({}), "");
        notices.notify("job-end", &json!({}), "");
        let told = || std::fs::read_to_string(file.path()).unwrap();
        while told().is_empty() {
            std::thread::yield_now();
        }
        notices.abandon();
        assert!(end(&notices).unwrap().contains("killed by signal 9"));
        assert_eq!(told(), "job-start\n", "no other is started");
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        nix::unistd::mkfifo(path("gate").as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let command =
            format!("test $REDRT_EVENT != first || cat {}; echo $REDRT_EVENTS_LOST >> {}", path("gate"), path("out"));
        let mut notices = notices(&command);
        notices.notify("first", &json!({}), "");
        for _ in 0..QUEUE_LENGTH_MAX + 5 {
            notices.notify("next", &json!({}), "");
        }
        std::fs::write(path("gate"), "").unwrap();
        while notices.worker.waiting_bytes() >= QUEUE_LENGTH_MAX {
            std::thread::yield_now();
        }
        notices.notify("last", &json!({}), "");
        assert_eq!(end(&notices), None);
        let text = std::fs::read_to_string(path("out")).unwrap();
        assert_eq!((text.lines().count(), text.lines().last()), (QUEUE_LENGTH_MAX + 1, Some("6")), "{text}");
    }
}
