//! Pictures in SVG: lines over an axis, and a radar.

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;
use std::path::Path;

const SIZE: (u32, u32) = (760, 480);
const COLOURS: [RGBColor; 6] = [
    RGBColor(196, 30, 58),
    RGBColor(31, 119, 180),
    RGBColor(44, 130, 60),
    RGBColor(214, 130, 20),
    RGBColor(120, 80, 160),
    RGBColor(90, 90, 90),
];

/// Name of a line and its points.
pub(super) type Line = (String, Vec<(f64, f64)>);

pub(super) enum Picture {
    Lines {
        title: String,
        across: String,
        up: String,
        is_log: bool,
        lines: Vec<Line>,
    },
    /// Distances from the centre by axis; 1 is the dashed limit.
    Radar {
        title: String,
        axes: Vec<String>,
        shapes: Vec<(String, Vec<f64>)>,
    },
}

type Drawn<'a> = Result<(), Box<dyn std::error::Error + 'a>>;

impl Picture {
    /// Writes the picture to a file.
    pub(super) fn draw(&self, path: &Path) -> Result<()> {
        let failed = || format!("Failed to draw {}", path.display());
        let text = self.text().with_context(failed)?;
        // Written here: the drawing library does not report a full disk.
        std::fs::write(path, text).with_context(failed)
    }

    fn text(&self) -> Result<String> {
        let mut text = String::new();
        {
            let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
            self.draw_on(&area).map_err(|error| anyhow!("{error}"))?;
        }
        Ok(text)
    }

    fn draw_on<'a>(&self, area: &Area<'a>) -> Drawn<'a> {
        area.fill(&WHITE)?;
        match self {
            Self::Lines { title, across, up, is_log, lines } => {
                let caption = (title.as_str(), across.as_str(), up.as_str());
                draw_lines(area, caption, *is_log, lines)?;
            }
            Self::Radar { title, axes, shapes } => draw_radar(area, title, axes, shapes)?,
        }
        Ok(area.present()?)
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw_lines<'a>(area: &Area<'a>, caption: (&str, &str, &str), is_log: bool, lines: &[Line]) -> Drawn<'a> {
    // A job that never ends has no point.
    let points = || lines.iter().flat_map(|(_, points)| points).filter(|point| point.1.is_finite());
    let most = |value: fn(&(f64, f64)) -> f64| points().map(value).fold(0.0, f64::max);
    let least_x = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let (most_x, most_y) = (most(|point| point.0), most(|point| point.1));
    let least_y = points().map(|point| point.1).fold(f64::INFINITY, f64::min);
    if points().next().is_none() {
        return Ok(());
    }
    // The axis leaves out the range to 0 if all values are far from it.
    let low_y = if least_y > most_y / 2.0 { least_y - (most_y - least_y).max(most_y / 20.0) * 0.2 } else { 0.0 };
    let high_y = most_y + (most_y - low_y) * 0.05;
    // A single point needs an interval, too.
    let most_x = if most_x > least_x { most_x } else { least_x + 1.0 };
    // Two kinds of scale would need two types: the logarithm is taken here and undone in the labels. The axis then has
    // decades.
    let scale = |x: f64| if is_log { x.log10() } else { x };
    let mut builder = ChartBuilder::on(area);
    // The names stand beside the chart, where they cover no lines.
    builder.caption(caption.0, ("sans-serif", 18)).margin(14).margin_right((SIZE.0 - LEGEND_AT) as i32 + 16);
    builder.x_label_area_size(42).y_label_area_size(58);
    let mut chart = builder.build_cartesian_2d(scale(least_x)..scale(most_x), low_y..high_y)?;
    let label = |x: &f64| if is_log { short(10_f64.powf(*x)) } else { short(*x) };
    let mut mesh = chart.configure_mesh();
    let up = |y: &f64| short(*y);
    mesh.light_line_style(TRANSPARENT).x_desc(caption.1).y_desc(caption.2);
    mesh.x_label_formatter(&label).y_label_formatter(&up).draw()?;
    for ((_, points), colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let shown = points.iter().filter(|point| point.1.is_finite()).map(|(x, y)| (scale(*x), *y));
        chart.draw_series(LineSeries::new(shown.clone(), colour.stroke_width(2)))?;
        if points.len() <= MARKED_MAX {
            chart.draw_series(shown.map(|point| Circle::new(point, 4, colour.filled())))?;
        }
    }
    draw_legend(area, lines.iter().map(|(name, _)| name))
}

/// Lines with at most this many points have each point marked.
const MARKED_MAX: usize = 12;
/// Left edge of the names of lines and shapes, in pixels.
const LEGEND_AT: u32 = 520;

fn words(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&BLACK)
}

fn draw_legend<'a, 'b>(area: &Area<'a>, names: impl Iterator<Item = &'b String>) -> Drawn<'a> {
    for ((number, name), colour) in names.enumerate().zip(COLOURS.iter().cycle()) {
        let (x, y) = (LEGEND_AT as i32, 60 + 20 * number as i32);
        area.draw(&PathElement::new([(x, y + 6), (x + 16, y + 6)], colour.stroke_width(2)))?;
        area.draw(&Text::new(name.clone(), (x + 22, y), words(12)))?;
    }
    Ok(())
}

fn short(value: f64) -> String {
    match value {
        million if million >= 1e6 => format!("{} M", (million / 1e4).round() / 100.0),
        thousand if thousand >= 1e4 => format!("{} K", (thousand / 1e3).round()),
        _ => format!("{}", (value * 100.0).round() / 100.0),
    }
}

/// Larger distances are drawn at the edge.
const RADAR_MAX: f64 = 3.0;

fn draw_radar<'a>(area: &Area<'a>, title: &str, axes: &[String], shapes: &[(String, Vec<f64>)]) -> Drawn<'a> {
    let (centre, radius) = ((f64::from(SIZE.0) * 0.36, f64::from(SIZE.1) * 0.54), f64::from(SIZE.1) * 0.34);
    let at = |axis: usize, distance: f64| {
        let angle = std::f64::consts::TAU * axis as f64 / axes.len() as f64 - std::f64::consts::FRAC_PI_2;
        let length = distance.clamp(0.0, RADAR_MAX) / RADAR_MAX * radius;
        ((centre.0 + length * angle.cos()) as i32, (centre.1 + length * angle.sin()) as i32)
    };
    let ring = |distance: f64| (0..=axes.len()).map(move |axis| at(axis % axes.len(), distance)).collect::<Vec<_>>();
    area.draw(&Text::new(title.to_owned(), (14, 14), words(18)))?;
    for distance in [1.0, 2.0, 3.0] {
        let style = if distance == 1.0 { BLACK.stroke_width(2) } else { BLACK.mix(0.2).stroke_width(1) };
        area.draw(&PathElement::new(ring(distance), style))?;
    }
    for (axis, name) in axes.iter().enumerate() {
        area.draw(&PathElement::new([at(axis, 0.0), at(axis, RADAR_MAX)], BLACK.mix(0.2)))?;
        let end = at(axis, RADAR_MAX);
        let place = match axis {
            0 => (end.0 - 40, end.1 - 20),
            1 => (end.0 - 10, end.1 + 12),
            2 => (end.0 - 40, end.1 + 8),
            _ => (end.0 - 84, end.1 + 12),
        };
        area.draw(&Text::new(name.clone(), place, words(13)))?;
    }
    let colours = (0..shapes.len()).map(|number| COLOURS[number % COLOURS.len()]).collect::<Vec<_>>();
    // The first shape, to which the others are compared, is filled and lies on top.
    for ((number, (_, distances)), colour) in shapes.iter().enumerate().zip(colours).rev() {
        let corners = (0..=axes.len()).map(|axis| at(axis % axes.len(), distances[axis % axes.len()]));
        let corners: Vec<_> = corners.collect();
        if number == 0 {
            area.draw(&Polygon::new(corners.clone(), colour.mix(0.35)))?;
        }
        area.draw(&PathElement::new(corners, colour.stroke_width(if number == 0 { 4 } else { 2 })))?;
    }
    for distance in [1.0, 2.0, 3.0] {
        let (x, y) = at(0, distance);
        area.draw(&Text::new(short(distance), (x + 5, y - 5), words(11)))?;
    }
    draw_legend(area, shapes.iter().map(|(name, _)| name))?;
    let last = 70 + 20 * shapes.len() as i32;
    area.draw(&Text::new("black ring, 1: the baseline", (LEGEND_AT as i32, last), words(12)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_have_their_lines_and_leave_out_what_never_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("one.svg");
        let lines = vec![
            ("two".to_owned(), vec![(10.0, 1.0), (100.0, f64::INFINITY)]),
            ("three".to_owned(), vec![(10.0, 2.0), (100.0, 3.0)]),
        ];
        let (title, across, up) = ("t".to_owned(), "a".to_owned(), "u".to_owned());
        Picture::Lines { title, across, up, is_log: true, lines }.draw(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("two") && text.contains("three") && !text.contains("inf") && !text.contains("NaN"));
        let axes = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        let shapes = vec![("one".to_owned(), vec![0.5, 1.0, 99.0, f64::INFINITY])];
        Picture::Radar { title: "r".into(), axes, shapes }.draw(&path).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().contains("baseline"));
        let missing = directory.path().join("no/one.svg");
        let empty = Picture::Radar { title: String::new(), axes: vec!["a".into()], shapes: Vec::new() };
        assert!(empty.draw(&missing).unwrap_err().to_string().contains("one.svg"));
    }
}
