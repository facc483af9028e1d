//! `redreport verify`: is a log as it was written, and is all of it there?

use super::files;
use crate::audit::chain::Head;
use crate::audit::read::{End, Reading, read};
use crate::say;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// So many problems of a log are told one by one.
const PROBLEMS_MAX: usize = 20;

/// The exit code when a log has no end.
const CUT: u8 = 3;

/// Tells what is wrong with the logs, and that nothing is.
pub(super) fn verify(logs: &[PathBuf], heads: &[Head]) -> Result<ExitCode> {
    let mut missing = heads.to_vec();
    let (mut is_changed, mut is_cut) = (false, false);
    for path in files(logs)? {
        let reading = read(&path).with_context(|| format!("Failed to read {}", path.display()))?;
        missing.retain(|head| !reading.holds(*head));
        is_changed |= !reading.problems.is_empty();
        is_cut |= reading.end == End::Cut;
        for line in lines(&path, &reading) {
            say::line(line)?;
        }
    }
    for head in &missing {
        say::line(format_args!(
            "the record {head} is in none of these logs: what followed, or a whole log, was taken away or changed"
        ))?;
    }
    Ok(match (is_changed || !missing.is_empty(), is_cut) {
        (true, _) => ExitCode::FAILURE,
        (false, true) => ExitCode::from(CUT),
        (false, false) => ExitCode::SUCCESS,
    })
}

fn lines(path: &Path, reading: &Reading) -> Vec<String> {
    let name = path.display();
    let mut lines: Vec<_> =
        reading.problems.iter().take(PROBLEMS_MAX).map(|problem| format!("{name}: {problem}")).collect();
    let rest = reading.problems.len().saturating_sub(PROBLEMS_MAX);
    if rest > 0 {
        lines.push(format!("{name}: {rest} more"));
    }
    let head = reading.head.map_or_else(String::new, |head| format!(", head {head}"));
    let end = match reading.end {
        End::Complete => "",
        End::Running => "; a job writes to it",
        End::Cut => "; the last job has no end: redrun was killed, or the end was cut off",
        End::Empty => "; there is no job in it",
    };
    let torn = match reading.torn_count {
        0 => String::new(),
        count => format!("; {count} torn lines are accounted for"),
    };
    let verdict = if reading.problems.is_empty() { "unchanged" } else { "CHANGED" };
    lines.push(format!("{name}: {verdict}, {} records{head}{torn}{end}", reading.records.len()));
    lines
}
