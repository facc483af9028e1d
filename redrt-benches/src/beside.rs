//! Tables of figures that are better when lower, libraries beside each other: rows with all runs, redrt's share of the
//! best peer's figure, and the goal where there is one.

use crate::library::Library;
use crate::runner::median;
use serde_json::{Value, json};
use std::fmt::Write;

/// The goal of a row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Goal {
    /// At most this value, in the row's unit.
    Value(f64),
    /// At most this share of the best peer's figure.
    Ratio(f64),
}

/// One figure of all libraries.
#[derive(Clone, Debug)]
struct Row {
    name: String,
    unit: &'static str,
    goal: Option<Goal>,
    /// One value for each run of each library; none where it is not measured.
    runs: Vec<Vec<f64>>,
}

/// A table of figures of several libraries.
#[derive(Clone, Debug)]
pub struct Beside {
    title: String,
    /// Text with the conditions of the measurement.
    text: String,
    /// Names of the libraries, redrt's first.
    libraries: Vec<String>,
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Beside {
    /// An empty table.
    pub fn new(title: &str, text: &str, libraries: &[Library]) -> Self {
        let libraries = libraries.iter().map(|library| library.name.clone()).collect();
        Self { title: title.to_owned(), text: text.to_owned(), libraries, rows: Vec::new(), notes: Vec::new() }
    }

    /// Adds the figure of one run of the library with this number, making the row at its first figure.
    pub fn add(&mut self, name: &str, unit: &'static str, goal: Option<Goal>, library: usize, value: f64) {
        let at = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            let runs = vec![Vec::new(); self.libraries.len()];
            self.rows.push(Row { name: name.to_owned(), unit, goal, runs });
            self.rows.len() - 1
        });
        self.rows[at].runs[library].push(value);
    }

    /// Adds a line below the table: the reason why something is missing.
    pub fn record(&mut self, note: String) {
        eprintln!("redrt-bench: {note}");
        self.notes.push(note);
    }

    /// Points of each measured library, for rows whose name is a number between these words: the number and the median.
    pub fn lines(&self, before: &str, after: &str) -> Vec<(String, Vec<(f64, f64)>)> {
        let number = |row: &Row| row.name.strip_prefix(before)?.strip_suffix(after)?.parse::<f64>().ok();
        let numbered: Vec<_> = self.rows.iter().filter_map(|row| Some((number(row)?, row))).collect();
        let line = |(at, name): (usize, &String)| {
            let measured = numbered.iter().filter(|(_, row)| !row.runs[at].is_empty());
            let points: Vec<_> = measured.map(|(number, row)| (*number, median(&row.runs[at]))).collect();
            (name.clone(), points)
        };
        let lines = self.libraries.iter().enumerate().map(line);
        lines.filter(|(_, points)| !points.is_empty()).collect()
    }

    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("## {}\n\n{}\n\n", self.title, self.text);
        let has_peers = self.libraries.len() > 1;
        let has_goals = self.rows.iter().any(|row| row.goal.is_some());
        write!(text, "| | unit | {} |", self.libraries.join(" | ")).expect("a string");
        text.push_str(if has_peers { " against the best peer |" } else { "" });
        text.push_str(if has_goals { " goal |" } else { "" });
        let columns = self.libraries.len() + usize::from(has_peers) + usize::from(has_goals);
        writeln!(text, "\n|---|---|{}", "---:|".repeat(columns)).expect("a string");
        for row in &self.rows {
            let cells: Vec<_> = row.runs.iter().map(|runs| figure(median(runs))).collect();
            write!(text, "| {} | {} | {} |", row.name, row.unit, cells.join(" | ")).expect("a string");
            if has_peers {
                write!(text, " {} |", row.ratio().map_or_else(|| "-".to_owned(), figure)).expect("a string");
            }
            if has_goals {
                write!(text, " {} |", row.goal_text()).expect("a string");
            }
            text.push('\n');
        }
        self.notes.iter().for_each(|note| write!(text, "\n{note}.\n").expect("a string"));
        text + "\n"
    }

    /// All runs.
    pub fn json(&self) -> Value {
        let row = |row: &Row| json!({ "name": row.name, "unit": row.unit, "runs": row.runs });
        let rows: Vec<_> = self.rows.iter().map(row).collect();
        json!({ "title": self.title, "libraries": self.libraries, "rows": rows, "notes": self.notes })
    }
}

impl Row {
    /// Redrt's share of the best peer's figure.
    fn ratio(&self) -> Option<f64> {
        let [ours, peers @ ..] = &self.runs[..] else { return None };
        let measured = peers.iter().filter(|runs| !runs.is_empty()).map(|runs| median(runs));
        let best = measured.min_by(f64::total_cmp)?;
        (!ours.is_empty()).then(|| median(ours) / best)
    }

    fn goal_text(&self) -> String {
        let ours = self.runs.first().map_or(f64::NAN, |runs| median(runs));
        let (most, kept, unit) = match self.goal {
            None => return String::new(),
            Some(Goal::Value(most)) => (most, ours <= most, format!(" {}", self.unit)),
            Some(Goal::Ratio(most)) => (most, self.ratio().is_some_and(|ratio| ratio <= most), String::new()),
        };
        format!("≤ {}{unit}{}", figure(most), if kept { "" } else { ", missed" })
    }
}

/// Three significant digits, no exponent.
pub fn figure(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "-".to_owned(),
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_row_tells_medians_the_ratio_and_whether_the_goal_is_kept() {
        let named = |name: &str| Library { name: name.into(), ..Library::redrt(Path::new("/")) };
        let mut found = Beside::new("Title", "How.", &[named("redrt"), named("a"), named("b")]);
        for value in [1.0, 9.0, 2.0] {
            found.add("start", "ms", Some(Goal::Ratio(1.0)), 0, value);
        }
        found.add("start", "ms", Some(Goal::Ratio(1.0)), 1, 4.0);
        found.add("memory", "MiB", Some(Goal::Value(8.0)), 0, 16.25);
        found.record("b does not".to_owned());
        let text = found.markdown();
        assert!(text.ends_with("\n\nb does not.\n\n"), "{text}");
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(
            lines,
            [
                "| | unit | redrt | a | b | against the best peer | goal |",
                "|---|---|---:|---:|---:|---:|---:|",
                "| start | ms | 2.00 | 4.00 | - | 0.50 | ≤ 1.00 |",
                "| memory | MiB | 16.2 | - | - | - | ≤ 8.00 MiB, missed |",
            ]
        );
    }
}
