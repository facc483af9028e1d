//! The report as one page for a browser. The file holds everything: the page loads nothing.
//!
//! The tables are whole without the script, which sorts and filters them.

mod timeline;
mod trends;

use super::text::{evidence_text, seconds_text, verdict_text};
use attribution::{Cause, Conclusion};
use audit_report::hosts::{Host, State};
use audit_report::job::{Coverage, Redundancy, ReportedJob};
use audit_report::report::{self, Report};
use job_report::{bytes_text, counted, share_text};
use std::fmt::{self, Write};

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/script.js");
/// Limit for the rows of a table: more are too many for a browser. JSON has them all.
const ROWS_MAX: usize = 5000;

/// Text in a form that is safe in a page, and within an attribute.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// One cell of a table.
enum Cell {
    Text(String),
    /// The text shown, and the number that rows are sorted by.
    Number(String, f64),
    Html(String),
}

fn text(words: impl Into<String>) -> Cell {
    Cell::Text(words.into())
}

fn count(value: u64) -> Cell {
    Cell::Number(value.to_string(), value as f64)
}

/// Writes a table. Each column has a heading; `#` marks a column of numbers.
fn table(page: &mut String, id: &str, heads: &[&str], rows: Vec<Vec<Cell>>) -> fmt::Result {
    if rows.is_empty() {
        return writeln!(page, "<p class=\"soft\">None.</p>");
    }
    writeln!(page, "<div class=\"scroll\" tabindex=\"0\"><table id=\"{id}\" class=\"sorted filtered\"><thead><tr>")?;
    for head in heads {
        match head.strip_prefix('#') {
            Some(head) => write!(page, "<th class=\"number\" scope=\"col\">{head}</th>")?,
            None => write!(page, "<th scope=\"col\">{head}</th>")?,
        }
    }
    writeln!(page, "</tr></thead><tbody>")?;
    let rest = rows.len().saturating_sub(ROWS_MAX);
    for row in rows.into_iter().take(ROWS_MAX) {
        write!(page, "<tr>")?;
        for cell in row {
            match cell {
                Cell::Text(words) => write!(page, "<td>{}</td>", escaped(&words))?,
                Cell::Number(shown, key) => {
                    write!(page, "<td class=\"number\" data-key=\"{key}\">{}</td>", escaped(&shown))?
                }
                Cell::Html(html) => write!(page, "<td>{html}</td>")?,
            }
        }
        writeln!(page, "</tr>")?;
    }
    writeln!(page, "</tbody></table></div>")?;
    if rest > 0 {
        writeln!(page, "<p class=\"soft\">{rest} more are in the report as JSON.</p>")?;
    }
    Ok(())
}

/// The whole page.
pub(super) fn page(report: &Report) -> Result<String, fmt::Error> {
    let mut page = String::new();
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";
    writeln!(page, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">")?;
    writeln!(page, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
    writeln!(page, "<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">")?;
    writeln!(
        page,
        "<title>redrt: {}</title><style>{STYLE}</style></head><body>",
        counted(report.jobs.len() as u64, "job")
    )?;
    head(&mut page, report)?;
    hosts(&mut page, &report.hosts)?;
    attribution(&mut page, report)?;
    trends::trends(&mut page, &report.trends)?;
    verdicts(&mut page, &report.jobs)?;
    writeln!(page, "<h2>Vulnerability windows</h2>")?;
    timeline::timelines(&mut page, &report.jobs)?;
    spheres(&mut page, report)?;
    coverage(&mut page, report)?;
    incidents(&mut page, &report.jobs)?;
    jobs(&mut page, report)?;
    writeln!(page, "<script>{SCRIPT}</script></body></html>")?;
    Ok(page)
}

fn head(page: &mut String, report: &Report) -> fmt::Result {
    let totals = &report.totals;
    writeln!(page, "<h1>Replicated jobs: what was compared and what was found</h1>")?;
    if let (Some(first), Some(last)) = (report.jobs.first(), report.jobs.last()) {
        writeln!(page, "<p class=\"soft\">Jobs begun from {} to {}</p>", escaped(&first.start), escaped(&last.start))?;
    }
    for log in &report.logs {
        for problem in log.problems.iter().take(5) {
            writeln!(page, "<p class=\"alarm\"><b>Doubtful log</b> {}: {}</p>", escaped(&log.log), escaped(problem))?;
        }
    }
    for host in report.hosts.iter().filter(|host| host.state == State::Sick) {
        writeln!(page, "<p class=\"alarm\"><b>{}</b> {}</p>", escaped(&host.host), escaped(&host.conclusion))?;
    }
    let cards = [
        (totals.jobs.to_string(), "jobs".to_owned()),
        (totals.messages_compared.to_string(), format!("messages compared, {}", bytes_text(totals.bytes_compared))),
        (totals.verdicts.to_string(), "messages and lines that differed".into()),
        (totals.losses.to_string(), format!("replicas lost, {} replaced", totals.recovered)),
        (seconds_text(totals.window_s), "with a replica missing".into()),
        (totals.protected_share.map_or_else(|| "unknown".into(), share_text), "of rank hours with all replicas".into()),
    ];
    writeln!(page, "<div class=\"cards\">")?;
    for (value, of) in cards {
        writeln!(page, "<div class=\"card\"><b>{}</b>{}</div>", escaped(&value), escaped(&of))?;
    }
    writeln!(page, "</div>")?;
    let label = "<label>Show rows with <input id=\"filter\" type=\"search\" placeholder=\"host, replica, communicator, …\"></label>";
    writeln!(page, "<p class=\"tools\">{label} <span id=\"shown\" class=\"soft\"></span></p>")
}

fn hosts(page: &mut String, hosts: &[Host]) -> fmt::Result {
    writeln!(page, "<h2>Hosts</h2><p class=\"soft\">Jobs with injected faults count only if that was asked for.</p>")?;
    let row = |host: &Host| {
        let class = match host.state {
            State::Sick => "sick",
            State::Watch => "watch",
            State::Clear => "clear",
        };
        let cores: Vec<_> = host.cores.iter().map(|(core, count)| format!("{core}: {count}")).collect();
        let mut conclusion = format!("<span class=\"{class}\">{class}</span>: {}", escaped(&host.conclusion));
        if let Some(drain) = &host.drain {
            conclusion += &format!("<br><code>{}</code>", escaped(drain));
        }
        vec![
            text(&host.host),
            count(host.jobs as u64),
            Cell::Number(format!("{:.2}", host.process_hours), host.process_hours),
            count(host.verdicts as u64),
            Cell::Number(format!("{:.3}", host.rate_per_hour), host.rate_per_hour),
            text(cores.join(", ")),
            count(host.suspected as u64),
            count(host.losses as u64),
            Cell::Html(conclusion),
        ]
    };
    let heads =
        ["Host", "#Jobs", "#Process hours", "#Verdicts", "#An hour", "By core", "#Suspected", "#Losses", "Conclusion"];
    table(page, "hosts", &heads, hosts.iter().map(row).collect())
}

fn attribution(page: &mut String, report: &Report) -> fmt::Result {
    writeln!(page, "<h2>Software or hardware</h2>")?;
    let row = |one: &Conclusion| {
        let cause = match one.cause {
            Cause::Software => "software",
            Cause::Hardware => "hardware",
            Cause::Open => "open",
        };
        let listed = |names: Vec<String>| text(names.join(", "));
        vec![
            text(cause),
            text(&one.program),
            listed(one.ranks.iter().map(ToString::to_string).collect()),
            listed(one.hosts.iter().cloned().collect()),
            count(one.findings as u64),
            text(&one.words),
        ]
    };
    let heads = ["Reason", "Program", "Ranks", "Hosts", "#Findings", "In words"];
    table(page, "attribution", &heads, report.attribution.iter().map(row).collect())
}

fn verdicts(page: &mut String, jobs: &[ReportedJob]) -> fmt::Result {
    writeln!(page, "<h2>Messages and lines of output that differed</h2>")?;
    let mut rows = Vec::new();
    for job in jobs {
        for verdict in &job.verdicts {
            let places: Vec<_> = verdict.suspects.iter().map(|suspect| suspect.host.as_str()).collect();
            let cores = verdict.suspects.iter().filter_map(|suspect| suspect.core).map(|core| core.to_string());
            let who: Vec<_> = verdict.suspects.iter().map(|suspect| suspect.replica.as_str()).collect();
            let mut detail = escaped(&verdict_text(verdict));
            if let Some(evidence) = evidence_text(verdict) {
                detail += &format!("<br>{}", escaped(&evidence));
            }
            for (replica, digest) in &verdict.digests {
                detail += &format!("<br><code>{} {}</code>", escaped(replica), escaped(digest));
            }
            rows.push(vec![
                text(&job.job),
                Cell::Number(format!("{:.3}", verdict.at_s), verdict.at_s),
                text(&verdict.finding),
                text(who.join(", ")),
                text(places.join(", ")),
                text(cores.collect::<Vec<_>>().join(", ")),
                text(verdict.actions.join(", ")),
                Cell::Html(detail),
            ]);
        }
    }
    table(page, "verdicts", &["Job", "#Second", "Finding", "Replica", "Host", "Core", "Action", "Evidence"], rows)
}

fn spheres(page: &mut String, report: &Report) -> fmt::Result {
    writeln!(page, "<h2>Ranks</h2><p class=\"soft\">Those that lost a replica or sent something that differed.</p>")?;
    let row = |sphere: &report::Sphere| {
        vec![
            text(&sphere.job),
            count(sphere.rank),
            count(sphere.degree),
            count(sphere.live_min),
            count(sphere.losses as u64),
            Cell::Number(seconds_text(sphere.window_s), sphere.window_s),
            count(sphere.verdicts as u64),
        ]
    };
    let heads = ["Job", "#Rank", "#Degree", "#Fewest alive", "#Losses", "#One was missing for", "#Verdicts"];
    table(page, "ranks", &heads, report.spheres.iter().map(row).collect())
}

fn coverage(page: &mut String, report: &Report) -> fmt::Result {
    writeln!(page, "<h2>What was compared</h2>")?;
    let sized = |bytes: u64| Cell::Number(bytes_text(bytes), bytes as f64);
    let communicators = &report.totals.communicators;
    let rows = communicators.iter().map(|one| vec![text(&one.communicator), count(one.messages), sized(one.bytes)]);
    table(page, "communicators", &["Communicator", "#Messages", "#Bytes"], rows.collect())?;
    let row = |job: &ReportedJob, one: &Coverage| {
        vec![
            text(&job.job),
            text(&one.replica),
            text(&one.host),
            count(one.messages_sent),
            count(one.messages_compared),
            sized(one.bytes_compared),
        ]
    };
    let rows = report.jobs.iter().flat_map(|job| job.coverage.iter().map(move |one| row(job, one)));
    let heads = ["Job", "Replica", "Host", "#Messages sent", "#Messages compared", "#Bytes compared"];
    table(page, "coverage", &heads, rows.collect())
}

fn incidents(page: &mut String, jobs: &[ReportedJob]) -> fmt::Result {
    writeln!(page, "<h2>Everything else that happened</h2>")?;
    let mut rows = Vec::new();
    for job in jobs {
        for incident in &job.incidents {
            rows.push(vec![
                text(&job.job),
                Cell::Number(format!("{:.3}", incident.at_s), incident.at_s),
                text(&incident.event),
                text(incident.replica.clone().unwrap_or_default()),
                text(incident.host.clone().unwrap_or_default()),
                text(&incident.what),
            ]);
        }
    }
    table(page, "incidents", &["Job", "#Second", "Event", "Replica", "Host", "What"], rows)
}

fn jobs(page: &mut String, report: &Report) -> fmt::Result {
    writeln!(page, "<h2>Jobs</h2>")?;
    let row = |job: &ReportedJob| {
        let (low, high) =
            (job.degrees.iter().min().copied().unwrap_or(0), job.degrees.iter().max().copied().unwrap_or(0));
        vec![
            text(&job.job),
            text(&job.start),
            text(job.programs.join(" : ")),
            count(job.ranks),
            Cell::Number(if low == high { low.to_string() } else { format!("{low} to {high}") }, high as f64),
            Cell::Number(seconds_text(job.elapsed_s), job.elapsed_s),
            match job.redundancy.as_ref().and_then(Redundancy::protected_share) {
                Some(share) => Cell::Number(share_text(share), share),
                None => Cell::Number(String::new(), -1.0),
            },
            job.exit_code.map_or_else(|| text("no end"), |code| text(code.to_string())),
            count(job.injected),
            text(job.hosts.join(", ")),
            text(&job.log),
        ]
    };
    let heads = [
        "Job",
        "Begun",
        "Program",
        "#Ranks",
        "#Replicas",
        "#Ran for",
        "#Protected",
        "Exit code",
        "#Injected",
        "Hosts",
        "Log",
    ];
    table(page, "jobs", &heads, report.jobs.iter().map(row).collect())?;
    writeln!(page, "<h2>Logs</h2>")?;
    let row = |log: &report::Log| {
        let state = match (log.problems.len(), log.is_cut) {
            (0, false) => "as written".to_owned(),
            (0, true) => "as written, without an end".to_owned(),
            (problems, _) => format!("DOUBTFUL: {}", counted(problems as u64, "problem")),
        };
        vec![text(&log.log), text(state), text(log.head.clone().unwrap_or_default())]
    };
    table(page, "logs", &["Log", "State", "Head"], report.logs.iter().map(row).collect())
}
