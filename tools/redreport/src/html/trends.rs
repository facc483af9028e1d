//! Bars for each day or month: the trends of a site.

use super::{Cell, count, escaped, table, text};
use audit_report::trends::Period;
use job_report::share_text;
use std::fmt::{self, Write};

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 150.0;
const HEIGHT: f64 = 46.0;
const GAP: f64 = 16.0;

/// Writes nothing if all jobs began in the same period.
pub(super) fn trends(page: &mut String, periods: &[Period]) -> fmt::Result {
    if periods.len() < 2 {
        return Ok(());
    }
    writeln!(page, "<h2>Over time</h2>")?;
    writeln!(page, "<p class=\"soft\">Jobs with injected faults count only if that was asked for.</p>")?;
    let rows: [(&str, &str, Vec<f64>); 4] = [
        ("Process hours", "life", periods.iter().map(|one| one.process_hours).collect()),
        ("Replicas lost", "window", periods.iter().map(|one| one.losses as f64).collect()),
        ("What differed", "mark", periods.iter().map(|one| one.verdicts as f64).collect()),
        ("Not protected, %", "window", periods.iter().map(unprotected_percent).collect()),
    ];
    let height = (HEIGHT + GAP) * rows.len() as f64 + GAP;
    writeln!(
        page,
        "<div class=\"scroll\"><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Over time\">"
    )?;
    for (number, (name, class, values)) in rows.iter().enumerate() {
        draw(page, periods, (HEIGHT + GAP) * number as f64 + GAP / 2.0, (name, class, values))?;
    }
    for (at, anchor) in [(0, "start"), (periods.len() - 1, "end")] {
        let x = if at == 0 { LEFT } else { WIDTH - 10.0 };
        let name = escaped(&periods[at].period);
        writeln!(page, "<text x=\"{x}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{name}</text>", height - 2.0)?;
    }
    writeln!(page, "</svg></div>")?;
    let row = |one: &Period| {
        vec![
            text(&one.period),
            count(one.jobs as u64),
            count(one.failed as u64),
            Cell::Number(format!("{:.2}", one.process_hours), one.process_hours),
            count(one.losses as u64),
            count(one.verdicts as u64),
            match one.protected_share {
                Some(share) => Cell::Number(share_text(share), share),
                None => Cell::Number(String::new(), -1.0),
            },
        ]
    };
    let heads = ["Begun", "#Jobs", "#Failed", "#Process hours", "#Losses", "#Verdicts", "#Protected"];
    table(page, "trends", &heads, periods.iter().map(row).collect())
}

fn unprotected_percent(one: &Period) -> f64 {
    one.protected_share.map_or(0.0, |share| (1.0 - share) * 100.0)
}

/// One row of bars, each drawn as its share of the highest.
fn draw(page: &mut String, periods: &[Period], top: f64, (name, class, values): (&str, &str, &[f64])) -> fmt::Result {
    let (bottom, most) = (top + HEIGHT, values.iter().copied().fold(0.0, f64::max));
    let shown = if most.fract() == 0.0 { format!("{most}") } else { format!("{most:.2}") };
    writeln!(page, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>", LEFT - 8.0, top + 12.0)?;
    writeln!(page, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">at most {shown}</text>", LEFT - 8.0, top + 28.0)?;
    writeln!(page, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{bottom}\" y2=\"{bottom}\"/>", WIDTH - 10.0)?;
    let step = (WIDTH - LEFT - 10.0) / periods.len() as f64;
    for (number, (period, value)) in periods.iter().zip(values).enumerate() {
        let height = if most > 0.0 { value / most * HEIGHT } else { 0.0 };
        let (x, y, width) = (LEFT + step * number as f64 + step * 0.1, bottom - height, step * 0.8);
        let what = escaped(&format!("{}: {name} {value:.2}", period.period));
        write!(page, "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\">")?;
        writeln!(page, "<title>{what}</title></rect>")?;
    }
    Ok(())
}
