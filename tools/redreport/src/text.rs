//! The report for a terminal.

use audit_report::hosts::State;
use audit_report::job::{ReportedJob, Suspect, Verdict};
use audit_report::report::Report;
use job_report::{bytes_text, counted, share_text, time_text};
use std::fmt::Write;
use std::time::Duration;

/// Limit for the verdicts of a job that are listed one by one; JSON and HTML have all.
const VERDICTS_MAX: usize = 10;

pub(super) fn seconds_text(seconds: f64) -> String {
    time_text(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// A verdict in one line, without its time.
pub(super) fn verdict_text(verdict: &Verdict) -> String {
    let Verdict { sender, receiver, communicator, tag, sequence, length_bytes, .. } = verdict;
    let message = match &verdict.output {
        Some(output) => {
            format!("line {} of the standard output of rank {sender}, byte {}", output.line, output.column)
        }
        None => format!(
            "message {sequence} from rank {sender} to {receiver} ({communicator}, tag {tag}, {length_bytes} bytes)"
        ),
    };
    let place = |suspect: &Suspect| match suspect.core {
        Some(core) => format!("{} on {}, core {core}", suspect.replica, suspect.host),
        None => format!("{} on {}", suspect.replica, suspect.host),
    };
    let who = match (verdict.finding.as_str(), verdict.blamed()) {
        ("transport-corrupt", Some(blamed)) => format!("changed on its way from {}", place(blamed)),
        (_, Some(blamed)) => format!("{} is corrupt", place(blamed)),
        (_, None) => {
            let all: Vec<_> = verdict.suspects.iter().map(place).collect();
            format!("replicas differ, nobody knows which is right: {}", all.join("; "))
        }
    };
    format!("{who}: {message}")
}

/// The verdict's evidence, if there is any.
pub(super) fn evidence_text(verdict: &Verdict) -> Option<String> {
    if let Some(output) = &verdict.output {
        let sides = output.sides.iter().map(|side| {
            let who: Vec<_> = side.replicas.iter().map(|one| format!("{} on {}", one.replica, one.host)).collect();
            match (side.text.is_empty(), side.ended) {
                (true, true) => format!("nothing more from {}", who.join(", ")),
                _ => format!("{:?} from {}", side.text, who.join(", ")),
            }
        });
        return Some(sides.collect::<Vec<_>>().join("; "));
    }
    let evidence = verdict.evidence.as_ref()?;
    let bits = if evidence.bits == 1 { "1 bit differs".to_owned() } else { format!("{} bits differ", evidence.bits) };
    let mut text = format!("{bits}, the first in byte {} (xor {})", evidence.first_byte, evidence.xor);
    if let (Some(one), Some(other)) = (&evidence.one_value, &evidence.other_value) {
        let right = if evidence.other_is_right { ", which is right" } else { "" };
        let _ =
            write!(text, ", element {} ({}): {one} in that of {}, ", evidence.index, evidence.element, evidence.one);
        let again = if evidence.one == evidence.other { " when fetched again" } else { "" };
        let _ = write!(text, "{other} in that of {}{again}{right}", evidence.other);
    }
    if let Some(ulps) = evidence.ulps {
        let _ = write!(text, ", {ulps} ulp apart");
    }
    Some(text)
}

/// The whole summary.
#[must_use]
pub fn summary(report: &Report) -> String {
    let mut text = String::new();
    let totals = &report.totals;
    let mut line = |indent: usize, words: String| {
        let _ = writeln!(text, "{:indent$}{}", "", words.replace(char::is_control, " "));
    };
    for log in &report.logs {
        for problem in log.problems.iter().take(3) {
            line(0, format!("DOUBTFUL: {}, {problem}", log.log));
        }
        if log.is_cut {
            line(0, format!("{}: the last job has no end; what follows is what was recorded until then", log.log));
        }
    }
    let injected = match totals.jobs_with_injected_faults {
        0 => String::new(),
        count => format!(", {count} of them with injected faults"),
    };
    line(0, format!("{}{injected}", counted(totals.jobs as u64, "job")));
    line(
        2,
        format!(
            "{} compared ({}), {}",
            counted(totals.messages_compared, "message"),
            bytes_text(totals.bytes_compared),
            counted(totals.verdicts as u64, "verdict")
        ),
    );
    for (finding, count) in &totals.findings {
        line(4, format!("{finding}: {count}"));
    }
    if totals.losses > 0 {
        line(
            2,
            format!(
                "{} lost, {} replaced; one was missing for {} in all",
                counted(totals.losses as u64, "replica"),
                totals.recovered,
                seconds_text(totals.window_s)
            ),
        );
    }
    if let Some(share) = totals.protected_share {
        let single = seconds_text(totals.single_s);
        line(
            2,
            format!("{} of rank hours had all replicas; ranks had only one for {single} in all", share_text(share)),
        );
    }
    for one in totals.communicators.iter().take(5) {
        line(4, format!("{}: {} ({})", one.communicator, counted(one.messages, "message"), bytes_text(one.bytes)));
    }
    for job in &report.jobs {
        report_job(job, &mut line);
    }
    line(0, "Hosts".into());
    for host in report.hosts.iter().filter(|host| host.state != State::Clear) {
        line(2, format!("{}: {}", host.host, host.conclusion));
        if let Some(drain) = &host.drain {
            line(4, drain.clone());
        }
    }
    let clear = report.hosts.iter().filter(|host| host.state == State::Clear).count();
    if clear > 0 {
        line(2, format!("nothing found on {}", counted(clear as u64, "host")));
    }
    if !report.attribution.is_empty() {
        line(0, "Software or hardware".into());
        report.attribution.iter().for_each(|conclusion| line(2, conclusion.words.clone()));
    }
    if report.hosts.is_empty() && totals.jobs_with_injected_faults > 0 {
        line(2, "jobs with injected faults say nothing about hosts".into());
    }
    text
}

fn report_job(job: &ReportedJob, line: &mut impl FnMut(usize, String)) {
    let end = match job.exit_code {
        Some(code) => format!("exit code {code}"),
        None => "no end recorded".into(),
    };
    let program = job.programs.join(" : ");
    line(
        0,
        format!(
            "job {} at {}: {program}, {}, {}, {end}",
            job.job,
            job.start,
            counted(job.ranks, "rank"),
            seconds_text(job.elapsed_s)
        ),
    );
    if let Some(redundancy) = &job.redundancy
        && let Some(share) = redundancy.protected_share().filter(|_| redundancy.short_s > 0.0)
    {
        let missing = match redundancy.missing {
            0 => String::new(),
            count => format!("; {} never replaced", counted(count, "replica")),
        };
        line(2, format!("{} of rank hours had all replicas{missing}", share_text(share)));
    }
    // Verdicts and incidents, in the order of their times.
    let mut told: Vec<(f64, Vec<(usize, String)>)> = Vec::new();
    for verdict in job.verdicts.iter().take(VERDICTS_MAX) {
        let mut lines = vec![(2, format!("{:.3} s  {}", verdict.at_s, verdict_text(verdict)))];
        lines.extend(evidence_text(verdict).map(|evidence| (6, evidence)));
        told.push((verdict.at_s, lines));
    }
    for incident in job.incidents.iter().filter(|incident| incident.event != "injected").take(VERDICTS_MAX) {
        let of = [&incident.replica, &incident.host].into_iter().flatten().cloned().collect::<Vec<_>>().join(" on ");
        let words = format!("{:.3} s  {} {of} {}", incident.at_s, incident.event, incident.what);
        told.push((incident.at_s, vec![(2, words)]));
    }
    told.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    told.into_iter().flat_map(|(_, lines)| lines).for_each(|(indent, words)| line(indent, words));
    if job.verdicts.len() > VERDICTS_MAX {
        line(2, format!("{} more", counted((job.verdicts.len() - VERDICTS_MAX) as u64, "verdict")));
    }
}
