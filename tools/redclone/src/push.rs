//! `push` and `save`: the source of an image.

use super::arguments::{CloneOptions, Push, Save};
use super::secret;
use cloner::control::Control;
use cloner::net;
use cloner::source::{self, Event, Report, Sink};
use cloner::{During, Operation, Phase};
use indicatif::{ProgressBar, ProgressStyle};
use say::Console;
use serde_json::json;
use std::fs::File;
use std::io::{IsTerminal, stderr};

/// Runs `redclone push` and returns the exit code.
pub fn push(options: &Push, console: &Console) -> anyhow::Result<i32> {
    let secret = secret(&options.secret)?;
    let control = Control::connect(options.pid)?;
    let subject = source::subject(&control)?;
    let sink = net::connect(&options.destination, &secret, subject.pid, options.streams)
        .and_then(Sink::over)
        .during(Phase::Prepare, Operation::Connect(options.destination.clone()))?;
    let report = clone(&control, &options.clone, options.moves, sink, console)?;
    if let Some(pid) = report.pid
        && !options.clone.quiet
    {
        let what = if options.moves { "moved to" } else { "copied to" };
        console.plain(&format!(
            "process {} {what} {} as {pid}; {}",
            options.pid,
            options.destination,
            summary(&report)
        ));
    }
    Ok(0)
}

/// Runs `redclone save` and returns the exit code.
pub fn save(options: &Save, console: &Console) -> anyhow::Result<i32> {
    let control = Control::connect(options.pid)?;
    // The file is named once it is complete.
    let directory = options.file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(std::path::Path::new("."));
    let name = options.file.display();
    let writing = || Operation::Write(options.file.clone());
    let file = tempfile::NamedTempFile::new_in(directory).during(Phase::Prepare, writing())?;
    let output: File = file.as_file().try_clone()?;
    let sink = Sink { outputs: vec![Box::new(output)], answers: None, chain: None };
    let report = clone(&control, &options.clone, false, sink, console)?;
    file.as_file().sync_all().during(Phase::Finish, writing())?;
    file.persist(&options.file).map_err(|error| error.error).during(Phase::Finish, writing())?;
    // The directory holds the name, and must be synchronized too: a power loss could drop the name otherwise
    // (fsync(2)).
    File::open(directory).and_then(|directory| directory.sync_all()).during(Phase::Finish, writing())?;
    if !options.clone.quiet {
        console.plain(&format!("process {} saved in {name}; {}", options.pid, summary(&report)));
    }
    Ok(0)
}

fn clone(
    control: &Control,
    options: &CloneOptions,
    moves: bool,
    sink: Sink,
    console: &Console,
) -> anyhow::Result<Report> {
    let mut display = Display::new(options, console);
    let result = source::clone(control, &options.options(moves), sink, &mut |event| display.show(&event));
    display.end();
    let report = result?;
    if options.json {
        let line = json!({
            "event": "done",
            "pid": report.pid,
            "tracking": report.tracking,
            "rounds": report.round_count,
            "threads": report.thread_count,
            "sent_bytes": report.sent_bytes,
            "cut_bytes": report.cut_bytes,
            "downtime_ms": report.downtime.as_secs_f64() * 1e3,
            "total_ms": report.total.as_secs_f64() * 1e3,
            "steps_ms": report.steps.iter().map(|(name, time)| json!([name, time.as_secs_f64() * 1e3])).collect::<Vec<_>>(),
        });
        say::line(line)?;
    }
    Ok(report)
}

fn summary(report: &Report) -> String {
    format!(
        "{} threads, {} rounds, {:.1} MiB sent in {:.3} s, stopped for {:.1} ms",
        report.thread_count,
        report.round_count,
        report.sent_bytes as f64 / (1 << 20) as f64,
        report.total.as_secs_f64(),
        report.downtime.as_secs_f64() * 1e3,
    )
}

/// Progress for the user: lines of JSON, a bar on a terminal, or nothing.
struct Display<'a> {
    json: bool,
    bar: Option<ProgressBar>,
    console: &'a Console,
    quiet: bool,
}

impl<'a> Display<'a> {
    fn new(options: &CloneOptions, console: &'a Console) -> Self {
        let bar = (!options.json && !options.quiet && stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(0);
            let style = ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
            bar.set_style(style.expect("the template is right"));
            bar
        });
        Self { json: options.json, bar, console, quiet: options.quiet }
    }

    fn show(&mut self, event: &Event) {
        if let Event::Tracking("none") = event
            && !self.quiet
        {
            self.console.warning(
                "written pages cannot be tracked here: the program is stopped while all of its memory is sent",
            );
        }
        if self.json {
            // The copy does not depend on a reader.
            let _ = say::line(as_json(event));
        }
        if let Some(bar) = &self.bar {
            match event {
                Event::Phase(phase) => bar.set_message(phase.to_string()),
                Event::Round { round, done_bytes, total_bytes, .. } => {
                    bar.set_message(format!("round {round}"));
                    bar.set_length(*total_bytes);
                    bar.set_position(*done_bytes);
                }
                _ => {}
            }
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn as_json(event: &Event) -> serde_json::Value {
    match event {
        Event::Phase(phase) => json!({"event": "phase", "phase": phase.to_string()}),
        Event::Stopped => json!({"event": "stopped"}),
        Event::Small => json!({"event": "small"}),
        Event::Copied => json!({"event": "copied"}),
        Event::Tracking(how) => json!({"event": "tracking", "tracking": how}),
        Event::Round { round, done_bytes, total_bytes, elapsed } => json!({
            "event": "round", "round": round, "done_bytes": done_bytes, "total_bytes": total_bytes,
            "elapsed_ms": elapsed.as_secs_f64() * 1e3,
            "bytes_per_second": *done_bytes as f64 / elapsed.as_secs_f64().max(1e-9),
        }),
        Event::RoundEnded { round, bytes, elapsed, dirty_bytes } => json!({
            "event": "round-ended", "round": round, "bytes": bytes, "dirty_bytes": dirty_bytes,
            "elapsed_ms": elapsed.as_secs_f64() * 1e3,
            "bytes_per_second": *bytes as f64 / elapsed.as_secs_f64().max(1e-9),
            "dirty_bytes_per_second": *dirty_bytes as f64 / elapsed.as_secs_f64().max(1e-9),
        }),
    }
}
