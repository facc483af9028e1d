//! Messages about the job to the user, the audit log and the metrics.

use super::attribution::Attribution;
use super::clones::Clones;
use super::folding::{Folding, Shown};
use super::injections::Injections;
use super::metrics::Counts;
use super::notices::{END_TIME_MAX, Notices};
use super::output::STILL_TIME_MAX;
use super::run::Run;
use super::summary::{self, profile};
use super::{WRITERS_LOOK, redundancy};
use anyhow::{Context, Result, bail};
use audit_log::recorder::Recorder;
use job_options::Fault;
use learned::store::learn_run;
use nix::sys::signalfd::SignalFd;
use redrt_types::{ReplicaId, ViewNumber};
use redrt_wire::event::Event;
use replication_manager::Report;
use say::{Console, Severity};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Time for which remaining commands of `--on-event` are awaited without a message.
const NOTICES_SILENCE_MAX: Duration = Duration::from_secs(2);

/// The state of reporting: counts for summary and metrics, and reports that later ones depend on. It follows from the
/// coordinator's reports alone.
pub(super) struct Reported {
    pub tally: summary::Tally,
    pub counts: Counts,
    pub attribution: Attribution,
    pub folding: Folding,
    pub injections: Injections,
    /// Text about the last checkpoint that is less safe than its level.
    lacking: String,
}

impl Reported {
    /// Returns true unless the last such checkpoint lacked the same: in a job that goes on with fewer hosts all do.
    pub fn is_newly_lacking(&mut self, lacking: &str) -> bool {
        let is_new = self.lacking != lacking;
        lacking.clone_into(&mut self.lacking);
        is_new
    }

    pub fn new(faults: &[Fault]) -> Self {
        Self {
            tally: summary::Tally::default(),
            counts: Counts::default(),
            attribution: Attribution::default(),
            folding: Folding::default(),
            injections: Injections::new(faults),
            lacking: String::new(),
        }
    }
}

/// All that is told of a job, to users, the audit log and the command of `--on-event`.
pub(super) struct JobReporter<'a> {
    pub console: &'a Console,
    pub audit: Option<Recorder>,
    /// Present with `--on-event`.
    pub notices: Option<Notices>,
    /// The state of reporting.
    pub reported: Reported,
    /// Clones under way.
    pub clones: Clones,
    /// Path of `--profile`.
    pub profile_path: Option<PathBuf>,
    /// Messages for the user that wait for a console.
    pub untold: Vec<String>,
}

impl JobReporter<'_> {
    /// Adds a record to the audit log.
    pub(super) fn record(&mut self, event: &str, fields: &serde_json::Value) {
        if let Some(audit) = &mut self.audit {
            audit.record(event, fields);
        }
    }

    /// Runs the command of `--on-event` for an event.
    pub(super) fn notify(&mut self, event: &str, fields: &serde_json::Value, message: &str) {
        if let Some(notices) = &mut self.notices {
            notices.notify(event, fields, message);
        }
    }

    pub(super) fn handle_notices(&self) {
        while let Some(what) = self.notices.as_ref().and_then(Notices::poll_trouble) {
            self.console.warning(&what);
        }
    }

    /// Waits a limited time for the commands, with a message. An interrupt ends the wait.
    pub(super) fn let_notices_end(&self, signals: &SignalFd) {
        let since = Instant::now();
        let mut is_told = false;
        while let Some(notices) = &self.notices
            && !notices.close(WRITERS_LOOK)
        {
            self.handle_notices();
            let is_interrupted = matches!(signals.read_signal(), Ok(Some(_)));
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
        self.handle_notices();
    }

    /// Shows warnings of the thread that writes the audit log.
    pub(super) fn handle_audit(&mut self) {
        while let Some(what) = self.audit.as_mut().and_then(Recorder::poll_trouble) {
            self.console.warning(&what);
        }
    }

    /// Waits until the audit log is written. A signal ends the wait.
    fn close_audit(&mut self, signals: &SignalFd) {
        while let Some(audit) = &mut self.audit
            && !audit.close(WRITERS_LOOK)
        {
            self.handle_audit();
            if let Ok(Some(_)) = signals.read_signal() {
                return self.console.warning("the audit log has no end: it was not waited for");
            }
        }
        self.handle_audit();
        let lost_count = self.audit.as_ref().map_or(0, Recorder::lost_in_all);
        if lost_count > 0 {
            self.console
                .warning(&format!("{lost_count} records are missing from the audit log, which took none for long"));
        }
    }

    pub(super) fn report(&mut self, run: &Run<'_>, report: &Report) {
        self.reported.tally.count(report);
        let view = match report {
            Report::Event(Event::Mismatch(mismatch)) => Some(mismatch.view),
            Report::Event(Event::Evidence(evidence)) => Some(evidence.view),
            _ => None,
        };
        let mut counts = std::mem::take(&mut self.reported.counts);
        let host = |replica: ReplicaId| run.host_name_in(replica, view);
        let ((name, fields), line) = (job_report::record(report, &host), job_report::line(report, &host));
        counts.count(report, &host);
        self.reported.counts = counts;
        let is_end = matches!(report, Report::Ended { .. });
        let (fleet, host_count) = (&run.fleet, run.fleet.plan().hosts.len());
        // A process reports the number, so it can be out of range.
        self.reported
            .injections
            .count(report, |number| if (number as usize) < host_count { fleet.name(number) } else { "" });
        if is_end {
            self.record_missing_faults();
            self.record_coverage(run);
            let redundancy = redundancy::json(run.coordinator.manager().redundancy(), run.now());
            self.record("redundancy", &redundancy);
            self.attribute(run, report, view);
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
            self.attribute(run, report, view);
        }
    }

    /// Reports new conclusions from all verdicts, unless the program is being checked.
    pub(super) fn attribute(&mut self, run: &Run<'_>, report: &Report, view: Option<ViewNumber>) {
        if run.job.options.traces {
            return;
        }
        let mut attribution = std::mem::take(&mut self.reported.attribution);
        let conclusions = attribution.record(report, &|replica| run.host_name_in(replica, view));
        self.reported.attribution = attribution;
        for conclusion in conclusions {
            self.report(run, &Report::Attribution(Box::new(conclusion)));
        }
    }

    fn record_missing_faults(&mut self) {
        for fault in self.reported.injections.missing().collect::<Vec<_>>() {
            self.record("not-injected", &serde_json::json!({ "fault": fault }));
        }
    }

    /// Reports faults that were not injected. True if there are none: otherwise the job's survival proves nothing.
    pub(super) fn report_missing_faults(&self, run: &Run<'_>) -> bool {
        let mut is_complete = true;
        let told: BTreeMap<_, _> = run.coordinator.manager().members().statistics().collect();
        // Without replicas messages are not counted.
        let is_replicated = run.job.is_replicated();
        let sent =
            |replica| told.get(&replica).copied().flatten().filter(|_| is_replicated).map(|one| one.messages_sent);
        for (fault, why) in self.reported.injections.missing_with_reasons(sent) {
            is_complete = false;
            let line = format!("{fault} was not injected: {why}");
            match run.job.needs_faults {
                true => self.console.error(&line),
                false => self.console.warning(&line),
            }
        }
        is_complete
    }

    /// Records how much each process has sent and compared.
    pub(super) fn record_coverage(&mut self, run: &Run<'_>) {
        let told: Vec<_> = run
            .coordinator
            .manager()
            .members()
            .statistics()
            .filter_map(|(replica, one)| Some((replica, one?)))
            .collect();
        for (replica, one) in told {
            let fields = serde_json::json!({
                "replica": replica.to_string(), "host": run.host_name(replica), "messages_sent": one.messages_sent,
                "bytes_sent": one.bytes_sent, "messages_compared": one.messages_compared,
                "bytes_compared": one.bytes_compared, "communicators": run.coordinator.manager().members().coverage(replica),
            });
            self.record("coverage", &fields);
        }
    }

    pub(super) fn summarize(
        &mut self,
        run: &Run<'_>,
        signals: &SignalFd,
        is_quiet: bool,
        code: i32,
        determinism: Option<&serde_json::Value>,
    ) -> Result<()> {
        self.close_audit(signals);
        let profile =
            self.profile_path.as_deref().map(|path| (path, profile::profile(run, &self.reported.tally, code)));
        if let Some((path, (profile, missing))) = &profile {
            if let Some(missing) = missing {
                self.console.warning(missing);
            }
            let text = profile::text(profile)?;
            write(Written::Profile, path, move |path| Ok(std::fs::write(path, text)?), signals, self.console)?;
        }
        self.learn_run(run, signals, code);
        let profile = profile.as_ref().map(|(path, (profile, _))| (*path, profile));
        let summary = summary::Summary::new(
            run.coordinator.manager(),
            &self.reported.tally,
            run.now(),
            code,
            self.audit.as_ref().and_then(Recorder::head),
            self.reported.injections.missing().collect(),
            profile,
        );
        if let Some(line) = summary.unprotected() {
            self.console.warning(line);
        }
        if run.job.checkpoint.is_some()
            && let Some(line) = summary.unsaved()
        {
            self.console.warning(line);
        }
        if !is_quiet && let Some(lines) = summary.lines() {
            lines.iter().for_each(|line| self.console.plain(line));
        }
        match &run.job.json_summary {
            Some(path) => {
                let text = summary.json_text(determinism)?;
                write(Written::Summary, path, move |path| Ok(std::fs::write(path, text)?), signals, self.console)
            }
            None => Ok(()),
        }
    }

    /// Stores the time of a successful run for later choices. Failure is only a warning.
    fn learn_run(&self, run: &Run<'_>, signals: &SignalFd, code: i32) {
        let Some(path) = run.job.learned_in.as_deref().filter(|_| code == 0) else { return };
        let (identity, (profile, _)) =
            (format!("{:016x}", run.number), profile::profile(run, &self.reported.tally, code));
        let learn = move |path: &Path| learn_run(path, identity, profile);
        if let Err(error) = write(Written::Learned, path, learn, signals, self.console) {
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
