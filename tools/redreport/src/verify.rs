//! `redreport verify`: checks that a log is unchanged and complete.

use anyhow::{Context, Result};
use audit_log::JOB_START;
use audit_log::chain::Head;
use audit_log::heads::{self, HeadStore, Note};
use audit_log::read::{End, Reading, read};
use audit_report::{LOG_END, files};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Limit for the problems of a log that are listed one by one.
const PROBLEMS_MAX: usize = 20;

/// Exit code when a log has no end.
const CUT: i32 = 3;

/// Prints the problems of the logs, or that there are none.
pub(super) fn verify(logs: &[PathBuf], heads: &[Head], noted: Option<&HeadStore>) -> Result<i32> {
    let noted = noted.cloned().or_else(|| heads::default_file().map(HeadStore::File));
    let notes = match &noted {
        Some(HeadStore::File(path)) => {
            heads::read(path).with_context(|| format!("Failed to read {}", path.display()))?
        }
        Some(HeadStore::Syslog | HeadStore::Nowhere) | None => Vec::new(),
    };
    let mut missing = heads.to_vec();
    let (mut is_changed, mut is_cut) = (false, false);
    for path in files(logs, &[LOG_END])? {
        let reading = read(&path).with_context(|| format!("Failed to read {}", path.display()))?;
        missing.retain(|head| !reading.holds(*head));
        let findings = Findings::new(&notes, &path, &reading);
        is_changed |= findings.is_changed();
        is_cut |= findings.is_cut();
        for line in findings.lines(&path) {
            say::line(line)?;
        }
    }
    for head in &missing {
        say::line(format_args!(
            "the record {head} is in none of these logs: what followed, or a whole log, was taken away or changed"
        ))?;
    }
    Ok(match (is_changed || !missing.is_empty(), is_cut) {
        (true, _) => 1,
        (false, true) => CUT,
        (false, false) => 0,
    })
}

/// Problems of one log.
struct Findings<'a> {
    reading: &'a Reading,
    /// Noted records of the log's jobs that are missing in it.
    lost: Vec<&'a Note>,
    /// The last note of each job that was in a log of this path and is not in this one.
    gone: Vec<&'a Note>,
}

impl<'a> Findings<'a> {
    fn new(notes: &'a [Note], path: &Path, reading: &'a Reading) -> Self {
        let path = path.canonicalize().ok();
        let starts = reading.records.iter().filter(|record| record.event == JOB_START);
        let jobs: BTreeSet<_> = starts.filter_map(|start| start.fields.get("job")?.as_str()).collect();
        let (here, elsewhere): (Vec<_>, Vec<_>) = notes.iter().partition(|note| jobs.contains(note.job.as_str()));
        let lost = here.into_iter().filter(|note| !reading.holds(note.head)).collect();
        let gone = elsewhere.into_iter().filter(|note| Some(&note.log) == path.as_ref());
        let gone: BTreeMap<_, _> = gone.map(|note| (&note.job, note)).collect();
        Self { reading, lost, gone: gone.into_values().collect() }
    }

    fn is_changed(&self) -> bool {
        !self.reading.problems.is_empty() || !self.lost.is_empty()
    }

    fn is_cut(&self) -> bool {
        let has_open_end = matches!(self.reading.end, End::Cut | End::Empty);
        has_open_end || !self.reading.open_jobs.is_empty() || !self.gone.is_empty()
    }

    fn lines(&self, path: &Path) -> Vec<String> {
        let (name, reading) = (path.display(), self.reading);
        let problems = reading.problems.iter().map(ToString::to_string);
        let lost = self.lost.iter().map(|Note { head, job, time, .. }| {
            format!("record {head} of job {job}, which was noted on {time}, is not there")
        });
        let gone = self.gone.iter().map(|Note { head, job, time, .. }| {
            format!(
                "job {job}, whose record {head} was noted on {time}, is not in it: the log was emptied or begun anew"
            )
        });
        let open = reading.open_jobs.iter().map(|line| format!("line {line}: the job that begins here has no end"));
        let all = problems.chain(lost).chain(gone).chain(open);
        let mut lines: Vec<_> = all.map(|problem| format!("{name}: {problem}")).collect();
        let rest = lines.len().saturating_sub(PROBLEMS_MAX);
        if rest > 0 {
            lines.truncate(PROBLEMS_MAX);
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
        let verdict = match (self.is_changed(), self.is_cut()) {
            (true, _) => "CHANGED",
            (false, true) => "INCOMPLETE",
            (false, false) => "unchanged",
        };
        lines.push(format!("{name}: {verdict}, {} records{head}{torn}{end}", reading.records.len()));
        lines
    }
}
