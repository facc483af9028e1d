//! `redreport`: reads audit logs, and prints a report or a verdict on the logs themselves.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod arguments;
mod html;
mod sick;
mod text;
mod verify;

use anyhow::{Context, Result};
use arguments::{Parsed, ReportArguments, What};
use audit_report::report::Report;
use audit_report::{LOG_END, files, read_log};
use command_line::{USAGE_EXIT_CODE, UsageError, generate_for};
use std::ffi::OsString;
use std::path::PathBuf;

/// Runs the command line, which includes the program's own name, and returns the exit code.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> i32 {
    match run(arguments) {
        Ok(code) => code,
        Err(error) => {
            say::error(format_args!("redreport: {error:#}"));
            if error.is::<UsageError>() { USAGE_EXIT_CODE } else { 1 }
        }
    }
}

fn run(arguments: Vec<OsString>) -> Result<i32> {
    let arguments = match arguments::parse(arguments)? {
        Parsed::Arguments(arguments) => arguments,
        Parsed::Text(text) => {
            say::text(&text)?;
            return Ok(0);
        }
    };
    if let Some(what) = arguments.generate {
        say::text(&generate_for(arguments::command(), "redreport", what))?;
        return Ok(0);
    }
    match arguments.what {
        Some(What::Verify { noted, heads, logs }) => verify::verify(&logs, &heads, noted.as_ref()),
        Some(What::Sick { host, count_injected, logs }) => {
            let has_logs = |path: &PathBuf| files(std::slice::from_ref(path), &[LOG_END]).is_ok() || !path.is_dir();
            let logs: Vec<_> = logs.into_iter().filter(has_logs).collect();
            sick::sick(&report_of(&logs, count_injected)?, host.as_deref())
        }
        None if arguments.logs.is_empty() => Err(UsageError("no log is named; see --help".into()).into()),
        None => report(&arguments),
    }
}

fn report_of(logs: &[PathBuf], counts_injected: bool) -> Result<Report> {
    let mut readings = Vec::new();
    for path in files(logs, &[LOG_END])? {
        readings.push((path.display().to_string(), read_log(&path)?));
    }
    Ok(Report::new(&readings, counts_injected))
}

fn report(arguments: &ReportArguments) -> Result<i32> {
    let report = report_of(&arguments.logs, arguments.count_injected)?;
    if let Some(path) = &arguments.html {
        std::fs::write(path, html::page(&report)?).with_context(|| format!("Failed to write {}", path.display()))?;
    }
    if arguments.json {
        say::line(serde_json::to_string_pretty(&report)?)?;
    } else if arguments.html.is_none() {
        say::text(say::shown(&text::summary(&report)).as_bytes())?;
    }
    if report.is_doubtful() {
        say::error("redreport: a log is not as it was written; see redreport verify");
        return Ok(1);
    }
    Ok(0)
}
