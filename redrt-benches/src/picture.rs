//! The charts of growth: small ones beside each other, with a line for each library.

use crate::beside::Beside;
use anyhow::{Context, Result};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

const SIZE: (u32, u32) = (1000, 720);
const COLOURS: [RGBColor; 5] = [
    RGBColor(196, 30, 58),
    RGBColor(31, 119, 180),
    RGBColor(44, 130, 60),
    RGBColor(120, 170, 220),
    RGBColor(140, 190, 140),
];

/// One library's line.
type Line = (String, Vec<(f64, f64)>);

/// One chart: a figure over the number that rows have between these words.
struct Chart<'a> {
    title: &'a str,
    table: &'a Beside,
    before: &'a str,
    after: &'a str,
}

/// Draws all charts into one file.
pub fn draw(path: &Path, memory: &Beside, growth: &[Beside]) -> Result<()> {
    let [ranks, waiting, communicators, ..] = growth else { return Ok(()) };
    let charts = [
        Chart { title: "Latency past messages that wait, us", table: waiting, before: "latency, ", after: "" },
        Chart { title: "A receive among messages that wait, us", table: waiting, before: "receive, ", after: "" },
        Chart { title: "MPI_Comm_dup with communicators, us", table: communicators, before: "duplicate, ", after: "" },
        Chart { title: "Latency with ranks, us", table: ranks, before: "latency, ", after: " ranks" },
        Chart { title: "Barrier with ranks, us", table: ranks, before: "barrier, ", after: " ranks" },
        Chart {
            title: "Memory of a process with ranks, MiB",
            table: memory,
            before: "",
            after: " ranks, all connected",
        },
    ];
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    let drawn = || -> Result<(), Box<dyn std::error::Error + '_>> {
        area.fill(&WHITE)?;
        for (number, (chart, part)) in charts.iter().zip(area.split_evenly((2, 3))).enumerate() {
            draw_one(chart, &part, number == 0)?;
        }
        Ok(area.present()?)
    };
    drawn().map_err(|error| anyhow::anyhow!("{error}")).with_context(|| format!("Failed to draw {}", path.display()))
}

fn draw_one<'a>(
    chart: &Chart<'_>,
    part: &DrawingArea<SVGBackend<'a>, Shift>,
    has_legend: bool,
) -> Result<(), Box<dyn std::error::Error + 'a>> {
    let lines: Vec<Line> = chart.table.lines(chart.before, chart.after);
    let points = || lines.iter().flat_map(|(_, points)| points.iter().copied());
    let Some((across, up)) = range(points().map(|point| point.0)).zip(range(points().map(|point| point.1))) else {
        return Ok(());
    };
    let mut builder = ChartBuilder::on(part);
    builder.caption(chart.title, ("sans-serif", 15)).margin(10).x_label_area_size(28).y_label_area_size(52);
    let mut context = builder.build_cartesian_2d(across.log_scale(), up.log_scale())?;
    let label = |value: &f64| if *value >= 0.01 { format!("{value}") } else { format!("{value:e}") };
    context
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&label)
        .y_label_formatter(&label)
        .draw()?;
    for ((name, points), colour) in lines.into_iter().zip(COLOURS) {
        let series = LineSeries::new(points, colour.stroke_width(2)).point_size(2);
        let legend = move |(x, y)| PathElement::new([(x, y), (x + 12, y)], colour.stroke_width(2));
        context.draw_series(series)?.label(name).legend(legend);
    }
    if has_legend {
        let mut legend = context.configure_series_labels();
        legend.background_style(WHITE.mix(0.8)).position(SeriesLabelPosition::UpperLeft);
        legend.label_font(("sans-serif", 10)).draw()?;
    }
    Ok(())
}

/// The range of whole powers of ten around all values.
fn range(values: impl Iterator<Item = f64>) -> Option<std::ops::Range<f64>> {
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    for value in values.filter(|value| *value > 0.0) {
        (least, most) = (least.min(value), most.max(value));
    }
    let (low, high) = (10_f64.powf(least.log10().floor()), 10_f64.powf((most.log10() - 0.01).ceil()));
    (most > 0.0).then_some(low..high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::Library;

    #[test]
    fn a_chart_has_a_line_for_each_library_that_was_measured() {
        let named = |name: &str| Library { name: name.into(), ..Library::redrt(Path::new("/")) };
        let mut table = Beside::new("", "", &[named("redrt"), named("other"), named("absent")]);
        for (count, value) in [(1, 0.2), (100, 0.2)] {
            table.add(&format!("latency, {count}"), "us", None, 0, value);
            table.add(&format!("latency, {count}"), "us", None, 1, value * f64::from(count));
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("growth.svg");
        draw(&path, &table, &[table.clone(), table.clone(), table.clone()]).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.starts_with("<svg") && text.contains("other") && !text.contains("absent"), "{text}");
    }
}
