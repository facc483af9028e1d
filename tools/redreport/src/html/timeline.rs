//! Time lines: the times at which each replica lived, and those at which one was missing.

use super::{escaped, seconds_text};
use audit_report::job::{ReportedJob, rank_of};
use std::collections::BTreeSet;
use std::fmt::{self, Write};

/// Limit for the jobs that are drawn; only jobs with trouble are.
const JOBS_MAX: usize = 50;
/// Limit for the lines of one job.
const LINES_MAX: usize = 60;
const WIDTH: f64 = 1000.0;
const LEFT: f64 = 60.0;
const LINE: f64 = 14.0;

/// One drawing for each job that had trouble.
pub(super) fn timelines(page: &mut String, jobs: &[ReportedJob]) -> fmt::Result {
    let troubled: Vec<_> = jobs.iter().filter(|job| !job.windows.is_empty() || !job.verdicts.is_empty()).collect();
    if troubled.is_empty() {
        return writeln!(page, "<p class=\"soft\">None.</p>");
    }
    writeln!(
        page,
        "<p class=\"soft\"><span class=\"key life\"></span> A replica runs. <span class=\"key window\"></span> It is missing. \
         <span class=\"key mark\"></span> Something it sent differed.</p>"
    )?;
    for job in troubled.iter().take(JOBS_MAX) {
        draw(page, job)?;
    }
    if troubled.len() > JOBS_MAX {
        writeln!(page, "<p class=\"soft\">{} more jobs are not drawn.</p>", troubled.len() - JOBS_MAX)?;
    }
    Ok(())
}

fn draw(page: &mut String, job: &ReportedJob) -> fmt::Result {
    // All replicas of a rank are drawn if one of them had trouble.
    let of_windows = job.windows.iter().map(|window| rank_of(&window.replica));
    let ranks: BTreeSet<_> = of_windows.chain(job.verdicts.iter().map(|verdict| verdict.sender)).collect();
    let lines: BTreeSet<_> = job.lives.iter().map(|life| (rank_of(&life.replica), life.replica.as_str())).collect();
    let lines: Vec<_> =
        lines.into_iter().filter(|(rank, _)| ranks.contains(rank)).map(|(_, replica)| replica).collect();
    let shown = &lines[..lines.len().min(LINES_MAX)];
    let end = job.elapsed_s.max(1e-6);
    let x = |at: f64| LEFT + at / end * (WIDTH - LEFT - 10.0);
    let height = LINE * (shown.len() as f64 + 2.0);
    let title = format!("Time line of job {}", job.job);
    writeln!(page, "<h3>Job {}</h3>", escaped(&job.job))?;
    writeln!(page, "<div class=\"scroll\">")?;
    writeln!(page, "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">", escaped(&title))?;
    for step in 0..=4 {
        let (at, bottom) = (end * f64::from(step) / 4.0, height - LINE);
        let anchor = if step == 4 { "end" } else { "middle" };
        writeln!(page, "<line class=\"grid\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"0\" y2=\"{bottom}\"/>", x(at))?;
        writeln!(
            page,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            x(at),
            height - 2.0,
            seconds_text(at)
        )?;
    }
    for (number, replica) in shown.iter().enumerate() {
        let y = LINE * number as f64 + 3.0;
        writeln!(
            page,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 9.0,
            escaped(replica)
        )?;
        for life in job.lives.iter().filter(|life| life.replica == *replica) {
            let what = format!("{replica} on {}", life.host);
            bar(page, "life", y, (x(life.from_s), x(life.to_s)), &what)?;
        }
        for window in job.windows.iter().filter(|window| window.replica == *replica) {
            let to = window.to_s.unwrap_or(job.elapsed_s);
            let what = format!("{replica} is missing for {}", seconds_text(to - window.from_s));
            bar(page, "window", y, (x(window.from_s), x(to)), &what)?;
        }
        for verdict in &job.verdicts {
            if verdict.suspects.iter().any(|suspect| suspect.replica == *replica) {
                let (at, top, bottom) = (x(verdict.at_s), y - 1.0, y + 9.0);
                let points = format!("{:.1},{bottom:.1} {:.1},{bottom:.1} {at:.1},{top:.1}", at - 4.0, at + 4.0);
                writeln!(
                    page,
                    "<polygon class=\"mark\" points=\"{points}\"><title>{}</title></polygon>",
                    escaped(&verdict.finding)
                )?;
            }
        }
    }
    writeln!(page, "</svg></div>")?;
    if lines.len() > shown.len() {
        writeln!(page, "<p class=\"soft\">{} more replicas are not drawn.</p>", lines.len() - shown.len())?;
    }
    Ok(())
}

fn bar(page: &mut String, class: &str, y: f64, (from, to): (f64, f64), what: &str) -> fmt::Result {
    let width = (to - from).max(1.0);
    let place = format!("x=\"{from:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"9\"");
    writeln!(page, "<rect class=\"{class}\" {place}><title>{}</title></rect>", escaped(what))
}
