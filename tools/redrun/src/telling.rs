//! Messages about the job to the user, the audit log and the metrics.

use super::attribution::Attribution;
use super::folding::{Folding, Shown};
use super::injections::Injections;
use super::metrics::Counts;
use super::notices::{END_TIME_MAX, Notices};
use super::output::STILL_TIME_MAX;
use super::summary::{self, profile};
use super::{Shell, WRITERS_LOOK, redundancy};
use anyhow::{Context, Result, bail};
use audit_log::recorder::Recorder;
use coordinator::Report;
use job_options::Fault;
use learned::store::learn_run;
use nix::sys::signalfd::SignalFd;
use redrt_types::{ReplicaId, ViewNumber};
use redrt_wire::event::Event;
use say::{Console, Severity};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Time for which remaining commands of `--on-event` are awaited without a message.
const NOTICES_SILENCE_MAX: Duration = Duration::from_secs(2);

/// The state of reporting: counts for summary and metrics, and reports that later ones depend on. It follows from the
/// root's reports alone.
pub(super) struct Reported {
    pub tally: summary::Tally,
    pub counts: Counts,
    pub attribution: Attribution,
    pub folding: Folding,
    pub injections: Injections,
}

impl Reported {
    pub fn new(faults: &[Fault]) -> Self {
        Self {
            tally: summary::Tally::default(),
            counts: Counts::default(),
            attribution: Attribution::default(),
            folding: Folding::default(),
            injections: Injections::new(faults),
        }
    }
}

impl Shell<'_> {
    /// Name of a replica's host in a view, which may be an older one. `None`: the present host.
    pub(super) fn host_name_in(&self, replica: ReplicaId, view: Option<ViewNumber>) -> String {
        let host = view.map_or_else(|| self.root.host(replica), |view| self.root.host_in(replica, view));
        host.map_or_else(String::new, |host| self.fleet.name(host).to_owned())
    }

    /// Adds a record to the audit log.
    pub(super) fn record(&mut self, event: &str, fields: &serde_json::Value) {
        if let Some(audit) = &mut self.audit {
            audit.record(event, fields);
        }
    }

    /// Runs the command of `--on-event` for an event.
    pub(super) fn notify(&mut self, event: &str, fields: &serde_json::Value, message: &str) {
        // A replay repeats no events.
        if let Some(notices) = self.notices.as_mut().filter(|_| self.replay.is_none()) {
            notices.tell(event, fields, message);
        }
    }

    pub(super) fn hear_of_notices(&self) {
        while let Some(what) = self.notices.as_ref().and_then(Notices::poll_trouble) {
            self.console.warning(&what);
        }
    }

    /// Waits a limited time for the commands, with a message. An interrupt ends the wait.
    pub(super) fn let_notices_end(&self) {
        let since = Instant::now();
        let mut is_told = false;
        while let Some(notices) = &self.notices
            && !notices.close(WRITERS_LOOK)
        {
            self.hear_of_notices();
            let is_interrupted = matches!(self.signals.read_signal(), Ok(Some(_)));
            if !is_told && since.elapsed() > NOTICES_SILENCE_MAX {
                is_told = true;
                let seconds = END_TIME_MAX.as_secs();
                self.console.plain(&format!(
                    "the job has ended; --on-event: waiting for the command, {seconds} s at most (Ctrl-C: not at all)"
                ));
            }
            if is_interrupted || since.elapsed() > END_TIME_MAX {
                let count = notices.waiting_count();
                notices.abandon();
                let line =
                    format!("--on-event: the command has no end: {count} events were not told, or not to their end");
                return self.console.warning(&line);
            }
        }
        self.hear_of_notices();
    }

    /// Shows warnings of the thread that writes the audit log.
    pub(super) fn hear_of_audit(&mut self) {
        while let Some(what) = self.audit.as_mut().and_then(Recorder::poll_trouble) {
            self.console.warning(&what);
        }
    }

    /// Waits until the audit log is written. A signal ends the wait.
    fn close_audit(&mut self) {
        while let Some(audit) = &mut self.audit
            && !audit.close(WRITERS_LOOK)
        {
            self.hear_of_audit();
            if let Ok(Some(_)) = self.signals.read_signal() {
                return self.console.warning("the audit log has no end: it was not waited for");
            }
        }
        self.hear_of_audit();
        let lost_count = self.audit.as_ref().map_or(0, Recorder::lost_in_all);
        if lost_count > 0 {
            self.console
                .warning(&format!("{lost_count} records are missing from the audit log, which took none for long"));
        }
    }

    pub(super) fn report(&mut self, report: &Report) {
        self.reported.tally.count(report);
        let view = match report {
            Report::Event(Event::Mismatch(mismatch)) => Some(mismatch.view),
            Report::Event(Event::Evidence(evidence)) => Some(evidence.view),
            _ => None,
        };
        let mut counts = std::mem::take(&mut self.reported.counts);
        let host = |replica: ReplicaId| self.host_name_in(replica, view);
        let ((name, fields), line) = (job_report::record(report, &host), job_report::line(report, &host));
        counts.count(report, &host);
        self.reported.counts = counts;
        let is_end = matches!(report, Report::Ended { .. });
        let (fleet, host_count) = (&self.fleet, self.fleet.plan().hosts.len());
        // A process reports the number, so it can be out of range.
        self.reported
            .injections
            .count(report, |number| if (number as usize) < host_count { fleet.name(number) } else { "" });
        if is_end {
            self.record_missing_faults();
            self.record_coverage();
            let redundancy = redundancy::json(self.root.coordinator().redundancy(), self.now());
            self.record("redundancy", &redundancy);
            self.attribute(report, view);
        }
        self.record(name, &fields);
        let shown = self.reported.folding.show(report);
        let is_shown = line.as_ref().is_some_and(|(severity, _)| *severity != Severity::Note) && shown == Shown::Line;
        if Notices::is_told(name, is_shown) {
            self.notify(name, &fields, line.as_ref().map_or("", |(_, line)| line));
        }
        if let Some((severity, line)) = line {
            match shown {
                Shown::Line => self.console.say(severity, &line),
                Shown::Hint => self.console.say(Severity::Note, "more of the same is counted, and listed by --audit"),
                Shown::Nothing => {}
            }
        }
        if !is_end {
            self.attribute(report, view);
        }
    }

    /// Reports new conclusions from all verdicts, unless the program is being checked.
    pub(super) fn attribute(&mut self, report: &Report, view: Option<ViewNumber>) {
        if self.job.options.traces {
            return;
        }
        let mut attribution = std::mem::take(&mut self.reported.attribution);
        let conclusions = attribution.note(report, &|replica| self.host_name_in(replica, view));
        self.reported.attribution = attribution;
        for conclusion in conclusions {
            self.report(&Report::Attribution(Box::new(conclusion)));
        }
    }

    fn record_missing_faults(&mut self) {
        for fault in self.reported.injections.missing().collect::<Vec<_>>() {
            self.record("not-injected", &serde_json::json!({ "fault": fault }));
        }
    }

    /// Reports faults that were not injected. True if there are none: otherwise the job's survival proves nothing.
    pub(super) fn tell_of_missing_faults(&self) -> bool {
        let mut is_complete = true;
        let told: BTreeMap<_, _> = self.root.coordinator().statistics().collect();
        // Without replicas messages are not counted.
        let is_replicated = self.job.is_replicated();
        let sent =
            |replica| told.get(&replica).copied().flatten().filter(|_| is_replicated).map(|one| one.messages_sent);
        for (fault, why) in self.reported.injections.missing_with_reasons(sent) {
            is_complete = false;
            let line = format!("{fault} was not injected: {why}");
            match self.job.needs_faults {
                true => self.console.error(&line),
                false => self.console.warning(&line),
            }
        }
        is_complete
    }

    /// Records how much each process has sent and compared.
    pub(super) fn record_coverage(&mut self) {
        let told: Vec<_> =
            self.root.coordinator().statistics().filter_map(|(replica, one)| Some((replica, one?))).collect();
        for (replica, one) in told {
            let fields = serde_json::json!({
                "replica": replica.to_string(), "host": self.host_name(replica), "messages_sent": one.messages_sent,
                "bytes_sent": one.bytes_sent, "messages_compared": one.messages_compared,
                "bytes_compared": one.bytes_compared, "communicators": self.root.coordinator().coverage(replica),
            });
            self.record("coverage", &fields);
        }
    }

    pub(super) fn summarize(&mut self, code: i32, determinism: Option<&serde_json::Value>) -> Result<()> {
        self.close_audit();
        let profile = self.profile_path.as_deref().map(|path| (path, self.profile(code)));
        if let Some((path, (profile, missing))) = &profile {
            if let Some(missing) = missing {
                self.console.warning(missing);
            }
            let text = profile::text(profile)?;
            write(Written::Profile, path, move |path| Ok(std::fs::write(path, text)?), &self.signals, self.console)?;
        }
        self.learn_run(code);
        let profile = profile.as_ref().map(|(path, (profile, _))| (*path, profile));
        let summary = summary::Summary::new(
            self.root.coordinator(),
            &self.reported.tally,
            self.now(),
            code,
            self.audit.as_ref().and_then(Recorder::head),
            self.reported.injections.missing().collect(),
            profile,
        );
        if let Some(line) = summary.unprotected() {
            self.console.warning(line);
        }
        if self.job.checkpoint.is_some()
            && let Some(line) = summary.unsaved()
        {
            self.console.warning(line);
        }
        if !self.is_quiet()
            && let Some(lines) = summary.lines()
        {
            lines.iter().for_each(|line| self.console.plain(line));
        }
        match &self.job.json_summary {
            Some(path) => {
                let text = summary.json_text(determinism)?;
                write(Written::Summary, path, move |path| Ok(std::fs::write(path, text)?), &self.signals, self.console)
            }
            None => Ok(()),
        }
    }

    /// Stores the time of a successful run for later choices. Failure is only a warning.
    fn learn_run(&self, code: i32) {
        let Some(path) = self.job.learned_in.as_deref().filter(|_| code == 0) else { return };
        let (identity, (profile, _)) = (format!("{:016x}", self.job_number), self.profile(code));
        let learn = move |path: &Path| learn_run(path, identity, profile);
        if let Err(error) = write(Written::Learned, path, learn, &self.signals, self.console) {
            self.console.warning(&format!("{error:#}"));
        }
    }
}

/// A file written at the end.
#[derive(Clone, Copy)]
enum Written {
    Summary,
    Profile,
    Learned,
}

impl Written {
    fn name(self) -> &'static str {
        match self {
            Self::Summary => "summary",
            Self::Profile => "profile",
            Self::Learned => "time of the run to",
        }
    }
}

/// Writes a file in a thread of its own, since its file system may be stuck. The user is informed then, and may
/// interrupt.
fn write(
    what: Written,
    path: &Path,
    work: impl FnOnce(&Path) -> Result<()> + Send + 'static,
    signals: &SignalFd,
    console: &Console,
) -> Result<()> {
    let (name, file) = (format!("{} {}", what.name(), path.display()), path.to_owned());
    let (tell, told) = mpsc::channel();
    let write = move || drop(tell.send(work(&file)));
    std::thread::Builder::new().name("redrun-end".into()).spawn(write).context("Failed to start a thread")?;
    let (begin, mut is_told) = (Instant::now(), false);
    loop {
        match told.recv_timeout(WRITERS_LOOK) {
            Ok(written) => return written.with_context(|| format!("Failed to write the {name}")),
            Err(mpsc::RecvTimeoutError::Disconnected) => bail!("Failed to write the {name}: its thread ended"),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        if begin.elapsed() >= STILL_TIME_MAX && !std::mem::replace(&mut is_told, true) {
            console.warning(&format!("{name} takes nothing: its file system stands still; the job has ended"));
        }
        if let Ok(Some(signal)) = signals.read_signal() {
            bail!("Failed to write the {name}: interrupted by signal {}", signal.ssi_signo);
        }
    }
}
