//! Figures about jobs and hosts, from audit logs.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod attribution;
mod builder;
pub mod hosts;
pub mod job;
pub mod report;
pub mod trends;

use anyhow::{Context, Result};
use audit_log::read::{Reading, read};
use command_line::UsageError;
use std::path::{Path, PathBuf};

/// Suffix of audit logs' names in a directory.
pub const LOG_END: &str = ".jsonl";

/// The named files, and files with one of these suffixes in the named directories.
pub fn files(named: &[PathBuf], ends: &[&str]) -> Result<Vec<PathBuf>> {
    let is_wanted = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        ends.iter().any(|end| name.ends_with(end.as_bytes()))
    };
    let mut files = Vec::new();
    for path in named {
        let failed = || format!("Failed to read {}", path.display());
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).with_context(failed)?;
        let paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>().with_context(failed)?;
        let mut found: Vec<_> = paths.into_iter().filter(is_wanted).collect();
        if found.is_empty() {
            let ends = ends.join(" or *");
            return Err(UsageError(format!("There is no file *{ends} in {}", path.display())).into());
        }
        found.sort();
        files.append(&mut found);
    }
    Ok(files)
}

/// Reads an audit log.
///
/// # Errors
/// When it cannot be read, or is no audit log: the user has named the wrong file.
pub fn read_log(path: &Path) -> Result<Reading, UsageError> {
    let wrong = |why: String| UsageError(format!("{}: {why}", path.display()));
    match read(path) {
        Ok(reading) if reading.is_foreign() => Err(wrong("no line of it is an audit record of redrun".into())),
        Ok(reading) => Ok(reading),
        Err(error) => Err(wrong(error.to_string())),
    }
}
